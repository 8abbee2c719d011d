"""Gradients of the examples' networks, judged by central differences."""

import numpy as np


def assert_gradients(compute_loss, parameters):
    """Each gradient is what central differences in float64 find.

    With a step of ε^⅓ they are off by some ε^⅔ (4e-11) times the third derivative, and by the
    rounding of a loss of order one over the step (4e-11).
    """
    step = np.finfo(np.float64).eps ** (1 / 3)
    for parameter, gradient in parameters:
        found = np.empty_like(gradient)
        for place in np.ndindex(parameter.shape):
            value = parameter[place]
            parameter[place] = value + step
            above = compute_loss()
            parameter[place] = value - step
            below = compute_loss()
            parameter[place] = value
            found[place] = (above - below) / (2 * step)
        assert np.abs(gradient).max() > 1e-4
        np.testing.assert_allclose(gradient, found, rtol=0, atol=1e-8)


def disturb(layer, rng):
    """Parameters that differ from element to element, gains and biases too."""
    for _, parameter, _ in layer.parameters():
        parameter += rng.normal(0, 0.2, parameter.shape)
