"""A character GRU in NumPy, plain and with LayerNorm at every time step.

    python examples/gru.py --plot gru.png

Layer norm stands where Ba, Kiros and Hinton (2016, arXiv 1607.06450) put it: on the summed
inputs, those that come from the state h and those that come from the character x by themselves.

    update, reset = sigmoid(LN(Wh h) + LN(Wx x))        both gates in one LN
    new           = tanh(LN(W x) + reset * LN(U h))
    h'            = (1 - update) * h + update * new

The plain one has biases for Wh h and U h in place of the LNs. Nothing else differs: for a seed
the weights at the start, the batches, Adam, its rate, and where gradients are clipped.
"""

import numpy as np
from causality import OverTime, print_causality
from experiment import parse, progress
from network import Dense, Embedding, Sequential, sigmoid
from text import Text, read_paragraphs
from training import draw_losses, print_losses, train

import lnfast

WIDTH = 128
SIZE, LENGTH = 32, 64  # a batch: windows, characters in each
RATE, LARGEST = 8e-3, 1.0  # of Adam; the norm at which gradients are clipped

VARIANTS = {"plain": None, "LayerNorm": lnfast.LayerNorm}


class GRU:
    """Characters (batch, time) to scores for the next ones (batch, time, characters)."""

    def __init__(self, characters, width, rng, norm, dtype=np.float32):
        def normalized(layer, outputs):
            norms = [] if norm is None else [norm(outputs, dtype=dtype)]
            return Sequential(layer, *norms)

        def from_x(outputs):  # x is one-hot: W x is a row of the layer's weight
            return normalized(Embedding(characters, outputs, rng, dtype=dtype), outputs)

        def from_h(outputs):
            bias = norm is None  # else the norm has one
            return normalized(Dense(width, outputs, rng, bias=bias, dtype=dtype), outputs)

        self.gates_x, self.new_x = from_x(2 * width), from_x(width)
        self.gates_h, self.new_h = from_h(2 * width), from_h(width)
        self.scores = Dense(width, characters, rng, dtype=dtype)
        self.layers = [self.gates_x, self.new_x, self.gates_h, self.new_h, self.scores]
        self.width, self.dtype = width, dtype

    def forward(self, characters):
        """scores, cache. The terms of x need no state: one call for all time steps."""
        gates_x, of_gates_x = self.gates_x.forward(characters)
        new_x, of_new_x = self.new_x.forward(characters)
        states = np.empty((*characters.shape, self.width), self.dtype)
        h = np.zeros_like(states[:, 0])
        steps = []
        for t in range(characters.shape[1]):
            h, of_step = self.step(gates_x[:, t], new_x[:, t], h)
            states[:, t] = h
            steps.append(of_step)
        scores, of_scores = self.scores.forward(states)
        return scores, (of_gates_x, of_new_x, steps, of_scores)

    def step(self, gates_x, new_x, h):
        """h (batch, width) to h' of one time step, and its cache."""
        gates_h, of_gates_h = self.gates_h.forward(h)
        new_h, of_new_h = self.new_h.forward(h)
        gates = sigmoid(gates_x + gates_h)
        update, reset = np.split(gates, 2, axis=1)
        new = np.tanh(new_x + reset * new_h)
        return h + update * (new - h), (h, gates, new, new_h, of_gates_h, of_new_h)

    def backward(self, dscores, cache):
        """Back through time: the steps' caches in reverse."""
        of_gates_x, of_new_x, steps, of_scores = cache
        dstates = self.scores.backward(dscores, of_scores)
        dgates_x = np.empty((*dstates.shape[:2], 2 * self.width), self.dtype)
        dnew_x = np.empty_like(dstates)
        dh = np.zeros_like(dstates[:, 0])
        for t in reversed(range(len(steps))):
            # h' is used by the scores and by the step after
            dh, dgates_x[:, t], dnew_x[:, t] = self.step_backward(dstates[:, t] + dh, steps[t])
        self.gates_x.backward(dgates_x, of_gates_x)
        self.new_x.backward(dnew_x, of_new_x)

    def step_backward(self, dnext, cache):
        """The gradient of h' to those of h, gates_x and new_x."""
        h, gates, new, new_h, of_gates_h, of_new_h = cache
        update, reset = np.split(gates, 2, axis=1)
        # sigmoid' = sigmoid (1 - sigmoid),   tanh' = 1 - tanh^2
        dnew_x = dnext * update * (1 - new * new)
        dgates = np.concatenate([dnext * (new - h), dnew_x * new_h], axis=1)
        dgates *= gates * (1 - gates)
        dh = dnext * (1 - update)
        dh += self.gates_h.backward(dgates, of_gates_h)
        dh += self.new_h.backward(dnew_x * reset, of_new_h)
        return dh, dgates, dnew_x


def build(text, seed):
    """{name: network}, both with the same weights."""
    return {
        name: GRU(len(text.characters), WIDTH, np.random.default_rng(seed), norm)
        for name, norm in VARIANTS.items()
    }


def normalized_over_time(text, rng):
    """A GRU that is not causal: the terms of x are normalised over the time steps."""
    network = GRU(len(text.characters), WIDTH, rng, lnfast.LayerNorm)
    for of_x in (network.gates_x, network.new_x):
        of_x.layers = of_x.layers[0], OverTime()
    return network


def main(arguments=None):
    options = parse(__doc__, steps=600, seeds=5, short_steps=10, rate=RATE, arguments=arguments)
    text = Text(read_paragraphs())
    runs = {name: [] for name in VARIANTS}
    for seed in progress(options.seeds, "seeds"):
        networks = build(text, seed)
        curves = train(networks, text, SIZE, LENGTH, seed, options.steps, options.rate, LARGEST)
        for name, curve in curves.items():
            runs[name].append(curve)

    print(f"{text}\n{len(options.seeds)} seeds, Adam's rate {options.rate:g}\n")
    print_losses(runs)
    print()
    rng = np.random.default_rng(options.seed)
    networks["over time"] = normalized_over_time(text, rng)
    print_causality(networks, text.test_windows(SIZE, LENGTH)[0], rng)
    if options.plot:
        draw_losses(options.plot, runs)
    return runs


if __name__ == "__main__":
    main()
