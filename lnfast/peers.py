"""The implementations that lnfast is measured against, all behind one signature.

A peer prepares a call from NumPy arrays and hands it back; the call takes no arguments, does the
whole work, and returns freshly allocated results. Only the call is timed. To add a peer, write
its class and enter it in PEERS. Layer norm is over the last axis: weight and bias have one axis.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lnfast

Array = NDArray[Any]
Call = Callable[[], Any]


class Peer:
    """One implementation: what it is called, what it needs, and its two calls."""

    name: str  # in tables and messages
    module: str  # what it imports, so that a missing one is found without importing it
    package: str  # what pip calls it
    is_layer_norm = True  # whether its results are y and dx, dweight, dbias

    def missing(self) -> str | None:
        """Why this peer cannot run here, or None if it can."""
        if find_spec(self.module) is None:
            return f"{self.package} is not installed"
        return None

    def version(self) -> str:
        return version(self.package)

    @contextmanager
    def on_threads(self, num_threads: int) -> Iterator[None]:
        """Within it the peer uses num_threads threads; what was set before is put back."""
        yield

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call | None:
        """A call that returns y; None where the peer has no forward pass for these arrays."""
        raise NotImplementedError

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call | None:
        """A call that returns dx, dweight, dbias, all of the forward pass known beforehand."""
        raise NotImplementedError

    def arrays(self, result: Any) -> tuple[Array, ...]:
        """What a call returned, as NumPy arrays: (y,) or (dx, dweight, dbias)."""
        return result if isinstance(result, tuple) else (result,)


class LnFast(Peer):
    """lnfast itself."""

    name, module, package = "lnfast", "lnfast", "lnfast"

    def version(self) -> str:
        return lnfast.__version__

    @contextmanager
    def on_threads(self, num_threads: int) -> Iterator[None]:
        before = lnfast.get_num_threads()
        lnfast.set_num_threads(None)
        cap = before if before < lnfast.get_num_threads() else None
        lnfast.set_num_threads(num_threads)
        try:
            yield
        finally:
            lnfast.set_num_threads(cap)

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        return partial(lnfast.layer_norm, x, weight.shape, weight, bias, eps)

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        _, cache = lnfast.layer_norm_forward(x, weight.shape, weight, None, eps)
        return partial(lnfast.layer_norm_backward, dy, cache)


class NumPyFormula(Peer):
    """The equations as one writes them in NumPy, in x's own dtype, on one thread."""

    name, module, package = "NumPy", "numpy", "numpy"

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        def call() -> Array:
            mean, rstd = self._statistics(x, eps)
            y: Array = (x - mean) * rstd * weight + bias
            return y

        return call

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        mean, rstd = self._statistics(x, eps)
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

    @staticmethod
    def _statistics(x: Array, eps: float) -> tuple[Array, Array]:
        mean = x.mean(axis=-1, keepdims=True)
        return mean, 1 / np.sqrt(x.var(axis=-1, keepdims=True) + x.dtype.type(eps))


class PyTorch(Peer):
    """PyTorch as an inference program, and as its own autograd, call it."""

    name, module, package = "PyTorch", "torch", "torch"

    @contextmanager
    def on_threads(self, num_threads: int) -> Iterator[None]:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(num_threads)
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_num_threads(before)

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        import torch

        tensors = [torch.from_numpy(a) for a in (x, weight, bias)]
        return partial(
            torch.nn.functional.layer_norm, tensors[0], weight.shape, tensors[1], tensors[2], eps
        )

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        import torch

        # The bias says only that there is one: its values are not used.
        dyt, xt, wt, bt = (torch.from_numpy(a) for a in (dy, x, weight, weight))
        _, mean, rstd = torch.native_layer_norm(xt, weight.shape, wt, bt, eps)
        gradients = torch.ops.aten.native_layer_norm_backward
        return partial(gradients, dyt, xt, list(weight.shape), mean, rstd, wt, bt, [True] * 3)

    def arrays(self, result: Any) -> tuple[Array, ...]:
        tensors = result if isinstance(result, tuple) else (result,)
        return tuple(tensor.numpy() for tensor in tensors)


class Copy(Peer):
    """The same bytes moved and nothing computed, by NumPy on one thread: the floor.

    Forward reads x and writes y; backward reads x and dy and writes dx.
    """

    name, module, package = "copy", "numpy", "numpy"
    is_layer_norm = False

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        return x.copy

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        return partial(np.add, x, dy)


# All peers, in the order of the table's columns. --peers takes the names in lower case.
PEERS: dict[str, Peer] = {
    peer.name.lower(): peer for peer in (LnFast(), Copy(), NumPyFormula(), PyTorch())
}
