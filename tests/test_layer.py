"""Both layers: parameters, gradients that add up, and state that loads whole or not at all."""

import copy
import pickle

import numpy as np
import pytest
from norms import NORMS, Norm

from lnfast import LayerNorm, RMSNorm

each_norm = pytest.mark.parametrize("norm", [Norm(name) for name in NORMS], ids=NORMS)
each_layer = pytest.mark.parametrize(
    "norm, options",
    [(Norm("layer_norm"), {}), (Norm("layer_norm"), {"bias": False}), (Norm("rms_norm"), {})],
    ids=["layer_norm", "without bias", "rms_norm"],
)


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(1, 2, shape).astype(dtype)


def randomized(kind, *arguments, **keywords):
    layer = kind(*arguments, **keywords)
    for seed, (_, parameter, _) in enumerate(layer.parameters()):
        parameter[...] = numbers(*parameter.shape, seed=seed + 10)
    return layer


@each_norm
@pytest.mark.parametrize("dtype", [np.float32, np.float64, "float32", np.dtype(np.float64)])
@pytest.mark.parametrize("shape", [4, (4,), [3, 4], np.int64(4)])
def test_attributes(norm, shape, dtype):
    layer = norm.layer(shape, dtype=dtype)
    expected = tuple(np.atleast_1d(shape).tolist())
    assert layer.normalized_shape == expected
    assert layer.eps == (1e-5 if norm.centred else 1e-6) and layer.elementwise_affine is True
    for name, value in [("weight", 1), ("bias", 0), ("grad_weight", 0), ("grad_bias", 0)]:
        array = getattr(layer, name)
        if name.removeprefix("grad_") not in norm.parameters:
            assert array is None
            continue
        assert (array.shape, array.dtype) == (expected, np.dtype(dtype))
        assert (array == value).all()


def test_positions_follow_torch():
    layer = LayerNorm((3, 4), 0.5, True, False, np.float64)
    assert (layer.eps, layer.bias, layer.grad_bias) == (0.5, None, None)
    assert layer.weight.dtype == layer.grad_weight.dtype == np.float64
    layer = RMSNorm((3, 4), 0.5, True, np.float64)
    assert (layer.eps, layer.weight.dtype) == (0.5, np.float64)


@each_norm
def test_without_parameters(norm):
    layer = norm.layer(4, elementwise_affine=False)
    assert layer.weight is layer.bias is layer.grad_weight is layer.grad_bias is None
    assert list(layer.parameters()) == [] and layer.state_dict() == {}
    x, dy = numbers(3, 4), numbers(3, 4, seed=1)
    y, cache = layer.forward(x)
    np.testing.assert_array_equal(y, norm.normalize(x, 4))
    np.testing.assert_array_equal(layer.backward(dy, cache), norm.backward(dy, cache)[0])
    layer.zero_grad()
    layer.load_state_dict({})


@each_norm
@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"normalized_shape": -1}, ValueError, "negative"),
        ({"normalized_shape": None}, TypeError, "normalized_shape"),
        ({"normalized_shape": "4"}, TypeError, "normalized_shape"),
        ({"eps": -1}, ValueError, "eps"),
        ({"eps": "1"}, TypeError, "eps"),
        ({"elementwise_affine": 1}, TypeError, "elementwise_affine must be a bool"),
        ({"dtype": np.float16}, TypeError, "dtype must be float32 or float64"),
        ({"dtype": None}, TypeError, "dtype must be float32 or float64"),
        ({"dtype": "no dtype"}, TypeError, "dtype must be float32 or float64, not 'no dtype'"),
    ],
)
def test_bad_construction(norm, arguments, error, message):
    with pytest.raises(error, match=message):
        norm.layer(**{"normalized_shape": 4, **arguments})


def test_bias_is_a_bool_and_no_argument_of_rms_norm():
    with pytest.raises(TypeError, match="bias must be a bool"):
        LayerNorm(4, bias=np.float32)
    with pytest.raises(TypeError, match="bias"):
        RMSNorm(4, bias=False)


@each_layer
def test_forward_and_call_are_the_functions(norm, options):
    layer = randomized(norm.layer, 4, 0.25, **options)
    x, out = numbers(5, 4), np.empty((5, 4), np.float32)
    parameters = norm.parameters_of(layer.weight, layer.bias)
    expected, known = norm.forward(x, 4, *parameters, 0.25)
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


@each_norm
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("x_dtype", [np.float32, np.float64])
def test_gradients_add_up_over_time_steps(norm, dtype, x_dtype):
    """One layer, two steps, differentiated last first: the sums of both, in place."""
    layer = randomized(norm.layer, (3, 4), dtype=dtype)
    gradients = [gradient for _, _, gradient in layer.parameters()]
    steps = [(numbers(r, 3, 4, seed=r), numbers(r, 3, 4, seed=-r % 99)) for r in (2, 7)]
    steps = [(x.astype(x_dtype), dy.astype(x_dtype)) for x, dy in steps]
    caches = [layer.forward(x)[1] for x, _ in steps]
    sums = np.zeros((len(norm.parameters), 3, 4), dtype)
    for (_, dy), cache in reversed(list(zip(steps, caches, strict=True))):
        dx = layer.backward(dy, cache)
        known = norm.backward(dy, cache)
        assert dx.dtype == x_dtype
        np.testing.assert_array_equal(dx, known[0])
        sums += np.array(known[1:])
    for name, gradient, total in zip(norm.parameters, gradients, sums, strict=True):
        assert getattr(layer, f"grad_{name}") is gradient and gradient.dtype == dtype
        np.testing.assert_array_equal(gradient, total)
    layer.zero_grad()
    assert layer.grad_weight is gradients[0]
    assert not np.any(gradients)


