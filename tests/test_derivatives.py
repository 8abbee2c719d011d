"""Derivatives of layer norm and of its backward pass: as exact as promised, by four judges."""

import doctest
import inspect
import warnings

import numpy as np
import pytest

import lnfast
from lnfast import reference
from lnfast.check import bounds, oracle
from lnfast.check.families import FAMILIES

DTYPES = [np.float32, np.float64]
NAMES = ["layer_norm_jvp", "layer_norm_double_backward"]
# From the code: 8 lanes; blocks of 32 rows.
LENGTHS = (1, 2, 3, 7, 8, 9, 33, 768, 4097)


@pytest.mark.parametrize("name", NAMES)
def test_signatures_and_examples(name):
    compiled, defined = getattr(lnfast, name), getattr(reference, name)
    one, other = (
        [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
        for f in (compiled, defined)
    )
    assert one == other
    assert compiled.__module__ == "lnfast"
    test = doctest.DocTestParser().get_doctest(compiled.__doc__, {}, name, None, 0)
    assert test.examples and doctest.DocTestRunner().run(test).failed == 0


# by hand


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_two_three(implementation, dtype):
    """eps 1/3: rstd is 1, xhat −1, 0, 1. With a = (1, 0, 0) and h = (1, −1, 2), P(a) is
    (1, −1, 0) / 3, P(h) = (2, −5, 3) / 3, the means of a·P(h), h·xhat and a·xhat 2/9, 1/3, −1/3.
    """
    ln = implementation
    x, dy, a = (np.array([row], dtype) for row in ([1, 2, 3], [1, -1, 2], [1, 0, 0]))
    few = 4 * np.finfo(dtype).eps
    _, cache = ln.layer_norm_forward(x, 3, eps=1 / 3)
    gdy, gx, gweight = ln.layer_norm_double_backward(a, None, None, dy, cache)
    np.testing.assert_allclose(gdy, [[1 / 3, -1 / 3, 0]], atol=few)
    np.testing.assert_allclose(gx, [[1 / 3, -4 / 9, 1 / 9]], atol=few)
    np.testing.assert_allclose(gweight, [1 / 3, 1 / 3, 0], atol=few)
    # q = dy · ddweight = (0, −3, 0): mean −1, mean of q · xhat 0
    gdy, gx, gweight = ln.layer_norm_double_backward(None, [5, 3, 0], [7, 8, 9], dy, cache)
    np.testing.assert_allclose(gdy, [[2, 8, 9]], atol=8 * few)
    q = np.array([5, -3, 0])
    mean, mean_xhat = 2 / 3, -5 / 3
    np.testing.assert_allclose(gx, [q - mean - np.array([-1, 0, 1]) * mean_xhat], atol=8 * few)
    assert not gweight.any()

    _, cache = ln.layer_norm_forward(x, 3, [3, 6, 9], eps=1 / 3)
    np.testing.assert_allclose(ln.layer_norm_jvp(a, cache), [[1, -2, 0]], atol=8 * few)
    dy = ln.layer_norm_jvp(None, cache, [1, 2, 3], [10, 20, 30])
    np.testing.assert_allclose(dy, [[9, 20, 33]], atol=16 * few)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_row(implementation, dtype):
    """xhat is 0: P(v) is rstd (v − mean(v)), and gx has nothing of ddx."""
    x = np.full((2, 4), 7, dtype)
    dy, a = np.array([[1, 2, 3, 6], [4, 0, 0, 0]], dtype), np.array([[4, 0, 0, 0]] * 2, dtype)
    _, cache = implementation.layer_norm_forward(x, 4, eps=1 / 16)
    tangent = implementation.layer_norm_jvp(a, cache)
    assert tangent.tolist() == [[12, -4, -4, -4]] * 2
    gdy, gx, gweight = implementation.layer_norm_double_backward(a, None, None, dy, cache)
    assert gdy.tolist() == tangent.tolist() and not gx.any()
    assert gweight.tolist() == [60, -8, -12, -24]
    _, gx, _ = implementation.layer_norm_double_backward(None, np.ones(4), None, dy, cache)
    assert gx.tolist() == [[-8, -4, 0, 12], [12, -4, -4, -4]]


# by wider arithmetic


def mean(a):
    return oracle._mean(a)


class Exact:
    """All results of a case and what their bounds multiply, in longdouble."""

    def __init__(self, x, weight, dy, ddx, ddweight, ddbias, eps):
        forward = oracle.exact_forward(x, None, None, eps)
        wide = (a.astype(np.longdouble) for a in (weight, dy, ddx, ddweight, ddbias))
        weight, dy, a, ddweight, ddbias = wide
        xhat, self.xhat, self.rstd = forward.xhat, forward.xhat, forward.rstd
        self.m = m = np.maximum(1, np.abs(xhat))
        rstd, h, q = forward.rstd, dy * weight, dy * ddweight
        p_a, p_h = self.project(a), self.project(h)
        self.gdy = p_a * weight + xhat * ddweight + ddbias
        self.gweight = oracle._sum(dy * p_a, 0)[0]
        self.gx = self.project(q) - rstd * (
            xhat * mean(a * p_h) + mean(h * xhat) * p_a + mean(a * xhat) * p_h
        )
        s_a, s_h, size_a, size_h = self.size(a), self.size(h), np.abs(a), np.abs(h)
        self.gdy_scale = np.abs(weight) * s_a + m * np.abs(ddweight) + np.abs(ddbias)
        self.gweight_scale = oracle._sum(np.abs(dy) * s_a, 0)[0]
        both = mean(size_a * size_h) + mean(size_a) * mean(size_h)
        both = both + mean(size_a * m) * mean(size_h * m)
        self.gx_scale = self.size(q) + rstd * (
            mean(size_h * m) * s_a + mean(size_a * m) * s_h + m * rstd * both
        )

    def project(self, v):
        return self.rstd * (v - mean(v) - self.xhat * mean(v * self.xhat))

    def size(self, v):
        return self.rstd * (np.abs(v) + mean(np.abs(v)) + self.m * mean(np.abs(v) * self.m))

    def share(self, name, found, epsilons):
        """Of the bound, by the worst element; what leaves the range may be Inf, as in oracle.py."""
        info = np.finfo(found.dtype)
        exact, scale = getattr(self, name), getattr(self, f"{name}_scale")
        bound = epsilons * info.eps * scale + len(self.xhat) * info.smallest_subnormal
        share = np.abs(found - exact) / bound
        overflows = np.isinf(found) & (np.sign(found) == np.sign(exact))
        share[overflows & (np.abs(exact) + bound > info.max)] = 0
        share[(scale >= np.longdouble(info.max) / 4) & ~np.isnan(found)] = 0
        return float(np.max(share, initial=0))


# float64 rows whose rstd² and m2 it holds
IN_RANGE = [f for f in FAMILIES if f not in ("to the largest", "past the squares", "subnormal")]
IN_RANGE = {"float32": list(FAMILIES), "float64": [f for f in IN_RANGE if f != "tiny"]}


@pytest.mark.parametrize(
    ("dtype", "family"), [(dtype, family) for dtype in IN_RANGE for family in IN_RANGE[dtype]]
)
def test_bounds(dtype, family):
    epsilons = (1, 1, 1) if dtype == "float32" else (12, 20, 12)
    rng = np.random.default_rng(0)
    for cols in LENGTHS:
        for eps in bounds.EPS:
            case = bounds.Case(family, dtype, 37 if cols < 100 else 5, cols, eps)
            x, weight, ddweight, dy = bounds.operands(case)
            if not len(x):
                continue
            ddx = (rng.standard_normal(x.shape) + rng.integers(-2, 3)).astype(dtype)
            ddbias = rng.standard_normal(cols).astype(dtype)
            _, cache = lnfast.layer_norm_forward(x, cols, weight, eps=eps)
            found = lnfast.layer_norm_double_backward(ddx, ddweight, ddbias, dy, cache)
            exact = Exact(x, weight, dy, ddx, ddweight, ddbias, eps)
            for name, result, many in zip(("gdy", "gx", "gweight"), found, epsilons, strict=True):
                assert exact.share(name, result, many) <= 1, (case, name)
            tangent = lnfast.layer_norm_jvp(ddx, cache, ddweight, ddbias)
            assert tangent.tobytes() == found[0].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_definition_agrees(dtype, weighted):
    rng = np.random.default_rng(1)
    x, dy, ddx = rng.standard_normal((3, 4, 5, 6, 7)).astype(dtype)
    weight, ddweight, ddbias = rng.standard_normal((3, 6, 7)).astype(dtype)
    _, cache = lnfast.layer_norm_forward(x, (6, 7), weight if weighted else None)
    few = 32 * np.finfo(dtype).eps
    for given in ((ddx, ddweight, ddbias), (ddx, None, None), (None, ddweight, None)):
        a, b = (ln.layer_norm_double_backward(*given, dy, cache) for ln in (lnfast, reference))
        assert [v.shape for v in a] == [x.shape, x.shape, (6, 7)]
        for one, other in zip(a, b, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=few, atol=8 * few)
        given = given[0], cache, *given[1:]
        one, other = (ln.layer_norm_jvp(*given) for ln in (lnfast, reference))
        assert one.tobytes() == a[0].tobytes() and other.tobytes() == b[0].tobytes()


# by central differences


def operands(rows, cols, seed=0):
    rng = np.random.default_rng(seed)
    x, dy, ddx = rng.normal(1, 2, (3, rows, cols))
    weight, bias, ddweight, ddbias = rng.normal(1, 2, (4, cols))
    return x, weight, bias, dy, ddx, ddweight, ddbias


# Half the steps: the rounding, eps_m / STEP, and what is cut off, STEP², are of a size.
STEP = 2.0**-17
# |f'''| / 6 · STEP² and |f| · eps_m / STEP, for functions of this size, with what sums make of it
CLOSE = {"rtol": 1e-7, "atol": 1e-7}


@pytest.mark.parametrize(("rows", "cols"), [(3, 4), (2, 9), (1, 2)])
def test_jvp_by_central_differences(implementation, rows, cols):
    x, weight, bias, _, *tangents = operands(rows, cols)

    def moved(by):
        dx, dweight, dbias = (by * t for t in tangents)
        return implementation.layer_norm(x + dx, cols, weight + dweight, bias + dbias, 0.1)

    _, cache = implementation.layer_norm_forward(x, cols, weight, bias, 0.1)
    dx, *others = tangents
    found = implementation.layer_norm_jvp(dx, cache, *others)
    np.testing.assert_allclose(found, (moved(STEP) - moved(-STEP)) / (2 * STEP), **CLOSE)


@pytest.mark.parametrize(("rows", "cols"), [(3, 4), (2, 9), (1, 2)])
def test_double_backward_by_central_differences(implementation, rows, cols):
    """Of Σ ddx · dx + Σ ddweight · dweight + Σ ddbias · dbias, an element of dy, x, weight each."""
    ln = implementation
    x, weight, _, dy, *seconds = operands(rows, cols)

    def loss(dy, x, weight):
        gradients = ln.layer_norm_backward(dy, ln.layer_norm_forward(x, cols, weight, eps=0.1)[1])
        return sum((g * s).sum() for g, s in zip(gradients, seconds, strict=True))

    given = dy, x, weight
    _, cache = ln.layer_norm_forward(x, cols, weight, eps=0.1)
    found = ln.layer_norm_double_backward(*seconds, dy, cache)
    for i, gradient in enumerate(found):
        numeric = np.empty_like(gradient)
        for place in np.ndindex(gradient.shape):
            ends = []
            for step in (STEP, -STEP):
                moved = [a.copy() for a in given]
                moved[i][place] += step
                ends.append(loss(*moved))
            numeric[place] = (ends[0] - ends[1]) / (2 * STEP)
        size = np.abs(gradient).max() + abs(loss(*given))
        np.testing.assert_allclose(gradient, numeric, rtol=0, atol=1e-8 * size)


# by PyTorch


def pytorch():
    return pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")


@pytest.mark.parametrize(("rows", "cols"), [(1, 5), (7, 64), (40, 33)])
@pytest.mark.parametrize("wanted", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 1, 1)])
def test_double_backward_by_pytorch(implementation, rows, cols, wanted):
    torch = pytorch()
    x, weight, bias, dy, *seconds = operands(rows, cols)
    t_x, t_weight, t_bias, t_dy = (
        torch.tensor(a, requires_grad=True) for a in (x, weight, bias, dy)
    )
    y = torch.nn.functional.layer_norm(t_x, (cols,), t_weight, t_bias, 1e-5)
    first = torch.autograd.grad(y, (t_x, t_weight, t_bias), t_dy, create_graph=True)
    loss = sum(
        (g * torch.tensor(s)).sum() for g, s, w in zip(first, seconds, wanted, strict=True) if w
    )
    theirs = torch.autograd.grad(loss, (t_dy, t_x, t_weight), allow_unused=True)
    _, cache = implementation.layer_norm_forward(x, cols, weight, bias, 1e-5)
    seconds = [s if w else None for s, w in zip(seconds, wanted, strict=True)]
    ours = implementation.layer_norm_double_backward(*seconds, dy, cache)
    for a, b in zip(ours, theirs, strict=True):
        if b is None:  # what it does not depend on
            assert not a.any()
        else:
            # both in float64: some hundred roundings
            np.testing.assert_allclose(a, b.numpy(), rtol=0, atol=1e-13 * np.abs(a).max() * cols)


