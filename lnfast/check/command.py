"""`lnfast check`: its arguments, the checks in turn, and what is said of each."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import product
from time import perf_counter
from typing import NamedTuple

import lnfast
from lnfast.check import bits, bounds, examples
from lnfast.check.oracle import NoOracle
from lnfast.machine import describe, look_around
from lnfast.progress import Progress

SHOWN_FAULTS = 10  # of one check; the others are counted


class Verdict(NamedTuple):
    """What a check has found."""

    tried: str
    faults: list[str]
    judged: bool = True


Starts = Callable[[int, int, object], None]
Check = Callable[[Starts], Verdict]


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--full", action="store_true", help="every length of rows: some minutes")
    command.add_argument(
        "--bits",
        action="store_true",
        help="check nothing: print the digests of this version's golden cases, as computed here",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, print, 1 where a promise was broken."""
    if arguments.bits:
        print(*bits.lines(), sep="\n")
        return 0
    machine = replace(look_around([], lnfast.get_num_threads()), load=None)  # nothing is timed
    print(*describe(machine), "", sep="\n", flush=True)
    lengths = bounds.LENGTHS if arguments.full else bounds.SHORT_LENGTHS
    start = perf_counter()
    checks: dict[str, Check] = {"worked examples": check_examples}
    for norm, dtype in product(bounds.BOUNDS_OF, bits.DTYPES):
        checks[f"{norm}, {dtype}"] = partial(check_bounds, norm, dtype, lengths)
    checks["bits"] = check_bits
    broken = [report(name, check) for name, check in checks.items()].count(True)
    print(f"\n{broken or 'no'} promise{'s' * (broken > 1)} broken; {perf_counter() - start:.0f} s")
    return 1 if broken else 0


def report(name: str, check: Check) -> bool:
    """Run a check and print what it finds; True where a promise was broken."""
    with closing(Progress("case")) as progress:
        verdict = check(progress.starts)
    word = "BROKEN" if verdict.faults else "kept" if verdict.judged else "not judged"
    print(f"{name:21}{word:12}{verdict.tried}")
    for fault in verdict.faults[:SHOWN_FAULTS]:
        print(f"    {fault}")
    if (more := len(verdict.faults) - SHOWN_FAULTS) > 0:
        print(f"    and {more} more")
    sys.stdout.flush()
    return bool(verdict.faults)


def check_examples(starts: Starts) -> Verdict:
    faults = [fault for example in examples.EXAMPLES for fault in examples.differences(example)]
    return Verdict(f"{len(examples.EXAMPLES)} rows", faults)


def check_bounds(norm: str, dtype: str, lengths: tuple[int, ...], starts: Starts) -> Verdict:
    worst, faults, allowed = bounds.Worst(norm), [], bounds.BOUNDS_OF[norm]
    cases = list(bounds.cases(dtype, lengths, norm))
    for number, case in enumerate(cases, 1):
        starts(number, len(cases), case)
        x, weight, bias, dy = bounds.operands(case)
        if not len(x):
            continue
        try:
            shares = bounds.shares(x, weight, bias, dy, case.eps, norm)
        except NoOracle as reason:
            return Verdict(str(reason), [], judged=False)
        worst.add(case, shares)
        faults += [
            f"{name} is off by {share * allowed[name]:.3g} machine epsilons of the "
            f"{allowed[name]} allowed: {case}"
            for name, share in shares.items()
            if not share <= 1
        ]
    return Verdict(f"{len(cases)} cases; the worst in machine epsilons: {worst}", faults)


def check_bits(starts: Starts) -> Verdict:
    """Against the golden ones, at each instruction set, on each number of threads."""
    isas, golden = lnfast.config()["isa_available"], bits.golden()
    faults: list[str] = []
    for number, isa in enumerate(isas, 1):
        starts(number, len(isas), isa)
        try:
            found = bits_at(isa)
        except subprocess.CalledProcessError as error:
            faults.append(f"{isa}: {error}: {error.stderr.strip()}")
            continue
        for n, threads in enumerate(bits.THREADS):
            mine = found[n * len(golden) : (n + 1) * len(golden)]
            where = f"{isa}, {threads} thread{'s' * (threads > 1)}"
            faults += [f"{where}: {text}" for text in bits.differences(mine, golden)]
    threads_tried = ", ".join(map(str, bits.THREADS))
    return Verdict(f"{len(golden)} cases at {', '.join(isas)}, on {threads_tried} threads", faults)


def bits_at(isa: str) -> list[str]:
    """What `lnfast.check.bits` prints at this instruction set, which is chosen at import."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lnfast.check.bits"],
        env={**os.environ, "LNFAST_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
