"""Memory beyond the outputs: forward at most 1 MiB, backward at most 16, or 32 bytes a column.

It is given back, and where there is none a call says so and changes nothing.

Measured is what a call asks the system for while it runs, memory that is never touched included.
The stacks of the threads are there beforehand, as are the arrays and `out`. Each call has a process
of its own: `python -P tests/test_memory_use.py backward 40000 64 float32` prints its bytes.
"""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lnfast

THREADS = 2
CALLS = 1000  # after which a leak shows
SMALL = 64, 1024  # of a first call, which wakes the threads; its sums take 32 KiB at most
# Whatever is not small is a mapping of its own in glibc, and goes back to the system at once; the
# rest comes from a heap that grows by whole pages. Other C libraries know no such settings.
ALLOCATORS = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "0",
    "PYTHONMALLOC": "malloc",
}
MIB = 2**20
# dweight, dbias, the sums, and the constants of long rows are rounded up to whole pages, each with
# a few bytes of malloc's own.
ROUNDING = 4 * 2 * mmap.PAGESIZE

FORWARD = ((8192, 1024), (64, 65536))
# Many short rows; many blocks; few; long rows, whose columns are one band, or more and need sums.
SHAPES = ((40_000, 64), (8192, 1024), (64, 65536), (9, 2**18), (17, 2**18), (33, 600_000))
BACKWARD = (
    *((*shape, dtype) for dtype in ("float32", "float64") for shape in SHAPES),
    # As many blocks as the limit allows, where the rows would make twice as many.
    *((129, 2**18 - 1, "float32"), (129, 2**17 - 1, "float64")),
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux's /proc")


@pytest.mark.parametrize("name", ["forward", "in-place", "with-cache"])
@pytest.mark.parametrize(("rows", "cols"), FORWARD)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forward(name, rows, cols, dtype):
    assert bytes_taken(name, rows, cols, dtype) <= MIB + ROUNDING


@pytest.mark.parametrize(("rows", "cols", "dtype"), BACKWARD)
def test_backward(rows, cols, dtype):
    assert bytes_taken("backward", rows, cols, dtype) <= max(16 * MIB, 32 * cols) + ROUNDING


def test_a_copy_would_show():
    """x in another byte order is copied, and the measurement says so."""
    assert bytes_taken("swapped", 8192, 1024, "float32") >= 8192 * 1024 * 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "cols"), [(70, 16), (1, 16384)])  # by blocks, by columns
def test_nothing_is_kept(rows, cols, dtype):
    """Less than the least that malloc gives for each call, of many."""
    assert bytes_taken("kept", rows, cols, dtype) < CALLS * 32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "cols"), [(70, 100_000), (40, 2**18)])  # by blocks, by columns
def test_no_room_for_the_sums(rows, cols, dtype):
    """MemoryError, and nothing has been changed; with room again, all is as before."""
    assert bytes_taken("no-room", rows, cols, dtype) == 0


def bytes_taken(*arguments):
    """Of one call, in a new process."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, *map(str, arguments)],
        env={**os.environ, **ALLOCATORS},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


def prepare(name, rows, cols, dtype, threads=THREADS):
    """A call that returns those of its results that it makes itself: all after the first."""
    x = np.empty((rows, cols), dtype)
    x[...] = np.random.default_rng(0).standard_normal(cols)
    x[rows // 2] *= x.dtype.type(1e30)  # one row goes the exact way
    weight, bias = np.ones((2, cols), dtype)
    out = x if name == "in-place" else np.ones_like(x)
    options = {"out": out, "num_threads": threads}
    if name == "backward":
        _, cache = lnfast.layer_norm_forward(x, cols, weight, bias, **options)
        return lambda: lnfast.layer_norm_backward(x, cache, **options)[1:]
    if name == "with-cache":
        return lambda: lnfast.layer_norm_forward(x, cols, weight, bias, **options)[1][2:-2]
    if name == "swapped":
        x = x.astype(x.dtype.newbyteorder())
    return lambda: (lnfast.layer_norm(x, cols, weight, bias, **options),)[1:]


def measure(call):
    """The bytes of memory that a call takes at most, beyond what it returns."""
    size, peak = memory()
    filler = mmap.mmap(-1, peak - size) if peak > size else None  # a new peak is the call's own
    made = call()
    taken = memory()[1] - peak - sum(array.nbytes for array in made)
    del filler
    return taken


def measure_kept(call):
    """The bytes by which the process grows over many calls, after some."""
    for _ in range(CALLS // 4):
        call()
    before = memory()[0]
    for _ in range(CALLS):
        call()
    return memory()[0] - before


def refuse(rows, cols, dtype):
    """Backward where there is room for dweight and dbias, but not for the sums; bytes changed."""
    import resource  # only where there is one

    rng = np.random.default_rng(0)
    x, dy = np.empty((2, rows, cols), dtype)
    x[...], dy[...] = rng.standard_normal((2, cols))
    out = np.full_like(x, 7)
    _, cache = lnfast.layer_norm_forward(x, cols)
    expected = lnfast.layer_norm_backward(dy, cache, out=out.copy(), num_threads=THREADS)
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    room = 2 * cols * x.itemsize + ROUNDING
    resource.setrlimit(resource.RLIMIT_AS, (memory()[0] + room, unlimited[1]))
    with pytest.raises(MemoryError, match="sums"):
        lnfast.layer_norm_backward(dy, cache, out=out, num_threads=THREADS)
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    changed = np.count_nonzero(out != 7)
    found = lnfast.layer_norm_backward(dy, cache, out=out, num_threads=THREADS)
    changed += sum(a.tobytes() != b.tobytes() for a, b in zip(found, expected, strict=True))
    return changed


def memory():
    """Bytes of address space that this process has, and the most that it has had."""
    status = Path("/proc/self/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return tuple(int(lines[name].split()[0]) * 1024 for name in ("VmSize", "VmPeak"))


if __name__ == "__main__":
    name, rows, cols, dtype = sys.argv[1:]
    if name == "no-room":
        print(refuse(int(rows), int(cols), dtype))
    elif name == "kept":
        print(measure_kept(prepare("backward", int(rows), int(cols), dtype, threads=1)))
    else:
        measure(prepare(name, *SMALL, dtype))
        print(measure(prepare(name, int(rows), int(cols), dtype)))
