"""neuralnetlib again: training its Transformer, whose AddNorm is one call of lnfast.

`neuralnetlib.layers.AddNorm` adds the residual and normalises the last axis in float64: the
population's variance, eps (10⁻⁶ in the Transformer) inside the root, parameters of shape (1, 1, D).
Its two methods are replaced; the time and the calls of layer norm are those of both.
"""

from unittest.mock import patch

import numpy as np

import lnfast
from programs import neuralnetlib, timed

NAME = "neuralnetlib, transformer"
WHAT = "trains 2 + 2 layers of 64 for 16 steps"
PACKAGES = neuralnetlib.PACKAGES

TOKENS, WIDTH, LENGTH = 20, 64, 10
SAMPLES, BATCH, EPOCHS = 64, 16, 4


def forward_pass(layer, inputs):
    x, residual = inputs
    if layer.gamma is None:
        layer.initialize_weights(x.shape)
    weight, bias = layer.gamma.reshape(-1), layer.beta.reshape(-1)
    y, _, layer.cache = lnfast.add_layer_norm_forward(
        x, residual, None, weight, bias, layer.epsilon
    )
    return y


def backward_pass(layer, dy):
    dx, dweight, dbias = lnfast.layer_norm_backward(dy, layer.cache)
    layer.d_gamma = dweight.reshape(layer.gamma.shape)
    layer.d_beta = dbias.reshape(layer.beta.shape)
    return dx, dx


class Program:
    def __init__(self):
        from neuralnetlib import layers

        self.layers = layers
        rng = np.random.default_rng(0)
        self.sequences = rng.integers(4, TOKENS, (SAMPLES, LENGTH))  # 0 to 3 are special

    def swap(self):
        return patch.multiple(
            self.layers.AddNorm, forward_pass=forward_pass, backward_pass=backward_pass
        )

    def run(self):
        """The losses, one a step, and the parameters, of learning to turn sequences round."""
        from neuralnetlib.models import Transformer

        model = Transformer(
            *(TOKENS, TOKENS, WIDTH),
            n_heads=4,
            n_encoder_layers=2,
            n_decoder_layers=2,
            d_ff=2 * WIDTH,
            max_sequence_length=LENGTH + 1,
            random_state=0,
        )
        model.compile("sparse_categorical_crossentropy", "adam")
        layers = [*model.encoder_layers, *model.decoder_layers]
        x, y = self.sequences, self.sequences[:, ::-1]
        return neuralnetlib.train(model, layers, x, y, epochs=EPOCHS, batch_size=BATCH)

    def timed_layer_norm(self):
        layer = self.layers.AddNorm
        return timed((layer, "forward_pass"), (layer, "backward_pass"))

    def compare(self, before, after):
        neuralnetlib.compare(before, after, EPOCHS * SAMPLES // BATCH)
