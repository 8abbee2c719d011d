"""mask=: what it hides is not there. The bits of the elements that count, alone."""

import numpy as np
import pytest
from norms import NORMS, Norm
from variants import DTYPES, assert_all_same_bits, assert_same_bits, numbers, rows_last

import lnfast
from lnfast import reference

# From src/rows/masks.h: 16 bytes of mask at once; rows with one mask are packed together, rows
# whose live elements come first are not packed.
COLS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70, 768]


def masks(rows, cols):
    """Masks of every kind, by name, each of which broadcasts to (rows, cols)."""
    rng = np.random.default_rng(cols)
    lengths = rng.integers(0, cols + 1, (rows, 1))
    one = rng.random(cols) < 0.5
    return {
        "scattered": rng.random((rows, cols)) < 0.6,
        "few": rng.random((rows, cols)) < 0.05,
        "padding": np.arange(cols) < lengths,
        "padding in front": np.arange(cols) >= lengths,
        "of columns": one,
        "columns in front": np.arange(cols) < max(1, cols // 2),
        "of rows": rng.random((rows, 1)) < 0.5,
        "everything": np.ones((rows, cols), bool),
        "nothing": np.zeros((), bool),
        "reversed": np.ascontiguousarray(one[::-1])[::-1],
        "fortran": np.asfortranarray(rng.random((rows, cols)) < 0.5),
    }


def operands(rows, cols, dtype):
    x, dy = numbers((rows, cols), dtype, offset=5), numbers((rows, cols), dtype, seed=1)
    weight, bias = numbers((2, cols), dtype, seed=2)
    return x, dy, weight, bias


def spoiled(a, mask, bad):
    """The same with something else under the mask."""
    return np.where(np.broadcast_to(mask, a.shape), a, a.dtype.type(bad))


def row_by_row(norm, x, dy, mask, weight, bias):
    """y and dx of the live elements of each row, taken alone; and the statistics."""
    y, dx = np.zeros_like(x), np.zeros_like(x)
    statistics = {name: np.zeros((len(x), 1)) for name in norm.statistics}
    statistics["rstd"][...] = 1 / np.sqrt(1e-3)
    for i, live in enumerate(np.broadcast_to(mask, x.shape)):
        if live.any():
            parameters = norm.parameters_of(weight[live], bias[live])
            y[i, live], cache = norm.forward(x[i, live], int(live.sum()), *parameters, 1e-3)
            dx[i, live] = norm.backward(dy[i, live], cache)[0]
            for name in norm.statistics:
                statistics[name][i] = getattr(cache, name)
    return y, dx, *(statistics[name] for name in norm.statistics)


def results(norm, x, dy, mask, weight, bias, **keywords):
    parameters = norm.parameters_of(weight, bias)
    y, cache = norm.forward(x, x.shape[-1], *parameters, 1e-3, mask=mask, **keywords)
    assert_same_bits(norm.normalize(x, x.shape[-1], *parameters, 1e-3, mask=mask, **keywords), y)
    dx, *sums = norm.backward(dy, cache, **keywords)
    return (y, dx, *(getattr(cache, name) for name in norm.statistics)), sums


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("name", NORMS)
def test_bits_of_what_counts_alone(name, cols, dtype, bad):
    norm, (x, dy, weight, bias) = Norm(name), operands(21, cols, dtype)
    for kind, mask in masks(21, cols).items():
        wanted = row_by_row(norm, x, dy, mask, weight, bias)
        given = spoiled(x, mask, bad), spoiled(dy, mask, bad), mask, weight, bias
        for got, known in zip(results(norm, *given)[0], wanted, strict=True):
            # of a 0 that is hidden or that was made, any sign will do
            assert_same_bits(got + 0, known + 0, kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_dweight_and_dbias(name, dtype):
    """What is hidden gives nothing: the sums of the live terms."""
    for cols in (1, 7, 33, 70):
        norm, (x, dy, weight, bias) = Norm(name), operands(300, cols, dtype)
        for kind, mask in masks(300, cols).items():
            given = spoiled(x, mask, np.nan), spoiled(dy, mask, np.inf), mask, weight, bias
            (_, _, *means, rstd), sums = results(norm, *given)
            live = np.broadcast_to(mask, x.shape)
            center = means[0] if means else 0
            terms = [dy * ((x.astype(np.float64) - center) * rstd), dy]
            for got, term in zip(sums, terms, strict=False):
                wanted = np.where(live, term, 0).sum(axis=0, dtype=np.float64)
                scale = np.where(live, np.abs(term) + np.abs(dy), 0).sum(axis=0)
                few = 8 * np.finfo(dtype).eps
                assert (np.abs(got - wanted) <= few * scale).all(), (kind, cols)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_and_blocks(threads, norm):
    x, dy, weight, bias = operands(3000, 40, np.float32)
    for kind in ("scattered", "of columns", "padding"):
        mask = masks(3000, 40)[kind]
        wanted = results(norm, x, dy, mask, weight, bias, num_threads=1)
        got = results(norm, x, dy, mask, weight, bias, num_threads=threads)
        for a, b in zip((*got[0], *got[1]), (*wanted[0], *wanted[1]), strict=True):
            assert_same_bits(a, b, kind)


def test_no_mask_and_one_that_hides_nothing():
    """The bits of the plain call, in the sums too."""
    for name in NORMS:
        for dtype in DTYPES:
            norm, (x, dy, weight, bias) = Norm(name), operands(300, 70, dtype)
            parameters = norm.parameters_of(weight, bias)
            known, record = norm.forward(x, 70, *parameters)
            y, cache = norm.forward(x, 70, *parameters, mask=True)
            assert_same_bits(y, known)
            assert_all_same_bits(norm.backward(dy, cache), norm.backward(dy, record))


def test_worked_example(norm):
    """1, 2, 3 live, 100 hidden."""
    x = np.array([[1, 2, 3, 100], [1, 2, 3, np.nan], [7, 7, 7, 7]], np.float32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]], bool)
    y, cache = norm.forward(x, 4, eps=1e-5, mask=mask)
    if norm.centred:
        np.testing.assert_allclose(y[0], [-1.2247357, 0, 1.2247357, 0], rtol=3e-7, atol=1e-12)
        assert cache.mean[:, 0].tolist() == [2, 2, 0]
    else:
        np.testing.assert_allclose(y[0], np.array([1, 2, 3, 0]) / np.sqrt(14 / 3 + 1e-5), rtol=3e-7)
    np.testing.assert_array_equal(y[1], y[0])
    np.testing.assert_array_equal(y[2], 0)
    np.testing.assert_allclose(cache.rstd[2], 1e5**0.5, rtol=1e-15)
    dx, *sums = norm.backward(np.ones_like(x), cache)
    assert not dx[2].any() and not dx[:, 3].any()
    assert all(a[3] == 0 for a in sums)
    if norm.centred:
        assert sums[1].tolist() == [2, 2, 2, 0]


