"""lnfast.integrations.autograd: derivatives are right to second order, and have lnfast's bits."""

from itertools import combinations

import numpy as np
import pytest
from variants import DTYPES, LAYOUTS, assert_all_same_bits, assert_same_bits, numbers

import lnfast

pytest.importorskip("autograd", reason="autograd is missing: pip install 'lnfast[autograd]'")
import autograd
import autograd.numpy as anp
from autograd.test_util import check_grads

from lnfast.integrations.autograd import layer_norm, rms_norm

NORMS = [layer_norm, rms_norm]
# Which operands there are, of each norm.
OPERANDS = [
    (layer_norm, ["x"]),
    (layer_norm, ["x", "weight"]),
    (layer_norm, ["x", "bias"]),
    (layer_norm, ["x", "weight", "bias"]),
    (rms_norm, ["x"]),
    (rms_norm, ["x", "weight"]),
]
# x's shape, and how many of its axes are normalised; small, so that each term shows.
SHAPES = [((5,), 1), ((3, 4), 1), ((2, 3, 5), 1), ((2, 3, 4), 2), ((3, 1), 1), ((2, 2), 1)]


@pytest.fixture(autouse=True)
def directions():
    """check_grads draws them from NumPy's global generator."""
    state = np.random.get_state()
    np.random.seed(0)
    yield
    np.random.set_state(state)


def operands(shape, axes=1, dtype=np.float64, names=("x", "weight", "bias")):
    """Values by name."""
    lengths = shape[len(shape) - axes :]
    values = {
        "x": 2 * numbers(shape, dtype, 0, 1),
        "weight": numbers(lengths, dtype, 1, 1),
        "bias": numbers(lengths, dtype, 2),
    }
    return {name: values[name] for name in names}


def of_operands(norm, names, normalized_shape, eps):
    """The norm as a function of the operands of these names alone."""

    def function(*values):
        return norm(
            normalized_shape=normalized_shape, eps=eps, **dict(zip(names, values, strict=True))
        )

    return function


# by differences


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize(("norm", "names"), OPERANDS)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_by_differences(norm, names, shape, axes, curved):
    """With respect to each operand alone and to any together, the others constant; y itself, and a
    loss whose gradient changes with y.
    """
    function = of_operands(norm, names, shape[len(shape) - axes :], eps=0.1)
    values = operands(shape, axes, names=names).values()

    def loss(*values):
        return anp.sum(anp.tanh(function(*values)) ** 2)

    for count in range(1, len(names) + 1):
        for argnums in combinations(range(len(names)), count):
            check = check_grads(loss if curved else function, argnums, ["fwd", "rev"], order=2)
            check(*values)


@pytest.mark.parametrize("norm", NORMS)
def test_one_gradient_within_another(norm):
    """x and weight are traced by different gradients, each within the other."""
    x, weight = operands((3, 4), names=["x", "weight"]).values()

    def loss(x, weight):
        return anp.sum(anp.tanh(norm(x, 4, weight, eps=0.1)))

    for inner, outer in ((0, 1), (1, 0)):
        check_grads(autograd.grad(loss, inner), outer, ["fwd", "rev"], order=1)(x, weight)


@pytest.mark.parametrize("norm", NORMS)
def test_one_array_as_x_and_weight(norm):
    x = numbers((4,), np.float64)
    check_grads(lambda x: norm(x, weight=x, eps=0.1), 0, ["fwd", "rev"], order=2)(x)


# by autograd through the formula


def formula(x, weight, bias, eps, centred):
    d = x - anp.mean(x, -1, keepdims=True) if centred else x
    return d / anp.sqrt(anp.mean(d * d, -1, keepdims=True) + eps) * weight + bias


@pytest.mark.parametrize("norm", NORMS)
def test_the_hessian_is_that_of_the_formula(norm):
    """The whole of it, over all operands at once: some hundred roundings of numbers up to 30."""
    rows, cols = 2, 5
    values = np.concatenate([value.ravel() for value in operands((rows, cols)).values()])

    def loss_of(norm):
        def loss(values):
            x, (weight, bias) = values[: rows * cols], values[rows * cols :].reshape(2, cols)
            return anp.sum(anp.sin(norm(x.reshape(rows, cols), weight, bias)))

        return loss

    def by_lnfast(x, weight, bias):
        if norm is layer_norm:
            return layer_norm(x, cols, weight, bias, 0.1)
        return rms_norm(x, cols, weight, 0.1) + bias

    def by_formula(x, weight, bias):
        return formula(x, weight, bias, 0.1, norm is layer_norm)

    found, wanted = (autograd.hessian(loss_of(y))(values) for y in (by_lnfast, by_formula))
    few = 100 * np.finfo(np.float64).eps
    np.testing.assert_allclose(found, wanted, rtol=few, atol=30 * few)
    assert 1 < np.abs(wanted).max() < 30


# to the bit


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("norm", "names"), OPERANDS)
def test_bits(norm, names, dtype, layout):
    """y, traced or not, and its gradients."""
    values = operands((4, 3, 9), 2, dtype, names)
    values["x"] = LAYOUTS[layout](values["x"])
    dy = LAYOUTS[layout](numbers((4, 3, 9), dtype, 3))
    function = of_operands(norm, names, (3, 9), 1e-5)
    forward, backward = (
        getattr(lnfast, f"{norm.__name__}_{way}") for way in ("forward", "backward")
    )
    y, cache = forward(normalized_shape=(3, 9), eps=1e-5, **values)
    gradients = dict(zip(("x", "weight", "bias"), backward(dy, cache), strict=False))

    vjp, traced = autograd.make_vjp(function, range_of(names))(*values.values())
    assert_same_bits(function(*values.values()), y)
    assert_same_bits(traced, y)
    assert_all_same_bits(vjp(dy), [gradients[name] for name in names])


