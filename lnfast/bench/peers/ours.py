"""lnfast itself, behind the signature of its peers."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import lnfast
from lnfast.bench.peers.peer import Array, Peer


class LnFast(Peer):
    """lnfast as a program calls it; backward with the cache of a forward pass."""

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

    def options(self, x: Array) -> dict[str, Any]:
        """Keywords of every call on x."""
        return {}

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> partial[Any]:
        return partial(lnfast.layer_norm, x, weight.shape, weight, bias, eps, **self.options(x))

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> partial[Any]:
        _, cache = lnfast.layer_norm_forward(x, weight.shape, weight, None, eps)
        return partial(lnfast.layer_norm_backward, dy, cache, **self.options(x))

    def rms_forward(self, x: Array, weight: Array, eps: float) -> partial[Any]:
        return partial(lnfast.rms_norm, x, weight.shape, weight, eps, **self.options(x))

    def rms_backward(self, dy: Array, x: Array, weight: Array, eps: float) -> partial[Any]:
        _, cache = lnfast.rms_norm_forward(x, weight.shape, weight, eps)
        return partial(lnfast.rms_norm_backward, dy, cache, **self.options(x))


class LnFastRefilling(LnFast):
    """The same with out=, to measure those against who fill one output again and again."""

    name = "lnfast, out="
    refills = True

    def options(self, x: Array) -> dict[str, Any]:
        return {"out": np.empty_like(x)}
