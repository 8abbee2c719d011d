"""LayerNorm: parameters, gradients that add up, and state that loads whole or not at all."""

import copy
import pickle

import numpy as np
import pytest

import lnfast
from lnfast import LayerNorm


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(1, 2, shape).astype(dtype)


def randomized(*arguments, **keywords):
    layer = LayerNorm(*arguments, **keywords)
    for seed, (_, parameter, _) in enumerate(layer.parameters()):
        parameter[...] = numbers(*parameter.shape, seed=seed + 10)
    return layer


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "float32", np.dtype(np.float64)])
@pytest.mark.parametrize("shape", [4, (4,), [3, 4], np.int64(4)])
def test_attributes(shape, dtype):
    layer = LayerNorm(shape, dtype=dtype)
    expected = tuple(np.atleast_1d(shape).tolist())
    assert layer.normalized_shape == expected
    assert layer.eps == 1e-5 and layer.elementwise_affine is True
    for array, value in [
        (layer.weight, 1),
        (layer.bias, 0),
        (layer.grad_weight, 0),
        (layer.grad_bias, 0),
    ]:
        assert (array.shape, array.dtype) == (expected, np.dtype(dtype))
        assert (array == value).all()


def test_positions_follow_torch():
    layer = LayerNorm((3, 4), 0.5, True, False, np.float64)
    assert (layer.eps, layer.bias, layer.grad_bias) == (0.5, None, None)
    assert layer.weight.dtype == layer.grad_weight.dtype == np.float64


def test_without_parameters():
    layer = LayerNorm(4, elementwise_affine=False)
    assert layer.weight is layer.bias is layer.grad_weight is layer.grad_bias is None
    assert list(layer.parameters()) == [] and layer.state_dict() == {}
    x, dy = numbers(3, 4), numbers(3, 4, seed=1)
    y, cache = layer.forward(x)
    np.testing.assert_array_equal(y, lnfast.layer_norm(x, 4))
    np.testing.assert_array_equal(
        layer.backward(dy, cache), lnfast.layer_norm_backward(dy, cache)[0]
    )
    layer.zero_grad()
    layer.load_state_dict({})


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"normalized_shape": -1}, ValueError, "negative"),
        ({"normalized_shape": None}, TypeError, "normalized_shape"),
        ({"normalized_shape": "4"}, TypeError, "normalized_shape"),
        ({"eps": -1}, ValueError, "eps"),
        ({"eps": "1"}, TypeError, "eps"),
        ({"elementwise_affine": 1}, TypeError, "elementwise_affine must be a bool"),
        ({"bias": np.float32}, TypeError, "bias must be a bool"),
        ({"dtype": np.float16}, TypeError, "dtype must be float32 or float64"),
        ({"dtype": None}, TypeError, "dtype must be float32 or float64"),
        ({"dtype": "no dtype"}, TypeError, "dtype must be float32 or float64, not 'no dtype'"),
    ],
)
def test_bad_construction(arguments, error, message):
    with pytest.raises(error, match=message):
        LayerNorm(**{"normalized_shape": 4, **arguments})


