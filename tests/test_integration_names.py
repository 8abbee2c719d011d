"""lnfast.integrations.names: the known formulas under their known names, with lnfast's bits."""

import doctest
import inspect

import numpy as np
import pytest
from variants import DTYPES, LAYOUTS, assert_all_same_bits, assert_same_bits, numbers

import lnfast
from lnfast.integrations import names

SHAPES = [(4, 9), (3, 4, 9), (4, 1), (0, 9)]


def operands(shape, dtype):
    """x, scale and shift."""
    x = 2 * numbers(shape, dtype, 0, 1)
    return x, numbers(shape[-1:], dtype, 1, 1), numbers(shape[-1:], dtype, 2)


# lnfast's bits


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits(dtype, shape, layout):
    x, scale, shift = operands(shape, dtype)
    x, dout = (LAYOUTS[layout](a) for a in (x, numbers(shape, dtype, 3)))
    cols = shape[-1]
    y, cache = lnfast.layer_norm_forward(x, cols, scale, shift)
    assert_same_bits(names.layer_norm(x, scale, shift), y)
    assert_same_bits(names.rms_norm(x, scale), lnfast.rms_norm(x, cols, scale))
    out, own = names.layernorm_forward(x, scale, shift, {})
    assert_same_bits(out, y)
    gradients = names.layernorm_backward(dout, own)
    assert_all_same_bits(gradients, lnfast.layer_norm_backward(dout, cache))


def test_eps():
    x, scale, shift = operands((4, 9), np.float64)
    y = lnfast.layer_norm(x, 9, scale, shift, 0.5)
    assert_same_bits(names.layer_norm(x, scale, shift, 0.5), y)
    assert_same_bits(names.rms_norm(x, scale, 0.5), lnfast.rms_norm(x, 9, scale, 0.5))
    # What a network hands to either normalisation: the other keys are not layer norm's.
    ln_param = {"mode": "train", "eps": 0.5, "running_mean": np.zeros(9)}
    before = dict(ln_param)
    assert_same_bits(names.layernorm_forward(x, scale, shift, ln_param)[0], y)
    assert ln_param == before


def test_parameters_of_another_dtype():
    """The formula would give float64."""
    x, scale, shift = numbers((4, 9), np.float32), np.ones(9), np.zeros(9)
    out, cache = names.layernorm_forward(x, scale, shift, {})
    results = names.layer_norm(x, scale, shift), names.rms_norm(x, scale), out
    assert {a.dtype for a in (*results, *names.layernorm_backward(x, cache))} == {x.dtype}


def test_lists():
    assert names.layer_norm([[1, 2, 3]], [1, 2, 3], [0, 1, -1], 1 / 3).tolist() == [[-1, 1, 2]]
    assert names.rms_norm([[1, 2, 2]], [1, 2, 3], 1).tolist() == [[0.5, 2, 3]]
    _, cache = names.layernorm_forward([[1, 2, 3]], [3, 3, 3], [0, 0, 0], {"eps": 1 / 3})
    dx, dgamma, dbeta = names.layernorm_backward([[1, -1, 2]], cache)
    assert dgamma.tolist() == [-1, 0, 2] and dbeta.tolist() == [1, -1, 2]
    np.testing.assert_allclose(dx, [[2, -5, 3]], rtol=4 * np.finfo(np.float64).eps)


# the formulas, as they are written in NumPy


def formula(x, g, b, eps):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return g * (x - mean) / np.sqrt(variance + eps) + b


def rms_formula(x, g, eps):
    return g * x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps)


def gradients_formula(dout, x, gamma, eps):
    """By way of the gradients for the variance and the mean, as the exercise has it."""
    cols = x.shape[1]
    centred, variance = x - x.mean(1, keepdims=True), x.var(1, keepdims=True) + eps
    dxhat = dout * gamma
    dvariance = -(dxhat * centred).sum(1, keepdims=True) / (2 * variance**1.5)
    dmean = -(dxhat / np.sqrt(variance)).sum(1, keepdims=True)
    dx = dxhat / np.sqrt(variance) + dvariance * 2 * centred / cols + dmean / cols
    return dx, (dout * centred / np.sqrt(variance)).sum(0), dout.sum(0)


