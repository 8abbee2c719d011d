"""No memory for backward's sums: MemoryError and nothing else, with everything as it was.

Forward needs none. A call of backward gets its sums (and, by columns, the rows' constants) before
it writes anything; each of these is made to fail, by a malloc of the test's own, and by the system.
"""

from pathlib import Path

import pytest
from norms import NORMS
from runs import in_fresh_python, needs_linux, shared_library

pytestmark = needs_linux

# (rows, cols), and what backward gets: the sums of row blocks; the constants of long rows, in one
# band; constants and sums, of more bands than one.
WAYS = [((4096, 1024), 1), ((33, 40_000), 1), ((9, 20_000), 1), ((32, 90_000), 2)]

PREPARE = """
import ctypes, numpy as np, lnfast
rows, cols = {shape}
x = np.empty((rows, cols), np.{dtype})
x[...] = np.random.default_rng(0).standard_normal(cols)
normalize, backward = lnfast.{norm}, lnfast.{norm}_backward
layer = lnfast.{layer}(cols, dtype=x.dtype)
_, cache = layer.forward(x)
out = np.full_like(x, 7)

def untouched():
    return (out == 7).all() and not any(gradient.any() for _, _, gradient in layer.parameters())

ways = dict(
    plain=lambda: backward(x, cache, out=out, num_threads=1),
    threads=lambda: backward(x, cache, out=out, num_threads=3),
    checked=lambda: backward(x, cache, out=out, num_threads=2, check_finite=True),
    sums=lambda: backward(
        x, cache, num_threads=2, output_mask=(False, *(True for _ in layer.parameters()))
    ),
    layer=lambda: layer.backward(x, cache, out=out, num_threads=2),
)

def fails(way):
    try:
        way()
    except MemoryError as error:
        assert type(error) is MemoryError and "sums" in str(error), repr(error)
        return True
"""
FAIL_EACH = """
libc = ctypes.CDLL(None)
names = "calls_to_failure", "calls", "blocks"
to_failure, calls, blocks = (ctypes.c_int.in_dll(libc, name) for name in names)
dx, dweight, *others = backward(x, cache, num_threads=1)
calls.value = blocks.value = 0
normalize(x, cols, num_threads=3)
assert calls.value == 0, "forward"
backward(x, cache, num_threads=1)
wanted, calls.value = calls.value, 0
for name, way in ways.items():
    for number in range(1, wanted + 1):
        to_failure.value = number
        assert fails(way) and untouched(), (name, number)
    assert blocks.value == 0, name
again = backward(x, cache, out=out, num_threads=2)
assert calls.value == wanted * (wanted + 1) // 2 * len(ways) + wanted and blocks.value == 0
for a, b in zip(again, (dx, dweight, *others)):
    assert a.tobytes() == b.tobytes()
print(wanted)
"""
LIMIT = """
import resource
from pathlib import Path
dx, dweight, *others = backward(x, cache, num_threads=3)  # threads are there now
room = 2 * dweight.nbytes + 2**20  # for what is returned, and some more, but not for the sums
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
del ways["checked"]  # NumPy, which looks for NaN, would be the one to find no memory
for way in ways.values():
    resource.setrlimit(resource.RLIMIT_AS, (size + room, before[1]))
    failed = fails(way)
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert failed and untouched()
again = backward(x, cache, out=out, num_threads=3)
for a, b in zip(again, (dx, dweight, *others)):
    assert a.tobytes() == b.tobytes()
print("right")
"""
# Whatever is not small is a mapping of its own in glibc, and none of it is kept for later.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "0"}


def prepare(norm, shape, dtype):
    layer = NORMS[norm][1].__name__
    return PREPARE.format(norm=norm, layer=layer, shape=shape, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "requests"), WAYS)
@pytest.mark.parametrize("norm", NORMS)
def test_each_request(norm, shape, requests, dtype, tmp_path):
    library = shared_library(Path(__file__).with_name("failing_malloc.c"), tmp_path, "-ldl")
    code = prepare(norm, shape, dtype) + FAIL_EACH
    assert int(in_fresh_python(code, LD_PRELOAD=str(library))) == requests


