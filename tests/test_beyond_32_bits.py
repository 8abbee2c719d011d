"""Strides, sizes and places beyond what 32 bits hold: the same bits as from a contiguous copy.

Strided arrays lie in a sparse file, of which only their own pages are touched. Arrays of more than
2³¹ elements are windows: a few pages of memory that stand side by side again and again, so that
every place can be read and written and next to no memory is needed; LNFAST_TEST_HUGE=1 runs those.
"""

import ctypes
import math
import mmap
import os
import sys

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import lnfast

SHAPE = (3, 37)
# Bytes from row to row: more than 32 bits hold of bytes, signed and not, and of elements.
STRIDES = (2**31 + 64, 2**32 + 64, 2**34 + 64)
SLOT = 1024  # bytes between the arrays of one file: more than a row takes
DTYPES = [np.float32, np.float64]
EPS = float(np.finfo(np.float32).eps)


@pytest.fixture
def sparse(tmp_path):
    """A mapped file of 32 GiB, none of which is there before it is written."""
    path = tmp_path / "sparse"
    try:
        with path.open("wb") as file:
            file.truncate(2 * max(STRIDES) + mmap.PAGESIZE)
        mapped = np.memmap(path, np.uint8, "r+")
    except OSError as error:  # no sparse files, or a limit on them
        pytest.skip(f"no file of 32 GiB can be mapped: {error}")
    yield mapped
    taken = path.stat().st_blocks * 512
    path.unlink()
    assert taken <= SHAPE[0] * 2**16, "more was written than the arrays"


def spread(mapped, slot, dtype, stride, kind, values=None):
    """An array in the file, `stride` bytes between its rows (or its columns), full of numbers."""
    room = mapped[slot * SLOT : (slot + 1) * SLOT].view(dtype)
    array = as_strided(room, SHAPE, (stride, room.itemsize))
    array[...] = np.random.default_rng(slot).normal(3, 2, SHAPE) if values is None else values
    return {"rows": array, "reversed": array[::-1, ::-1], "columns": array.T}[kind]


def assert_same_bits(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["rows", "reversed", "columns"])
@pytest.mark.parametrize("stride", STRIDES)
class TestStrides:
    def test_inputs(self, sparse, stride, kind, dtype):
        x, dy = (spread(sparse, slot, dtype, stride, kind) for slot in (0, 1))
        weight, bias = dy[0], x[-1]  # of the columns, as far apart as these

        def run(x, dy, weight, bias):
            y, cache = lnfast.layer_norm_forward(x, x.shape[1], weight, bias)
            return y, cache.mean, cache.rstd, *lnfast.layer_norm_backward(dy, cache)

        assert_same_bits(run(x, dy, weight, bias), run(*map(np.copy, (x, dy, weight, bias))))

    def test_parameters_and_statistics(self, sparse, stride, kind, dtype):
        weight, bias = (spread(sparse, slot, dtype, stride, kind) for slot in (0, 1))
        x = np.random.default_rng(2).normal(3, 2, (2, *weight.shape)).astype(dtype)
        y, cache = lnfast.layer_norm_forward(x, weight.shape, weight, bias)
        expected = lnfast.layer_norm_forward(x, weight.shape, weight.copy(), bias.copy())
        assert_same_bits((y, cache.weight), (expected[0], weight))
        mean, rstd = (spread(sparse, slot, np.float64, stride, kind) for slot in (2, 3))
        x = np.broadcast_to(x[0, ..., np.newaxis], (*mean.shape, 5))
        cache = lnfast.LayerNormCache(x, (5,), None, mean[..., np.newaxis], rstd[..., np.newaxis])
        copies = cache._replace(mean=cache.mean.copy(), rstd=cache.rstd.copy())
        assert_same_bits(
            lnfast.layer_norm_backward(x, cache), lnfast.layer_norm_backward(x, copies)
        )

    @pytest.mark.parametrize("place", ["apart", "over the input", "across the input"])
    def test_out(self, sparse, stride, kind, dtype, place):
        """out between the rows of x and of dy, on them, and two elements further on."""
        x, dy = (spread(sparse, slot, dtype, stride, kind) for slot in (0, 1))
        copies = x.copy(), dy.copy()
        y, cache = lnfast.layer_norm_forward(copies[0], x.shape[1])
        dx = lnfast.layer_norm_backward(copies[1], cache)[0]

        def out_for(array):
            if place == "over the input":
                return array
            if place == "apart":
                return spread(sparse, 2, dtype, stride, kind, values=7)
            return as_strided(moved(array, 2), array.shape, array.strides)

        out = out_for(dy)
        found = lnfast.layer_norm_backward(dy, cache._replace(x=x), out=out)[0]
        assert found is out
        assert_same_bits([out], [dx])
        out = out_for(x)
        if place == "apart":
            assert lnfast.layer_norm_forward(x, x.shape[1], out=out)[0] is out
        else:
            with pytest.raises(ValueError, match="out shares memory with x"):
                lnfast.layer_norm_forward(x, x.shape[1], out=out)
            assert lnfast.layer_norm(x, x.shape[1], out=out) is out
        assert_same_bits([out], [y])


def moved(array, elements):
    """Memory of the array's file, from so many elements after the array's first on."""
    address = array.__array_interface__["data"][0] + elements * array.itemsize
    return np.frombuffer((ctypes.c_char * SLOT).from_address(address), array.dtype)


# Windows: more than 2³¹ elements


# Of Linux's mmap
WRITABLE = 3
SHARED, PRIVATE, FIXED, NO_RESERVE = 1, 0x22, 0x10, 0x4000


