"""What a run measured, kept: the machine and every number, written as JSON and read again."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from lnfast.bench import Measurement, Timing
from lnfast.bench.cells import Cell
from lnfast.machine import Machine


@dataclass(frozen=True)
class Report:
    """One run of the benchmark, which measures one of the norms."""

    machine: Machine
    cells: Sequence[Measurement]

    @property
    def norm(self) -> str:
        return self.cells[0].cell.norm


def write(report: Report, file: TextIO) -> None:
    json.dump(asdict(report), file, indent=1)


def read(file: TextIO) -> Report:
    """A report that `write` has written; ValueError for anything else."""
    try:
        found = json.load(file)
        cells = [measurement(cell) for cell in found["cells"]]
        report = Report(Machine(**found["machine"]), cells)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"no report of `lnfast bench`: {error}") from error
    if not cells:
        raise ValueError("a report without any cell")
    return report


def measurement(found: dict[str, Any]) -> Measurement:
    timings = {name: Timing(**timing) for name, timing in found["timings"].items()}
    return Measurement(Cell(**found["cell"]), found["turns"], timings, found["copy"])
