"""The definition itself: against exact fractions, central differences and its own formulas."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest

import lnfast
from lnfast import reference

FUNCTIONS = ["layer_norm", "layer_norm_forward", "layer_norm_backward"]


def exact_statistics(row, eps):
    """Mean and rstd of numbers as they are, the root alone rounded."""
    row = [Fraction(float(value)) for value in row]
    mean = sum(row) / len(row)
    var = sum((value - mean) ** 2 for value in row) / len(row)
    return float(mean), 1 / math.sqrt(var + Fraction(eps))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("cols", [1, 2, 3, 7, 64])
def test_statistics(cols, offset, dtype):
    x = np.random.default_rng(cols).normal(offset, 1, (5, cols)).astype(dtype)
    y, cache = reference.layer_norm_forward(x, cols, eps=0.125)
    for row, got, mean, rstd in zip(x, y, cache.mean, cache.rstd, strict=True):
        exact_mean, exact_rstd = exact_statistics(row, 0.125)
        np.testing.assert_allclose(mean, exact_mean, rtol=1e-15, atol=1e-15)
        np.testing.assert_allclose(rstd, exact_rstd, rtol=1e-13)
        expected = [float(Fraction(float(v)) - Fraction(exact_mean)) * exact_rstd for v in row]
        few = 4 * np.finfo(dtype).eps * (1 if dtype == np.float32 else 1000)
        np.testing.assert_allclose(got, expected, rtol=few, atol=few)


def central_differences(f, array, step=1e-4):
    gradient = np.empty_like(array)
    for place in np.ndindex(array.shape):
        ahead, behind = array.copy(), array.copy()
        ahead[place] += step
        behind[place] -= step
        gradient[place] = (f(ahead) - f(behind)) / (2 * step)
    return gradient


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
@pytest.mark.parametrize("shape, axes", [((3, 4), 1), ((2, 3, 5), 2), ((6,), 1)])
def test_gradients_are_those_of_the_forward_pass(shape, axes, eps):
    rng = np.random.default_rng(1)
    x, dy = rng.normal(1, 2, shape), rng.normal(0, 1, shape)
    weight, bias = rng.normal(1, 1, (2, *shape[-axes:]))
    weight.flat[0] = 0

    def loss(x=x, weight=weight, bias=bias):
        return np.sum(dy * reference.layer_norm(x, shape[-axes:], weight, bias, eps))

    cache = reference.layer_norm_forward(x, shape[-axes:], weight, bias, eps)[1]
    dx, dweight, dbias = reference.layer_norm_backward(dy, cache)
    np.testing.assert_allclose(dx, central_differences(lambda a: loss(x=a), x), atol=1e-6)
    np.testing.assert_allclose(
        dweight, central_differences(lambda a: loss(weight=a), weight), atol=1e-8
    )
    np.testing.assert_allclose(dbias, central_differences(lambda a: loss(bias=a), bias), atol=1e-8)


def test_parameter_gradients_are_sums_over_rows():
    x = np.array([[1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 4]], np.float64)
    dy = np.array([[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0]], np.float64)
    cache = reference.layer_norm_forward(x, 4, eps=0)[1]
    _, dweight, dbias = reference.layer_norm_backward(dy, cache)
    outer, inner = 1.5 / math.sqrt(1.25), 0.5 / math.sqrt(1.25)
    np.testing.assert_allclose(dweight, [-outer, 2 * inner, 3 * inner, 0], rtol=1e-14)
    assert dbias.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("value", [0.0, 0.1, -11.000002, 1234.0, 1e30, 1e-30])
@pytest.mark.parametrize("cols", [1, 3, 10, 1000])
@pytest.mark.parametrize("eps", [1e-12, 1e-5, 1.0])
def test_constant_row_is_bias_exactly(value, cols, eps):
    bias = np.linspace(-1, 1, cols)
    y, cache = reference.layer_norm_forward(np.full((2, cols), value), cols, None, bias, eps)
    np.testing.assert_array_equal(y, [bias, bias])
    np.testing.assert_array_equal(cache.rstd, 1 / np.sqrt(eps))
    if cols == 1:
        dx, dweight, _ = reference.layer_norm_backward(np.ones((2, 1)), cache)
        assert not dx.any() and not dweight.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_values_spoil_their_own_row(bad):
    rng = np.random.default_rng(2)
    clean, dy = rng.normal(0, 1, (2, 4, 6))
    x = clean.copy()
    x[2, 3] = bad
    others = [0, 1, 3]
    y, cache = reference.layer_norm_forward(x, 6)
    known, known_cache = reference.layer_norm_forward(clean, 6)
    gradients = reference.layer_norm_backward(dy, cache)
    known_gradients = reference.layer_norm_backward(dy, known_cache)
    for got, expected in [
        (y, known),
        (cache.mean, known_cache.mean),
        (cache.rstd, known_cache.rstd),
        (gradients[0], known_gradients[0]),
    ]:
        assert np.isnan(got[2]).all()
        np.testing.assert_array_equal(got[others], expected[others])
    assert np.isnan(gradients[1]).all()
    np.testing.assert_array_equal(gradients[2], known_gradients[2])


def test_constant_row_without_eps_is_nan_and_no_other():
    x = np.array([[1, 1, 1], [1, 2, 3]], np.float32)
    y = reference.layer_norm(x, 3, eps=0)
    assert np.isnan(y[0]).all() and np.isfinite(y[1]).all()


def test_float32_is_rounded_once_at_the_end():
    x = np.random.default_rng(3).normal(100, 1, (8, 50)).astype(np.float32)
    weight = np.linspace(0.1, 3, 50).astype(np.float32)
    y, cache = reference.layer_norm_forward(x, 50, weight)
    wide, wide_cache = reference.layer_norm_forward(x.astype(np.float64), 50, weight)
    np.testing.assert_array_equal(y, wide.astype(np.float32))
    np.testing.assert_array_equal(cache.mean, wide_cache.mean)
    for got, expected in zip(
        reference.layer_norm_backward(x, cache),
        reference.layer_norm_backward(x, wide_cache),
        strict=True,
    ):
        np.testing.assert_array_equal(got, expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape, axes", [((1, 768), 1), ((37, 101), 1), ((4, 5, 6), 2)])
def test_the_compiled_functions_agree(shape, axes, dtype):
    rng = np.random.default_rng(4)
    x, dy = rng.normal(2, 3, (2, *shape)).astype(dtype)
    weight, bias = rng.normal(1, 1, (2, *shape[-axes:])).astype(dtype)
    few = 32 * np.finfo(dtype).eps
    y, cache = lnfast.layer_norm_forward(x, shape[-axes:], weight, bias)
    known, known_cache = reference.layer_norm_forward(x, shape[-axes:], weight, bias)
    np.testing.assert_allclose(y, known, rtol=few, atol=few)
    np.testing.assert_allclose(cache.mean, known_cache.mean, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(cache.rstd, known_cache.rstd, rtol=1e-14)
    gradients = lnfast.layer_norm_backward(dy, cache)
    for got, expected in zip(
        gradients, reference.layer_norm_backward(dy, known_cache), strict=True
    ):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=few, atol=8 * few)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_signatures(name):
    def parameters(function):
        found = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in found]

    assert parameters(getattr(reference, name)) == parameters(getattr(lnfast, name))
