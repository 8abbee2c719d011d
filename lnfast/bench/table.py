"""The table that `lnfast bench` prints: a row for each cell as it is measured, then the sums."""

from collections.abc import Iterator, Sequence
from math import exp, log

from lnfast.bench import Measurement
from lnfast.bench.cells import LAYER_NORM, Cell
from lnfast.bench.peers import PEERS

LEGEND = (
    "µs     one whole call, its output allocated: the median over the turns",
    "GB/s   x and y (forward), or x, dy and dx (backward), moved once",
    "×copy  time of lnfast over that of the fastest of several copies of the same bytes",
    "ratio  time of the peer over that of lnfast: above 1, lnfast is faster (NumPy and C have one",
    "       thread; ONNX Runtime and OpenVINO fill one output again and again, and so does lnfast",
    "       in their ratios, with out=)",
)

LIBRARIES = [peer.name for peer in PEERS.values() if peer.is_library]
IN_MICROSECONDS = "PyTorch"  # the peer whose time stands in the table, beside its ratio
WIDTH = 10  # of a column of ratios


class Table:
    """Columns for the peers of these names; the rows are kept for the sums at the end."""

    def __init__(self, names: Sequence[str], norm: str = LAYER_NORM) -> None:
        others = [peer.name for peer in PEERS.values() if peer.name != "lnfast"]
        self.peers = [name for name in others if name in names]
        self.norm = norm
        self.measurements: list[Measurement] = []

    def heading(self) -> str:
        """What the columns hold; a name of two words takes two lines."""
        top, middle = f"{self.norm:28}{'lnfast':>10}{'':15}", f"{'':53}"
        bottom = f"{'shape':<11}{'dtype':<8}{'direction':<9}{'µs':>10}{'GB/s':>8}{'×copy':>7}"
        if IN_MICROSECONDS in self.peers:
            top, middle = f"{top}{IN_MICROSECONDS:>11}", f"{middle:64}"
            bottom = f"{bottom}{'µs':>11}"
        if self.peers:
            top, middle, bottom = f"{top}    ratio", f"{middle}  ", f"{bottom}  "
        for name in self.peers:
            *first, last = name.replace(".", ". ").split()
            middle, bottom = f"{middle}{''.join(first):>{WIDTH}}", f"{bottom}{last:>{WIDTH}}"
        return "\n".join(line.rstrip() for line in (top, middle, bottom) if line.strip())

    def row(self, measurement: Measurement) -> str:
        """Also takes the measurement into the sums."""
        self.measurements.append(measurement)
        cell, timings = measurement.cell, measurement.timings
        seconds = timings["lnfast"].seconds or float("nan")
        copy = timings[measurement.copy].ratio if measurement.copy else None
        text = (
            f"{cell.shape:<11}{cell.dtype:<8}{cell.direction:<9}{microseconds(seconds):>10}"
            f"{cell.bytes_moved / seconds / 1e9:8.1f}{number(1 / copy if copy else None):>7}"
        )
        if IN_MICROSECONDS in self.peers:
            timing = timings.get(IN_MICROSECONDS)
            text += f"{microseconds(timing.seconds) if timing else '–':>11}"
        return f"{text}  {''.join(self._column(measurement, name) for name in self.peers)}".rstrip()

    @staticmethod
    def _column(measurement: Measurement, name: str) -> str:
        timing = measurement.timings.get(name)
        if timing is None:
            return f"{'–':>{WIDTH}}"
        text = "failed" if timing.ratio is None else number(timing.ratio)
        return f"{text + ('!' if timing.problem else ''):>{WIDTH}}"

    def sums(self) -> Iterator[str]:
        """Ratios by direction: mean, smallest, to the best library; the call at 1×768; problems."""
        directions = dict.fromkeys(measurement.cell.direction for measurement in self.measurements)
        start = 64 if IN_MICROSECONDS in self.peers else 53
        for direction in directions if self.peers else ():
            means, smallest = "", ""
            for name in self.peers:
                ratios = self._ratios(direction, name)
                mean = exp(sum(map(log, ratios)) / len(ratios)) if ratios else None
                means += f"{number(mean):>{WIDTH}}"
                smallest += f"{number(min(ratios, default=None)):>{WIDTH}}"
            yield f"{direction + ': geometric mean of the ratios':<{start}}  {means}"
            yield f"{direction + ': smallest ratio':<{start}}  {smallest}"
            yield from self._best_library(direction)
        for measurement in self.measurements:
            if measurement.cell == Cell(1, 768, "float32", "forward", self.norm):
                yield "one whole call at 1×768, float32, forward: " + ", ".join(
                    f"{name} {microseconds(measurement.timings[name].seconds)} µs"
                    for name in ["lnfast", *self.peers]
                    if name in measurement.timings
                )
        yield from self.problems()

    def _best_library(self, direction: str) -> Iterator[str]:
        """Where lnfast is least ahead of whichever library is the fastest there."""
        ratios = [
            (timing.ratio, name, measurement.cell)
            for measurement in self.measurements
            for name, timing in measurement.timings.items()
            if measurement.cell.direction == direction and name in LIBRARIES and timing.ratio
        ]
        if ratios:
            least, name, cell = min(ratios, key=lambda ratio: ratio[0])
            start = f"{direction}: smallest ratio to the best library"
            yield f"{start}: {number(least)} ({name}, {cell.shape} {cell.dtype})"

    def problems(self) -> list[str]:
        """Results that were not what the definition says, a line each."""
        return [
            f"WRONG: {name}, {measurement.cell}: {timing.problem}"
            for measurement in self.measurements
            for name, timing in measurement.timings.items()
            if timing.problem
        ]

    def _ratios(self, direction: str, name: str) -> list[float]:
        timings = [
            measurement.timings.get(name)
            for measurement in self.measurements
            if measurement.cell.direction == direction
        ]
        return [timing.ratio for timing in timings if timing and timing.ratio]


def microseconds(seconds: float | None) -> str:
    """In µs, to three digits or to the unit."""
    if seconds is None:
        return "failed"
    value = seconds * 1e6
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"