class Windows:
    """float32 arrays of many equal chunks, and a last one that is another, mapped side by side."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            ctypes.c_long,
        )
        self.libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
        self.rooms = []

    def map(self, address, size, protection, flags, file, offset):
        found = self.libc.mmap(address, size, protection, flags, file, offset)
        if found == ctypes.c_void_p(-1).value:
            error = os.strerror(ctypes.get_errno())
            pytest.skip(f"{size} bytes of address space cannot be had: {error}")
        return found

    def array(self, chunk, last, count):
        """chunk count − 1 times, then last; and the two, which share its memory."""
        start = self.map(None, count * chunk.nbytes, 0, PRIVATE | NO_RESERVE, -1, 0)
        self.rooms.append((start, count * chunk.nbytes))
        with os.fdopen(os.memfd_create("window"), "r+b") as file:
            file.truncate(2 * chunk.nbytes)
            both = np.memmap(file, np.float32, "r+", shape=(2, *chunk.shape))
            both[...] = chunk, last
            for i in range(count):
                place, offset = start + i * chunk.nbytes, chunk.nbytes * (i == count - 1)
                self.map(place, chunk.nbytes, WRITABLE, SHARED | FIXED, file.fileno(), offset)
        whole = (ctypes.c_char * (count * chunk.nbytes)).from_address(start)
        return np.frombuffer(whole, np.float32).reshape(-1, *chunk.shape[1:]), both

    def close(self):
        for start, size in self.rooms:
            self.libc.munmap(start, size)


@pytest.fixture
def windows():
    if sys.platform != "linux":
        pytest.skip("memory mapped at places of choice")
    if os.environ.get("LNFAST_TEST_HUGE") != "1":
        pytest.skip("half a minute of page faults: LNFAST_TEST_HUGE=1 runs it")
    windows = Windows()
    yield windows
    windows.close()


def chunks(shape, seed=0):
    """Rows, other rows for the end, and how many such chunks have more than 2³¹ elements."""
    drawn = np.random.default_rng(seed).standard_normal((2, *shape), np.float32)
    return *drawn, 2**31 // math.prod(shape) + 2


# Row blocks, and long rows by columns. An odd number of rows: 2³² bytes further on is another one.
@pytest.mark.parametrize("shape", [(33, 2**16), (3, 2**20)])
def test_more_than_2_31_elements(windows, shape):
    x, last, count = chunks(shape)
    dy, last_dy, _ = chunks(shape, 1)
    all_x, both_x = windows.array(x, last, count)
    out, both_out = windows.array(x * np.nan, x * np.nan, count)
    assert all_x.size > 2**31

    y, cache = lnfast.layer_norm_forward(all_x, shape[1], out=out)
    assert y is out
    of_both = lnfast.layer_norm_forward(both_x.reshape(-1, shape[1]), shape[1])
    assert both_out.tobytes() == of_both[0].tobytes()
    for found, expected in zip(cache[3:-2], of_both[1][3:-2], strict=True):
        expected = expected.reshape(2, -1)
        assert found[: len(x)].tobytes() == expected[0].tobytes()
        assert found.tobytes() == expected[0].tobytes() * (count - 1) + expected[1].tobytes()

    all_dy, both_dy = windows.array(dy, last_dy, count)
    both_out[...] = np.nan
    dx, dweight, dbias = lnfast.layer_norm_backward(all_dy, cache, out=out)
    expected = lnfast.layer_norm_backward(both_dy.reshape(-1, shape[1]), of_both[1])[0]
    assert dx is out and both_out.tobytes() == expected.tobytes()

    # The bounds of tests/test_exactness.py, which takes y, within its own, for xhat.
    times = np.array([count - 1, 1]).reshape(2, 1, 1)
    xhat = of_both[0].reshape(both_x.shape).astype(np.float64)
    terms = abs(both_dy) * np.maximum(1, abs(xhat))

    def total(array):
        return (times * array).sum((0, 1), dtype=np.float64)

    assert (abs(dbias - total(both_dy)) <= 2 * EPS * total(abs(both_dy))).all()
    assert (abs(dweight - total(both_dy * xhat)) <= (4 + 3) * EPS * total(terms)).all()


def test_a_row_of_more_than_2_31_elements(windows):
    x, last, count = chunks((2**21 + 1024,))
    dy, last_dy, _ = chunks(x.shape, 1)
    both_x, both_dy = np.float64((x, last)), np.float64((dy, last_dy))
    all_x, all_dy = windows.array(x, last, count)[0], windows.array(dy, last_dy, count)[0]
    out, both_out = windows.array(x * np.nan, x * np.nan, count)
    assert all_x.size > 2**31

    def average(array):
        return np.average(array.mean(axis=1), weights=(count - 1, 1))

    mean = average(both_x)
    rstd = 1 / np.sqrt(average((both_x - mean) ** 2) + 1e-5)
    xhat = (both_x - mean) * rstd
    size = np.maximum(1, abs(xhat))
    y, cache = lnfast.layer_norm_forward(all_x, all_x.size, out=out)
    assert y is out
    assert (abs(both_out - xhat) <= 3 * EPS * size).all()
    both_out[...] = np.nan
    lnfast.layer_norm_backward(all_dy, cache, output_mask=(True, False, False), out=out)
    expected = rstd * (both_dy - average(both_dy) - xhat * average(both_dy * xhat))
    bound = abs(both_dy) + average(abs(both_dy)) + size * average(abs(both_dy) * size)
    assert (abs(both_out - expected) <= 4 * EPS * rstd * bound).all()
