"""`lnfast bench`: its arguments, and what becomes of them, from the grid to table and files."""

import argparse
import math
import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from typing import Any, TextIO

from lnfast import bench
from lnfast.bench import report as bench_report
from lnfast.bench.cells import DIRECTIONS, GRID, LAYER_NORM, NORMS, QUICK, grid
from lnfast.bench.peers import COPIES, PEERS, Peer
from lnfast.bench.report import Report
from lnfast.bench.table import LEGEND, Table
from lnfast.machine import describe, look_around
from lnfast.progress import Progress

ALWAYS_MEASURED = ("lnfast", "copy")
EVERYBODY = "all"
NEEDLESS_WITH_FROM = (
    "norm",
    "directions",
    "shapes",
    "dtypes",
    "threads",
    "peers",
    "seconds",
    "quick",
    "json",
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--norm", choices=list(NORMS), help=f"default: {LAYER_NORM}")
    direction = command.add_mutually_exclusive_group()
    for name in DIRECTIONS:
        direction.add_argument(
            f"--{name}",
            dest="directions",
            action="store_const",
            const=(name,),
            help=f"only {name} (default: both directions)",
        )
    command.add_argument(
        "--shape",
        dest="shapes",
        metavar="RxD",
        nargs="+",
        action="extend",
        type=parse_shape,
        help="rows x elements of a row, as in 1024x768; in place of the grid",
    )
    command.add_argument(
        "--dtype",
        dest="dtypes",
        nargs="+",
        action="extend",
        choices=list(GRID),
        help="default: all of the grid's, float32 with --shape",
    )
    command.add_argument(
        "--threads", metavar="N", type=parse_threads, help="for everyone (default: all there are)"
    )
    others = [name for name in PEERS if name not in ALWAYS_MEASURED]
    unasked = [name for name, peer in PEERS.items() if not peer.by_default]
    command.add_argument(
        "--peers",
        metavar="A,B",
        type=parse_peers,
        help=f"of {', '.join(others)}; or {EVERYBODY} (default: all but {', '.join(unasked)},"
        " which compiles for many seconds in each cell); the copy is always measured",
    )
    command.add_argument(
        "--seconds",
        metavar="S",
        type=parse_seconds,
        help=f"for each cell, or longer where {bench.MIN_TURNS} turns need more"
        f" (default: {bench.SECONDS:g}; {bench.QUICK_SECONDS:g} with --quick)",
    )
    command.add_argument("--quick", action="store_true", help="a small grid, less exactly")
    command.add_argument("--json", metavar="FILE", help="write the measurements there too")
    command.add_argument("--plot", metavar="FILE.png", help="draw them there (with matplotlib)")
    command.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="measure nothing: table and plot of what --json has written",
    )


def parse_shape(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]+)[x×]([0-9]+)", text)
    if match is None or int(match[1]) < 1 or int(match[2]) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no shape: rows x elements of a row, both at least 1, as in 1024x768"
        )
    return int(match[1]), int(match[2])


def parse_threads(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of threads: at least 1")
    return int(text)


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds above 0")
    return seconds


def parse_peers(text: str) -> list[Peer]:
    names = [name.strip().lower() for name in text.split(",")]
    known = [*ALWAYS_MEASURED, *(name for name in PEERS if name not in ALWAYS_MEASURED), EVERYBODY]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    chosen = PEERS if EVERYBODY in names else names
    return [peer for name, peer in PEERS.items() if name in chosen or name in ALWAYS_MEASURED]


def run(arguments: argparse.Namespace) -> int:
    """Measure or read, print, write, draw; 1 where a result was wrong."""
    parser: argparse.ArgumentParser = arguments.parser
    if arguments.source and any(getattr(arguments, name) for name in NEEDLESS_WITH_FROM):
        parser.error("--from measures nothing: only --plot goes with it")
    if arguments.plot and find_spec("matplotlib") is None:
        parser.error("argument --plot: matplotlib is not installed")
    with ExitStack() as files:
        # Opened before anything is measured: a wrong path is an error at once.
        source, json_file, plot_file = (
            open_file(parser, option, path, mode, files)
            for option, path, mode in (
                ("--from", arguments.source, "r"),
                ("--json", arguments.json, "w"),
                ("--plot", arguments.plot, "wb"),
            )
        )
        report, table = read(parser, source) if source else measure(arguments)
        for paragraph in (list(table.sums()), LEGEND):
            if paragraph:
                print("", *paragraph, sep="\n")
        if json_file:
            bench_report.write(report, json_file)
        if plot_file:
            from lnfast.bench.plot import draw

            draw(report, plot_file)
    return 1 if table.problems() else 0


def open_file(
    parser: argparse.ArgumentParser, option: str, path: str | None, mode: str, files: ExitStack
) -> Any:
    if path is None:
        return None
    try:
        return files.enter_context(open(path, mode, encoding=None if "b" in mode else "utf-8"))
    except OSError as error:
        parser.error(f"argument {option}: {error}")


def read(parser: argparse.ArgumentParser, file: TextIO) -> tuple[Report, Table]:
    """What an earlier run has measured, as a table once more."""
    try:
        report = bench_report.read(file)
    except ValueError as error:
        parser.error(f"argument --from: {error}")
    names = list(dict.fromkeys(name for cell in report.cells for name in cell.timings))
    table = Table(names, report.norm)
    print(*describe(report.machine), "", table.heading(), sep="\n")
    for measurement in report.cells:
        print(table.row(measurement))
    return report, table


def measure(arguments: argparse.Namespace) -> tuple[Report, Table]:
    """Measure cell by cell; each appears in the table as soon as it is known."""
    asked = arguments.peers or [peer for peer in PEERS.values() if peer.by_default]
    threads = bench.available_threads(arguments.threads)
    peers = bench.present([*asked, *COPIES], threads)
    norm = arguments.norm or LAYER_NORM
    cells = grid(arguments.directions or DIRECTIONS, choose_shapes(arguments), norm)
    seconds = arguments.seconds or (bench.QUICK_SECONDS if arguments.quick else bench.SECONDS)
    machine = look_around(peers, threads)
    table = Table([peer.name for peer in peers], norm)
    print(*describe(machine), sep="\n")
    if arguments.threads and threads < arguments.threads:
        print(f"{arguments.threads} threads asked for, {threads} to be had here")
    for peer in asked:
        if reason := peer.missing(threads):
            print(f"without {peer.name}: {reason}")
    print(f"\n{table.heading()}", flush=True)
    with closing(Progress("cell")) as progress:
        for measurement in bench.run(cells, peers, threads, seconds, progress.starts):
            progress.make_way()
            print(table.row(measurement), flush=True)
    return Report(machine, table.measurements), table


def choose_shapes(arguments: argparse.Namespace) -> dict[str, Sequence[tuple[int, int]]]:
    """The shapes to measure, by dtype."""
    if arguments.shapes:
        shapes = list(dict.fromkeys(arguments.shapes))
        return {dtype: shapes for dtype in arguments.dtypes or ["float32"]}
    shapes_of = QUICK if arguments.quick else GRID
    return {dtype: shapes_of[dtype] for dtype in arguments.dtypes or shapes_of}