def test_padded_tokens(norm):
    """A group of (T, D) of which each sample has its own length: (B, T, 1) hides whole tokens."""
    x = numbers((4, 6, 10), np.float32)
    lengths = np.array([6, 1, 3, 0])
    mask = (np.arange(6) < lengths[:, None])[..., None]
    y = norm.normalize(x, (6, 10), mask=mask)
    for i, length in enumerate(lengths):
        if length:
            alone = norm.normalize(x[i, :length], (length, 10))
            np.testing.assert_allclose(y[i, :length], alone, rtol=1e-6, atol=1e-6)
        assert not y[i, length:].any()


@pytest.mark.parametrize("axis", [0, 1, (0, 2)])
def test_any_axis(axis):
    for name in NORMS:
        norm = Norm(name)
        x, dy = numbers((6, 20, 33), np.float32), numbers((6, 20, 33), np.float32, seed=1)
        for mask in (numbers(x.shape, np.float32, seed=2) > 0, numbers((20, 1), "f4") > 0):
            y, cache = norm.forward(x, axis=axis, mask=mask)
            turned, lengths = rows_last(x, axis)
            turned_mask, _ = rows_last(np.broadcast_to(mask, x.shape), axis)
            known, record = norm.forward(turned, lengths, mask=turned_mask)
            assert_same_bits(rows_last(y, axis)[0], known)
            got, wanted = norm.backward(dy, cache), norm.backward(rows_last(dy, axis)[0], record)
            assert_same_bits(rows_last(got[0], axis)[0], wanted[0])
            assert_all_same_bits(got[1:], wanted[1:])


def test_record_keeps_a_copy(norm):
    x, mask = numbers((5, 8), np.float32), numbers((5, 8), np.float32) > 0
    cache = norm.forward(x, 8, mask=mask)[1]
    wanted = norm.backward(x, cache)
    mask[...] = True
    assert_all_same_bits(norm.backward(x, cache), wanted)
    by_hand = cache._replace(mask=cache.mask.tolist())
    assert_all_same_bits(norm.backward(x, by_hand), wanted)