@each_norm
def test_backward_takes_the_weight_of_its_forward_pass(norm):
    layer = randomized(norm.layer, 4)
    x, dy = numbers(3, 4), numbers(3, 4, seed=1)
    cache = layer.forward(x)[1]
    expected = layer.backward(dy, cache)
    layer.weight *= 2
    np.testing.assert_array_equal(layer.backward(dy, cache), expected)


@each_norm
@pytest.mark.parametrize("elementwise_affine", [True, False])
def test_nothing_changes_when_backward_raises(norm, elementwise_affine):
    kind = norm.layer
    layer = randomized(kind, 4, elementwise_affine=elementwise_affine)
    x = numbers(3, 4)
    cache = layer.forward(x)[1]
    layer.backward(x, cache)
    before = copy.deepcopy(vars(layer))
    out = np.full((3, 4), 7, np.float32)
    other, one = kind(3).forward(x.T.copy())[1], kind(1).forward(x[:, :1].copy())[1]
    (foreign,) = (record for record, *_ in NORMS.values() if record is not norm.record)
    for dy, bad_cache, error in [
        (x[0], cache, ValueError),
        (x, (x, cache), TypeError),
        (x, foreign(*(*cache[:3], cache.rstd, cache.rstd)[: len(foreign._fields) - 2]), TypeError),
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


@each_norm
def test_a_cache_built_by_hand(norm):
    """One that takes its normalized_shape from the weight, and one of lists."""
    layer = randomized(norm.layer, 4)
    x, dy = numbers(3, 4), numbers(3, 4, seed=1)
    cache = layer.forward(x)[1]
    expected = layer.backward(dy, cache)
    for shape in (None, [4]):
        by_hand = cache._replace(normalized_shape=shape, weight=cache.weight.tolist())
        np.testing.assert_array_equal(layer.backward(dy, by_hand), expected)


@each_norm
def test_parameters_are_the_arrays_themselves(norm):
    layer = norm.layer(4)
    found = list(layer.parameters())
    assert [name for name, _, _ in found] == [*norm.parameters]
    for name, parameter, gradient in found:
        assert parameter is getattr(layer, name) and gradient is getattr(layer, f"grad_{name}")
    assert [name for name, _, _ in LayerNorm(4, bias=False).parameters()] == ["weight"]


@each_norm
def test_descent_learns_a_target(norm):
    """Plain gradient descent finds the parameters that made the target."""
    x, teacher, layer = numbers(64, 4, dtype=np.float64), randomized(norm.layer, 4), norm.layer(4)
    target = teacher(x)
    for _ in range(200):
        y, cache = layer.forward(x)
        layer.zero_grad()
        layer.backward(2 * (y - target) / len(x), cache)
        for _, parameter, gradient in layer.parameters():
            parameter -= 0.1 * gradient
    for name, parameter, _ in layer.parameters():
        np.testing.assert_allclose(parameter, getattr(teacher, name), atol=1e-3)


@each_layer
def test_state_makes_the_round(norm, options):
    layer = randomized(norm.layer, (3, 4), **options)
    fresh = norm.layer((3, 4), dtype=np.float64, **options)
    state = layer.state_dict()
    assert list(state) == (["weight"] if options else [*norm.parameters])
    assert not np.shares_memory(state["weight"], layer.weight)
    weight = fresh.weight
    fresh.load_state_dict({name: value.tolist() for name, value in state.items()})
    assert fresh.weight is weight and weight.dtype == np.float64
    for name, value in state.items():
        np.testing.assert_array_equal(getattr(fresh, name), value)
    state["weight"][:] = 0
    assert fresh.weight.all() and layer.weight.all()


def test_state_may_be_the_parameters_of_the_layer_itself():
    layer = randomized(LayerNorm, 4)
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


def test_state_of_a_layer_norm_is_none_of_rms_norm():
    layer = RMSNorm(4)
    with pytest.raises(KeyError, match=r"missing keys \[\], unexpected keys \['bias'\]"):
        layer.load_state_dict(randomized(LayerNorm, 4).state_dict())
    assert (layer.weight == 1).all()


def test_repr():
    assert repr(LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True)"
    assert repr(LayerNorm((3, 4), 0.5, False)) == (
        "LayerNorm((3, 4), eps=0.5, elementwise_affine=False)"
    )
    assert repr(LayerNorm(4, bias=False, dtype=np.float64)).endswith("bias=False, dtype=float64)")
    assert repr(RMSNorm(4)) == "RMSNorm((4,), eps=1e-06, elementwise_affine=True)"
    assert repr(RMSNorm((3, 4), 0.5, False)) == (
        "RMSNorm((3, 4), eps=0.5, elementwise_affine=False)"
    )
    assert repr(RMSNorm(4, dtype=np.float64)).endswith("elementwise_affine=True, dtype=float64)")


@each_norm
def test_copies_and_pickles_stand_alone(norm):
    layer, x = randomized(norm.layer, 4), numbers(3, 4)
    expected = layer(x)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(twin(x), expected)
        twin.weight[:] = 0
    np.testing.assert_array_equal(layer(x), expected)
