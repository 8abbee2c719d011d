"""neuralnetlib, deep learning in NumPy: training a perceptron with its LayerNormalization.

`neuralnetlib.layers.LayerNormalization` normalises the last axis in float64, forward and backward:
the population's variance, eps (10⁻⁸ by default) inside the root, gradients that are sums over the
rows. Its two methods are replaced, what they keep from one to the other being lnfast's record.
"""

from unittest.mock import patch

import numpy as np

import lnfast
from programs import timed

NAME = "neuralnetlib, perceptron"
WHAT = "trains 3 normalised layers of 256 for 32 steps"
PACKAGES = ("neuralnetlib",)

CLASSES, INPUTS, WIDTH = 10, 64, 256
SAMPLES, BATCH, EPOCHS = 1024, 64, 2
RATE, ADAM_EPS = 1e-3, 1e-8  # the defaults of its Adam


def forward_pass(layer, x):
    if layer.gamma is None:
        layer.initialize_weights(x.shape)
    y, layer.cache = lnfast.layer_norm_forward(x, None, layer.gamma, layer.beta, layer.epsilon)
    return y


def backward_pass(layer, dy):
    dx, layer.d_gamma, layer.d_beta = lnfast.layer_norm_backward(dy, layer.cache)
    return dx


class Program:
    def __init__(self):
        from neuralnetlib import layers

        self.layers = layers
        rng = np.random.default_rng(0)
        self.labels = rng.integers(CLASSES, size=SAMPLES)
        centres = rng.standard_normal((CLASSES, INPUTS))
        self.x = centres[self.labels] + rng.standard_normal((SAMPLES, INPUTS))

    def swap(self):
        return patch.multiple(
            self.layers.LayerNormalization, forward_pass=forward_pass, backward_pass=backward_pass
        )

    def run(self):
        """The losses, one a step, and the trained parameters."""
        model = self.build()
        return train(model, model.layers, self.x, self.labels, epochs=EPOCHS, batch_size=BATCH)

    def build(self):
        from neuralnetlib.models import Sequential

        model = Sequential(random_state=0)
        model.add(self.layers.Input(INPUTS))
        for _ in range(3):
            model.add(self.layers.Dense(WIDTH))
            model.add(self.layers.LayerNormalization())
            model.add(self.layers.Activation("relu"))
        model.add(self.layers.Dense(CLASSES))
        model.add(self.layers.Activation("softmax"))
        model.compile("sparse_categorical_crossentropy", "adam")
        return model

    def timed_layer_norm(self):
        layer = self.layers.LayerNormalization
        return timed((layer, "forward_pass"), (layer, "backward_pass"))

    def compare(self, before, after):
        compare(before, after, EPOCHS * SAMPLES // BATCH)


def train(model, layers, x, y, **options):
    """The losses, one a step, and the trained parameters of the layers."""
    from neuralnetlib.callbacks import Callback

    class Losses(Callback):
        def on_batch_end(self, batch, logs=None):
            losses.append(logs["loss"])

    losses = []
    model.fit(x, y, verbose=False, random_state=0, callbacks=[Losses()], **options)
    trained = [p for layer in layers for _, p, _ in layer.get_trainable_parameters()]
    return [np.array(losses), *trained]


def compare(before, after, steps):
    """Losses and parameters after some steps of Adam."""
    # An element of a gradient is at most 1, and two ways to compute it are within some 16 epsilons.
    # Adam divides it by its own size and ADAM_EPS, so that in a step a parameter moves apart by
    apart = RATE * 16 * np.finfo(np.float64).eps / ADAM_EPS
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=steps * apart)
