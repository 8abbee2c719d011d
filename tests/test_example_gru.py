"""examples/gru.py: its gradients, that it is causal, and that it is the GRU that it says."""

import character_networks as networks
import numpy as np
import pytest

import lnfast.reference

# isort: split
import gru
from causality import changed_past
from text import Text, read_paragraphs

WIDTH = 6

each_variant = pytest.mark.parametrize("norm", gru.VARIANTS.values(), ids=gru.VARIANTS)


def build(norm, seed=0, dtype=np.float64, width=WIDTH):
    return gru.GRU(networks.CHARACTERS, width, np.random.default_rng(seed), norm, dtype)


@each_variant
@pytest.mark.parametrize("shape", [(1, 2), (3, 7), (2, 20)])
def test_gradients(norm, shape):
    networks.assert_gradients(build(norm), *shape)


@each_variant
def test_gradients_add_up(norm):
    networks.assert_gradients_add_up(build(norm))


@each_variant
@pytest.mark.parametrize("width", [WIDTH, 96])
def test_causal_to_the_bit(norm, width):
    networks.assert_causal(build(norm, dtype=np.float32, width=width), 3, 12)


def test_normalized_over_time_is_not_causal():
    text = Text(read_paragraphs()[:200])
    rng = np.random.default_rng(0)
    characters = text.test_windows(4, 16)[0]
    changed, count = changed_past(gru.normalized_over_time(text, rng), characters, rng)
    assert changed > 0.99 * count  # a score or two may round to what it was


def test_variants_start_from_the_same_weights():
    networks.assert_paired(gru.build(Text(read_paragraphs()[:100]), 3))


def test_same_seed_same_losses(monkeypatch):
    monkeypatch.setattr(gru, "WIDTH", 16)
    text = Text(read_paragraphs()[:100])
    networks.assert_repeatable(lambda seed: gru.build(text, seed), text)


@each_variant
def test_step_is_the_equation(norm):
    # update, reset = sigmoid(LN(Wh h) + LN(Wx x)),   new = tanh(LN(W x) + reset LN(U h)),
    # h' = (1 - update) h + update new, with the definition of layer norm
    network = build(norm)
    rng = np.random.default_rng(1)
    for _, parameter, _ in networks.parameters(network):
        parameter += rng.standard_normal(parameter.shape)
    characters, h = networks.draw(3), rng.standard_normal((3, WIDTH))

    def term(summed_inputs, value):
        layer, *norms = summed_inputs.layers
        assert len(norms) == (norm is not None)
        if not norms:
            return value @ layer.weight + getattr(layer, "bias", 0)
        assert getattr(layer, "bias", None) is None  # the norm's takes its place
        return lnfast.reference.layer_norm(
            value @ layer.weight, weight=norms[0].weight, bias=norms[0].bias
        )

    x = np.eye(networks.CHARACTERS)[characters]
    gates = 1 / (1 + np.exp(-term(network.gates_h, h) - term(network.gates_x, x)))
    update, reset = gates[:, :WIDTH], gates[:, WIDTH:]
    new = np.tanh(term(network.new_x, x) + reset * term(network.new_h, h))
    expected = (1 - update) * h + update * new

    gates_x, _ = network.gates_x.forward(characters)
    new_x, _ = network.new_x.forward(characters)
    found, _ = network.step(gates_x, new_x, h)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_without_layer_norm_it_is_pytorchs_gru():
    torch = pytest.importorskip("torch", reason="torch is missing: pip install torch")
    network = build(None)
    rng = np.random.default_rng(1)
    for _, parameter, _ in networks.parameters(network):
        parameter[...] = rng.standard_normal(parameter.shape)
    gates_x, new_x, gates_h, new_h = (part.layers[0] for part in network.layers[:4])

    # theirs has the gates reset, update, new in this order, and the opposite update
    def theirs(gates, new):
        update, reset = np.split(gates, 2, axis=-1)
        return torch.from_numpy(np.concatenate([reset, -update, new], axis=-1).T.copy())

    peer = torch.nn.GRU(networks.CHARACTERS, WIDTH, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        peer.weight_ih_l0[...] = theirs(gates_x.weight, new_x.weight)
        peer.weight_hh_l0[...] = theirs(gates_h.weight, new_h.weight)
        peer.bias_hh_l0[...] = theirs(gates_h.bias, new_h.bias)
        peer.bias_ih_l0[...] = 0
    characters, dscores = networks.draw(2, 9), rng.standard_normal((2, 9, networks.CHARACTERS))
    one_hot = torch.from_numpy(np.eye(networks.CHARACTERS)[characters])
    states, _ = peer(one_hot)
    scores, cache = network.forward(characters)
    expected = states.detach().numpy() @ network.scores.weight + network.scores.bias
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)

    network.backward(dscores, cache)
    states.backward(torch.from_numpy(dscores @ network.scores.weight.T))
    found = theirs(gates_h.grad_weight, new_h.grad_weight).numpy()
    np.testing.assert_allclose(found, peer.weight_hh_l0.grad.numpy(), rtol=1e-11, atol=1e-12)
    found = theirs(gates_x.grad_weight, new_x.grad_weight).numpy()
    np.testing.assert_allclose(found, peer.weight_ih_l0.grad.numpy(), rtol=1e-11, atol=1e-12)


def test_short_form(tmp_path):
    lines = networks.run_short("gru.py", tmp_path)
    assert lines[1] == f"2 seeds, Adam's rate {gru.RATE:g}"
    assert lines[6].split()[:3] == ["in", "10", "steps"]
    assert [line[:12].strip() for line in lines[7:9]] == list(gru.VARIANTS)
    assert [line.count("±") for line in lines[7:9]] == [3, 5]
    assert [line[:12].strip() for line in lines[12:14]] == list(gru.VARIANTS)
    networks.assert_prints_causality(lines[15:-1], list(gru.VARIANTS))