# Of a few roundings of numbers up to 10, and of sums of nine.
CLOSE = {"rtol": 1e-14, "atol": 1e-14 * 10}


@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize("shape", [*SHAPES, (9,)])
def test_the_formula(shape, eps):
    x, g, b = operands(shape, np.float64)
    np.testing.assert_allclose(names.layer_norm(x, g, b, eps), formula(x, g, b, eps), **CLOSE)
    np.testing.assert_allclose(names.rms_norm(x, g, eps), rms_formula(x, g, eps), **CLOSE)


@pytest.mark.parametrize("leads", [(3, 1), (1, 4), (3, 4), (4,)])
def test_the_formula_where_parameters_broadcast(leads):
    """As over the last axis alone, whatever the shape of the scale."""
    x, g, b = operands((3, 4, 9), np.float64)[0], *numbers((2, *leads, 9), np.float64, 1, 1)
    np.testing.assert_allclose(names.layer_norm(x, g, b), formula(x, g, b, 1e-5), **CLOSE)
    np.testing.assert_allclose(names.rms_norm(x, g), rms_formula(x, g, 1e-6), **CLOSE)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_the_gradients_of_the_exercise(eps):
    x, gamma, beta = operands((4, 9), np.float64)
    dout = numbers((4, 9), np.float64, 3)
    _, cache = names.layernorm_forward(x, gamma, beta, {"eps": eps})
    found, wanted = names.layernorm_backward(dout, cache), gradients_formula(dout, x, gamma, eps)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, **CLOSE)


def test_the_gradients_by_central_differences():
    """Half the steps: what is cut off, STEP², and the rounding, eps_m / STEP, are of a size."""
    step = 2.0**-17
    values = operands((4, 5), np.float64)
    dout = numbers((4, 5), np.float64, 3)

    def loss(*values):
        return (names.layernorm_forward(*values, {})[0] * dout).sum()

    found = names.layernorm_backward(dout, names.layernorm_forward(*values, {})[1])
    for n, gradient in enumerate(found):
        for place in np.ndindex(gradient.shape):
            moved = [[value.copy() for value in values] for _ in "+-"]
            moved[0][n][place] += step
            moved[1][n][place] -= step
            slope = (loss(*moved[0]) - loss(*moved[1])) / (2 * step)
            np.testing.assert_allclose(gradient[place], slope, rtol=1e-7, atol=1e-7)


# signatures and errors


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        ("layer_norm", "x g b eps=1e-05"),
        ("rms_norm", "x g eps=1e-06"),
        ("layernorm_forward", "x gamma beta ln_param"),
        ("layernorm_backward", "dout cache"),
    ],
)
def test_signatures_and_examples(function, wanted):
    function = getattr(names, function)
    parameters = inspect.signature(function).parameters.values()
    found = [str(p.replace(annotation=p.empty)) for p in parameters]
    assert found == wanted.split()
    test = doctest.DocTestParser().get_doctest(function.__doc__, {}, function.__name__, None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: names.layer_norm(x, np.ones(8), np.ones(9)), ValueError, "weight .* shape"),
        (lambda x: names.layer_norm(x, np.ones(9), np.ones(8)), ValueError, "bias .* shape"),
        (lambda x: names.layer_norm(x, np.ones(9), np.ones(9), -1), ValueError, "eps .* least 0"),
        (lambda x: names.layer_norm(1.0, [1], [0]), ValueError, "normalized_shape is empty"),
        (lambda x: names.rms_norm(x, np.ones(8)), ValueError, "weight .* shape"),
        (
            lambda x: names.layernorm_forward(x, np.ones(8), np.ones(9), {}),
            ValueError,
            "weight .* shape",
        ),
        (
            lambda x: names.layernorm_forward(x, np.ones(9), np.ones(9), {"eps": "small"}),
            TypeError,
            "eps must be a real number",
        ),
        (lambda x: names.layernorm_backward(x, (x, x, x)), TypeError, "cache must be"),
        (
            lambda x: names.layernorm_backward(
                x[:3], names.layernorm_forward(x, np.ones(9), np.ones(9), {})[1]
            ),
            ValueError,
            r"dy must have the shape of x, \(4, 9\), not \(3, 9\)",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(np.ones((4, 9)))
