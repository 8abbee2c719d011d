"""The same bits on any thread count, batch, place in it, layout, alignment and instruction set.

What is pinned for the version, and compared between builds, is in lnfast/check/bits.py.
"""

import ctypes
import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

import lnfast
from lnfast.check.bits import differences, golden, lines

DTYPES = [np.float32, np.float64]
PRINT = """
import lnfast
from lnfast.check import bits
print(lnfast.config()["isa"], *bits.lines(2), sep="\\n")
"""


def draw(rows, cols, dtype, seed=0):
    """x (with a constant, a far-off, a huge and a tiny row among the others), weight, bias, dy."""
    rng = np.random.default_rng((rows, cols, seed))
    x = rng.standard_normal((rows, cols))
    kinds = [
        1,
        1,
        1,
        1e30 if dtype == np.float32 else 1e300,
        1e-40 if dtype == np.float32 else 1e-310,
    ]
    x *= np.resize(kinds, rows)[:, None]
    x[rows // 3] += 1e5
    x[rows // 2] = x[rows // 2, 0]
    parameters = rng.standard_normal((3, cols))
    return (
        x.astype(dtype),
        *parameters[:2].astype(dtype),
        rng.standard_normal((rows, cols)).astype(dtype),
    )


def layer_norm(x, weight, bias, dy, **threads):
    """What there is of each row, and of each column."""
    y, cache = lnfast.layer_norm_forward(x, weight.shape, weight, bias, **threads)
    dx, *by_column = lnfast.layer_norm_backward(dy, cache, **threads)
    return [y, cache.mean, cache.rstd, dx], by_column


def rms_norm(x, weight, _, dy, **threads):
    y, record = lnfast.rms_norm_forward(x, weight.shape, weight, **threads)
    dx, *by_column = lnfast.rms_norm_backward(dy, record, **threads)
    return [y, record.rstd, dx], by_column


@pytest.fixture(params=[layer_norm, rms_norm])
def run(request):
    return request.param


def bits(arrays):
    """A digest, in which every NaN is one NaN; of lists of arrays too."""
    digest = hashlib.sha256()
    for a in arrays:
        whole = bits(a).encode() if isinstance(a, list) else np.where(np.isnan(a), np.nan, a)
        digest.update(whole)
    return digest.hexdigest()


def test_golden():
    """The bits of this version: another digest is another release, with a line in the CHANGELOG."""
    assert list(differences(list(lines()), golden())) == []


def test_instruction_sets():
    for isa in lnfast.config()["isa_available"]:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PRINT],
            env={**os.environ, "LNFAST_ISA": isa},
            capture_output=True,
            text=True,
            check=True,
        )
        chosen, *found = done.stdout.splitlines()
        assert chosen == isa
        assert list(differences(found, golden())) == []


def cancel(dy):
    """Of every size, the second half of the rows against the first: the order of a sum shows."""
    rng = np.random.default_rng(0)
    half, most = len(dy) // 2, 30 if dy.itemsize == 4 else 150
    sizes = 10.0 ** rng.uniform(-most, most, (half, dy.shape[1]))
    against = dy.copy()
    against[:half] *= sizes.astype(dy.dtype)
    against[half : 2 * half] = -rng.permuted(against[:half], axis=0)
    return against


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "cols"),
    # the last one's blocks are so large together that they are folded by many threads
    [(1, 9), (5, 70_000), (33, 768), (257, 96), (1000, 33), (2100, 16), (9000, 16), (70, 9001)],
)
def test_threads(run, dtype, rows, cols):
    x, weight, bias, dy = draw(rows, cols, dtype)
    for gradient in (dy, cancel(dy)):
        one = bits(run(x, weight, bias, gradient, num_threads=1))
        for n in (2, 3, 5, 16, None):
            assert bits(run(x, weight, bias, gradient, num_threads=n)) == one, n


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "cols"), [(9, 2**18 + 5), (1, 2**18), (31, 20_000)])
def test_threads_of_long_rows(run, dtype, rows, cols):
    """Backward by columns: more threads take more rows at a time, a whole call's at last."""
    args = draw(rows, cols, dtype)
    one = bits(run(*args, num_threads=1))
    for n in (2, 3, 5, 16):
        assert bits(run(*args, num_threads=n)) == one, n