def range_of(names):
    return tuple(range(len(names)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("names", [names for norm, names in OPERANDS if norm is layer_norm])
def test_bits_of_tangents_and_second_derivatives(names, dtype):
    values = operands((4, 3, 9), 2, dtype, names)
    dy, ddx = numbers((2, 4, 3, 9), dtype, 3)
    function = of_operands(layer_norm, names, (3, 9), 1e-5)
    _, cache = lnfast.layer_norm_forward(normalized_shape=(3, 9), **values)

    tangents = {name: numbers(value.shape, dtype, 4) for name, value in values.items()}
    jvp = autograd.make_jvp(function, range_of(names))(*values.values())
    _, found = jvp(tuple(tangents.values()))
    dx, dweight, dbias = (tangents.get(name) for name in ("x", "weight", "bias"))
    assert_same_bits(found, lnfast.layer_norm_jvp(dx, cache, dweight, dbias))

    def gradients(dy, *values):
        return autograd.make_vjp(function, range_of(names))(*values)[0](dy)

    seconds = {"x": ddx} | {name: tangents[name] for name in names[1:]}
    wanted = lnfast.layer_norm_double_backward(
        ddx, seconds.get("weight"), seconds.get("bias"), dy, cache
    )
    argnums = tuple(range(3 if "weight" in names else 2))  # dy, x and weight
    vjp, _ = autograd.make_vjp(gradients, argnums)(dy, *values.values())
    assert_all_same_bits(vjp(tuple(seconds.values())), wanted[: len(argnums)])


@pytest.mark.parametrize("names", [["x"], ["x", "weight"]])
def test_rms_norm_in_float32_is_rounded_once(names):
    """Half an epsilon, and what float32's rstd is off; all else is computed in float64."""
    values = operands((4, 9), 1, np.float32, names)
    dy, tangent = numbers((2, 4, 9), np.float32, 3)
    function = of_operands(rms_norm, names, 9, 1e-6)

    def derivatives(dtype):
        x, *weight = (value.astype(dtype) for value in values.values())

        def of_x(x):
            return function(x, *weight)

        def gradient(x, dy):
            return autograd.make_vjp(of_x)(x)[0](dy)

        operands = x, dy.astype(dtype)
        seconds = (autograd.make_vjp(gradient, n)(*operands)[0](tangent) for n in (0, 1))
        return autograd.make_jvp(of_x)(x)(tangent)[1], *seconds

    for narrow, wide in zip(derivatives(np.float32), derivatives(np.float64), strict=True):
        assert (narrow.dtype, wide.dtype) == (np.float32, np.float64)
        np.testing.assert_allclose(narrow, wide, rtol=0, atol=2.0**-23 * np.abs(wide).max())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_derivatives_have_the_dtype_of_x(norm, dtype):
    (other,) = {np.float32, np.float64} - {dtype}
    x, weight = numbers((3, 4), dtype), numbers((4,), other)
    function = of_operands(norm, ["x", "weight"], 4, 1e-5)

    def gradient(x, weight):
        return autograd.make_vjp(function)(x, weight)[0](x)

    found = [
        *autograd.make_jvp(function)(x, weight)(x.astype(other)),
        *(autograd.make_vjp(of, n)(x, weight)[0](x) for of in (function, gradient) for n in (0, 1)),
    ]
    assert {array.dtype for array in found} == {np.dtype(dtype)}


@pytest.mark.parametrize("norm", NORMS)
def test_half_types_and_weights_of_samples_to_first_order(norm):
    x, dy = numbers((2, 2, 3, 5), np.float16)
    parameters = numbers((2, 2, 1, 5), np.float32, 1)[: 2 if norm is layer_norm else 1]
    argnums = tuple(range(1 + len(parameters)))
    vjp, y = autograd.make_vjp(lambda x, *others: norm(x, 5, *others), argnums)(x, *parameters)
    wanted, cache = getattr(lnfast, f"{norm.__name__}_forward")(x, 5, *parameters)
    assert_same_bits(y, wanted)
    assert_all_same_bits(vjp(dy), getattr(lnfast, f"{norm.__name__}_backward")(dy, cache))


# what is not finite, and what is not there


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_row_spoils_itself_alone_and_no_warning_comes(norm, value):
    """1e200: xhat is finite, and its products are not."""
    x = numbers((3, 4), np.float64)
    x[1, 2] = value

    def of_rows(x):
        y, tangent = autograd.make_jvp(lambda x: norm(x, 4))(x)(np.ones_like(x))
        hvp = autograd.make_hvp(lambda x: anp.sum(norm(x, 4) ** 3))(x)[0]
        return [y, tangent, hvp(np.ones_like(x))]

    for spoilt, alone in zip(of_rows(x), of_rows(x[::2]), strict=True):
        assert_same_bits(spoilt[::2], alone)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_no_elements(norm, shape):
    x, weight = np.zeros(shape), np.ones(shape[1])
    y, tangent = autograd.make_jvp(norm)(x, weight=weight)(x)
    hvp = autograd.make_hvp(lambda x, w: anp.sum(norm(x, weight=w) ** 3), (0, 1))(x, weight)[0]
    dx, dweight = hvp((x, weight))
    assert y.shape == tangent.shape == dx.shape == shape
    assert dweight.tolist() == [0] * shape[1]
