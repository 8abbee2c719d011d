"""Any memory layout gives the bits of a contiguous copy, and no input is ever written."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from lnfast import _arguments

ROWS, COLS = SHAPE = (11, 37)
DTYPES = [np.float32, np.float64]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(3, 2, shape)


def read_only(array):
    array.flags.writeable = False
    return array


def bytes_at_offset(values, offset):
    buffer = np.empty(values.nbytes + offset, np.uint8)
    buffer[offset:] = np.frombuffer(values.tobytes(), np.uint8)
    return buffer[offset:].view(values.dtype).reshape(values.shape)


def record_field(values):
    records = np.zeros(values.shape, [("before", "i1"), ("value", values.dtype), ("after", "i2")])
    records["value"] = values
    return records["value"]


def saved(values, tmp_path):
    np.save(tmp_path / "saved.npy", values)
    return np.load(tmp_path / "saved.npy", mmap_mode="r")


# Each makes an array of SHAPE and this dtype.
LAYOUTS = {
    "contiguous": lambda t: numbers(*SHAPE).astype(t),
    "reversed rows": lambda t: numbers(*SHAPE).astype(t)[::-1],
    "reversed": lambda t: numbers(*SHAPE).astype(t)[::-1, ::-1],
    "stepped": lambda t: numbers(2 * ROWS, 3 * COLS).astype(t)[1::2, ::3],
    "padded rows": lambda t: numbers(ROWS, COLS + 5).astype(t)[:, 3:-2],
    "transposed": lambda t: numbers(COLS, ROWS).astype(t).T,
    "Fortran": lambda t: np.asfortranarray(numbers(*SHAPE).astype(t)),
    "one row for all": lambda t: np.broadcast_to(numbers(COLS).astype(t), SHAPE),
    "one element a row": lambda t: np.broadcast_to(numbers(ROWS, 1).astype(t), SHAPE),
    "windows": lambda t: as_strided(numbers(99).astype(t), SHAPE, 2 * (np.dtype(t).itemsize,)),
    "misaligned": lambda t: bytes_at_offset(numbers(*SHAPE).astype(t), 1),
    "odd element": lambda t: bytes_at_offset(numbers(*SHAPE).astype(t), 8),
    "swapped": lambda t: numbers(*SHAPE).astype(np.dtype(t).newbyteorder()),
    "swapped, misaligned": lambda t: bytes_at_offset(
        numbers(*SHAPE).astype(np.dtype(t).newbyteorder()), 3
    ),
    "record field": lambda t: record_field(numbers(*SHAPE).astype(t)),
    "read-only": lambda t: read_only(numbers(*SHAPE).astype(t)),
    "bytes": lambda t: np.frombuffer(numbers(*SHAPE).astype(t).tobytes(), t).reshape(SHAPE),
    "matrix": lambda t: numbers(*SHAPE).astype(t).view(np.matrix),
}


def results(norm, x, dy, normalized_shape):
    y, cache = norm.forward(x, normalized_shape)
    alone = norm.normalize(x, normalized_shape)
    return [y, alone, *norm.backward(dy, cache), *cache[3:-2]]


def plain(array):
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def assert_same_bits(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert type(a) is np.ndarray
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.dtype.isnative and a.flags.carray
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout_dy", LAYOUTS)
@pytest.mark.parametrize("layout_x", LAYOUTS)
def test_every_pair(norm, layout_x, layout_dy, dtype):
    x, dy = LAYOUTS[layout_x](dtype), LAYOUTS[layout_dy](dtype)
    x_copy, dy_copy = plain(x), plain(dy)
    expected = results(norm, x_copy, dy_copy, COLS)
    assert expected[0].dtype == dtype
    assert_same_bits(results(norm, x, dy, COLS), expected)
    np.testing.assert_array_equal(x, x_copy)
    np.testing.assert_array_equal(dy, dy_copy)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_weight_and_bias(norm, layout, dtype):
    x, dy = numbers(5, *SHAPE).astype(dtype), numbers(5, *SHAPE, seed=1).astype(dtype)
    weight, bias = LAYOUTS[layout](dtype), LAYOUTS[layout](dtype)[::-1]

    def run(weight, bias):
        y, cache = norm.forward(x, SHAPE, *norm.parameters_of(weight, bias))
        return [y, cache.weight, *norm.backward(dy, cache)]

    assert_same_bits(run(weight, bias), run(plain(weight), plain(bias)))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "matrix"])  # always 2-d
def test_statistics_in_a_cache(norm, layout):
    x, dy = numbers(*SHAPE, 4), numbers(*SHAPE, 4, seed=1)
    rstd = LAYOUTS[layout](np.float64)[..., np.newaxis]
    fields = {"x": x, "normalized_shape": 4, "weight": None, "mean": rstd[::-1], "rstd": rstd}
    got = norm.backward(dy, norm.record_of(**fields))
    fields |= {name: plain(fields[name]) for name in norm.statistics}
    assert_same_bits(got, norm.backward(dy, norm.record_of(**fields)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_are_given_plain_arrays(layout, dtype):
    a = LAYOUTS[layout](dtype)
    args = _arguments.forward(a, SHAPE, a, a, 1e-5, None, None, False, keep_x=True)
    for array in (args.x, args.weight, args.bias, args.y):
        assert type(array) is np.ndarray
        assert (array.shape, array.dtype, array.dtype.isnative) == (SHAPE, dtype, True)
        assert array.flags.c_contiguous and array.flags.aligned
    assert not np.may_share_memory(args.weight, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cache_holds_plain_arrays(norm, layout, dtype):
    """What is not aligned would do on most processors, and is copied on all."""
    a = LAYOUTS[layout](dtype)
    cache = norm.forward(a, SHAPE, a)[1]
    for array in (cache.x, cache.weight):
        assert array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_mapped(norm, dtype, tmp_path):
    values = numbers(*SHAPE).astype(dtype)
    x = saved(values, tmp_path)
    assert_same_bits(results(norm, x, x, COLS), results(norm, values, values, COLS))


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 2, 3)])
def test_permuted_axes(norm, axes):
    x = numbers(3, 4, 5, 6).astype(np.float32).transpose(axes)
    dy = numbers(*x.shape[::-1], seed=1).astype(np.float32).T
    expected = results(norm, plain(x), plain(dy), x.shape[2:])
    assert_same_bits(results(norm, x, dy, x.shape[2:]), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 9), (9, 1), (1, 1), (1,), (9,), (0, 9), (9, 0), (0,), (0, 0), (2, 0, 3)]
)
def test_odd_strides_on_short_axes(norm, shape, dtype):
    """What an axis of length 0 or 1 has for a stride means nothing."""
    values = numbers(*shape).astype(dtype)
    odd = [
        stride if length > 1 else step
        for length, stride, step in zip(shape, values.strides, (12344, -3, 7), strict=False)
    ]
    x = as_strided(values, shape, odd)
    expected = results(norm, values, values, shape[-1])
    assert_same_bits(results(norm, x, x, shape[-1]), expected)
    y, alone, dx, *others = expected
    gradients, statistics = others[: len(norm.parameters)], others[len(norm.parameters) :]
    assert y.shape == alone.shape == dx.shape == shape
    assert [a.shape for a in statistics] == [(*shape[:-1], 1) for _ in norm.statistics]
    assert [a.shape for a in gradients] == [shape[-1:] for _ in norm.parameters]
    if 0 in shape:
        assert not np.any(gradients) and np.isnan(statistics).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_contiguous_x_is_kept_by_reference(norm, dtype):
    x = numbers(*SHAPE).astype(dtype)
    cache = norm.forward(x, COLS)[1]
    assert cache.x.ctypes.data == x.ctypes.data
    x[:] = 0
    assert not cache.x.any()


@pytest.mark.parametrize("layout", ["contiguous", "reversed", "misaligned"])
def test_weight_is_kept_as_a_copy(norm, layout):
    x, weight = numbers(*SHAPE), LAYOUTS[layout](np.float64)[0]
    before = weight.copy()
    cache = norm.forward(x, COLS, weight)[1]
    expected = norm.backward(x, cache)
    weight[:] = 0
    np.testing.assert_array_equal(cache.weight, before)
    assert_same_bits(norm.backward(x, cache), expected)
