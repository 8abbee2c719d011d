"""How the time grows with the number of elements, and what the threads do for it.

    python benchmarks/growth.py [--dtype float32] [--cols 768] [--seconds 0.3]
                                [--plot growth.png] [--json growth.json]

lnfast on all threads, lnfast on one, and PyTorch, in turns, from a hundred elements to a hundred
million. A small call stays on one thread; there the column of one thread is empty, but for the
first size: the two calls do the same in it, and differ by what num_threads=1 costs by itself,
which the speed-ups leave out. `lnfast bench --from growth.json` reads the file.
"""

import argparse
from contextlib import ExitStack
from math import log
from statistics import linear_regression

import numpy as np

from lnfast.bench import available_threads, measure, present
from lnfast.bench import report as bench_report
from lnfast.bench.cells import DIRECTIONS, GRID, Cell
from lnfast.bench.command import open_file, parse_seconds
from lnfast.bench.peers import PEERS
from lnfast.bench.report import Report
from lnfast.bench.table import Table, microseconds, number
from lnfast.machine import describe, look_around

SIZES = [round(10 ** (step / 2)) for step in range(4, 17)]  # elements: 100 to 10⁸
# Elements from which a call takes a second thread: twice those of one in src/threads.pxd.
SECOND_THREAD = 65_536
NEAR_BYTES, FAR_BYTES = 2**22, 2**25  # of x: in the caches at most, beyond them at least
# Where a second thread should be worth almost two: in the caches, with enough rows to share out
# and so much to do that waking it is nothing.
MANY_ROWS, MANY_ELEMENTS = 64, 2**18

OURS, PYTORCH = PEERS["lnfast"], PEERS["pytorch"]
# Colour, style, label; colours that the colour-blind tell apart (Okabe and Ito, 2008).
LINES = {
    "PyTorch": ("#d55e00", "o-", "PyTorch"),
    "lnfast, one thread": ("#0072b2", "s--", "lnfast, one thread"),
    "lnfast": ("#000000", "D-", "lnfast, all threads"),
}


class OneThread(type(OURS)):
    """lnfast, asked to stay on one thread."""

    name = "lnfast, one thread"

    def options(self, x):
        return {"num_threads": 1}


ONE_THREAD = OneThread()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=list(GRID), default="float32")
    parser.add_argument("--cols", type=int, default=768, help="elements of a row, at most")
    parser.add_argument(
        "--seconds", type=parse_seconds, default=0.3, help="for each size and direction"
    )
    parser.add_argument("--largest", type=float, default=SIZES[-1], help="elements, at most")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the times there (with matplotlib)")
    parser.add_argument("--json", metavar="FILE", help="write the measurements there")
    arguments = parser.parse_args()
    if arguments.cols < 1 or arguments.largest < SIZES[0]:
        parser.error(f"at least 1 column and {SIZES[0]} elements")
    with ExitStack() as files:
        json_file = open_file(parser, "--json", arguments.json, "w", files)
        plot_file = open_file(parser, "--plot", arguments.plot, "wb", files)
        report = run(arguments)
        if json_file:
            bench_report.write(report, json_file)
        if plot_file:
            draw(report, plot_file)
    table = Table([])
    table.measurements.extend(report.cells)
    if problems := table.problems():
        parser.exit(1, "\n".join(["", *problems, ""]))


def run(arguments):
    """Measure size by size; each is printed as soon as it is known."""
    threads, peers = available_threads(), present([PYTORCH])
    report = Report(look_around(peers, threads), [])
    print(*describe(report.machine), sep="\n")
    for direction in DIRECTIONS:
        print(f"\n{direction}, {arguments.dtype}\n{HEADING}")
        sizes = []
        for cell in cells(direction, arguments):
            asked = [ONE_THREAD] if not sizes or takes_threads(cell, threads) else []
            sizes.append(measure(cell, [*asked, *peers], threads, arguments.seconds))
            print(row(sizes[-1], sizes[0]), flush=True)
        print(*conclusions(sizes), sep="\n")
        report.cells.extend(sizes)
    return report


def cells(direction, arguments):
    for elements in SIZES:
        if elements <= arguments.largest:
            cols = min(arguments.cols, elements)
            yield Cell(round(elements / cols), cols, arguments.dtype, direction)


def elements_of(cell):
    return cell.rows * cell.cols


def bytes_of(cell):
    return elements_of(cell) * np.dtype(cell.dtype).itemsize


def takes_threads(cell, threads):
    return threads > 1 and elements_of(cell) >= SECOND_THREAD


