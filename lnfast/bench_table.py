"""The table that `lnfast bench` prints: a row for each cell as it is measured, then the sums."""

from collections.abc import Iterator, Sequence
from math import exp, log

from lnfast.bench import Cell, Measurement
from lnfast.peers import Peer

LEGEND = (
    "µs     one whole call, its output allocated: the median over the turns",
    "GB/s   x and y (forward), or x, dy and dx (backward), moved once",
    "×copy  time of lnfast over that of NumPy copying the same bytes on one thread",
    "ratio  time of the peer over that of lnfast: above 1, lnfast is faster (NumPy has one thread)",
)


class Table:
    """Columns for these peers; the rows are kept for the sums at the end."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self.peers = [peer.name for peer in peers if peer.is_layer_norm and peer.name != "lnfast"]
        self.measurements: list[Measurement] = []

    def heading(self) -> str:
        names = "".join(f"  {name:>18}" for name in self.peers)
        columns = "".join(f"  {'µs':>10}{'ratio':>8}" for _ in self.peers)
        return (
            f"{'':28}{'lnfast':>10}{'':15}{names}".rstrip() + "\n"
            f"{'shape':<11}{'dtype':<8}{'direction':<9}{'µs':>10}{'GB/s':>8}{'×copy':>7}{columns}"
        )

    def row(self, measurement: Measurement) -> str:
        """Also takes the measurement into the sums."""
        self.measurements.append(measurement)
        cell, timings = measurement.cell, measurement.timings
        seconds = timings["lnfast"].seconds or float("nan")
        copy = timings["copy"].ratio if "copy" in timings else None
        return (
            f"{cell.shape:<11}{cell.dtype:<8}{cell.direction:<9}{microseconds(seconds):>10}"
            f"{cell.bytes_moved / seconds / 1e9:8.1f}{number(1 / copy if copy else None):>7}"
            + "".join(self._columns(measurement, name) for name in self.peers)
        )

    def _columns(self, measurement: Measurement, name: str) -> str:
        timing = measurement.timings.get(name)
        if timing is None:
            return f"  {'–':>10}{'–':>8}"
        mark = "!" if timing.problem else ""
        return f"  {microseconds(timing.seconds) + mark:>10}{number(timing.ratio):>8}"

    def sums(self) -> Iterator[str]:
        """Geometric mean and smallest ratio, by direction; then the call at 1×768, and problems."""
        directions = dict.fromkeys(measurement.cell.direction for measurement in self.measurements)
        for direction in directions if self.peers else ():
            means, smallest = "", ""
            for name in self.peers:
                ratios = self._ratios(direction, name)
                mean = exp(sum(map(log, ratios)) / len(ratios)) if ratios else None
                means += f"{number(mean):>20}"
                smallest += f"{number(min(ratios, default=None)):>20}"
            yield f"{direction + ': geometric mean of the ratios':<53}{means}"
            yield f"{direction + ': smallest ratio':<53}{smallest}"
        for measurement in self.measurements:
            if measurement.cell == Cell(1, 768, "float32", "forward"):
                yield "one whole call at 1×768, float32, forward: " + ", ".join(
                    f"{name} {microseconds(measurement.timings[name].seconds)} µs"
                    for name in ["lnfast", *self.peers]
                    if name in measurement.timings
                )
        yield from self.problems()

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
