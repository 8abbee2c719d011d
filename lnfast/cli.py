"""The command `lnfast`: demo, info, bench. Arguments and exit codes; the work is done elsewhere.

Exit codes: 0 done, 1 failed (a wrong result too), 2 wrong arguments, 130 interrupted, 141 the
reader of a pipe has left.
"""

import argparse
import io
import json
import math
import os
import platform
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict

import numpy as np

import lnfast
from lnfast import bench, bench_table, demo
from lnfast.machine import cpu_model, describe, look_around
from lnfast.peers import PEERS, Peer

ALWAYS_MEASURED = ("lnfast", "copy")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (by default the process's), return the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × or µ gets a question mark
    try:
        try:
            arguments = make_parser().parse_args(argv)
            return int(arguments.run(arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except MemoryError as error:
        return fail(f"not enough memory: {error}" if str(error) else "not enough memory")
    except OSError as error:
        # Python flushes once more when it ends: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141 if isinstance(error, BrokenPipeError) else fail(str(error))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "lnfast",
        description="Layer normalisation for NumPy arrays on CPUs.",
        epilog="`lnfast COMMAND --help` tells more of a command.",
    )
    parser.add_argument("--version", action="version", version=f"lnfast {lnfast.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    command = commands.add_parser("demo", help="what layer norm computes, how exactly, how fast")
    command.set_defaults(run=run_demo)

    command = commands.add_parser("info", help="this build and this machine, for a bug report")
    command.add_argument("--json", action="store_true", help="lnfast.config() as JSON")
    command.set_defaults(run=run_info)

    command = commands.add_parser(
        "bench",
        help="time lnfast beside its peers",
        description="Time lnfast beside its peers, on the same arrays and threads, in turns. "
        "Without --shape: a grid of shapes from one short row to arrays beyond any cache.",
    )
    add_bench_arguments(command)
    command.set_defaults(run=run_bench, parser=command)
    return parser


def add_bench_arguments(command: argparse.ArgumentParser) -> None:
    direction = command.add_mutually_exclusive_group()
    for name in bench.DIRECTIONS:
        direction.add_argument(
            f"--{name}",
            dest="directions",
            action="store_const",
            const=(name,),
            default=bench.DIRECTIONS,
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
        choices=list(bench.GRID),
        help="default: all of the grid's, float32 with --shape",
    )
    command.add_argument(
        "--threads", metavar="N", type=parse_threads, help="for everyone (default: all there are)"
    )
    names = [name for name in PEERS if name not in ALWAYS_MEASURED]
    command.add_argument(
        "--peers",
        metavar="A,B",
        type=parse_peers,
        default=list(PEERS.values()),
        help=f"of {', '.join(names)} (default: all); the copy is always measured",
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
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PEERS)}")
    return [peer for name, peer in PEERS.items() if name in names or name in ALWAYS_MEASURED]


def run_demo(arguments: argparse.Namespace) -> int:
    demo.run()
    return 0


def run_info(arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(lnfast.config(), indent=2))
        return 0
    lnfast.show_config()
    for name, value in (
        ("cpu", cpu_model()),
        ("platform", platform.platform()),
        ("python", platform.python_version()),
        ("numpy", np.__version__),
    ):
        print(f"{name:14}{value}")
    return 0


def run_bench(arguments: argparse.Namespace) -> int:
    peers = [peer for peer in arguments.peers if peer.missing() is None]
    cells = bench.grid(arguments.directions, choose_shapes(arguments))
    seconds = arguments.seconds or (bench.QUICK_SECONDS if arguments.quick else bench.SECONDS)
    table = bench_table.Table(peers)
    with ExitStack() as files:
        file = None
        if arguments.json:
            try:
                file = files.enter_context(open(arguments.json, "w", encoding="utf-8"))
            except OSError as error:
                arguments.parser.error(f"argument --json: {error}")
        machine = look_around(peers, bench.available_threads(arguments.threads))
        print(*describe(machine), sep="\n")
        if arguments.threads and machine.num_threads < arguments.threads:
            print(f"{arguments.threads} threads asked for, {machine.num_threads} to be had here")
        for peer in arguments.peers:
            if reason := peer.missing():
                print(f"without {peer.name}: {reason}")
        print(f"\n{table.heading()}")
        for measurement in bench.run(cells, peers, machine.num_threads, seconds, show_progress):
            print(table.row(measurement), flush=True)
        for paragraph in (list(table.sums()), bench_table.LEGEND):
            if paragraph:
                print("", *paragraph, sep="\n")
        if file:
            measurements = [asdict(measurement) for measurement in table.measurements]
            json.dump({"machine": asdict(machine), "cells": measurements}, file, indent=1)
    return 1 if table.problems() else 0


def choose_shapes(arguments: argparse.Namespace) -> dict[str, Sequence[tuple[int, int]]]:
    """The shapes to measure, by dtype."""
    if arguments.shapes:
        shapes = list(dict.fromkeys(arguments.shapes))
        return {dtype: shapes for dtype in arguments.dtypes or ["float32"]}
    grid = bench.QUICK if arguments.quick else bench.GRID
    return {dtype: grid[dtype] for dtype in arguments.dtypes or grid}


def show_progress(number: int, count: int, cell: bench.Cell) -> None:
    """A counter that the next line of the table overwrites, where someone is there to see it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r\033[K{number}/{count}  {cell}\r", end="", file=sys.stderr, flush=True)


def fail(message: str) -> int:
    print(f"lnfast: {message}", file=sys.stderr)
    return 1
