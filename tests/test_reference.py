"""The definition itself: against exact fractions, central differences and its own formulas."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from norms import FUNCTIONS, NORMS, Norm

import lnfast
from lnfast import reference

each_norm = pytest.mark.parametrize("norm", [Norm(name, reference) for name in NORMS], ids=NORMS)


def exact_statistics(row, eps, centred):
    """Mean (0 where not centred) and rstd of numbers as they are, the root alone rounded."""
    row = [Fraction(float(value)) for value in row]
    mean = sum(row) / len(row) if centred else 0
    var = sum((value - mean) ** 2 for value in row) / len(row)
    return float(mean), 1 / math.sqrt(var + Fraction(eps))


@each_norm
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("cols", [1, 2, 3, 7, 64])
def test_statistics(norm, cols, offset, dtype):
    x = np.random.default_rng(cols).normal(offset, 1, (5, cols)).astype(dtype)
    y, cache = norm.forward(x, cols, eps=0.125)
    for row, got, *means, rstd in zip(x, y, *cache[3:-2], strict=True):
        exact_mean, exact_rstd = exact_statistics(row, 0.125, norm.centred)
        assert len(means) == norm.centred
        np.testing.assert_allclose(means, len(means) * [[exact_mean]], rtol=1e-15, atol=1e-15)
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


@each_norm
@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
@pytest.mark.parametrize("shape, axes", [((3, 4), 1), ((2, 3, 5), 2), ((6,), 1)])
def test_gradients_are_those_of_the_forward_pass(norm, shape, axes, eps):
    rng = np.random.default_rng(1)
    x, dy = rng.normal(1, 2, shape), rng.normal(0, 1, shape)
    parameters = norm.parameters_of(*rng.normal(1, 1, (2, *shape[-axes:])))
    parameters[0].flat[0] = 0

    def loss(x, *parameters):
        return np.sum(dy * norm.normalize(x, shape[-axes:], *parameters, eps))

    arguments = [x, *parameters]
    cache = norm.forward(x, shape[-axes:], *parameters, eps)[1]
    for i, gradient in enumerate(norm.backward(dy, cache)):
        expected = central_differences(
            lambda a, i=i: loss(*arguments[:i], a, *arguments[i + 1 :]), arguments[i]
        )
        np.testing.assert_allclose(gradient, expected, atol=1e-8 if i else 1e-6)


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


@each_norm
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_values_spoil_their_own_row(norm, bad):
    rng = np.random.default_rng(2)
    clean, dy = rng.normal(0, 1, (2, 4, 6))
    x = clean.copy()
    x[2, 3] = bad
    others = [0, 1, 3]
    y, cache = norm.forward(x, 6)
    known, known_cache = norm.forward(clean, 6)
    dx, dweight, *dbias = norm.backward(dy, cache)
    known_dx, _, *known_dbias = norm.backward(dy, known_cache)
    for got, expected in zip(
        (y, dx, *cache[3:-2]), (known, known_dx, *known_cache[3:-2]), strict=True
    ):
        assert np.isnan(got[2]).all()
        np.testing.assert_array_equal(got[others], expected[others])
    assert np.isnan(dweight).all()
    np.testing.assert_array_equal(dbias, known_dbias)


@each_norm
def test_a_row_of_no_spread_without_eps_is_nan_and_no_other(norm):
    x = np.array([[norm.centred] * 3, [1, 2, 3]], np.float32)
    y = norm.normalize(x, 3, eps=0)
    assert np.isnan(y[0]).all() and np.isfinite(y[1]).all()


@each_norm
def test_float32_is_rounded_once_at_the_end(norm):
    x = np.random.default_rng(3).normal(100, 1, (8, 50)).astype(np.float32)
    weight = np.linspace(0.1, 3, 50).astype(np.float32)
    y, cache = norm.forward(x, 50, weight)
    wide, wide_cache = norm.forward(x.astype(np.float64), 50, weight)
    np.testing.assert_array_equal(y, wide.astype(np.float32))
    np.testing.assert_array_equal(cache[3:-2], wide_cache[3:-2])
    for got, expected in zip(norm.backward(x, cache), norm.backward(x, wide_cache), strict=True):
        np.testing.assert_array_equal(got, expected.astype(np.float32))


@each_norm
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape, axes", [((1, 768), 1), ((37, 101), 1), ((4, 5, 6), 2)])
def test_the_compiled_functions_agree(norm, shape, axes, dtype):
    rng = np.random.default_rng(4)
    x, dy = rng.normal(2, 3, (2, *shape)).astype(dtype)
    parameters = norm.parameters_of(*rng.normal(1, 1, (2, *shape[-axes:])).astype(dtype))
    few = 32 * np.finfo(dtype).eps
    compiled = Norm(norm.name)
    y, cache = compiled.forward(x, shape[-axes:], *parameters)
    known, known_cache = norm.forward(x, shape[-axes:], *parameters)
    np.testing.assert_allclose(y, known, rtol=few, atol=few)
    np.testing.assert_allclose(cache[3:-2], known_cache[3:-2], rtol=1e-14, atol=1e-14)
    gradients, expected = compiled.backward(dy, cache), norm.backward(dy, known_cache)
    assert len(gradients) == len(norm.gradients)
    for got, wanted in zip(gradients, expected, strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=few, atol=8 * few)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_signatures(name):
    def parameters(function):
        found = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in found]

    assert parameters(getattr(reference, name)) == parameters(getattr(lnfast, name))