HEADING = (
    f"{'rows':>10}{'cols':>6}{'elements':>13}{'µs':>11}{'ns/element':>12}{'1 thread µs':>13}"
    f"{'speed-up':>10}{'PyTorch µs':>12}{'ratio':>8}"
)


def row(measurement, first):
    cell, seconds = measurement.cell, measurement.timings[OURS.name].seconds
    one, pytorch = (measurement.timings.get(peer.name) for peer in (ONE_THREAD, PYTORCH))
    elements = elements_of(cell)
    return (
        f"{cell.rows:>10,}{cell.cols:>6}{elements:>13,}{microseconds(seconds):>11}"
        f"{1e9 * seconds / elements:>12.3f}{microseconds(one.seconds) if one else '–':>13}"
        f"{number(speed_up(measurement, first)):>10}"
        f"{microseconds(pytorch.seconds) if pytorch else '–':>12}"
        f"{number(pytorch.ratio if pytorch else None):>8}"
    )


def speed_up(measurement, first):
    """Of all threads over one; None where a call stays on one thread anyway."""
    timing = measurement.timings.get(ONE_THREAD.name)
    if timing is None or measurement is first:
        return None
    asking = first.timings[ONE_THREAD.name].seconds - first.timings[OURS.name].seconds
    return timing.ratio - asking / measurement.timings[OURS.name].seconds


def conclusions(sizes):
    """How straight the line is, and the least that the threads gain where they should gain most."""
    large = [m for m in sizes if elements_of(m.cell) >= SECOND_THREAD]
    near = [m for m in large if bytes_of(m.cell) <= NEAR_BYTES]
    far = [m for m in large if bytes_of(m.cell) >= FAR_BYTES]
    for where, some in (("in all", large), ("in the caches", near), ("beyond them", far)):
        if len(some) > 1:
            yield f"slope from {SECOND_THREAD:,} elements on, {where}: {slope_of(some):.2f}"
    gains = [
        speed_up(m, sizes[0])
        for m in near
        if m.cell.rows >= MANY_ROWS and elements_of(m.cell) >= MANY_ELEMENTS
    ]
    if gains and None not in gains:
        yield f"smallest speed-up in the caches, with many rows: {min(gains):.2f}"


def slope_of(sizes):
    """Of log time over log elements: 1 where twice the elements take twice the time."""
    elements = [log(elements_of(m.cell)) for m in sizes]
    return linear_regression(elements, [log(m.timings[OURS.name].seconds) for m in sizes]).slope


def draw(report, file):
    """A panel for each direction: time over elements, both in powers of ten."""
    from matplotlib.figure import Figure

    figure = Figure((8.4, 5), dpi=120, layout="constrained")
    figure.suptitle(
        f"Layer normalisation: how the time of a call grows, {report.cells[0].cell.dtype}\n"
        f"{next(describe(report.machine))}",
        size=11,
    )
    panels = figure.subplots(1, len(DIRECTIONS), sharex=True, sharey=True)
    for axes, direction in zip(panels, DIRECTIONS, strict=True):
        draw_panel(axes, [m for m in report.cells if m.cell.direction == direction])
        axes.set_title(direction, weight="bold", size=11)
        axes.set_xlabel("elements (rows × columns)")
    panels[0].set_ylabel("time of one call")
    named = panels[0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=len(named[0]), frameon=False)
    figure.savefig(file, format="png")


def draw_panel(axes, sizes):
    """A line for each of PyTorch, lnfast on one thread and lnfast, and what slope 1 looks like."""
    from matplotlib.ticker import EngFormatter

    axes.set(xscale="log", yscale="log")
    axes.yaxis.set_major_formatter(EngFormatter("s"))
    axes.minorticks_off()
    axes.tick_params(length=0)
    axes.grid(color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    for name, (colour, style, label) in LINES.items():
        first = 1 if name == ONE_THREAD.name else 0
        times = [(m.cell, m.timings[name].seconds) for m in sizes[first:] if name in m.timings]
        points = [(elements_of(cell), seconds) for cell, seconds in times if seconds]
        if points:
            axes.plot(*zip(*points, strict=True), style, color=colour, label=label, markersize=4)
    large = [m for m in sizes if elements_of(m.cell) >= SECOND_THREAD]
    if large:
        ends = elements_of(large[0].cell), elements_of(large[-1].cell)
        start = large[0].timings[OURS.name].seconds / 2
        guide = {
            "color": "#888888",
            "linewidth": 1,
            "label": "in proportion (slope 1)",
        }
        axes.plot(ends, [start * end / ends[0] for end in ends], ":", **guide)


if __name__ == "__main__":
    main()
