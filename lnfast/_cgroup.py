"""The container's CPU quota, from the Linux control groups of this process."""

import os
from pathlib import Path


def cpu_quota(
    root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")
) -> int:
    """CPUs that the quota allows, rounded up; 0 where there is none or it cannot be read."""
    found = []
    try:
        lines = os.fsdecode(process.read_bytes()).split("\n")  # names of groups are any bytes
    except OSError:
        lines = []
    for line in lines:
        if line.count(":") < 2:
            continue
        _, controllers, group = line.split(":", 2)
        if not controllers:  # version 2: one tree, limits of all the group's ancestors count
            found += [_version_2(folder) for folder in _up(root, group)]
        elif "cpu" in controllers.split(","):
            found += [_version_1(folder) for folder in _up(root / "cpu", group)]
    return min((quota for quota in found if quota), default=0)


def _up(root: Path, group: str) -> list[Path]:
    """The group's folder and those above it, up to the root."""
    folder = root / group.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def _version_2(folder: Path) -> int:
    return _quota(*_numbers(folder / "cpu.max")[:2])


def _version_1(folder: Path) -> int:
    limit, period = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    return _quota(*_numbers(limit)[:1], *_numbers(period)[:1])


def _numbers(file: Path) -> list[int]:
    try:
        return [int(word) if word != "max" else -1 for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


def _quota(limit: int = -1, period: int = 0) -> int:
    return max(1, -(-limit // period)) if limit > 0 and period > 0 else 0
