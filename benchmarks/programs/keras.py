"""Keras on its NumPy backend: an encoder of four blocks, inference.

`keras.src.ops.nn._layer_normalization` is what the layer `LayerNormalization` and the function
`keras.ops.layer_normalization` both come to. It takes any axes and has eps (10⁻³ by default) inside
the root, but its variance is E[x²] − E[x]² in float32: of x = offset + noise the results are off by
0.3 at an offset of 1,000, and NaN at 10,000. Here, as far as answers are compared, x stays near 0.
The backend has no gradients, hence no training. It imports jax, for its convolutions.
"""

import os
from unittest.mock import patch

import numpy as np

import lnfast
from programs import timed

NAME = "Keras, NumPy backend"
WHAT = "a transformer of 4 blocks over 16 × 64 tokens"
PACKAGES = ("keras", "jax")

TOKENS, LENGTH, WIDTH, HEADS, BLOCKS = 1000, 64, 256, 4, 4
SAMPLES = 16


class Program:
    def __init__(self):
        with patch.dict(os.environ, KERAS_BACKEND="numpy"):  # read when Keras is imported
            import keras
        if keras.backend.backend() != "numpy":
            raise RuntimeError(
                f"Keras has been imported with its backend {keras.backend.backend()}: "
                "the NumPy backend needs a process of its own"
            )
        from keras.src.ops import nn

        self.keras, self.nn = keras, nn
        self.model = self.build()
        rng = np.random.default_rng(0)
        self.model.set_weights(
            [(w.value + 0.05 * rng.standard_normal(w.shape)) for w in self.model.weights]
        )
        self.tokens = rng.integers(TOKENS, size=(SAMPLES, LENGTH))

    def build(self):
        layers = self.keras.layers
        tokens = self.keras.Input((LENGTH,), dtype="int32")
        x = layers.Embedding(TOKENS, WIDTH)(tokens)
        for _ in range(BLOCKS):
            attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
            x = layers.LayerNormalization()(x + attended)
            fed = layers.Dense(WIDTH)(layers.Dense(2 * WIDTH, activation="relu")(x))
            x = layers.LayerNormalization()(x + fed)
        return self.keras.Model(tokens, x)

    def layer_normalization(
        self, x, gamma=None, beta=None, axis=-1, epsilon=None, rms_scaling=False
    ):
        assert not rms_scaling  # deprecated, and no root mean square
        weight, bias = (
            p if p is None else self.keras.ops.convert_to_tensor(p) for p in (gamma, beta)
        )
        eps = self.keras.config.epsilon() if epsilon is None else epsilon
        return lnfast.layer_norm(x, None, weight, bias, eps, axis=axis)

    def swap(self):
        return patch.object(self.nn, "_layer_normalization", self.layer_normalization)

    def run(self):
        return [self.model.predict(self.tokens, verbose=0)]

    def timed_layer_norm(self):
        return timed((self.nn, "_layer_normalization"))

    def compare(self, before, after):
        # Two layer norms a block, each within 3 epsilons of exact here, within some 5 in float32
        # sums. Each brings what it gets back to the size of 1, so that differences add up and do
        # not multiply; what lies between makes them at most twice as large: (3 + 5) · 2 for each,
        # beside the largest result (6.0 were seen, of 128).
        (y,), (other,) = before, after
        atol = 2 * BLOCKS * 16 * np.finfo(np.float32).eps * np.abs(y).max()
        np.testing.assert_allclose(y, other, rtol=0, atol=atol)
