"""Calls that are right: every form an argument may have, and what comes back for it."""

import decimal
import fractions
import itertools
import pickle

import numpy as np
import pytest
from norms import Norm

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
def test_normalized_shape_of_one_axis(norm, form):
    y, cache = norm.forward(X, form)
    np.testing.assert_array_equal(y, norm.normalize(X, (4,)))
    assert cache.normalized_shape == (4,)
    assert [type(length) for length in cache.normalized_shape] == [int]
    assert {statistic.shape for statistic in cache[3:-2]} == {(2, 5, 3, 1)}


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_normalized_shape_of_many_axes(norm, axes):
    shape = X.shape[-axes:]
    y, cache = norm.forward(X, shape)
    flat = norm.normalize(X.reshape(-1, np.prod(shape)), np.prod(shape))
    np.testing.assert_array_equal(y, flat.reshape(X.shape))
    assert {statistic.shape for statistic in cache[3:-2]} == {X.shape[:-axes] + (1,) * axes}
    dx, *gradients = norm.backward(DY, cache)
    assert dx.shape == X.shape
    assert [gradient.shape for gradient in gradients] == [shape for _ in norm.parameters]


def test_normalized_shape_of_weight(norm):
    y, cache = norm.forward(X, weight=WEIGHT)
    assert cache.normalized_shape == (3, 4)
    np.testing.assert_array_equal(y, norm.normalize(X, (3, 4), WEIGHT))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("has_weight, has_bias", list(itertools.product([False, True], repeat=2)))
def test_weight_and_bias_are_optional(norm, has_weight, has_bias, dtype):
    x, dy, defined = X.astype(dtype), DY.astype(dtype), Norm(norm.name, reference)
    weight = WEIGHT.astype(dtype) if has_weight else None
    bias = BIAS.astype(dtype) if has_bias else None
    parameters = norm.parameters_of(weight, bias)
    y, cache = norm.forward(x, (3, 4), *parameters)
    np.testing.assert_array_equal(norm.normalize(x, (3, 4), *parameters), y)
    assert (cache.weight is None) == (weight is None)
    full = norm.parameters_of(
        WEIGHT if has_weight else np.ones((3, 4)), BIAS if has_bias else np.zeros((3, 4))
    )
    expected, expected_cache = defined.forward(x, (3, 4), *full)
    assert_close(y, expected)
    gradients = norm.backward(dy, cache)
    for got, known in zip(gradients, defined.backward(dy, expected_cache), strict=True):
        assert_close(got, known)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "i1", "u8", "?", list])
@pytest.mark.parametrize("other", ["f2", "f4", "f8", "g", ">f4", "i4", "?", list])
def test_dtypes(norm, dtype, other):
    """x decides; parameters and dy are cast to its dtype, once."""

    def cast(array, dtype):
        return array.tolist() if dtype is list else array.astype(dtype)

    values = abs(np.round(4 * X))
    x = cast(values, dtype)
    result = dtype if dtype in (np.float32, np.float64) else np.float64
    parameters = norm.parameters_of(cast(WEIGHT, other), cast(BIAS, other))
    dy = cast(DY, other if other != "g" else "f8")
    plain_x, plain_dy, *plain = (np.asarray(a).astype(result) for a in (x, dy, *parameters))
    y, cache = norm.forward(x, (3, 4), *parameters)
    results = [y, *norm.backward(dy, cache)]
    expected, plain_cache = norm.forward(plain_x, (3, 4), *plain)
    known = [expected, *norm.backward(plain_dy, plain_cache)]
    for got, wanted in zip(results, known, strict=True):
        assert got.dtype == result
        np.testing.assert_array_equal(got, wanted)
    assert cache.weight.dtype == cache.x.dtype == result
    assert {statistic.dtype for statistic in cache[3:-2]} == {np.dtype(np.float64)}


def test_casts_out_of_range_are_silent(norm):
    x = X.astype(np.float32)
    weight, dy = np.full((3, 4), 1e300), np.full(X.shape, 1e300)
    weight[0, 0] = np.nan
    y, cache = norm.forward(x, (3, 4), weight)
    assert not np.isfinite(y).any()
    assert not any(np.isfinite(gradient).any() for gradient in norm.backward(dy, cache))


class Convertible:
    def __array__(self, dtype=None, copy=None):
        return X


