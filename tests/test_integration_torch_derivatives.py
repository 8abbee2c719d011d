"""lnfast.integrations.torch: right to second order, and exact there."""

import numpy as np
import pytest
from tensors import CASES, EPS, NORMALIZED, SHAPE, array, draw, draw_parameters, torch
from variants import assert_all_same_bits

import lnfast
import lnfast.integrations.torch as ours


def function_and_operands(norm, given, shape, normalized_shape):
    operands = [draw(shape, torch.float64)]
    operands += [
        t for t in draw_parameters(given, torch.float64, normalized_shape) if t is not None
    ]

    def function(x, *others):
        others = iter(others)
        parameters = [next(others) if wanted else None for wanted in given]
        return getattr(ours, norm)(x, normalized_shape, *parameters, EPS)

    return function, [t.requires_grad_() for t in operands]


@pytest.mark.parametrize(
    ("shape", "normalized_shape"), [((3, 5), (5,)), ((5,), (5,)), ((2, 1, 3, 2), (3, 2))]
)
@pytest.mark.parametrize(("norm", "given"), CASES)
def test_derivatives_by_differences(norm, given, shape, normalized_shape):
    function, operands = function_and_operands(norm, given, shape, normalized_shape)
    assert torch.autograd.gradcheck(function, operands)
    assert torch.autograd.gradgradcheck(function, operands)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_of_second_order(dtype):
    x, dy, ddx = (draw(SHAPE, dtype, seed).requires_grad_() for seed in (5, 6, 7))
    parameters = [t.requires_grad_() for t in draw_parameters([True, True], dtype)]
    second = [ddx, *draw_parameters([True, True], dtype)]
    y = ours.layer_norm(x, NORMALIZED, *parameters, EPS)
    first = torch.autograd.grad(y, (x, *parameters), dy, create_graph=True)
    got = torch.autograd.grad(first, (dy, x, parameters[0]), second)
    _, cache = lnfast.layer_norm_forward(array(x), NORMALIZED, *map(array, parameters), EPS)
    known = lnfast.layer_norm_double_backward(*map(array, second), array(dy), cache)
    assert_all_same_bits(map(array, got), known)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cols", [1, 2, 7, 33])
def test_rms_norm_of_second_order_is_as_exact(dtype, cols):
    """Within the bounds of `lnfast.layer_norm_double_backward`, by the formula in long double."""
    x, dy, ddx = (draw((9, cols), dtype, seed).requires_grad_() for seed in (5, 6, 7))
    weight, ddweight = (draw((cols,), dtype, seed).requires_grad_() for seed in (8, 9))
    y = ours.rms_norm(x, (cols,), weight, EPS)
    first = torch.autograd.grad(y, (x, weight), dy, create_graph=True)
    got = torch.autograd.grad(first, (dy, x, weight), (ddx, ddweight))

    x, dy, ddx, weight, ddweight = (
        array(t).astype(np.longdouble) for t in (x, dy, ddx, weight, ddweight)
    )
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.longdouble(EPS))
    xhat, h = x * rstd, dy * weight
    m = np.maximum(1, abs(xhat))

    def mean(v):
        return v.mean(-1, keepdims=True)

    def p(v):
        return rstd * (v - xhat * mean(v * xhat))

    def s(v):
        return rstd * (abs(v) + mean(abs(v)) + m * mean(abs(v) * m))

    exact = (
        p(ddx) * weight + xhat * ddweight,
        p(dy * ddweight)
        - rstd * (xhat * mean(ddx * p(h)) + mean(h * xhat) * p(ddx) + mean(ddx * xhat) * p(h)),
        (dy * p(ddx)).sum(0),
    )
    of_means = mean(abs(ddx * h)) + mean(abs(ddx)) * mean(abs(h))
    scale = (
        abs(weight) * s(ddx) + m * abs(ddweight),
        s(dy * ddweight)
        + rstd * (mean(abs(h) * m) * s(ddx) + mean(abs(ddx) * m) * s(h))
        + rstd**2 * m * (of_means + mean(abs(ddx) * m) * mean(abs(h) * m)),
        (abs(dy) * s(ddx)).sum(0),
    )
    factors = (1, 1, 1) if dtype == torch.float32 else (12, 20, 12)
    for tensor, wanted, size, factor in zip(got, exact, scale, factors, strict=True):
        assert (abs(array(tensor) - wanted) <= factor * torch.finfo(dtype).eps * size).all()


def test_no_third_order():
    x = draw((3, 5), torch.float64).requires_grad_()
    y = ours.layer_norm(x, (5,)).pow(3).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"lnfast.layer_norm_double_backward.* no autograd"):
        second.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_no_second_order_of_half_types(dtype):
    x = draw((3, 5), dtype).requires_grad_()
    (dx,) = torch.autograd.grad(ours.layer_norm(x, (5,)).pow(2).sum(), x, create_graph=True)
    with pytest.raises(TypeError, match="must be float32 or float64"):
        dx.sum().backward()