@pytest.mark.parametrize("shape", [(4096, 1024), (32, 90_000)])  # by blocks, by columns
@pytest.mark.parametrize("norm", NORMS)
def test_a_limit_of_the_system(norm, shape):
    code = prepare(norm, shape, "float64") + LIMIT
    assert in_fresh_python(code, **ALLOCATOR) == "right"


PIECES = """
import ctypes, numpy as np, lnfast
libc = ctypes.CDLL(None)
names = "calls_to_failure", "calls", "blocks"
to_failure, calls, blocks = (ctypes.c_int.in_dll(libc, name) for name in names)
x = np.random.default_rng(0).standard_normal((4096, 1024))
_, cache = lnfast.layer_norm_forward(x, 1024)
for call in (
    lambda n: lnfast.backward_sums(x, x, cache.mean, cache.rstd, num_threads=n),
    lambda n: lnfast.layer_norm_double_backward(x, None, None, x, cache, num_threads=n),
):
    expected = call(1)
    for n in (1, 3):
        calls.value, to_failure.value = 0, 1
        try:
            call(n)
        except MemoryError as error:
            assert "sums of the rows" in str(error) and blocks.value == 0
        else:
            raise AssertionError("no failure")
        for a, b in zip(call(n), expected):
            assert a.tobytes() == b.tobytes()
        assert calls.value == 2 and blocks.value == 0
print("right")
"""


def test_pieces(tmp_path):
    """Of those that sum over rows; the others need none."""
    library = shared_library(Path(__file__).with_name("failing_malloc.c"), tmp_path, "-ldl")
    assert in_fresh_python(PIECES, LD_PRELOAD=str(library)) == "right"


VIEWS = """
import ctypes, numpy as np, lnfast
names = "calls_to_failure", "calls", "blocks"
libc = ctypes.CDLL(None)
to_failure, calls, blocks = (ctypes.c_int.in_dll(libc, name) for name in names)
x = np.random.default_rng(0).standard_normal((60, 40, 30)).astype(np.float32)
mask, out, sum_out = x > 0, np.full_like(x, 7), np.full_like(x, 7)
_, cache = lnfast.layer_norm_forward(x, axis=1, mask=mask)
for name, call in dict(
    axis=lambda n: lnfast.layer_norm(x, axis=1, out=out, num_threads=n),
    mask=lambda n: lnfast.layer_norm(x, 30, mask=mask, out=out, num_threads=n),
    sum=lambda n: lnfast.add_layer_norm(
        x, x[:1, :, :1], 30, out=out, sum_out=sum_out, num_threads=n
    ),
    plain=lambda n: lnfast.add_layer_norm(x, x, 30, out=out, sum_out=sum_out, num_threads=n),
    backward=lambda n: lnfast.layer_norm_backward(x, cache, ds=x, out=out, num_threads=n),
    adaptive=lambda n: lnfast.layer_norm_backward(
        x, lnfast.layer_norm_forward(x, 30, x[:, :1])[1], out=out, num_threads=n
    ),
    half=lambda n: lnfast.layer_norm(x.astype(np.float16), 30, num_threads=n),
).items():
    for n in (1, 3):
        calls.value = to_failure.value = 0
        call(n)
        wanted = calls.value
        out[...] = sum_out[...] = 7
        for number in range(1, wanted + 1):
            to_failure.value = number
            try:
                call(n)
            except MemoryError as error:
                assert "to gather" in str(error), repr(error)
            else:
                raise AssertionError(name)
            assert (out == 7).all() and (sum_out == 7).all() and blocks.value == 0, name
        assert wanted == {"plain": 0}.get(name, 1), (name, wanted)
print("right")
"""


def test_views(tmp_path):
    """Room to gather rows in, and their sums, in one piece; none where nothing is gathered."""
    library = shared_library(Path(__file__).with_name("failing_malloc.c"), tmp_path, "-ldl")
    assert in_fresh_python(VIEWS, LD_PRELOAD=str(library)) == "right"
