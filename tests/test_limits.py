"""How many threads: OpenMP's variables, threadpoolctl, affinity, quota and cap are honoured.

What `get_num_threads()` and `config()` say is what a large call takes; where Linux tells how many
threads a process has, they are counted.
"""

import os

import numpy as np
import pytest
from runs import OPENMP, in_fresh_python, needs_openmp

import lnfast
from lnfast import _cgroup

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
AVAILABLE = min(CPUS, _cgroup.cpu_quota() or CPUS) if OPENMP else 1

# Prints what is said, and how many threads a large call of each direction has: those that the
# process has more than before it, and the caller's. (NumPy's are there beforehand; OpenMP's stay.)
TELL = """
import os, sys, numpy as np
{before_import}
import lnfast
x = np.ones((4096, 256), np.float32)
{after_import}
said = lnfast.get_num_threads(), lnfast.config()["num_threads"]
def count():
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else {given} or said[0]
before = count()
y, cache = lnfast.layer_norm_forward(x, 256, num_threads={given})
forward = count()
lnfast.layer_norm_backward(y, cache, num_threads={given})
print(*said, 1 + forward - before, 1 + count() - before)
"""


def threads(before_import="", after_import="", given=None, **environment):
    """(said, taken) in a new interpreter; what is said twice, and taken twice, is the same."""
    code = TELL.format(before_import=before_import, after_import=after_import, given=given)
    unset = {"OMP_NUM_THREADS": None, "OMP_THREAD_LIMIT": None}
    said, configured, forward, backward = in_fresh_python(code, **unset | environment).split()
    assert said == configured and forward == backward
    return int(said), int(forward)


@pytest.mark.parametrize("n", [1, 2, 64])
@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "OMP_THREAD_LIMIT"])
def test_openmp_variables(variable, n):
    assert threads(**{variable: str(n)}) == (min(n, AVAILABLE),) * 2


@needs_openmp
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_given_number_is_taken_as_it_is(n):
    assert threads(given=n) == (AVAILABLE, n)
    assert threads(given=n, after_import="lnfast.set_num_threads(1)") == (1, n)


@pytest.mark.parametrize("n", [1, 2, 10_000])
def test_cap(n):
    assert threads(after_import=f"lnfast.set_num_threads({n})") == (min(n, AVAILABLE),) * 2


PIN = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
@pytest.mark.parametrize("n", [None, "8"])
def test_affinity_at_the_time_of_the_call(n):
    """Not at that of the import: pinned before it, after it, and set free again."""
    assert threads(before_import=PIN, OMP_NUM_THREADS=n) == (1, 1)
    assert threads(after_import=PIN, OMP_NUM_THREADS=n) == (1, 1)
    pinned = f"cpus = os.sched_getaffinity(0); {PIN}"
    free = "os.sched_setaffinity(0, cpus)"
    assert threads(pinned, free, OMP_NUM_THREADS="64") == (AVAILABLE, AVAILABLE)


@needs_openmp
@pytest.mark.parametrize("n", [1, 2])
def test_threadpoolctl(n):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    before = lnfast.get_num_threads()
    with threadpoolctl.threadpool_limits(n):
        assert lnfast.get_num_threads() == lnfast.config()["num_threads"] == min(n, before)
    assert lnfast.get_num_threads() == before
    limit = f"import threadpoolctl; limits = threadpoolctl.threadpool_limits({n})"
    assert threads(after_import=limit) == (min(n, AVAILABLE),) * 2


def test_set_num_threads():
    before = lnfast.get_num_threads()
    try:
        lnfast.set_num_threads(1)
        assert lnfast.get_num_threads() == 1
        lnfast.set_num_threads(np.int64(10_000))
        assert lnfast.get_num_threads() == before
        for wrong, error in [
            (0, ValueError),
            (-1, ValueError),
            (1.5, TypeError),
            ("2", TypeError),
            (True, TypeError),
        ]:
            lnfast.set_num_threads(1)
            with pytest.raises(error, match="num_threads"):
                lnfast.set_num_threads(wrong)
            assert lnfast.get_num_threads() == 1
    finally:
        lnfast.set_num_threads(None)
    assert lnfast.get_num_threads() == before


# The container's quota


def write_control_groups(folder, files, group):
    """A tree of control groups in `folder`, and what a process in `group` reads of itself."""
    for name, text in files.items():
        file = folder / os.fsdecode(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    (folder / "self").write_bytes(os.fsencode(group) + b"\n")
    return folder, folder / "self"


@pytest.mark.parametrize(
    ("files", "group", "cpus"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", 2),
        ({"cpu.max": "max 100000"}, "0::/", 0),
        ({"a/cpu.max": "max 100000", "cpu.max": "50000 100000"}, "0::/a", 1),
        ({"a/cpu.max": "300000 100000", "cpu.max": "800000 100000"}, "0::/a", 3),
        ({"a/b/cpu.max": "800000 100000", "a/cpu.max": "300000 100000"}, "0::/a/b", 3),
        ({"a/cpu.max": "100000 100000"}, "0::/b", 0),
        (
            {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"},
            "4:cpu,cpuacct:/",
            4,
        ),
        (
            {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"},
            "5:memory:/\n4:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/a",
            4,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/", 0),
        ({"cpu.max": "what is this"}, "0::/", 0),
        ({"cpu.max": ""}, "0::/", 0),
        ({"cpu.max": "100000 0"}, "0::/", 0),
        ({"cpu.max": "1000 100000"}, "0::/", 1),
        ({}, "0::/", 0),
        ({"cpu.max": "100000 100000"}, "0::/with: a colon", 1),
        ({"cpu.max": "100000 100000 100000"}, "0::/", 1),
        ({b"\xe9/cpu.max": "100000 100000"}, b"0::/\xe9", 1),
        ({"cpu.max": "100000 100000"}, "", 0),
        ({"cpu.max": "100000 100000"}, "this is no control group", 0),
    ],
)
def test_quota_is_read(tmp_path, files, group, cpus):
    assert _cgroup.cpu_quota(*write_control_groups(tmp_path, files, group)) == cpus


def test_no_control_groups(tmp_path):
    assert _cgroup.cpu_quota(tmp_path / "none", tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("quota", "n"), [("100000 100000", 1), ("150000 100000", 2), ("max 100000", AVAILABLE)]
)
def test_quota_is_honoured(tmp_path, quota, n):
    """From the files to the threads of a call: the reader looks elsewhere, all else is as it is."""
    places = write_control_groups(tmp_path, {"a/cpu.max": quota}, "0::/a")
    elsewhere = f"""
import importlib.util, pathlib
spec = importlib.util.spec_from_file_location("lnfast._cgroup", {_cgroup.__file__!r})
sys.modules["lnfast._cgroup"] = reader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)
reader.cpu_quota.__defaults__ = tuple(map(pathlib.Path, {tuple(map(str, places))}))
"""
    assert threads(elsewhere, OMP_NUM_THREADS="8") == (min(n, CPUS if OPENMP else 1),) * 2