def exchange_mode(libm, mode):
    """Set MXCSR's modes, if any are given, and return those that were in force."""
    environment = (ctypes.c_uint32 * 8)()  # glibc's fenv_t, whose last word it is
    libm.fegetenv(environment)
    before = environment[7] & ~0x3F  # without the flags of what has happened
    if mode is not None:
        environment[7] = mode
        libm.fesetenv(environment)
    return before


# downwards, upwards, towards zero; subnormal numbers taken for zeros and flushed to them
@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="sets MXCSR through glibc"
)
@pytest.mark.parametrize("mode", [0x3F80, 0x5F80, 0x7F80, 0x9FC0])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "cols"), [(69, 65), (5, 16_400), (17, 2**17)])
def test_mode_of_the_caller(run, dtype, rows, cols, mode):
    """It shows in no step of a call: by blocks, by columns, over bands of long rows. It is kept.

    A single sum that was rounded upwards would show: dweight and dbias are as good as unrounded.
    """
    args = draw(rows, cols, dtype)
    expected = bits(run(*args))
    libm = ctypes.CDLL("libm.so.6")
    for n in (1, 2):
        before = exchange_mode(libm, mode)
        try:
            found = run(*args, num_threads=n)
        finally:
            kept = exchange_mode(libm, before)
        assert kept == mode
        assert bits(found) == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_by_columns_or_by_blocks(run, dtype):
    """Rows of one block are differentiated by columns, the same rows among more by blocks."""
    x, weight, bias, dy = draw(40, 16_400, dtype)
    few, many = (run(x[:rows], weight, bias, dy[:rows])[0][-1] for rows in (32, 40))
    assert bits([few]) == bits([many[:32]])
    dy[32:] = 0  # and their sums are those of all
    few, many = (run(x[:rows], weight, bias, dy[:rows])[1] for rows in (32, 40))
    assert bits(few) == bits(many)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [40, 16_400])
def test_zeros_of_the_sums(run, dtype, cols):
    """Rows whose gradient is 0 change no sum, not even from −0: a sum starts from 0."""
    x, weight, bias, dy = draw(9, cols, dtype)
    dy[0, ::3], dy[1:] = -0.0, 0
    sums = [run(x[:rows], weight, bias, dy[:rows])[1] for rows in (1, 2, 4, 9)]
    assert np.any(sums[0][-1] == 0) and not np.any(np.signbit(sums[0][-1]) & (sums[0][-1] == 0))
    assert len({bits(each) for each in sums}) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [1, 7, 16, 33, 64, 100, 768, 4097])
def test_batch_and_place(run, dtype, cols):
    """A row alone, first, last and in the middle of batches: y, statistics and dx."""
    rows = 75  # the row that is far off, the 25th, is of ordinary size
    x, weight, bias, dy = draw(rows, cols, dtype)
    whole, _ = run(x, weight, bias, dy)
    for first, last in [
        (0, 1),
        (3, 4),
        (rows - 1, rows),
        (1, 10),
        (rows // 3 + 1, rows // 3 + 4),  # of the same group, without the one that is far off
        (30, 35),
        (rows // 2, rows),
        (0, 69),
    ]:
        part, _ = run(x[first:last], weight, bias, dy[first:last])
        for a, b in zip(whole, part, strict=True):
            assert a[first:last].tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "cols"), [(5, 7), (9, 64), (8, 512), (6, 1001), (5, 16_400)])
