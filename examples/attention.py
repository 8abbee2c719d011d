"""The parts of a transformer's blocks: causal attention, feed-forward, a norm beside each.

`forward` returns the result and what `backward` needs, as in network.py. x is (batch, time,
width) throughout.
"""

from math import sqrt

import numpy as np
from network import Dense, Sequential, SiLU, softmax


class Attention:
    """Causal self-attention with several heads: no position looks at later ones."""

    def __init__(self, width, heads, rng, dtype=np.float32):
        self.heads = heads
        self.inputs = Dense(width, 3 * width, rng, dtype=dtype)  # queries, keys, values
        self.outputs = Dense(width, width, rng, dtype=dtype)

    def forward(self, x):
        # y = (softmax(q k^T / sqrt(width of a head), -inf at later positions) v) Wo + bo
        projected, of_inputs = self.inputs.forward(x)
        q, k, v = self.split_heads(projected)
        scores = q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])
        later = np.triu(np.ones(scores.shape[-2:], bool), 1)
        weights = softmax(np.where(later, -np.inf, scores))
        y, of_outputs = self.outputs.forward(self.join_heads(weights @ v))
        return y, (q, k, v, weights, of_inputs, of_outputs)

    def backward(self, dy, cache):
        q, k, v, weights, of_inputs, of_outputs = cache
        (dheads,) = self.split_heads(self.outputs.backward(dy, of_outputs), 1)
        dv = weights.swapaxes(-1, -2) @ dheads
        # softmax: dscores = weights (dweights - sum of weights dweights), 0 at later positions
        dweights = dheads @ v.swapaxes(-1, -2)
        dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
        dscores /= sqrt(q.shape[-1])
        dq, dk = dscores @ k, dscores.swapaxes(-1, -2) @ q
        dprojected = np.concatenate([self.join_heads(d) for d in (dq, dk, dv)], axis=-1)
        return self.inputs.backward(dprojected, of_inputs)

    def split_heads(self, x, parts=3):
        """(batch, time, parts * width) to parts arrays (batch, heads, time, width of a head)."""
        batch, time, _ = x.shape
        return x.reshape(batch, time, parts, self.heads, -1).transpose(2, 0, 3, 1, 4)

    def join_heads(self, x):
        batch, _, time, _ = x.shape
        return x.swapaxes(1, 2).reshape(batch, time, -1)

    def parameters(self):
        yield from self.inputs.parameters()
        yield from self.outputs.parameters()


def feed_forward(width, rng, dtype=np.float32):
    """y = silu(x W1 + b1) W2 + b2 at each position, four times as wide inside."""
    inner = Dense(width, 4 * width, rng, dtype=dtype)
    return Sequential(inner, SiLU(), Dense(4 * width, width, rng, dtype=dtype))


class Residual:
    """A part of a block, which adds to x, and the norm beside it."""

    def __init__(self, part, norm):
        self.part, self.norm = part, norm

    def parameters(self):
        yield from self.part.parameters()
        yield from self.norm.parameters()


class PreNorm(Residual):
    """y = x + part(norm(x))"""

    def forward(self, x):
        normed, of_norm = self.norm.forward(x)
        added, of_part = self.part.forward(normed)
        return x + added, (of_norm, of_part)

    def backward(self, dy, cache):
        of_norm, of_part = cache
        # dx = dy + what comes through the norm, which adds its `ds`
        return self.norm.backward(self.part.backward(dy, of_part), of_norm, ds=dy)


class PostNorm(Residual):
    """y = norm(s),   s = x + part(x)"""

    def forward(self, x):
        added, of_part = self.part.forward(x)
        y, of_norm = self.norm.forward(x + added)
        return y, (of_norm, of_part)

    def backward(self, dy, cache):
        of_norm, of_part = cache
        ds = self.norm.backward(dy, of_norm)
        return ds + self.part.backward(ds, of_part)
