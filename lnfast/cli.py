"""The command `lnfast`: demo, info, bench, check. Exit codes; the work is done elsewhere.

Exit codes: 0 done, 1 failed (a wrong result too), 2 wrong arguments, 130 interrupted, 141 the
reader of a pipe has left.
"""

import argparse
import io
import json
import os
import platform
import sys
from collections.abc import Sequence

import numpy as np
import numpy.random  # here: a Ctrl-C that meets its import, which NumPy puts off, can be lost

import lnfast
from lnfast import demo
from lnfast.bench import command as bench_command
from lnfast.check import command as check_command
from lnfast.machine import cpu_model


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
    bench_command.add_arguments(command)
    command.set_defaults(run=bench_command.run, parser=command)

    command = commands.add_parser(
        "check",
        help="whether this build keeps its promises on this machine",
        description="Hold lnfast's results against exact arithmetic, and their bits against this "
        "version's golden ones, at each instruction set and on several numbers of threads. "
        "The exit code is 1 where a promise is broken.",
    )
    check_command.add_arguments(command)
    command.set_defaults(run=check_command.run)
    return parser


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


def fail(message: str) -> int:
    print(f"lnfast: {message}", file=sys.stderr)
    return 1
