"""axis=: any axes, in any layout, and nothing copied: the bits of a copy with those axes last."""

import itertools
import re
import tracemalloc

import numpy as np
import pytest
from norms import NORMS, Norm
from variants import DTYPES, LAYOUTS, assert_all_same_bits, assert_same_bits, numbers, rows_last

import lnfast
from lnfast import reference

# From src/kernels.h and src/rows: blocks of up to 64 rows and of 256 KiB, 16 columns turned at
# once in squares of 2, 4 and 8; in float32 bands of 16 rows, tiles of up to four, steps of 64
# columns of which the last may have 32 or fewer, up to 8192 columns across.
SHAPES = [
    *(((2, cols, inner), 1) for cols in (1, 3, 16, 17, 70) for inner in (1, 2, 7, 15, 16, 17, 65)),
    ((3, 768, 5, 7), 1),
    ((9, 70, 49), 1),  # tiles that begin in one sample and end in the next, several blocks
    ((2, 96, 130), 1),
    ((2, 100, 3, 50), 1),
    ((2, 33, 8, 9), (1,)),
    ((130, 40), 0),
    ((5, 70, 3), (0, 1)),
    ((4, 5, 6, 7), (1, 3)),
    ((4, 5, 6, 7), (0, 2)),
    ((4, 5, 6, 7), (3, 1)),
    ((1, 5, 1, 9), (1, 2)),
    ((3, 1, 4), 1),
    ((2, 5000, 20), 1),  # rows of which few fill a block
    ((8193, 19), 0),
    ((2, 3, 4, 5, 6), (-4, -2)),
]


def operands(shape, axis, dtype):
    x, dy = numbers(shape, dtype, offset=3), numbers(shape, dtype, seed=1)
    lengths = rows_last(x, axis)[1]
    weight, bias = numbers(lengths, dtype, seed=2), numbers(lengths, dtype, seed=3)
    return x, dy, weight, bias


def results(norm, x, dy, axis, weight, bias, **keywords):
    """y, dx, dweight, dbias and the statistics, axes and all as axis= gives them."""
    y, cache = norm.forward(x, None, *norm.parameters_of(weight, bias), axis=axis, **keywords)
    assert_same_bits(
        norm.normalize(x, None, *norm.parameters_of(weight, bias), axis=axis, **keywords), y
    )
    dx, *sums = norm.backward(dy, cache, **keywords)
    assert dx.flags.c_contiguous and y.flags.c_contiguous
    return y, dx, *sums, *(getattr(cache, name) for name in norm.statistics)


def results_of_copy(norm, x, dy, axis, weight, bias):
    """The same of a copy with the axes last, and turned back."""
    turned, lengths = rows_last(x, axis)
    axes = sorted(i % x.ndim for i in ((axis,) if isinstance(axis, int) else axis))
    order = [*(i for i in range(x.ndim) if i not in axes), *axes]
    y, cache = norm.forward(turned, lengths, *norm.parameters_of(weight, bias))
    dx, *sums = norm.backward(rows_last(dy, axis)[0], cache)
    back = np.argsort(order)
    statistics = (getattr(cache, name) for name in norm.statistics)
    y, dx, *statistics = (np.ascontiguousarray(a.transpose(back)) for a in (y, dx, *statistics))
    return y, dx, *sums, *statistics


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_bits_of_a_copy(shape, axis, dtype, name):
    norm, made = Norm(name), operands(shape, axis, dtype)
    got = results(norm, *made[:2], axis, *made[2:])
    assert_all_same_bits(got, results_of_copy(norm, *made[:2], axis, *made[2:]))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("cols", [1, 5, 16, 70, 5000])
