"""Calls that are right: every form an argument may have, and what comes back for it."""

import decimal
import fractions
import itertools
import pickle

import numpy as np
import pytest

import lnfast
from lnfast import reference

RNG = np.random.default_rng(0)
X, DY = RNG.normal(1, 2, (2, 5, 3, 4)), RNG.normal(0, 1, (2, 5, 3, 4))
WEIGHT, BIAS = RNG.normal(1, 1, (3, 4)), RNG.normal(0, 1, (3, 4))


def assert_close(got, expected):
    """Equal but for the rounding of values near 1, in the dtype of the result."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    few = 64 * np.finfo(expected.dtype).eps
    np.testing.assert_allclose(got, expected, rtol=few, atol=few)


@pytest.mark.parametrize(
    "form",
    [
        4,
        [4],
        (4,),
        np.int64(4),
        np.uint8(4),
        np.array(4),
        np.array([4]),
        range(4, 5),
        [np.int32(4)],
    ],
    ids=repr,
)
def test_normalized_shape_of_one_axis(implementation, form):
    y, cache = implementation.layer_norm_forward(X, form)
    np.testing.assert_array_equal(y, implementation.layer_norm(X, (4,)))
    assert cache.normalized_shape == (4,)
    assert [type(length) for length in cache.normalized_shape] == [int]
    assert cache.mean.shape == cache.rstd.shape == (2, 5, 3, 1)


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_normalized_shape_of_many_axes(implementation, axes):
    shape = X.shape[-axes:]
    y, cache = implementation.layer_norm_forward(X, shape)
    flat = implementation.layer_norm(X.reshape(-1, np.prod(shape)), np.prod(shape))
    np.testing.assert_array_equal(y, flat.reshape(X.shape))
    assert cache.mean.shape == cache.rstd.shape == X.shape[:-axes] + (1,) * axes
    dx, dweight, dbias = implementation.layer_norm_backward(DY, cache)
    assert dx.shape == X.shape
    assert dweight.shape == dbias.shape == shape


def test_normalized_shape_of_weight(implementation):
    y, cache = implementation.layer_norm_forward(X, weight=WEIGHT)
    assert cache.normalized_shape == (3, 4)
    np.testing.assert_array_equal(y, implementation.layer_norm(X, (3, 4), WEIGHT))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("has_weight, has_bias", list(itertools.product([False, True], repeat=2)))
def test_weight_and_bias_are_optional(implementation, has_weight, has_bias, dtype):
    x, dy = X.astype(dtype), DY.astype(dtype)
    weight = WEIGHT.astype(dtype) if has_weight else None
    bias = BIAS.astype(dtype) if has_bias else None
    y, cache = implementation.layer_norm_forward(x, (3, 4), weight, bias)
    np.testing.assert_array_equal(implementation.layer_norm(x, (3, 4), weight, bias), y)
    assert (cache.weight is None) == (weight is None)
    full = (WEIGHT if has_weight else np.ones((3, 4)), BIAS if has_bias else np.zeros((3, 4)))
    expected, expected_cache = reference.layer_norm_forward(x, (3, 4), *full)
    assert_close(y, expected)
    gradients = implementation.layer_norm_backward(dy, cache)
    for got, known in zip(
        gradients, reference.layer_norm_backward(dy, expected_cache), strict=True
    ):
        assert_close(got, known)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "i1", "u8", "?", list])
@pytest.mark.parametrize("other", ["f2", "f4", "f8", "g", ">f4", "i4", "?", list])
def test_dtypes(implementation, dtype, other):
    """x decides; weight, bias and dy are cast to its dtype, once."""

    def cast(array, dtype):
        return array.tolist() if dtype is list else array.astype(dtype)

    values = abs(np.round(4 * X))
    x = cast(values, dtype)
    result = dtype if dtype in (np.float32, np.float64) else np.float64
    weight, bias = cast(WEIGHT, other), cast(BIAS, other)
    dy = cast(DY, other if other != "g" else "f8")
    plain = [np.asarray(a).astype(result) for a in (x, weight, bias, dy)]
    y, cache = implementation.layer_norm_forward(x, (3, 4), weight, bias)
    results = [y, *implementation.layer_norm_backward(dy, cache)]
    expected, plain_cache = implementation.layer_norm_forward(plain[0], (3, 4), *plain[1:3])
    known = [expected, *implementation.layer_norm_backward(plain[3], plain_cache)]
    for got, wanted in zip(results, known, strict=True):
        assert got.dtype == result
        np.testing.assert_array_equal(got, wanted)
    assert cache.weight.dtype == cache.x.dtype == result
    assert cache.mean.dtype == cache.rstd.dtype == np.float64


def test_casts_out_of_range_are_silent(implementation):
    x = X.astype(np.float32)
    weight, dy = np.full((3, 4), 1e300), np.full(X.shape, 1e300)
    weight[0, 0] = np.nan
    y, cache = implementation.layer_norm_forward(x, (3, 4), weight)
    assert not np.isfinite(y).any()
    assert np.isinf(implementation.layer_norm_backward(dy, cache)[2]).all()


class Convertible:
    def __array__(self, dtype=None, copy=None):
        return X


@pytest.mark.parametrize("form", [Convertible(), memoryview(X), X.tolist(), list(X)], ids=type)
def test_array_likes(implementation, form):
    np.testing.assert_array_equal(
        implementation.layer_norm(form, 4), implementation.layer_norm(X, 4)
    )


@pytest.mark.parametrize(
    "eps",
    [
        0.25,
        np.float16(0.25),
        np.float32(0.25),
        np.longdouble(0.25),
        np.array(0.25),
        fractions.Fraction(1, 4),
        decimal.Decimal("0.25"),
    ],
    ids=repr,
)
def test_eps(implementation, eps):
    y = implementation.layer_norm(X, 4, None, None, eps)
    np.testing.assert_array_equal(y, implementation.layer_norm(X, 4, eps=0.25))
    assert not np.array_equal(y, implementation.layer_norm(X, 4))


@pytest.mark.parametrize("eps", [0, 1, np.int8(1), -0.0, 1e300])
def test_eps_reaches_the_statistics(implementation, eps):
    cache = implementation.layer_norm_forward(X, 4, eps=eps)[1]
    var = X.var(axis=-1, keepdims=True)
    np.testing.assert_allclose(cache.rstd, 1 / np.sqrt(var + float(eps)), rtol=1e-14)


@pytest.mark.parametrize("num_threads", [None, 1, 2, 7, np.int64(2), np.array(2), 2**40])
def test_num_threads_changes_no_bit(implementation, num_threads):
    y, cache = implementation.layer_norm_forward(X, 4, num_threads=num_threads)
    assert y.tobytes() == implementation.layer_norm(X, 4, num_threads=1).tobytes()
    given = implementation.layer_norm_backward(DY, cache, num_threads=num_threads)
    single = implementation.layer_norm_backward(DY, cache, num_threads=1)
    assert [a.tobytes() for a in given] == [a.tobytes() for a in single]


@pytest.mark.parametrize("mask", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("form", [tuple, list, np.array])
def test_output_mask(implementation, form, mask):
    cache = implementation.layer_norm_forward(X, (3, 4), WEIGHT)[1]
    full = implementation.layer_norm_backward(DY, cache)
    got = implementation.layer_norm_backward(DY, cache, output_mask=form(mask))
    assert [gradient is not None for gradient in got] == list(mask)
    for gradient, expected in zip(got, full, strict=True):
        if gradient is not None:
            np.testing.assert_array_equal(gradient, expected)


def test_positional_and_keyword_forms(implementation):
    positional = implementation.layer_norm(X, (3, 4), WEIGHT, BIAS, 0.5)
    named = implementation.layer_norm(
        eps=0.5, bias=BIAS, weight=WEIGHT, normalized_shape=(3, 4), x=X
    )
    np.testing.assert_array_equal(positional, named)
    with pytest.raises(TypeError):
        implementation.layer_norm(X, (3, 4), WEIGHT, BIAS, 0.5, np.empty_like(X))
    cache = implementation.layer_norm_forward(X, (3, 4))[1]
    named = implementation.layer_norm_backward(cache=cache, dy=DY)
    np.testing.assert_array_equal(named[0], implementation.layer_norm_backward(DY, cache)[0])
    with pytest.raises(TypeError):
        implementation.layer_norm_backward(DY, cache, (True, True, True))


def test_cache_is_a_record_anyone_can_build(implementation):
    cache = implementation.layer_norm_forward(X, (3, 4), WEIGHT)[1]
    assert type(cache) is lnfast.LayerNormCache
    assert cache._fields == ("x", "normalized_shape", "weight", "mean", "rstd")
    with pytest.raises(AttributeError):
        cache.x = X
    expected = implementation.layer_norm_backward(DY, cache)
    by_hand = lnfast.LayerNormCache(
        X.tolist(), [3, 4], WEIGHT.tolist(), cache.mean.tolist(), cache.rstd.astype(">f8")
    )
    for same in (pickle.loads(pickle.dumps(cache)), by_hand):
        for got, known in zip(implementation.layer_norm_backward(DY, same), expected, strict=True):
            np.testing.assert_array_equal(got, known)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (0,), (2, 0, 4), (2, 3, 0)])
def test_nothing_to_normalise(implementation, shape):
    x = np.empty(shape, np.float32)
    parameter = np.ones(shape[-1])
    out = np.empty_like(x)
    y, cache = implementation.layer_norm_forward(
        x, shape[-1], parameter, parameter, 0, out=out, check_finite=True
    )
    assert y is out
    dx, dweight, dbias = implementation.layer_norm_backward(x, cache, out=x, check_finite=True)
    assert dx is x
    assert dweight.tolist() == dbias.tolist() == [0] * shape[-1]
    assert np.isnan(cache.mean).all() and np.isnan(cache.rstd).all()
    assert cache.mean.shape == (*shape[:-1], 1)
