"""A small character transformer in NumPy: Pre-LN, Post-LN and Pre-RMSNorm.

    python examples/transformer.py --plot transformer.png

    Pre-LN        x + part(LN(x)), and a last LN before the scores
    Post-LN       LN(x + part(x))                       (Vaswani and others 2017, arXiv 1706.03762)
    Pre-RMSNorm   as Pre-LN, with RMSNorm

A part is causal attention or the feed-forward layer; a block is one of each. Nothing else
differs: for a seed the weights at the start, the batches, Adam, its rate (constant, no warm-up),
and where gradients are clipped. Xiong and others (2020, arXiv 2002.04745) compare the gradients
of Pre-LN and Post-LN before the first step; so does the second table.
"""

from typing import NamedTuple

import numpy as np
from attention import Attention, PostNorm, PreNorm, feed_forward
from causality import OverTime, print_causality
from experiment import parse, progress, spread
from network import Dense, Embedding, Sequential, cross_entropy, gradient_norm
from text import Text, read_paragraphs
from training import draw_losses, print_losses, print_row, train

import lnfast

WIDTH, HEADS, BLOCKS = 64, 4, 4
SIZE, LENGTH = 16, 32  # a batch: windows, characters in each
RATE, LARGEST = 4e-3, 1.0  # of Adam; the norm at which gradients are clipped


class Variant(NamedTuple):
    place: type  # of the norm: PreNorm or PostNorm
    norm: type


VARIANTS = {
    "Pre-LN": Variant(PreNorm, lnfast.LayerNorm),
    "Post-LN": Variant(PostNorm, lnfast.LayerNorm),
    "Pre-RMSNorm": Variant(PreNorm, lnfast.RMSNorm),
}


class Transformer:
    """Characters (batch, time) to scores for the next ones (batch, time, characters)."""

    def __init__(self, characters, length, width, heads, blocks, rng, variant, dtype=np.float32):
        def residual(part):
            return variant.place(part, variant.norm(width, dtype=dtype))

        self.characters = Embedding(characters, width, rng, dtype=dtype)
        self.positions = Embedding(length, width, rng, dtype=dtype)
        self.blocks = []
        for _ in range(blocks):
            attention = residual(Attention(width, heads, rng, dtype))
            self.blocks.append(Sequential(attention, residual(feed_forward(width, rng, dtype))))
        # what comes out of a PostNorm is normalised
        last = [variant.norm(width, dtype=dtype)] if variant.place is PreNorm else []
        self.scores = Dense(width, characters, rng, dtype=dtype)
        self.stack = Sequential(*self.blocks, *last, self.scores)
        self.layers = [self.characters, self.positions, self.stack]

    def forward(self, characters):
        """scores, cache"""
        x, of_characters = self.characters.forward(characters)
        position, of_positions = self.positions.forward(np.arange(characters.shape[1]))
        scores, of_stack = self.stack.forward(x + position)
        return scores, (of_characters, of_positions, of_stack)

    def backward(self, dscores, cache):
        of_characters, of_positions, of_stack = cache
        dx = self.stack.backward(dscores, of_stack)
        self.characters.backward(dx, of_characters)
        self.positions.backward(dx.sum(axis=0), of_positions)

    def gradient_norms(self):
        """The norm of the gradients of each layer, by name; those of the norms are left out."""
        norms = {"embedding": gradient_norm([self.characters, self.positions])}
        for number, block in enumerate(self.blocks, 1):
            norms[f"block {number}"] = gradient_norm([residual.part for residual in block.layers])
        return norms | {"scores": gradient_norm([self.scores])}


def build(text, seed):
    """{name: network}, all with the same weights."""
    sizes = len(text.characters), LENGTH, WIDTH, HEADS, BLOCKS
    return {
        name: Transformer(*sizes, np.random.default_rng(seed), variant)
        for name, variant in VARIANTS.items()
    }


def gradient_norms_at_start(networks, text, seed):
    """{name: norms by layer} for the batch of the first step."""
    characters, labels = next(text.batches(seed, SIZE, LENGTH))
    for network in networks.values():
        scores, cache = network.forward(characters)
        network.backward(cross_entropy(scores, labels)[1], cache)
    return {name: network.gradient_norms() for name, network in networks.items()}


def print_gradients(gradients):
    """{name: [norms by layer, of each seed]}"""
    print("Norm of each layer's gradients before the first step, those of its norms left out:\n")
    print_row("", *gradients)
    for layer in next(iter(gradients.values()))[0]:
        print_row(layer, *(spread([norms[layer] for norms in of]) for of in gradients.values()))


def gradient_panel(gradients):
    """A panel for experiment.draw."""
    layers = list(next(iter(gradients.values()))[0])
    curves = {
        name: (layers, [list(norms.values()) for norms in of]) for name, of in gradients.items()
    }
    return {"Gradients before the first step": ("layer", "norm of its gradients", curves)}


def normalized_over_time(text, rng):
    """A transformer that is not causal: all its norms are over the positions."""
    network = Transformer(len(text.characters), LENGTH, WIDTH, HEADS, 1, rng, VARIANTS["Pre-LN"])
    for residual in network.blocks[0].layers:
        residual.norm = OverTime()
    return network


def main(arguments=None):
    options = parse(__doc__, steps=700, seeds=5, short_steps=10, rate=RATE, arguments=arguments)
    text = Text(read_paragraphs())
    runs, gradients = {name: [] for name in VARIANTS}, {name: [] for name in VARIANTS}
    for seed in progress(options.seeds, "seeds"):
        networks = build(text, seed)
        for name, norms in gradient_norms_at_start(networks, text, seed).items():
            gradients[name].append(norms)
        curves = train(networks, text, SIZE, LENGTH, seed, options.steps, options.rate, LARGEST)
        for name, curve in curves.items():
            runs[name].append(curve)

    print(f"{text}\n{len(options.seeds)} seeds, Adam's rate {options.rate:g}\n")
    print_losses(runs)
    print()
    print_gradients(gradients)
    print()
    rng = np.random.default_rng(options.seed)
    networks["over time"] = normalized_over_time(text, rng)
    print_causality(networks, text.test_windows(SIZE, LENGTH)[0], rng)
    if options.plot:
        draw_losses(options.plot, runs, gradient_panel(gradients))
    return runs, gradients


if __name__ == "__main__":
    main()
