"""test_gradients.py: dx, dweight and dbias against differences, a Jacobian, PyTorch and reports."""

import mpmath
import numpy as np
import pytest
from norms import Norm

from lnfast.check import oracle

SHAPES = [((3,), (4,)), ((5,), (2,)), ((2, 3), (7,)), ((4,), (3, 5)), ((), (6,)), ((2, 1), (9, 1))]


@pytest.fixture
def ln(implementation):
    return Norm("layer_norm", implementation)


def example(lead, normalized_shape, dtype=np.float64, seed=0):
    """dy, x, weight and bias; R != D, and no two weights are the same."""
    rng = np.random.default_rng(seed)
    dy, x = rng.standard_normal((2, *lead, *normalized_shape)).astype(dtype)
    weight, bias = rng.uniform(-2, 2, (2, *normalized_shape)).astype(dtype)
    return dy, 3 * x + 1, weight, bias


def gradients(norm, dy, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    parameters = norm.parameters_of(weight, bias)
    _, cache = norm.forward(x, normalized_shape, *parameters, eps)
    dx, *others = norm.backward(dy, cache)
    assert dx.shape == np.shape(x)
    shape = np.shape(x)[np.ndim(x) - len(normalized_shape) :]
    assert [gradient.shape for gradient in others] == [shape for _ in parameters]
    assert {gradient.dtype for gradient in (dx, *others)} == {x.dtype}
    return dx, *others


def assert_promise(found, dy, x, weight=None, eps=1e-5):
    """All three gradients are within their bounds; the last axis of x is the normalised one."""
    size = x.shape[-1]
    dx, dweight, dbias = found
    shares = oracle.backward_shares(
        dx.reshape(-1, size), dweight, dbias, dy.reshape(-1, size), x.reshape(-1, size), weight, eps
    )
    assert max(shares) <= 1, shares


def central_differences(loss, array, step=2.0**-16):
    """The gradient of loss() by every element of array, which is moved in place and put back."""
    gradient = np.empty_like(array)
    for index in np.ndindex(array.shape):
        kept = array[index]
        array[index] = kept + step
        above = loss()
        array[index] = kept - step
        gradient[index] = (above - loss()) / (2 * step)
        array[index] = kept
    return gradient


@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize(("lead", "normalized_shape"), SHAPES)
def test_central_differences(norm, lead, normalized_shape, eps):
    dy, x, weight, bias = example(lead, normalized_shape)
    parameters = norm.parameters_of(weight, bias)

    def loss():  # every evaluation computes the statistics anew
        return float((dy * norm.normalize(x, normalized_shape, *parameters, eps)).sum())

    found = gradients(norm, dy, x, normalized_shape, weight, bias, eps)
    for gradient, array in zip(found, (x, *parameters), strict=True):
        # Truncation is step^2 / 6 times a third derivative, rounding some eps / step: below 1e-8.
        expected = central_differences(loss, array)
        np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 17])
def test_explicit_jacobian(ln, size, dtype):
    dy, x, weight, bias = example((2,), (size,), dtype, seed=size)
    dx, dweight, dbias = gradients(ln, dy, x, (size,), weight, bias)
    scale = oracle.exact_backward(dy, x, weight)
    eps_m = np.finfo(dtype).eps
    with mpmath.workdps(50):
        dweight_exact = np.zeros(size, object)
        for i in range(len(x)):
            row, dy_row, weights = (
                np.array([mpmath.mpf(float(element)) for element in array])
                for array in (x[i], dy[i], weight)
            )
            d = row - row.sum() / size
            rstd = 1 / mpmath.sqrt((d * d).sum() / size + mpmath.mpf(1e-5))
            xhat = d * rstd
            jacobian = rstd * (np.eye(size) - (np.ones((size, size)) + np.outer(xhat, xhat)) / size)
            error = np.abs(dx[i].astype(float) - jacobian.T @ (dy_row * weights)).astype(float)
            assert (error <= 4 * eps_m * scale.dx_scale[i]).all()
            dweight_exact += dy_row * xhat
    error = np.abs(dweight.astype(float) - dweight_exact).astype(float)
    assert (error <= 4 * eps_m * scale.dweight_scale).all()
    error = np.abs(dbias.astype(float) - dy.sum(axis=0, dtype=float))
    assert (error <= 2 * eps_m * scale.dbias_scale).all()


