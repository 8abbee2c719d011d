"""Breaks lnfast on purpose, one small mistake after the other, and sees the suite notice each.

    python -P tests/mutants.py [--list] [--quick] [--only NAME ...] [--jobs N] [--shard I/N]

tests/mutants.toml holds the mistakes. For each the tracked sources are copied into a temporary
folder, changed, built as `pip install` builds them (with -Og for -O3, strict arithmetic being the
same at both, and each object only once: compile_once.py) and tested: first by the tests that should
notice, then by the whole suite but for the slow tests of programs. A mutant that no test notices is
a survivor, and the exit code is 1. So it is for a change whose place is no longer there, a mutant
that does not build, and one whose tests do not end: none of these is a kill. Before all that, the
sources as they are must pass the same tests, built the same way.

Takes some twenty minutes with --jobs 2 on two cores, five with --quick. Needs git, gcc (or what
MUTANTS_CC names) and what builds and tests lnfast, but no installed lnfast. A survivor is a test
that is missing, or a change that nothing can show; such ones do not stand in the table.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "mutants.toml"
COMPILER = ROOT / "tests" / "compile_once.py"
# Programs and peers: what they test of the kernels is tested elsewhere, at a tenth of the time.
SLOW = ("cli", "peers", "benchmarks", "sentence_embeddings", "client", "example", "integration")
WHAT_IS_THERE = "import lnfast; print(lnfast.__file__, *lnfast.config()['isa_available'])"
SECONDS = 900  # for one run of pytest: the whole suite takes a fifth of that
SECONDS_TO_END = 10  # once it has said what failed: a child that hangs keeps it
KILLED, SURVIVED, BROKEN, SKIPPED = "killed", "SURVIVED", "ERROR", "skipped"


@dataclass(frozen=True)
class Edit:
    file: str
    old: str
    new: str
    times: int = 1  # that `old` stands in the file: all of them are changed

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        text = path.read_text()
        if text.count(self.old) != self.times or self.old == self.new:
            raise LookupError(
                f"{self.file} has {text.count(self.old)} times, not {self.times}: {self.old!r}"
            )
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Mutant:
    name: str
    breaks: str  # the promise, in one line
    edits: Sequence[Edit]
    tests: Sequence[str]  # files or test functions in tests/ that should notice
    quick: bool = False
    optimize: str = "-Og"  # for a change that shows in optimised code alone
    needs: str = ""  # an instruction set: elsewhere the change is in nobody's code


@dataclass
class Outcome:
    mutant: Mutant
    verdict: str
    by: str = ""
    seconds: float = 0.0


def read_table() -> list[Mutant]:
    entries = tomllib.loads(TABLE.read_text())["mutant"]
    mutants = []
    for entry in entries:
        keys = [key for key in ("file", "old", "new", "times") if key in entry]
        first = [{key: entry.pop(key) for key in keys}] if keys else []
        edits = [Edit(**edit) for edit in first + entry.pop("also", [])]
        mutants.append(Mutant(edits=edits, **entry))
    names = [mutant.name for mutant in mutants]
    assert len(set(names)) == len(names), "two mutants of one name"
    return mutants


# A comment, a place that is gone, and what does not compile: what must become of each.
SELF_CHECK = [
    (SURVIVED, Edit("src/rows/mode.h", "for the time of a kernel", "as long as a kernel runs")),
    (BROKEN, Edit("src/rows/mode.h", "what never stood there", "")),
    (BROKEN, Edit("src/rows/mode.h", "_mm_setcsr(0x1f80);", "_mm_setcsr(0x1f80)")),
    (KILLED, Edit("lnfast/_checks.py", "if count < 1:", "if count < 0:")),
]


class Workshop:
    """Builds and tests changed copies of the sources in one folder."""

    def __init__(self, folder: Path, suite: Sequence[str] = ()) -> None:
        self.folder = folder
        self.suite = suite or sorted(
            path.name
            for path in (ROOT / "tests").glob("test_*.py")
            if not path.stem.removeprefix("test_").startswith(SLOW)
        )
        self.objects = folder / "objects"
        self.objects.mkdir(exist_ok=True)
        self.compiler = folder / "cc"
        self.compiler.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P {shlex.quote(str(COMPILER))} "$@"\n'
        )
        self.compiler.chmod(0o755)
        self.isas: list[str] = []
        self.proven: set[str] = set()
        self.proving = threading.Lock()

    def environment(self, **more: str) -> dict[str, str]:
        drop = ("LNFAST_", "OMP_", "PYTHON", "PYTEST_", "CFLAGS")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        return kept | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_WAIT_POLICY": "passive"} | more

    def copy(self, name: str) -> Path:
        tree = self.folder / name
        shutil.rmtree(tree, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for file in filter(None, listed.stdout.split("\0")):
            if (ROOT / file).exists():
                (tree / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, tree / file)
        return tree

    def build(self, tree: Path, optimize: str) -> None:
        """Into the folder `site` of the tree; RuntimeError with what the compiler said."""
        done = subprocess.run(
            [sys.executable, "setup.py", "-q"]
            + ["egg_info", "--egg-base", tree / "build", "build", "--build-lib", tree / "site"],
            cwd=tree,
            env=self.environment(
                CC=str(self.compiler), MUTANTS_OBJECTS=str(self.objects), MUTANTS_OPTIMIZE=optimize
            ),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError("does not build: " + done.stderr[-2000:])
        for info in (tree / "build").glob("*.egg-info"):
            shutil.move(info, tree / "site")
        found = subprocess.run(
            [sys.executable, "-P", "-c", WHAT_IS_THERE],
            env=self.environment(PYTHONPATH=str(tree / "site")),
            capture_output=True,
            text=True,
        )
        if not found.stdout.startswith(str(tree / "site")):
            raise RuntimeError("cannot be imported: " + found.stderr[-2000:])
        self.isas = found.stdout.split()[1:]

    def test(self, tree: Path, tests: Sequence[str]) -> str:
        """The test that failed, "" where all passed; RuntimeError for anything else."""
        log = tree / "pytest.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [Path(sysconfig.get_path("scripts"), "pytest"), "-x", "-v", "-rfE", "--color=no"]
                + ["-p", "no:cacheprovider", "--tb=short", *(f"tests/{test}" for test in tests)],
                cwd=tree,
                env=self.environment(PYTHONPATH=str(tree / "site")),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ended = wait(process, log)
        said = log.read_text()
        failed = re.findall(r"^(?:FAILED|ERROR) tests/(\S+::.+?)(?: - .*)?$", said, re.MULTILINE)
        if not ended and failed:
            return f"{failed[-1]} (and pytest waits for what the test left behind)"
        if not ended:
            raise RuntimeError(f"hangs in {last_test(said)}: no test's own timeout")
        if process.returncode == 0:
            return ""
        if process.returncode == 1 and failed:
            return failed[-1]
        if process.returncode < 0:
            return f"{last_test(said)} ({signal.Signals(-process.returncode).name})"
        raise RuntimeError(f"pytest ends with {process.returncode}: {said[-2000:]}")

    def prove(self, tests: Sequence[str]) -> None:
        """The unchanged sources pass these tests; RuntimeError where they do not."""
        with self.proving:
            tree = self.folder / "unchanged"
            if not self.proven:
                self.build(self.copy("unchanged"), "-Og")
            wanted = sorted(set(tests) - self.proven)
            if wanted:
                failed = self.test(tree, wanted)
                if failed:
                    raise RuntimeError(f"the unchanged sources fail {failed}")
            self.proven |= {*wanted, "built"}

    def judge(self, mutant: Mutant) -> Outcome:
        start = time.monotonic()
        if mutant.needs and mutant.needs not in self.isas:
            return Outcome(mutant, SKIPPED, f"no {mutant.needs} here")
        tree = self.folder / mutant.name
        by = ""
        try:
            self.copy(mutant.name)
            made = self.folder / "unchanged" / "build" / "lnfast" / "_api.c"
            (tree / "build" / "lnfast").mkdir(parents=True)
            if not any(edit.file.endswith((".pyx", ".pxd")) for edit in mutant.edits):
                shutil.copy2(made, tree / "build" / "lnfast")
            for edit in mutant.edits:
                edit.apply(tree)
            self.build(tree, mutant.optimize)
            built = time.monotonic()
            by = self.test(tree, mutant.tests)
            if not by:
                self.prove(self.suite)
                by = self.test(tree, self.suite)
                by = by and f"{by}, not by its own tests"
            verdict = KILLED if by else SURVIVED
            by += f" (built in {built - start:.0f} s)"
        except (LookupError, RuntimeError) as error:
            verdict, by = BROKEN, str(error)
        return Outcome(mutant, verdict, by, time.monotonic() - start)


def wait(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether it ends by itself: soon after it has said all, and in time. Its children go too."""
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
        if re.search(
            r"^=+ .*\b(passed|failed|error)s?\b.* in [0-9.]+s", log.read_text(), re.MULTILINE
        ):
            end = min(end, time.monotonic() + SECONDS_TO_END)
    ended = process.poll() is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return ended


