"""`out`: written wherever it lies as if the inputs had been copied first, or refused."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from lnfast import _arguments

ROWS, COLS = SHAPE = (9, 20)
SIZE = ROWS * COLS
DTYPES = [np.float32, np.float64, np.float16]


def numbers(size, dtype, seed=0):
    return np.random.default_rng(seed).normal(3, 2, size).astype(dtype)


def view(buffer, start, kind):
    """An array of SHAPE in a 1-d buffer, from this element on."""
    part = buffer[start:]
    return {
        "plain": lambda: part[:SIZE].reshape(SHAPE),
        "reversed": lambda: part[:SIZE].reshape(SHAPE)[::-1, ::-1],
        "transposed": lambda: part[:SIZE].reshape(COLS, ROWS).T,
        "stepped": lambda: part[: 2 * SIZE : 2].reshape(SHAPE),
        "padded": lambda: part[: 2 * SIZE].reshape(ROWS, 2 * COLS)[:, :COLS],
    }[kind]()


KINDS = ["plain", "reversed", "transposed", "stepped", "padded"]
# Elements between the start of an input and that of out: the same place, less than one row, a
# row, some rows, no overlap.
SHIFTS = [0, 1, 7, COLS, 3 * COLS + 1, 2 * SIZE]


def assert_written(call, out, buffer):
    """The call writes out and nothing else of the buffer, as with copies of its inputs."""
    expected = call(None)
    expected = expected[0] if isinstance(expected, tuple) else expected
    # Where out lies in the buffer, by writing there in a buffer of zeros.
    model = buffer.copy()
    start = (out.__array_interface__["data"][0] - buffer.ctypes.data) // buffer.itemsize
    model_out = as_strided(model[start:], out.shape, out.strides)
    model_out[...] = expected
    result = call(out)
    result = result[0] if isinstance(result, tuple) else result
    assert result is out
    assert buffer.tobytes() == model.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind_out", KINDS)
@pytest.mark.parametrize("kind_x", KINDS)
def test_forward_over_x(norm, kind_x, kind_out, shift, dtype):
    for x_start, out_start in [(0, shift), (shift, 0)]:
        buffer = numbers(4 * SIZE, dtype)
        x, out = view(buffer, x_start, kind_x), view(buffer, out_start, kind_out)
        parameters = norm.parameters_of(numbers(COLS, dtype, 1), numbers(COLS, dtype, 2))
        assert_written(
            lambda out: norm.normalize(x, COLS, *parameters, out=out),  # noqa: B023
            out,
            buffer,
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind_out", KINDS)
def test_forward_over_a_parameter(norm, kind_out, shift, dtype):
    for name in norm.parameters:
        buffer, x = numbers(4 * SIZE, dtype), numbers(SHAPE, dtype, 1)
        drawn = numbers((2, COLS), dtype, 2)
        parameters = dict(zip(norm.parameters, drawn, strict=False))
        parameters[name] = buffer[shift : shift + COLS]
        assert_written(
            lambda out: norm.normalize(x, COLS, **parameters, out=out),  # noqa: B023
            view(buffer, 0, kind_out),
            buffer,
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind_out", KINDS)
def test_across_over_x_dy_and_ds(norm, kind_out, shift, dtype):
    """Rows that run across the contiguous axis."""
    buffer = numbers(6 * SIZE, dtype)
    inside, out = view(buffer, shift, "plain"), view(buffer, 0, kind_out)
    weight, dy = numbers(ROWS, dtype, 1), numbers(SHAPE, dtype, 2)
    assert_written(lambda out: norm.normalize(inside, None, weight, axis=0, out=out), out, buffer)
    cache = norm.forward(numbers(SHAPE, dtype, 3), None, weight, axis=0)[1]
    of_inside = norm.forward(inside.copy(), None, weight, axis=0)[1]._replace(x=inside)
    for record, dy_, ds in [(of_inside, dy, None), (cache, inside, None), (cache, dy, inside)]:
        assert_written(
            lambda out: norm.backward(dy_, record, ds=ds, out=out),  # noqa: B023
            out,
            buffer,
        )


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind_out", KINDS)
def test_over_a_mask(norm, kind_out, shift):
    buffer = np.zeros(4 * SIZE, np.float32)
    mask = buffer[shift:].view(bool)[:SIZE].reshape(SHAPE)
    x, dy = numbers((2, *SHAPE), np.float32)
    drawn = np.random.default_rng(1).random(SHAPE) < 0.7
    record = norm.forward(x, COLS, mask=drawn)[1]._replace(mask=mask)
    out = view(buffer, 0, kind_out)
    for call in (
        lambda out: norm.normalize(x, COLS, mask=mask, out=out),
        lambda out: norm.backward(dy, record, out=out),
    ):
        mask[...] = drawn
        assert_written(call, out, buffer)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind_out", KINDS)
@pytest.mark.parametrize("name", ["dy", "x", "both"])
def test_backward_over_dy_and_x(norm, name, kind_out, shift, dtype):
    buffer = numbers(6 * SIZE, dtype)
    weight = numbers(COLS, dtype, 1)
    inside = view(buffer, shift, "plain")
    x = numbers(SHAPE, dtype, 2) if name == "dy" else inside
    cache = norm.forward(x, COLS, weight)[1]
    dy = {
        "dy": inside,
        "x": numbers(SHAPE, dtype, 3),
        "both": view(buffer, 0 if kind_out == "plain" else shift + 5, "plain"),
    }[name]
    out = view(buffer, 0, kind_out)
    others = norm.backward(dy, cache)[1:]
    dy_copy, cache_copy = dy.copy(), cache._replace(x=cache.x.copy())
    got = []

    def call(out):
        got[:] = norm.backward(dy, cache, out=out)
        return got[0]

    assert_written(call, out, buffer)
    np.testing.assert_array_equal(got[1:], others)
    alone = norm.backward(dy_copy, cache_copy)[0]
    np.testing.assert_array_equal(out, alone)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind_out", KINDS)
def test_backward_over_the_cache(norm, kind_out, shift):
    for name in ("weight", *norm.statistics):
        buffer = abs(numbers(4 * SIZE, np.float64)) + 1
        x, dy = numbers(SHAPE, np.float64, 1), numbers(SHAPE, np.float64, 2)
        cache = norm.forward(x, COLS, numbers(COLS, np.float64, 3))[1]
        size, shape = (COLS, (COLS,)) if name == "weight" else (ROWS, (ROWS, 1))
        cache = cache._replace(**{name: buffer[shift : shift + size].reshape(shape)})
        assert_written(
            lambda out: norm.backward(dy, cache, out=out),  # noqa: B023
            view(buffer, 0, kind_out),
            buffer,
        )


@pytest.mark.parametrize("kind_out", KINDS)
@pytest.mark.parametrize("kind_x", KINDS)
def test_forward_with_cache_refuses_x(norm, kind_x, kind_out):
    for shift in SHIFTS:
        buffer = numbers(4 * SIZE, np.float32)
        before = buffer.copy()
        x, out = view(buffer, 0, kind_x), view(buffer, shift, kind_out)
        if np.shares_memory(x, out):
            with pytest.raises(ValueError, match="out shares memory with x.*cache"):
                norm.forward(x, COLS, out=out)
            np.testing.assert_array_equal(buffer, before)
        else:  # between the elements of x, or beside it
            assert_written(
                lambda out: norm.forward(x, COLS, out=out),  # noqa: B023
                out,
                buffer,
            )
            np.testing.assert_array_equal(x, view(before, 0, kind_x))


def test_subclass_is_returned_as_it_is(norm, tmp_path):
    x = numbers(SHAPE, np.float32)
    mapped = np.memmap(tmp_path / "out", np.float32, "w+", shape=SHAPE)
    for out in (mapped, np.zeros(SHAPE, np.float32).view(np.matrix)):
        assert norm.normalize(x, COLS, out=out) is out
        np.testing.assert_array_equal(np.asarray(out), norm.normalize(x, COLS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("offset", [0, 3])
def test_swapped_and_misaligned(norm, offset, order, dtype):
    x = numbers(SHAPE, dtype)
    buffer = np.zeros(x.nbytes + offset, np.uint8)
    out = buffer[offset:].view(np.dtype(dtype).newbyteorder(order)).reshape(SHAPE)
    assert norm.normalize(x, COLS, out=out) is out
    np.testing.assert_array_equal(out, norm.normalize(x, COLS))
    assert not buffer[:offset].any()
    y = _arguments.forward(x, COLS, None, None, 1e-5, out, None, False, keep_x=False).y
    assert y.flags.carray and y.dtype.isnative  # what the kernels may be given
    assert (y is out) == (out.flags.carray and out.dtype.isnative)


def test_self_overlap_is_exact(norm):
    """Strides that interleave without meeting are fine; one shared element is not."""
    x = numbers((3, 4), np.float64)
    buffer = np.zeros(64)
    good = as_strided(buffer, (3, 4), (8 * 4, 8 * 3))  # 4 i + 3 j: no two the same
    bad = as_strided(buffer, (4, 5), (8 * 4, 8 * 3))  # 4 · 3 = 3 · 4
    assert norm.normalize(x, 4, out=good) is good
    np.testing.assert_array_equal(good, norm.normalize(x, 4))
    buffer[:] = 0
    with pytest.raises(ValueError, match="out must not hold one element in two places"):
        norm.normalize(numbers((4, 5), np.float64), 5, out=bad)
    assert not buffer.any()


BAD = {
    "list": (lambda: [[0.0] * COLS] * ROWS, TypeError, "NumPy array, not list"),
    "masked": (lambda: np.ma.zeros(SHAPE, np.float32), TypeError, "masked"),
    "shape": (lambda: np.zeros(SIZE, np.float32), ValueError, r"\(9, 20\), not \(180,\)"),
    "broadcast shape": (lambda: np.zeros((2, *SHAPE), np.float32), ValueError, "shape of x"),
    "float64": (lambda: np.zeros(SHAPE), ValueError, "float32, not float64"),
    "int": (lambda: np.zeros(SHAPE, np.int32), ValueError, "float32, not int32"),
    "read-only": (lambda: np.frombuffer(bytes(4 * SIZE), "f4").reshape(SHAPE), ValueError, "read"),
    "same row": (
        lambda: as_strided(np.zeros(COLS, np.float32), SHAPE, (0, 4)),
        ValueError,
        "in two places",
    ),
    "windows": (
        lambda: as_strided(np.zeros(COLS + ROWS, np.float32), SHAPE, (4, 4)),
        ValueError,
        "in two places",
    ),
    "half elements": (
        lambda: as_strided(np.zeros(SIZE, np.float32), SHAPE, (80, 2)),
        ValueError,
        "in two places",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("function", ["normalize", "forward", "backward"])
def test_refused(norm, function, name):
    make, error, message = BAD[name]
    x, out = numbers(SHAPE, np.float32), make()
    arguments = (x, COLS)
    if function == "backward":
        arguments = (x, norm.forward(x, COLS)[1])
    with pytest.raises(error, match=f"out must.*{message}"):
        getattr(norm, function)(*arguments, out=out)
    assert not np.any(out)