@pytest.mark.parametrize("affine", ["weight and bias", "weight", "bias", "neither"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("lead", "normalized_shape"), SHAPES)
def test_pytorch(norm, lead, normalized_shape, dtype, affine):
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    dy, x, weight, bias = example(lead, normalized_shape, dtype, seed=5)
    weight = weight if "weight" in affine else None
    bias = bias if "bias" in affine else None
    parameters = norm.parameters_of(weight, bias)
    found = gradients(norm, dy, x, normalized_shape, weight, bias)

    leaves = [None if a is None else torch.tensor(a, requires_grad=True) for a in (x, *parameters)]
    function = getattr(torch.nn.functional, norm.name)
    y = function(leaves[0], normalized_shape, *leaves[1:], 1e-5)
    y.backward(torch.tensor(dy))
    close = {"rtol": 100 * np.finfo(dtype).eps, "atol": 100 * np.finfo(dtype).eps}
    got = norm.normalize(x, normalized_shape, *parameters, 1e-5)
    np.testing.assert_allclose(got, y.detach().numpy(), **close)
    for gradient, leaf in zip(found, leaves, strict=True):
        if leaf is not None:
            np.testing.assert_allclose(gradient, leaf.grad.numpy(), **close)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [4, 16, 100, 768])
def test_a_sum_as_loss_has_no_dx(ln, size, dtype):
    x = np.arange(1, size + 1, dtype=dtype)
    dx, dweight, dbias = gradients(ln, np.ones(size, dtype), x, (size,))
    assert_promise((dx, dweight, dbias), np.ones(size, dtype), x)
    # The true dx is not 0 but of the order of eps; rounding is all there may be beyond it.
    assert np.abs(dx).max() <= 100 * np.finfo(dtype).eps
    assert (dbias == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0, 7, -11.000002, 1e30])
def test_a_constant_row_has_a_dx(ln, value, dtype):
    x, dy = np.full((1, 2), value, dtype), np.array([[1, 0]], dtype)
    found = gradients(ln, dy, x, (2,))
    np.testing.assert_allclose(found[0], [[158.11388, -158.11388]], rtol=5e-7)
    assert_promise(found, dy, x)
    assert found[1].tolist() == [0, 0] and found[2].tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("zeros", [[0], [3], [0, 1, 2], [0, 1, 2, 3]])
def test_a_weight_of_zero_is_not_divided_by(ln, zeros, dtype):
    dy, x, _, bias = example((3,), (4,), dtype, seed=6)
    weight = np.ones(4, dtype)
    weight[zeros] = 0
    found = gradients(ln, dy, x, (4,), weight, bias)
    assert_promise(found, dy, x, weight)
    # dweight and dbias do not depend on weight at all: both keep the promise for any other weight.
    assert_promise((gradients(ln, dy, x, (4,))[0], *found[1:]), dy, x)
    if len(zeros) == 4:
        assert not found[0].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dweight_and_dbias_are_told_apart(ln, dtype):
    # Every row has xhat = [-a, -a, a, a], a within 1e-5 of 1.
    x = np.array([[1, 1, 3, 3], [-6, -6, -4, -4], [10, 10, 12, 12]], dtype)
    dy = np.array([[1, 2, 3, 4], [10, 20, 30, 40], [100, 200, 300, 400]], dtype)
    found = gradients(ln, dy, x, (4,), np.array([1, 2, 3, 4], dtype), np.zeros(4, dtype))
    assert_promise(found, dy, x, [1, 2, 3, 4])
    np.testing.assert_allclose(found[1], [-111, -222, 333, 444], rtol=1e-5)
    assert found[2].tolist() == [111, 222, 333, 444]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_over_rows_are_no_means(ln, dtype):
    dy, x, weight, _ = example((3,), (4,), dtype, seed=7)
    once, twice = (
        gradients(ln, np.concatenate([dy] * n), np.concatenate([x] * n), (4,), weight)
        for n in (1, 2)
    )
    assert twice[0][:3].tobytes() == once[0].tobytes()
    for more, less in zip(twice[1:], once[1:], strict=True):
        np.testing.assert_allclose(more, 2 * less, rtol=0, atol=64 * np.finfo(dtype).eps)


def test_no_gradient_is_rescaled_by_eps_or_size(ln):
    # pytorch#41595, #18233: weight not all ones, shapes in which R and D differ widely.
    for rows, size in [(1, 40), (40, 2), (13, 5)]:
        dy, x, weight, bias = example((rows,), (size,), seed=rows)
        for eps in (0.0, 1e-12, 1e-5, 1.0):
            found = gradients(ln, dy, x, (size,), weight, bias, eps)
            exact = oracle.exact_backward(dy, x, weight, eps)
            for gradient, true in zip(found, exact, strict=False):
                np.testing.assert_allclose(gradient, true.astype(float), rtol=1e-9, atol=1e-9)