@pytest.mark.parametrize("form", [Convertible(), memoryview(X), X.tolist(), list(X)], ids=type)
def test_array_likes(norm, form):
    np.testing.assert_array_equal(norm.normalize(form, 4), norm.normalize(X, 4))


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
def test_eps(norm, eps):
    y = norm.normalize(X, 4, *norm.parameters_of(None, None), eps)
    np.testing.assert_array_equal(y, norm.normalize(X, 4, eps=0.25))
    assert not np.array_equal(y, norm.normalize(X, 4))


@pytest.mark.parametrize("eps", [0, 1, np.int8(1), -0.0, 1e300])
def test_eps_reaches_the_statistics(norm, eps):
    cache = norm.forward(X, 4, eps=eps)[1]
    square = ((X - norm.centred * X.mean(axis=-1, keepdims=True)) ** 2).mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(cache.rstd, 1 / np.sqrt(square + float(eps)), rtol=1e-14)


@pytest.mark.parametrize("num_threads", [None, 1, 2, 7, np.int64(2), np.array(2), 2**40])
def test_num_threads_changes_no_bit(norm, num_threads):
    y, cache = norm.forward(X, 4, num_threads=num_threads)
    assert y.tobytes() == norm.normalize(X, 4, num_threads=1).tobytes()
    given = norm.backward(DY, cache, num_threads=num_threads)
    single = norm.backward(DY, cache, num_threads=1)
    assert [a.tobytes() for a in given] == [a.tobytes() for a in single]


@pytest.mark.parametrize("form", [tuple, list, np.array])
def test_output_mask(norm, form):
    cache = norm.forward(X, (3, 4), WEIGHT)[1]
    full = norm.backward(DY, cache)
    for mask in itertools.product([False, True], repeat=len(norm.gradients)):
        got = norm.backward(DY, cache, output_mask=form(mask))
        assert [gradient is not None for gradient in got] == list(mask)
        for gradient, expected in zip(got, full, strict=True):
            if gradient is not None:
                np.testing.assert_array_equal(gradient, expected)


def test_positional_and_keyword_forms(norm):
    parameters = dict(zip(norm.parameters, (WEIGHT, BIAS), strict=False))
    positional = X, (3, 4), *parameters.values(), 0.5
    named = {"eps": 0.5, **parameters, "normalized_shape": (3, 4), "x": X}
    np.testing.assert_array_equal(norm.normalize(*positional), norm.normalize(**named))
    for function in (norm.normalize, norm.forward):
        with pytest.raises(TypeError):
            function(*positional, np.empty_like(X))
    cache = norm.forward(X, (3, 4))[1]
    named = norm.backward(cache=cache, dy=DY)
    np.testing.assert_array_equal(named[0], norm.backward(DY, cache)[0])
    with pytest.raises(TypeError):
        norm.backward(DY, cache, (True,) * len(norm.gradients))


def test_cache_is_a_record_anyone_can_build(norm):
    cache = norm.forward(X, (3, 4), WEIGHT)[1]
    assert type(cache) is norm.record
    assert cache._fields == ("x", "normalized_shape", "weight", *norm.statistics, "axis", "mask")
    with pytest.raises(AttributeError):
        cache.x = X
    expected = norm.backward(DY, cache)
    *means, rstd = cache[3:-2]
    by_hand = norm.record(
        X.tolist(), [3, 4], WEIGHT.tolist(), *(a.tolist() for a in means), rstd.astype(">f8")
    )
    pickled = pickle.loads(pickle.dumps(cache))
    assert type(pickled) is norm.record
    for same in (pickled, by_hand):
        for got, known in zip(norm.backward(DY, same), expected, strict=True):
            np.testing.assert_array_equal(got, known)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (0,), (2, 0, 4), (2, 3, 0)])
def test_nothing_to_normalise(norm, shape):
    x = np.empty(shape, np.float32)
    parameters = norm.parameters_of(np.ones(shape[-1]), np.ones(shape[-1]))
    out = np.empty_like(x)
    y, cache = norm.forward(x, shape[-1], *parameters, 0, out=out, check_finite=True)
    assert y is out
    dx, *gradients = norm.backward(x, cache, out=x, check_finite=True)
    assert dx is x
    assert [gradient.tolist() for gradient in gradients] == [[0] * shape[-1]] * len(parameters)
    for statistic in cache[3:-2]:
        assert np.isnan(statistic).all()
        assert statistic.shape == (*shape[:-1], 1)
