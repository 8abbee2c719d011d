"""examples/transformer.py: its gradients, that it is causal, and attention against PyTorch's."""

import character_networks as networks
import numpy as np
import pytest

import lnfast

# isort: split
import transformer
from attention import Attention
from causality import changed_past
from text import Text, read_paragraphs

WIDTH, HEADS, BLOCKS, LENGTH = 8, 2, 2, 20

each_variant = pytest.mark.parametrize(
    "variant", transformer.VARIANTS.values(), ids=transformer.VARIANTS
)


def build(variant, seed=0, dtype=np.float64, width=WIDTH):
    rng = np.random.default_rng(seed)
    sizes = networks.CHARACTERS, LENGTH, width, HEADS, BLOCKS
    return transformer.Transformer(*sizes, rng, variant, dtype)


@each_variant
@pytest.mark.parametrize("shape", [(1, 2), (3, 7), (2, LENGTH)])
def test_gradients(variant, shape):
    networks.assert_gradients(build(variant), *shape)


@each_variant
def test_gradients_add_up(variant):
    networks.assert_gradients_add_up(build(variant))


@each_variant
@pytest.mark.parametrize("width", [WIDTH, 64])
def test_causal_to_the_bit(variant, width):
    networks.assert_causal(build(variant, dtype=np.float32, width=width), 3, 12)


def test_normalized_over_time_is_not_causal():
    text = Text(read_paragraphs()[:200])
    rng = np.random.default_rng(0)
    characters = text.test_windows(4, 16)[0]
    changed, count = changed_past(transformer.normalized_over_time(text, rng), characters, rng)
    assert changed > 0.99 * count  # a score or two may round to what it was


def test_variants_start_from_the_same_weights():
    networks.assert_paired(transformer.build(Text(read_paragraphs()[:100]), 3))


def test_same_seed_same_losses(monkeypatch):
    monkeypatch.setattr(transformer, "WIDTH", 16)
    monkeypatch.setattr(transformer, "BLOCKS", 2)
    text = Text(read_paragraphs()[:100])
    networks.assert_repeatable(lambda seed: transformer.build(text, seed), text)


def test_variants_are_what_they_say():
    x = np.random.default_rng(1).standard_normal((2, 5, WIDTH))
    pre, post, rms = (
        build(variant).blocks[0].layers[1] for variant in transformer.VARIANTS.values()
    )

    def part(x):
        return pre.part.forward(x)[0]  # has the same weights in all

    expected = x + part(lnfast.layer_norm(x, WIDTH))
    assert pre.forward(x)[0].tobytes() == expected.tobytes()
    expected = lnfast.layer_norm(x + part(x), WIDTH)
    assert post.forward(x)[0].tobytes() == expected.tobytes()
    expected = x + part(lnfast.rms_norm(x, WIDTH))
    assert rms.forward(x)[0].tobytes() == expected.tobytes()


def test_attention_is_pytorchs():
    torch = pytest.importorskip("torch", reason="torch is missing: pip install torch")
    rng = np.random.default_rng(1)
    attention = Attention(WIDTH, HEADS, rng, np.float64)
    attention.inputs.bias[...] = rng.standard_normal(3 * WIDTH)
    attention.outputs.bias[...] = rng.standard_normal(WIDTH)
    x, dy = rng.standard_normal((2, 3, 7, WIDTH))
    y, cache = attention.forward(x)
    dx = attention.backward(dy, cache)

    peer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for theirs, ours in (
            (peer.in_proj_weight, attention.inputs.weight.T),
            (peer.in_proj_bias, attention.inputs.bias),
            (peer.out_proj.weight, attention.outputs.weight.T),
            (peer.out_proj.bias, attention.outputs.bias),
        ):
            theirs[...] = torch.from_numpy(ours.copy())
    inputs = torch.from_numpy(x).requires_grad_()
    later = torch.ones(7, 7, dtype=torch.bool).triu(1)
    expected, _ = peer(inputs, inputs, inputs, attn_mask=later)
    expected.backward(torch.from_numpy(dy))
    for found, theirs in (
        (y, expected.detach()),
        (dx, inputs.grad),
        (attention.inputs.grad_weight.T, peer.in_proj_weight.grad),
        (attention.inputs.grad_bias, peer.in_proj_bias.grad),
        (attention.outputs.grad_weight.T, peer.out_proj.weight.grad),
        (attention.outputs.grad_bias, peer.out_proj.bias.grad),
    ):
        np.testing.assert_allclose(found, theirs.numpy(), rtol=1e-12, atol=1e-13)


def test_gradient_norms_leave_the_norms_out():
    network = build(transformer.VARIANTS["Post-LN"])
    for number, (_, _, gradient) in enumerate(networks.parameters(network), 1):
        gradient[...] = number
    for block in network.blocks:
        for residual in block.layers:
            residual.norm.grad_weight[...] = residual.norm.grad_bias[...] = np.nan
    norms = network.gradient_norms()
    assert list(norms) == ["embedding", "block 1", "block 2", "scores"]
    # 11 and 20 rows of 8 columns
    assert norms["embedding"] == pytest.approx(np.sqrt(8 * (11 * 1**2 + 20 * 2**2)))
    assert np.isfinite(list(norms.values())).all()


def test_short_form(tmp_path):
    lines = networks.run_short("transformer.py", tmp_path)
    assert lines[1] == f"2 seeds, Adam's rate {transformer.RATE:g}"
    assert lines[6].split()[:3] == ["in", "10", "steps"]
    names = list(transformer.VARIANTS)
    assert [line[:12].strip() for line in lines[7:10]] == names
    assert [line.count("±") for line in lines[7:10]] == [3, 5, 5]
    assert [line[:12].strip() for line in lines[13:16]] == names
    assert lines[19].split() == names
    layers = ["embedding", *(f"block {n}" for n in range(1, transformer.BLOCKS + 1)), "scores"]
    assert [line[:12].strip() for line in lines[20:26]] == layers
    assert all(line.count("±") == 3 for line in lines[20:26])
    networks.assert_prints_causality(lines[27:-1], names)
