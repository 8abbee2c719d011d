"""What rms_norm alone says: its numbers, worked out by hand, and what it has not that others have.

What it shares with layer_norm is tested for both, in the files of the promises.
"""

import importlib

import numpy as np
import pytest
from norms import Norm

import lnfast
from lnfast.check import bounds, oracle

DTYPES = [np.float32, np.float64]


@pytest.fixture
def rms(implementation):
    return Norm("rms_norm", implementation)


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.__name__)
def dtype(request):
    return request.param


# Of what is promised: the reference sums D squares in float64, and rounds once more.
SHARE = {lnfast.rms_norm: 1, lnfast.reference.rms_norm: 4 / 3}


def assert_exact(rms, x, dy, weight=None, eps=1e-6):
    """y and the gradients of x (R, D) within their bounds; returned: what is exact of them."""
    y, cache = rms.forward(x, x.shape[-1], weight, eps)
    results = (y, *rms.backward(dy, cache), None)
    shares = bounds.judge(results, x, weight, None, dy, eps, centred=False)
    assert max(shares.values()) <= SHARE[rms.normalize], shares
    gradients = oracle.exact_backward(dy, x, weight, eps, centred=False)
    return oracle.exact_forward(x, weight, None, eps, centred=False).y, gradients


def assert_stated(values, stated, decimals):
    """Right to the last decimal."""
    error = np.abs(np.array(values, float) - stated)
    assert (error <= 0.5 * 10.0**-decimals + 1e-15).all(), error


def test_one_two_three_four(rms, dtype):
    x, dy = np.array([[1, 2, 3, 4]], dtype), np.array([[1, 0, 0, 0]], dtype)
    y, true = assert_exact(rms, x, dy, eps=0.0)
    assert_stated(y, [[0.3651484, 0.7302967, 1.0954451, 1.4605935]], 7)
    assert_stated(true.dx, [[0.35297676, -0.02434322, -0.03651484, -0.04868645]], 8)
    assert_stated(true.dweight, [0.3651484, 0, 0, 0], 7)


def test_one_hundred_among_zeros(rms, dtype):
    x = np.zeros((1, 4096), dtype)
    x[0, 77] = 100
    y, _ = assert_exact(rms, x, np.ones_like(x), eps=1e-5)
    assert_stated(y[0, 77], 63.99987, 5)
    y = rms.normalize(x, 4096, eps=1e-5)
    assert np.flatnonzero(y).tolist() == [77]


def test_one_two_two_to_the_bit(rms, dtype):
    # mean square 3, with eps 4
    x = np.array([[1, 2, 2]], dtype)
    y, cache = rms.forward(x, 3, [1, 2, 3], eps=1)
    assert y.tolist() == [[0.5, 2, 3]]
    assert cache.rstd.tolist() == [[0.5]]
    assert rms.normalize([[1, 2, 2]], 3, [1, 2, 3], eps=1).tolist() == [[0.5, 2, 3]]


def test_three_rows_of_four(rms, dtype):
    # eps 3: mean squares 1, 6 and 13 make roots of 2, 3 and 4
    x = np.array([[1, 1, -1, 1], [4, 2, 2, 0], [1, 5, -5, 1]], dtype)
    dy = np.array([[2, 0, 4, -2], [3, 3, 0, 1], [4, -4, 4, 8]], dtype)
    weight = np.array([1, 2, -1, 4], dtype)
    exact_y, true = assert_exact(rms, x, dy, weight, eps=3.0)
    y = [[1 / 2, 1, 1 / 2, 2], [4 / 3, 4 / 3, -2 / 3, 0], [1 / 4, 5 / 2, 5 / 4, 1]]
    # mean(h xhat) is -1/4, 2 and 1
    dx = [
        [17 / 16, 1 / 16, -33 / 16, -63 / 16],
        [1 / 9, 14 / 9, -4 / 9, 4 / 3],
        [15 / 16, -37 / 16, -11 / 16, 127 / 16],
    ]
    for found, stated in [(exact_y, y), (true.dx, dx), (true.dweight, [6, -3, -7, 1])]:
        assert_stated(found, stated, 15)
    # sums over rows, no means; no part of another row
    for row in range(3):
        part = slice(row, row + 1)
        _, true = assert_exact(rms, x[part], dy[part], weight, eps=3.0)
        assert_stated(true.dx, dx[part], 15)