def test_in_place(norm):
    x, dy = numbers((70, 33), np.float32), numbers((70, 33), np.float32, seed=1)
    mask = numbers((70, 33), np.float32, seed=2) > 0
    wanted, cache = norm.forward(x, 33, mask=mask)
    given = x.copy()
    assert norm.normalize(given, 33, mask=mask, out=given) is given
    assert_same_bits(given, wanted)
    known = norm.backward(dy, cache)
    out = dy.copy()
    assert_all_same_bits(norm.backward(out, cache, out=out), known)
    out = x.copy()
    assert_all_same_bits(norm.backward(dy, cache._replace(x=out), out=out), known)
    # a mask in the memory of out
    room = x.copy()
    over = room.view(np.bool_)[:, :33]
    over[...] = mask
    assert_same_bits(norm.normalize(x, 33, mask=over, out=room), wanted)


def test_bytes_that_are_neither_0_nor_1(norm):
    x, mask = numbers((3, 43), np.float32), numbers((3, 43), np.float32, seed=1) > 0
    odd = np.where(mask, np.uint8(6), np.uint8(0)).view(np.bool_)
    assert_same_bits(norm.normalize(x, 43, mask=odd), norm.normalize(x, 43, mask=mask))


@pytest.mark.parametrize("name", NORMS)
def test_layers(name):
    norm = Norm(name)
    layer = norm.layer(40)
    x, dy = numbers((7, 40), np.float32), numbers((7, 40), np.float32, seed=1)
    mask = numbers((7, 40), np.float32, seed=2) > 0
    y, cache = layer.forward(x, mask=mask)
    parameters = norm.parameters_of(np.ones(40, np.float32), np.zeros(40, np.float32))
    known, record = norm.forward(x, 40, *parameters, layer.eps, mask=mask)
    assert_all_same_bits((y, layer(x, mask=mask)), (known, known))
    dx = layer.backward(dy, cache)
    assert_all_same_bits((dx, layer.grad_weight), norm.backward(dy, record)[:2])
    assert_same_bits(layer.backward(dy, cache, ds=x), dx + x)


def test_against_the_reference():
    for name in NORMS:
        norm, defined = Norm(name), Norm(name, reference)
        x, dy, weight, bias = operands(21, 33, np.float32)
        for kind, mask in masks(21, 33).items():
            given = spoiled(x, mask, np.nan), spoiled(dy, mask, np.nan), mask, weight, bias
            (got, sums), (known, known_sums) = results(norm, *given), results(defined, *given)
            for a, b in zip((*got, *sums), (*known, *known_sums), strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(
                    a, b, rtol=2e-5, atol=2e-5 * (1 + np.abs(b).max()), err_msg=kind
                )


BAD = {
    "of ints": (
        {"mask": np.ones((3, 4), "i8")},
        TypeError,
        "mask has dtype int64: it must hold",
    ),
    "of floats": ({"mask": [[1.0]]}, TypeError, "mask has dtype float64"),
    "masked": ({"mask": np.ma.ones(4, bool)}, TypeError, "mask is a masked array"),
    "ragged": ({"mask": [[True], [True, False]]}, ValueError, "mask cannot be made an array"),
    "of other columns": (
        {"mask": np.ones(3, bool)},
        ValueError,
        r"mask with shape \(3,\) must broadcast to that of x, \(3, 4\)",
    ),
    "that enlarges x": (
        {"mask": np.ones((2, 3, 4), bool)},
        ValueError,
        r"mask with shape \(2, 3, 4\) must broadcast to that of x",
    ),
}


@pytest.mark.parametrize("change, error, message", BAD.values(), ids=BAD)
def test_errors(norm, change, error, message):
    x = np.ones((3, 4))
    for function in (norm.normalize, norm.forward):
        with pytest.raises(error, match=message) as raised:
            function(x, 4, **change)
        assert raised.type is error
    with pytest.raises(error, match=message):
        norm.backward(x, norm.forward(x, 4)[1]._replace(**change))


def test_check_finite_sees_what_counts(norm):
    x = numbers((3, 4), np.float64)
    x[1, 2] = np.nan
    mask = np.isfinite(x)
    y, cache = norm.forward(x, 4, mask=mask, check_finite=True)
    norm.backward(x, cache, check_finite=True)
    mask[1, 2] = True
    with pytest.raises(ValueError, match=r"^x\[1, 2\] is nan$"):
        norm.normalize(x, 4, mask=mask, check_finite=True)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_empty(norm, shape):
    x = np.empty(shape)
    y, cache = norm.forward(x, shape[-1], mask=np.ones((), bool))
    assert y.shape == shape and np.isnan(cache.rstd).all()
    assert norm.backward(x, cache)[0].shape == shape
    assert lnfast.layer_norm(x, shape[-1], mask=np.empty(shape, bool)).shape == shape