def test_alignment(dtype, rows, cols):
    """Every place of every array within a cache line, out included."""
    args = draw(rows, cols, dtype)
    expected, expected_rms = bits(layer_norm(*args)), bits(rms_norm(*args))
    size = np.dtype(dtype).itemsize

    def shifted(a, by):
        room = np.zeros(a.size + 64 // size, dtype)
        view = room[by : by + a.size].reshape(a.shape)
        view[...] = a
        return view

    for by in range(64 // size):
        x, weight, bias, dy = (shifted(a, (by + k) % (64 // size)) for k, a in enumerate(args))
        y, cache = lnfast.layer_norm_forward(x, cols, weight, bias, out=shifted(x, by))
        dx, *gradients = lnfast.layer_norm_backward(dy, cache, out=shifted(x, by))
        assert bits([[y, cache.mean, cache.rstd, dx], gradients]) == expected
        y, record = lnfast.rms_norm_forward(x, cols, weight, out=shifted(x, by))
        dx, *gradients = lnfast.rms_norm_backward(dy, record, out=shifted(x, by))
        assert bits([[y, record.rstd, dx], gradients]) == expected_rms


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [16, 64, 1001, 1008, 4096, 4112])
def test_streamed_output(dtype, cols):
    """A large fresh output goes past the caches, one in place of its input does not: the same bits.

    Wherever the output begins within a cache line, and where rows end within one.
    """
    size = np.dtype(dtype).itemsize
    rows = (
        16 * 2**20 // (cols * size) + 3
    )  # the threshold of kernels.pxd, forward; past it, backward
    x, weight, bias, dy = draw(rows, cols, dtype)
    in_place = x.copy()
    expected = lnfast.layer_norm(in_place, cols, weight, bias, out=in_place)
    _, cache = lnfast.layer_norm_forward(x, cols, weight, bias)
    in_place_dy = dy.copy()
    gradients = lnfast.layer_norm_backward(in_place_dy, cache, out=in_place_dy)
    in_place = x.copy()
    rms = lnfast.rms_norm(in_place, cols, weight, out=in_place)
    _, record = lnfast.rms_norm_forward(x, cols, weight)
    in_place_dy = dy.copy()
    rms_gradients = lnfast.rms_norm_backward(in_place_dy, record, out=in_place_dy)
    room = np.empty(x.size + 64 // size, dtype)
    for by in range(0, 64 // size, 3):
        out = room[by : by + x.size].reshape(x.shape)
        out.fill(np.nan)
        assert lnfast.layer_norm(x, cols, weight, bias, out=out).tobytes() == expected.tobytes()
        out.fill(np.nan)
        streamed = lnfast.layer_norm_backward(dy, cache, out=out)
        assert bits(streamed) == bits(gradients)
        out.fill(np.nan)
        assert lnfast.rms_norm(x, cols, weight, out=out).tobytes() == rms.tobytes()
        out.fill(np.nan)
        assert bits(lnfast.rms_norm_backward(dy, record, out=out)) == bits(rms_gradients)


@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_is_the_same_function(dtype):
    x, weight, bias, _ = draw(33, 100, dtype)
    for w, b in [(weight, bias), (weight, None), (None, bias), (None, None)]:
        y, _ = lnfast.layer_norm_forward(x, 100, w, b)
        assert lnfast.layer_norm(x, 100, w, b).tobytes() == y.tobytes()
        y, _ = lnfast.rms_norm_forward(x, 100, w)
        assert lnfast.rms_norm(x, 100, w).tobytes() == y.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", ["ordinary", "tiny"])
@pytest.mark.parametrize(("rows", "cols"), [(69, 65), (64, 1024), (9, 16_389), (17, 2**18)])
def test_masked_outputs(dtype, rows, cols, size):
    """Each output alone is what it is with the others, though a tiny dy sends dx the exact way."""
    x, weight, bias, dy = draw(rows, cols, dtype)
    if size == "tiny":
        dy *= dtype(1e-37 if dtype == np.float32 else 1e-160)
    for forward, backward in (
        (lnfast.layer_norm_forward, lnfast.layer_norm_backward),
        (lnfast.rms_norm_forward, lnfast.rms_norm_backward),
    ):
        _, cache = forward(x, cols, weight)
        whole = backward(dy, cache)
        for mask in np.ndindex((2,) * len(whole)):
            wanted = tuple(map(bool, mask))
            part = backward(dy, cache, output_mask=wanted)
            for given, full, want in zip(part, whole, wanted, strict=True):
                assert (given is not None) == want
                if want:
                    assert bits([given]) == bits([full])
