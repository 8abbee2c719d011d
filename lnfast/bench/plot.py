"""One picture of a run: how long each peer takes in each cell, in multiples of lnfast's time."""

from collections.abc import Sequence
from typing import Any, BinaryIO

from lnfast.bench import Measurement
from lnfast.bench.cells import NORMS
from lnfast.bench.report import Report
from lnfast.machine import describe

# Colours that the colour-blind tell apart (Okabe and Ito, 2008), and shapes for those in doubt.
MARKS = {
    "PyTorch": ("#d55e00", "o"),
    "torch.compile": ("#000000", "*"),
    "ONNX Runtime": ("#0072b2", "s"),
    "OpenVINO": ("#56b4e9", "D"),
    "JAX": ("#009e73", "^"),
    "Numba": ("#cc79a7", "v"),
    "NumPy": ("#e69f00", "P"),
    "C": ("#555555", "X"),
    "copy": ("#999999", "|"),
}
EDGE: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.6, "zorder": 2}
TICK: dict[str, Any] = {"linewidths": 1.8, "zorder": 2}
ABOVE: dict[str, Any] = {
    "xycoords": ("data", "axes fraction"),
    "textcoords": "offset points",
    "size": "small",
}
TITLE = "how long others take, in multiples of lnfast's time"
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PANEL, LINES, REST = 6.0, 0.3, 2.3  # inches: a panel's width, a cell's height, the rest of both
LEAST_LINES = 7  # as high as the legend


def draw(report: Report, file: BinaryIO) -> None:
    """A panel for each direction, a line for each cell, a mark for each peer, as PNG."""
    from matplotlib.figure import Figure

    panels: dict[str, list[Measurement]] = {}
    for measurement in report.cells:
        panels.setdefault(measurement.cell.direction, []).append(measurement)
    lines = max(LEAST_LINES, *map(len, panels.values()))
    size = (REST + PANEL * len(panels), REST + LINES * lines)
    figure = Figure(size, dpi=120, layout="constrained")
    title = f"{NORMS[report.norm]}: {TITLE}\n{next(describe(report.machine))}"
    figure.suptitle(title, size=12)
    figure.supxlabel(
        "time over that of lnfast; copy: the same bytes moved, nothing computed", size=10
    )
    grid = figure.subplots(1, len(panels), squeeze=False, sharex=True)[0]
    for axes, (direction, measurements) in zip(grid, panels.items(), strict=True):
        draw_panel(axes, measurements)
        axes.set_title(direction, weight="bold", size=12, pad=22)
    low, high = grid[0].get_xlim()
    for axes in grid:
        scale(axes, min(low, 0.5), max(high, 2))
    named = {
        label: mark
        for axes in grid
        for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        *(named.values(), named.keys()), loc="outside right center", frameon=False, fontsize=11
    )
    figure.savefig(file, format="png")


def draw_panel(axes: Any, measurements: Sequence[Measurement]) -> None:
    """The cells from top to bottom; left of a line at 1 is what takes less time than lnfast."""
    axes.set_xscale("log")
    axes.set_yticks(
        range(len(measurements)), [f"{m.cell.shape}  {m.cell.dtype}" for m in measurements]
    )
    axes.set_ylim(len(measurements) - 0.4, -0.6)
    axes.grid(color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.axvline(1, color="black", linewidth=2, zorder=1, label="lnfast")
    axes.annotate("slower than lnfast →", (1, 1), **ABOVE, xytext=(5, 6), ha="left")
    axes.annotate("← faster", (1, 1), **ABOVE, xytext=(-5, 6), ha="right")
    for name, (colour, shape) in MARKS.items():
        ratios = [ratio_of(measurement, name) for measurement in measurements]
        points = [(ratio, line) for line, ratio in enumerate(ratios) if ratio]
        if points:
            style = TICK if shape == "|" else EDGE
            axes.scatter(*zip(*points, strict=True), 70, colour, shape, label=name, **style)


def scale(axes: Any, low: float, high: float) -> None:
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(low, high)
    axes.axvspan(low, 1, color="#f4f4f4", zorder=0)


def ratio_of(measurement: Measurement, name: str) -> float | None:
    """The time of a peer (or of the best copy) over that of lnfast."""
    timing = measurement.timings.get((measurement.copy or "") if name == "copy" else name)
    return timing.ratio if timing else None