@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_call_are_the_functions(bias):
    layer = randomized(4, 0.25, bias=bias)
    x, out = numbers(5, 4), np.empty((5, 4), np.float32)
    expected, known = lnfast.layer_norm_forward(x, 4, layer.weight, layer.bias, 0.25)
    y, cache = layer.forward(x)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(cache.rstd, known.rstd)
    np.testing.assert_array_equal(layer(x), expected)
    assert layer(x, out=out, num_threads=1, check_finite=True) is out
    np.testing.assert_array_equal(out, expected)
    out[:] = 0
    assert layer.forward(x, out=out, num_threads=1, check_finite=True)[0] is out
    np.testing.assert_array_equal(out, expected)
    with pytest.raises(ValueError, match=r"x\[0, 0\] is nan"):
        layer(np.full((1, 4), np.nan), check_finite=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("x_dtype", [np.float32, np.float64])
def test_gradients_add_up_over_time_steps(dtype, x_dtype):
    """One layer, two steps, differentiated last first: the sums of both, in place."""
    layer = randomized((3, 4), dtype=dtype)
    grad_weight, grad_bias = layer.grad_weight, layer.grad_bias
    steps = [(numbers(r, 3, 4, seed=r), numbers(r, 3, 4, seed=-r % 99)) for r in (2, 7)]
    steps = [(x.astype(x_dtype), dy.astype(x_dtype)) for x, dy in steps]
    caches = [layer.forward(x)[1] for x, _ in steps]
    sums = np.zeros((2, 3, 4), dtype)
    for (_, dy), cache in reversed(list(zip(steps, caches, strict=True))):
        dx = layer.backward(dy, cache)
        known = lnfast.layer_norm_backward(dy, cache)
        assert dx.dtype == x_dtype
        np.testing.assert_array_equal(dx, known[0])
        sums += np.array(known[1:])
    assert layer.grad_weight is grad_weight and layer.grad_bias is grad_bias
    assert grad_weight.dtype == dtype
    np.testing.assert_array_equal(grad_weight, sums[0])
    np.testing.assert_array_equal(grad_bias, sums[1])
    layer.zero_grad()
    assert layer.grad_weight is grad_weight
    assert not grad_weight.any() and not grad_bias.any()


def test_backward_takes_the_weight_of_its_forward_pass():
    layer = randomized(4)
    x, dy = numbers(3, 4), numbers(3, 4, seed=1)
    cache = layer.forward(x)[1]
    expected = layer.backward(dy, cache)
    layer.weight *= 2
    np.testing.assert_array_equal(layer.backward(dy, cache), expected)


@pytest.mark.parametrize("elementwise_affine", [True, False])
def test_nothing_changes_when_backward_raises(elementwise_affine):
    layer = randomized(4, elementwise_affine=elementwise_affine)
    x = numbers(3, 4)
    cache = layer.forward(x)[1]
    layer.backward(x, cache)
    before = copy.deepcopy(vars(layer))
    out = np.full((3, 4), 7, np.float32)
    other, one = LayerNorm(3).forward(x.T.copy())[1], LayerNorm(1).forward(x[:, :1].copy())[1]
    for dy, bad_cache, error in [
        (x[0], cache, ValueError),
        (x, (x, cache), TypeError),
        (x.T, other, ValueError),
        (x[:, :1], one, ValueError),
        (np.where(x == x[1, 1], np.nan, x), cache, ValueError),
    ]:
        with pytest.raises(error):
            layer.backward(dy, bad_cache, out=out, check_finite=True)
        for name, value in before.items():
            np.testing.assert_array_equal(getattr(layer, name), value)
        assert (out == 7).all()
    with pytest.raises(ValueError, match=r"another layer.*\(3,\).*\(4,\)"):
        layer.backward(x.T, other)


def test_parameters_are_the_arrays_themselves():
    layer = LayerNorm(4)
    found = list(layer.parameters())
    assert [name for name, _, _ in found] == ["weight", "bias"]
    assert found[0][1] is layer.weight and found[0][2] is layer.grad_weight
    assert found[1][1] is layer.bias and found[1][2] is layer.grad_bias
    assert [name for name, _, _ in LayerNorm(4, bias=False).parameters()] == ["weight"]


def test_descent_learns_a_target():
    """Plain gradient descent finds the weight and bias that made the target."""
    x, teacher, layer = numbers(64, 4, dtype=np.float64), randomized(4), LayerNorm(4)
    target = teacher(x)
    for _ in range(200):
        y, cache = layer.forward(x)
        layer.zero_grad()
        layer.backward(2 * (y - target) / len(x), cache)
        for _, parameter, gradient in layer.parameters():
            parameter -= 0.1 * gradient
    np.testing.assert_allclose(layer.weight, teacher.weight, atol=1e-3)
    np.testing.assert_allclose(layer.bias, teacher.bias, atol=1e-3)


@pytest.mark.parametrize("bias", [True, False])
def test_state_makes_the_round(bias):
    layer, fresh = randomized((3, 4), bias=bias), LayerNorm((3, 4), bias=bias, dtype=np.float64)
    state = layer.state_dict()
    assert list(state) == (["weight", "bias"] if bias else ["weight"])
    assert not np.shares_memory(state["weight"], layer.weight)
    weight = fresh.weight
    fresh.load_state_dict({name: value.tolist() for name, value in state.items()})
    assert fresh.weight is weight and weight.dtype == np.float64
    for name, value in state.items():
        np.testing.assert_array_equal(getattr(fresh, name), value)
    state["weight"][:] = 0
    assert fresh.weight.all() and layer.weight.all()


def test_state_may_be_the_parameters_of_the_layer_itself():
    layer = randomized(4)
    weight, bias = layer.weight.copy(), layer.bias.copy()
    layer.load_state_dict({"weight": layer.bias, "bias": layer.weight})
    np.testing.assert_array_equal(layer.weight, bias)
    np.testing.assert_array_equal(layer.bias, weight)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"bias": None}, KeyError, r"missing keys \['bias'\]"),
        ({"gamma": np.ones(4)}, KeyError, r"unexpected keys \['gamma'\]"),
        ({"bias": np.ones(3)}, ValueError, r"bias must have shape \(4,\), not \(3,\)"),
        ({"bias": np.ones(1)}, ValueError, r"bias must have shape \(4,\), not \(1,\)"),
        ({"bias": ["a"] * 4}, TypeError, "bias has dtype"),
    ],
)
def test_bad_state_changes_nothing(change, error, message):
    layer = LayerNorm(4)
    state = {"weight": np.full(4, 2.0), "bias": np.full(4, 3.0), **change}
    state = {name: value for name, value in state.items() if value is not None}
    with pytest.raises(error, match=message):
        layer.load_state_dict(state)
    assert (layer.weight == 1).all() and (layer.bias == 0).all()
    with pytest.raises(TypeError, match="mapping"):
        layer.load_state_dict([("weight", np.ones(4))])


def test_repr():
    assert repr(LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True)"
    assert repr(LayerNorm((3, 4), 0.5, False)) == (
        "LayerNorm((3, 4), eps=0.5, elementwise_affine=False)"
    )
    assert repr(LayerNorm(4, bias=False, dtype=np.float64)).endswith("bias=False, dtype=float64)")


def test_copies_and_pickles_stand_alone():
    layer, x = randomized(4), numbers(3, 4)
    expected = layer(x)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(twin(x), expected)
        twin.weight[:] = 0
    np.testing.assert_array_equal(layer(x), expected)
