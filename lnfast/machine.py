"""What a measurement depends on besides the code: processor, threads, compiler, versions, load."""

import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lnfast
from lnfast.bench.peers import Peer

# Load average from which the start of a run warns. A quiet machine stands below 0.2; one program
# that keeps a core busy, this benchmark a minute ago included, brings it to 1.
BUSY_LOAD = 0.7


@dataclass(frozen=True)
class Machine:
    """The machine and the software a run had."""

    cpu: str
    isa: str
    compiler: str
    num_threads: int
    load: float | None  # of the last minute, None where the system does not tell
    versions: dict[str, str]


def look_around(peers: Sequence[Peer], num_threads: int) -> Machine:
    config = lnfast.config()
    versions = {"lnfast": config["version"], "Python": platform.python_version()}
    versions |= {"NumPy": np.__version__}
    versions |= {peer.name: peer.version() for peer in peers if not peer.is_copy}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Machine(cpu_model(), config["isa"], config["compiler"], num_threads, load, versions)


def cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def describe(machine: Machine) -> Iterator[str]:
    """The lines that stand above a table."""
    threads = f"{machine.num_threads} thread{'s' * (machine.num_threads > 1)}"
    yield f"{machine.cpu}, {threads}, {machine.isa}, {machine.compiler}"
    yield ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    if machine.load is not None and machine.load >= BUSY_LOAD:
        yield (
            f"The machine has been busy (load average {machine.load:.1f}): what else runs now "
            "spoils the numbers"
        )
