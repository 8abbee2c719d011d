"""NumPy: the formula as one writes it, and a copy."""

from functools import partial

import numpy as np

from lnfast.bench.peers.peer import Array, Call, Peer


class NumPyFormula(Peer):
    """The equations as one writes them in NumPy, in x's own dtype, on one thread."""

    name, module, package = "NumPy", "numpy", "numpy"

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        def call() -> Array:
            mean, rstd = statistics(x, eps)
            y: Array = (x - mean) * rstd * weight + bias
            return y

        return call

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        mean, rstd = statistics(x, eps)
        lead = tuple(range(x.ndim - 1))

        def call() -> tuple[Array, Array, Array]:
            # dx = rstd * (h - mean(h) - xhat * mean(h * xhat)),   h = dy * weight
            xhat = (x - mean) * rstd
            h = dy * weight
            mean_h = h.mean(axis=-1, keepdims=True)
            mean_h_xhat = (h * xhat).mean(axis=-1, keepdims=True)
            dx = rstd * (h - mean_h - xhat * mean_h_xhat)
            return dx, (dy * xhat).sum(axis=lead), dy.sum(axis=lead)

        return call

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call:
        def call() -> Array:
            y: Array = x * rms_statistic(x, eps) * weight
            return y

        return call

    def rms_backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        rstd = rms_statistic(x, eps)
        lead = tuple(range(x.ndim - 1))

        def call() -> tuple[Array, Array]:
            # dx = rstd * (h - xhat * mean(h * xhat)),   h = dy * weight
            xhat = x * rstd
            h = dy * weight
            dx = rstd * (h - xhat * (h * xhat).mean(axis=-1, keepdims=True))
            return dx, (dy * xhat).sum(axis=lead)

        return call


class NumPyCopy(Peer):
    """x copied, or x and dy read and their sum written, on one thread."""

    name, module, package = "copy (NumPy)", "numpy", "numpy"
    is_copy = True

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        return x.copy

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        return partial(np.add, x, dy)


def statistics(x: Array, eps: float) -> tuple[Array, Array]:
    """mean and rstd of each row, in x's dtype, with the rows' axis kept."""
    mean = x.mean(axis=-1, keepdims=True)
    return mean, 1 / np.sqrt(x.var(axis=-1, keepdims=True) + x.dtype.type(eps))


def rms_statistic(x: Array, eps: float) -> Array:
    """rstd of each row without centring, likewise."""
    rstd: Array = 1 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
    return rstd