def test_one_column(rms, dtype):
    """y = x / √(x² + eps), and a dx that eps alone makes: eps · rstd³."""
    x = np.array([[1], [-2], [0.25], [0]], dtype)
    _, true = assert_exact(rms, x, np.ones_like(x), np.array([3], dtype), eps=0.5)
    np.testing.assert_allclose(
        true.dx.astype(float), 3 * 0.5 / (x.astype(float) ** 2 + 0.5) ** 1.5, rtol=1e-14
    )


@pytest.mark.parametrize("cols", [1, 7, 64, 1000])
def test_a_row_of_zeros(rms, cols, dtype):
    """Stays one; its dx is rstd · h, and dweight has nothing of it."""
    x, weight = np.zeros((3, cols), dtype), np.linspace(-2, 2, cols).astype(dtype)
    dy = np.linspace(1, 3, 3 * cols).reshape(3, cols).astype(dtype)
    y, cache = rms.forward(x, cols, weight, 2.0**-20)
    dx, dweight = rms.backward(dy, cache)
    assert not y.any() and not dweight.any()
    assert cache.rstd.tolist() == [[1024.0]] * 3
    np.testing.assert_array_equal(dx, 1024 * (dy * weight))
    assert np.isnan(rms.normalize(x, cols, eps=0)).all()


@pytest.mark.parametrize("cols", [2, 16, 100, 4098])
def test_nothing_is_centred(rms, cols, dtype):
    """A constant row is no row of zeros, and an offset counts: layer_norm of x and −x side by side.

    Such a row has no mean; its variance is the mean square of the first half.
    """
    half = np.random.default_rng(cols).normal(5, 1, (3, cols)).astype(dtype)
    both = np.concatenate([half, -half], axis=1)
    dy = np.random.default_rng(1).standard_normal((3, cols)).astype(dtype)
    y, cache = rms.forward(half, cols)
    known, known_cache = lnfast.layer_norm_forward(both, 2 * cols, eps=1e-6)
    few = 8 * np.finfo(dtype).eps  # 3 max(1, |xhat|) for layer_norm, 3 |xhat| here, 4 by reference
    np.testing.assert_allclose(y, known[:, :cols], rtol=few, atol=few)
    np.testing.assert_allclose(cache.rstd, known_cache.rstd, rtol=1e-14)
    known_dx = lnfast.layer_norm_backward(np.concatenate([dy, -dy], axis=1), known_cache)[0]
    # Two bounds of 4 eps, of rstd (|h| + mean|h| + m mean(|h| m)) with m below √3
    scale = few * cache.rstd.max() * 5 * np.abs(dy).max()
    np.testing.assert_allclose(rms.backward(dy, cache)[0], known_dx[:, :cols], atol=scale)
    constant = rms.normalize(np.full((1, cols), -7, dtype), cols, eps=0)
    np.testing.assert_allclose(constant, -1, rtol=few)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cols", [1, 3, 16, 33, 300])