def test_rows_that_go_another_way(name, cols):
    """Far from zero, huge, tiny, constant and not finite ones among the others, side by side."""
    norm = Norm(name)
    for dtype in DTYPES:
        x = numbers((2, cols, 37), dtype)
        x[0, :, 3] += 3000
        x[0, :, 4] += dtype(1e7)
        x[1, :, 5] *= dtype(1e30)
        x[1, :, 15] *= dtype(1e-30)
        x[1, :, 16] = 7
        x[1, :, 31] = 0
        x[0, cols // 2, 36] = np.inf
        x[1, cols // 2, 0] = np.nan
        made = x, numbers(x.shape, dtype, seed=1), *operands(x.shape, 1, dtype)[2:]
        got = results(norm, *made[:2], 1, *made[2:])
        for a, b in zip(got, results_of_copy(norm, *made[:2], 1, *made[2:]), strict=True):
            spoiled = np.isnan(b)  # a NaN's payload is exempt
            np.testing.assert_array_equal(np.isnan(a), spoiled)
            assert_same_bits(np.where(spoiled, 0, a), np.where(spoiled, 0, b))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [6, 70, 100])
def test_what_is_left_out(cols, dtype, name):
    """No weight, no bias, no dx, no sums: the others have the same bits."""
    norm = Norm(name)
    x, dy, weight, _ = operands((3, cols, 49), 1, dtype)
    for kept in (weight, None):
        got = results(norm, x, dy, 1, kept, None)
        assert_all_same_bits(got, results_of_copy(norm, x, dy, 1, kept, None))
        cache = norm.forward(x, None, *norm.parameters_of(kept, None), axis=1)[1]
        whole = norm.backward(dy, cache)
        for mask in itertools.product([False, True], repeat=len(whole)):
            for wanted, a, b in zip(
                mask, norm.backward(dy, cache, output_mask=mask), whole, strict=True
            ):
                assert a is None if not wanted else a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("places", [4096, 4099, 4100])
def test_beyond_the_caches(places, dtype):
    """A large output goes past the caches where its columns begin lines: the same bits.

    Those of its samples alone, of which none is large.
    """
    size = np.dtype(dtype).itemsize
    cols = 2**20 // (places * size)
    x, dy, weight, bias = operands((17, cols, places), 1, dtype)
    alone = [lnfast.layer_norm_forward(x[i : i + 1], None, weight, bias, axis=1) for i in range(17)]
    y = np.concatenate([y for y, _ in alone])
    dx = np.concatenate(
        [lnfast.layer_norm_backward(dy[i : i + 1], cache)[0] for i, (_, cache) in enumerate(alone)]
    )
    cache = lnfast.layer_norm_forward(x, None, weight, bias, axis=1)[1]
    room = np.empty(x.size + 64 // size, dtype)
    for by in (1, *range(0, 64 // size, 16 // size)):  # one of them begins a line
        out = room[by : by + x.size].reshape(x.shape)
        out.fill(np.nan)
        assert_same_bits(lnfast.layer_norm(x, None, weight, bias, axis=1, out=out), y)
        out.fill(np.nan)
        assert_same_bits(lnfast.layer_norm_backward(dy, cache, out=out)[0], dx)
    assert_same_bits(lnfast.layer_norm(x.copy(), None, weight, bias, axis=1), y)
    in_place = x.copy()
    assert_same_bits(lnfast.layer_norm(in_place, None, weight, bias, axis=1, out=in_place), y)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (1, 2)])
def test_layouts(layout, axis, name):
    """Of x and dy, and of out."""
    norm = Norm(name)
    x, dy, weight, bias = operands((6, 20, 33), axis, np.float32)
    wanted = results(norm, x, dy, axis, weight, bias)
    laid, laid_dy = LAYOUTS[layout](x), LAYOUTS[layout](dy)
    assert_all_same_bits(results(norm, laid, laid_dy, axis, weight, bias), wanted)
    parameters = norm.parameters_of(weight, bias)
    out = LAYOUTS[layout](np.full_like(x, 7))
    assert norm.normalize(x, None, *parameters, axis=axis, out=out) is out
    assert_same_bits(np.ascontiguousarray(out), wanted[0])
    in_place = LAYOUTS[layout](x.copy())
    assert norm.normalize(in_place, None, *parameters, axis=axis, out=in_place) is in_place
    assert_same_bits(np.ascontiguousarray(in_place), wanted[0])
    cache = norm.forward(x, None, *parameters, axis=axis)[1]
    in_place = LAYOUTS[layout](dy.copy())
    assert norm.backward(in_place, cache, out=in_place)[0] is in_place
    assert_same_bits(np.ascontiguousarray(in_place), wanted[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_threads(threads, dtype):
    norm, made = Norm("layer_norm"), operands((3, 64, 700), 1, dtype)
    wanted = results(norm, *made[:2], 1, *made[2:], num_threads=1)
    assert_all_same_bits(results(norm, *made[:2], 1, *made[2:], num_threads=threads), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_rows(dtype):
    """Backward of a plain array goes by columns there: the same sums."""
    norm, made = Norm("layer_norm"), operands((70_000, 6), 0, dtype)
    got = results(norm, *made[:2], 0, *made[2:])
    assert_all_same_bits(got, results_of_copy(norm, *made[:2], 0, *made[2:]))


def test_axes_that_are_the_last_ones(norm):
    """A plain call, in bits and in its record."""
    x, dy, weight, bias = operands((3, 4, 5), (1, 2), np.float32)
    parameters = norm.parameters_of(weight, bias)
    for axis in [(1, 2), (2, 1), [-1, -2], (np.int64(1), np.uint8(2)), np.array([1, 2])]:
        y, cache = norm.forward(x, None, *parameters, axis=axis)
        assert_same_bits(y, norm.normalize(x, (4, 5), *parameters))
        assert cache.axis is None and cache.normalized_shape == (4, 5)


def test_out_is_x_turned(norm):
    """The same memory in another order: computed apart, then copied."""
    x = numbers((200, 200), np.float32)
    wanted = norm.normalize(x.copy(), axis=0)
    norm.normalize(x, axis=0, out=x.T)
    assert_same_bits(np.ascontiguousarray(x.T), wanted)


def test_record(norm):
    x, dy, weight, bias = operands((3, 4, 5), 1, np.float32)
    y, cache = norm.forward(x, None, *norm.parameters_of(weight, bias), axis=-2)
    assert cache.axis == (1,) and cache.normalized_shape == (4,) and cache.x is x
    assert cache.rstd.shape == (3, 1, 5)
    wanted = norm.backward(dy, cache)
    for same in (
        cache._replace(axis=[-2]),
        cache._replace(axis=np.int64(1), normalized_shape=None),
        cache._replace(x=np.asfortranarray(x), weight=weight.tolist()),
    ):
        assert_all_same_bits(norm.backward(dy, same), wanted)
    for change, message in [
        ({"axis": 2}, r"normalized_shape \(4,\) does not match axis \(2,\) of x"),
        ({"axis": (0, 1)}, r"normalized_shape \(4,\) does not match axis \(0, 1\)"),
        ({"rstd": cache.rstd[:, 0]}, r"rstd must have shape \(3, 1, 5\), not \(3, 5\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            norm.backward(dy, cache._replace(**change))


def test_against_the_reference():
    for name in NORMS:
        for shape, axis in [((3, 70, 9), 1), ((4, 5, 6, 7), (0, 2)), ((9, 4), 0)]:
            x, dy, weight, bias = operands(shape, axis, np.float32)
            got = results(Norm(name), x, dy, axis, weight, bias)
            known = results(Norm(name, reference), x, dy, axis, weight, bias)
            for a, b in zip(got, known, strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0)])
def test_nothing_to_normalise(norm, shape):
    x, parameter = np.empty(shape, np.float32), np.ones(shape[1])
    y, cache = norm.forward(x, None, *norm.parameters_of(parameter, parameter), axis=1)
    dx, *sums = norm.backward(x, cache, check_finite=True)
    assert y.shape == dx.shape == shape
    assert cache.rstd.shape == (shape[0], 1, shape[2])
    assert np.isnan(cache.rstd).all()
    assert [a.tolist() for a in sums] == [[0] * shape[1]] * len(sums)


def test_what_is_not_finite_spoils_its_own_row(norm):
    x = numbers((2, 5, 40), np.float32)
    clean = norm.normalize(x, axis=1)
    x[1, 3, 17] = np.nan
    y = norm.normalize(x, axis=1)
    spoiled = np.zeros(x.shape, bool)
    spoiled[1, :, 17] = True
    assert np.isnan(y[spoiled]).all()
    np.testing.assert_array_equal(y[~spoiled], clean[~spoiled])
    with pytest.raises(ValueError, match=r"^x\[1, 3, 17\] is nan$"):
        norm.normalize(x, axis=1, check_finite=True)


BAD = {
    "beyond": ({"axis": 3}, ValueError, r"axis 3 is none of x's, whose shape is \(3, 4, 5\)"),
    "before": ({"axis": (0, -4)}, ValueError, "axis -4 is none of x's"),
    "twice": ({"axis": (1, -2)}, ValueError, r"axis \(1, -2\) names an axis of x.*twice"),
    "empty": ({"axis": ()}, ValueError, "axis is empty"),
    "float": ({"axis": 1.0}, TypeError, r"axis must be an int or a sequence of ints, not 1\.0"),
    "bool": ({"axis": True}, TypeError, "axis must be an int or a sequence of ints, not True"),
    "str": ({"axis": "1"}, TypeError, "axis must be an int or a sequence of ints, not '1'"),
    "both": (
        {"axis": 1, "normalized_shape": 4},
        ValueError,
        "axis and normalized_shape both say what is normalised",
    ),
    "weight of another axis": (
        {"axis": 1, "weight": np.ones(3)},
        ValueError,
        r"weight must have shape \(4,\), not \(3,\)",
    ),
    "out of another shape": (
        {"axis": 1, "out": np.empty((3, 5, 4))},
        ValueError,
        "out must have the shape of x",
    ),
}


@pytest.mark.parametrize("change, error, message", BAD.values(), ids=BAD)
def test_errors(norm, change, error, message):
    for function in (norm.normalize, norm.forward):
        with pytest.raises(error, match=message) as raised:
            function(np.ones((3, 4, 5)), **change)
        assert raised.type is error


def test_no_copy_is_made():
    """x of 16 MiB; beside y and the statistics only rooms of some blocks."""
    x = numbers((4, 64, 128, 128), np.float32)
    rows = 4 * 128 * 128
    tracemalloc.start()
    try:
        lnfast.layer_norm_forward(x, axis=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes + 2 * 8 * rows + 2**20


def test_messages_are_the_same():
    for change, error, _ in BAD.values():
        said = []
        for module in (lnfast, reference):
            with pytest.raises(error) as raised:
                module.layer_norm(np.ones((3, 4, 5)), **change)
            said.append(re.sub("0x[0-9a-f]+", "", str(raised.value)))
        assert said[0] == said[1]