def last_test(said: str) -> str:
    found = re.findall(r"^tests/(\S+::\S+)", said, re.MULTILINE)
    return found[-1] if found else "no test"


def run(workshop: Workshop, mutants: Sequence[Mutant], jobs: int, keep: bool) -> list[Outcome]:
    workshop.prove([test for mutant in mutants for test in mutant.tests])

    def judge(mutant: Mutant) -> Outcome:
        outcome = workshop.judge(mutant)
        print(describe(outcome), file=sys.stderr, flush=True)
        if not keep:
            shutil.rmtree(workshop.folder / mutant.name, ignore_errors=True)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judge, mutants))


def describe(outcome: Outcome) -> str:
    return f"{outcome.verdict:9}{outcome.seconds:5.0f} s  {outcome.mutant.name:32}{outcome.by}"


def check_self(workshop: Workshop) -> int:
    """Whether what is no mistake, or no change, is told from what is found out."""
    mutants = [
        Mutant(f"self-check-{i}", wanted, [edit], ["test_limits.py::test_set_num_threads"])
        for i, (wanted, edit) in enumerate(SELF_CHECK)
    ]
    outcomes = run(workshop, mutants, 1, keep=False)
    wrong = [o.mutant.name for o in outcomes if o.verdict != o.mutant.breaks]
    print(f"wrong: {', '.join(wrong)}" if wrong else "each as it should be")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the table and end")
    parser.add_argument("--quick", action="store_true", help="a dozen that build and die soon")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants")
    parser.add_argument("--shard", metavar="I/N", help="every N-th, from the I-th on (1/4 … 4/4)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at once")
    parser.add_argument("--keep", metavar="FOLDER", help="work there and leave it")
    parser.add_argument("--self-check", action="store_true", help="see that survivors are seen")
    chosen = parser.parse_args()
    mutants = read_table()
    unknown = set(chosen.only or ()) - {mutant.name for mutant in mutants}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = [m for m in mutants if not chosen.only or m.name in chosen.only]
    mutants = [m for m in mutants if not chosen.quick or m.quick]
    if chosen.shard:
        i, n = map(int, chosen.shard.split("/"))
        mutants = mutants[i - 1 :: n]
    if chosen.list:
        for mutant in mutants:
            print(f"{mutant.name:32}{mutant.breaks}")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(chosen.keep or temporary).resolve()
        folder.mkdir(exist_ok=True)
        if chosen.self_check:
            return check_self(Workshop(folder, ["test_limits.py::test_set_num_threads"]))
        outcomes = run(Workshop(folder), mutants, chosen.jobs, bool(chosen.keep))
    print(*map(describe, outcomes), sep="\n")
    count = {verdict: [] for verdict in (KILLED, SKIPPED, SURVIVED, BROKEN)}
    for outcome in outcomes:
        count[outcome.verdict].append(outcome.mutant.name)
    print(", ".join(f"{len(names)} {verdict}" for verdict, names in count.items()))
    bad = count[SURVIVED] + count[BROKEN]
    print(*bad, end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