@pytest.mark.parametrize(("rows", "cols"), [(1, 5), (7, 64)])
def test_jvp_by_pytorch(implementation, rows, cols):
    torch = pytorch()
    x, weight, bias, _, *tangents = operands(rows, cols)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own deprecated parts
        _, theirs = torch.func.jvp(
            lambda x, weight, bias: torch.nn.functional.layer_norm(x, (cols,), weight, bias, 1e-5),
            tuple(torch.tensor(a) for a in (x, weight, bias)),
            tuple(torch.tensor(a) for a in tangents),
        )
    _, cache = implementation.layer_norm_forward(x, cols, weight, bias, 1e-5)
    dx, *others = tangents
    ours = implementation.layer_norm_jvp(dx, cache, *others)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-13 * np.abs(ours).max() * cols)


def test_a_gradient_penalty(implementation):
    """½ |dx|², whose gradient for x is a Hessian-vector product: one step down lowers it."""
    x, weight, _, dy, *_ = operands(5, 16)

    def penalty(x):
        cache = implementation.layer_norm_forward(x, 16, weight)[1]
        dx, _, _ = implementation.layer_norm_backward(dy, cache)
        _, gx, _ = implementation.layer_norm_double_backward(dx, None, None, dy, cache)
        return (dx**2).sum() / 2, gx

    before, gx = penalty(x)
    step = 1e-4
    after, _ = penalty(x - step * gx)
    # to the first order, by |gx|²
    np.testing.assert_allclose((before - after) / step, (gx**2).sum(), rtol=0.02)