@pytest.mark.parametrize("place", [0, 4, 8])
def test_what_is_not_finite_spoils_its_own_row(rms, place, cols, bad, dtype):
    clean, dy = np.random.default_rng(cols).normal(1, 2, (2, 9, cols)).astype(dtype)
    others = np.arange(9) != place
    known, known_cache = rms.forward(clean, cols)
    known_dx, known_dweight = rms.backward(dy, known_cache)
    x = clean.copy()
    x[place, cols // 2] = bad
    y, cache = rms.forward(x, cols)
    dx, dweight = rms.backward(dy, cache)
    assert np.isnan(dweight).all()
    for got, expected in [(y, known), (cache.rstd, known_cache.rstd), (dx, known_dx)]:
        assert np.isnan(got[place]).all()
        assert got[others].tobytes() == expected[others].tobytes()

    x, dy = clean, dy.copy()
    dy[place, cols // 2] = bad
    dx, dweight = rms.backward(dy, known_cache)
    assert not np.isfinite(dx[place]).any()
    assert dx[others].tobytes() == known_dx[others].tobytes()
    columns = np.arange(cols) != cols // 2
    assert not np.isfinite(dweight[cols // 2])
    assert dweight[columns].tobytes() == known_dweight[columns].tobytes()


@pytest.mark.parametrize("exponent", [-1, -0.5, 0.4, 0.9])
@pytest.mark.parametrize("cols", [1, 5, 64, 1000])
def test_squares_that_leave_the_range(cols, exponent, dtype):
    info = np.finfo(dtype)
    scale = float(info.smallest_normal) * 1e3 if exponent == -1 else float(info.max) ** exponent
    x = (np.random.default_rng(cols).normal(1, 1, (2, cols)) * scale).astype(dtype)
    assert oracle.forward_share(lnfast.rms_norm(x, cols, eps=0), x, eps=0, centred=False) <= 1


def test_no_bias():
    """In no place of it: not of layer_norm's arguments, not of its results."""
    x, weight = np.ones((2, 4)), np.ones(4)
    for module in ("lnfast", "lnfast.reference"):
        ln = importlib.import_module(module)
        for function in (ln.rms_norm, ln.rms_norm_forward):
            with pytest.raises(TypeError):
                function(x, 4, weight, bias=weight)
            with pytest.raises(TypeError, match="eps must be a real number"):
                function(x, 4, weight, weight)  # where layer_norm has its bias
        cache = ln.rms_norm_forward(x, 4, weight)[1]
        assert len(ln.rms_norm_backward(x, cache)) == 2
        assert not hasattr(cache, "mean")


def test_default_eps(rms):
    x = np.random.default_rng(0).standard_normal((2, 5)) * 1e-3
    np.testing.assert_array_equal(rms.normalize(x, 5), rms.normalize(x, 5, eps=1e-6))
    np.testing.assert_array_equal(rms.forward(x, 5)[0], rms.normalize(x, 5, eps=1e-6))
    np.testing.assert_array_equal(
        lnfast.RMSNorm(5, elementwise_affine=False)(x), lnfast.rms_norm(x, 5)
    )


def pytorch():
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    if not hasattr(torch.nn, "RMSNorm"):
        pytest.skip("compares with PyTorch's RMSNorm, which came with 2.4")
    return torch


@pytest.mark.parametrize("shape", [4, (4,), (3, 4)])
def test_a_state_dict_of_pytorch(shape):
    torch = pytorch()
    theirs, ours = torch.nn.RMSNorm(shape, eps=1e-6), lnfast.RMSNorm(shape)
    with torch.no_grad():
        theirs.weight.copy_(
            torch.linspace(-1, 2, theirs.weight.numel()).reshape(theirs.weight.shape)
        )
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    ours.load_state_dict(state)
    np.testing.assert_array_equal(ours.weight, state["weight"])
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    few = 8 * np.finfo(np.float32).eps
    y, cache = ours.forward(x)
    leaf = torch.tensor(x, requires_grad=True)
    known = theirs(leaf)
    np.testing.assert_allclose(y, known.detach().numpy(), rtol=few)
    known.backward(torch.tensor(x))
    dx = ours.backward(x, cache)
    np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=few, atol=8 * few)
    gradient = theirs.weight.grad.numpy()
    np.testing.assert_allclose(ours.grad_weight, gradient, rtol=few, atol=8 * few)
    # and back
    theirs.load_state_dict({name: torch.tensor(value) for name, value in ours.state_dict().items()})


def test_the_eps_of_pytorch():
    """Where it is given none: the machine epsilon of x's dtype."""
    torch = pytorch()
    for dtype in DTYPES:
        x = np.random.default_rng(0).standard_normal((3, 5)).astype(dtype) * dtype(1e-3)
        known = torch.nn.functional.rms_norm(torch.tensor(x), (5,)).numpy()
        y = lnfast.rms_norm(x, 5, eps=np.finfo(dtype).eps)
        np.testing.assert_allclose(y, known, rtol=8 * np.finfo(dtype).eps)
