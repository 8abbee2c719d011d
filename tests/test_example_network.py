"""examples/network.py: batch norm and Adam are PyTorch's, gradients are right."""

import sys
from pathlib import Path

import numpy as np
import pytest
from differences import disturb

sys.path.append(str(Path(__file__).parents[1] / "examples"))

import network  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_batch_norm_is_pytorchs(rng, dtype, tolerance):
    torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install torch")
    ours = network.BatchNorm(7, momentum=0.3, dtype=dtype)
    disturb(ours, rng)
    theirs = torch.nn.BatchNorm1d(7, momentum=0.3, dtype=getattr(torch, np.dtype(dtype).name))
    with torch.no_grad():
        theirs.weight[:], theirs.bias[:] = torch.tensor(ours.weight), torch.tensor(ours.bias)

    def assert_same(mine, other):
        assert mine.dtype == dtype
        other = other.detach().numpy()
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)

    for rows in (5, 2, 9):  # gradients add up and statistics run over the batches
        x, dy = rng.normal(1, 2, (2, rows, 7)).astype(dtype)
        y, cache = ours.forward(x)
        there = torch.tensor(x, requires_grad=True)
        expected = theirs(there)
        expected.backward(torch.tensor(dy))
        assert_same(y, expected)
        assert_same(ours.backward(dy, cache), there.grad)
    assert_same(ours.grad_weight, theirs.weight.grad)
    assert_same(ours.grad_bias, theirs.bias.grad)
    assert_same(ours.running_mean, theirs.running_mean)
    assert_same(ours.running_var, theirs.running_var)
    assert_same(ours(x), theirs.eval()(torch.tensor(x)))


def test_batch_norm_needs_two_rows():
    with pytest.raises(ValueError, match="at least 2 rows to train on, got 1"):
        network.BatchNorm(3).forward(np.ones((1, 3), np.float32))


def test_adam_is_pytorchs(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install torch")
    layer = network.Dense(3, 2, rng, dtype=np.float64)
    optimizer = network.Adam([layer], rate=0.01)
    weight = torch.nn.Parameter(torch.tensor(layer.weight))
    theirs = torch.optim.Adam([weight], lr=0.01)
    for _ in range(5):
        layer.grad_weight[...] = rng.standard_normal((3, 2))
        weight.grad = torch.tensor(layer.grad_weight)
        optimizer.step()
        theirs.step()
    # Within the two places of eps: ours is added before the second moment's bias is corrected
    np.testing.assert_allclose(layer.weight, weight.detach().numpy(), rtol=0, atol=1e-6)


def test_adam_computes_in_the_parameters_dtype(rng):
    layer = network.Dense(30, 20, rng)
    before, gradient = layer.weight.copy(), rng.standard_normal((30, 20)).astype(np.float32)
    layer.grad_weight[...] = gradient
    network.Adam([layer], rate=0.1).step()
    # m = (1 − β₁) g, v = (1 − β₂) g², rate · √(1 − β₂) / (1 − β₁) · m / (√v + ε), in float32
    mean, square = (1 - 0.9) * gradient, (1 - 0.999) * (gradient * gradient)
    rate = 0.1 * (1 - 0.999) ** 0.5 / (1 - 0.9)
    expected = before - rate * mean / (np.sqrt(square) + 1e-8)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(layer.weight, expected)
