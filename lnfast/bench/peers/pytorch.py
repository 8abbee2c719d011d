"""PyTorch: as a program calls it, compiled by torch.compile, and its copy."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lnfast.bench.peers.peer import Array, Call, Peer


class PyTorch(Peer):
    """PyTorch as an inference program, and as its own autograd, call it."""

    name, module, package = "PyTorch", "torch", "torch"
    is_library = True

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

    def as_timed(self, call: partial[Any]) -> partial[Any]:
        return call

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        import torch

        xt, wt, bt = (torch.from_numpy(a) for a in (x, weight, bias))
        layer_norm = torch.nn.functional.layer_norm
        return self.as_timed(partial(layer_norm, xt, weight.shape, wt, bt, eps))

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        import torch

        # The bias says only that there is one: its values are not used.
        dyt, xt, wt, bt = (torch.from_numpy(a) for a in (dy, x, weight, weight))
        _, mean, rstd = torch.native_layer_norm(xt, weight.shape, wt, bt, eps)
        gradients = torch.ops.aten.native_layer_norm_backward
        return self.as_timed(
            partial(gradients, dyt, xt, list(weight.shape), mean, rstd, wt, bt, [True] * 3)
        )

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call:
        import torch

        xt, wt = (torch.from_numpy(a) for a in (x, weight))
        return self.as_timed(partial(torch.nn.functional.rms_norm, xt, weight.shape, wt, eps))

    def rms_backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        import torch

        # On CPUs there is no operator for it: autograd takes the way back through the formula's.
        training = torch.inference_mode(False)
        with training:
            dyt, xt, wt = (torch.from_numpy(a) for a in (dy, x, weight))
            inputs = (xt.requires_grad_(), wt.requires_grad_())
            forward = partial(torch.nn.functional.rms_norm, xt, weight.shape, wt, eps)
            y = self.as_timed(forward)()
        return training(partial(torch.autograd.grad, y, inputs, dyt, retain_graph=True))

    def arrays(self, result: Any) -> tuple[Array, ...]:
        tensors = result if isinstance(result, tuple) else (result,)
        return tuple(tensor.numpy() for tensor in tensors)


class TorchCompile(PyTorch):
    """The same calls compiled for the shape at hand, which takes many seconds each."""

    name = "torch.compile"
    by_default = False

    def missing(self, num_threads: int | None = None) -> str | None:
        if reason := super().missing(num_threads):
            return reason
        if not any(map(shutil.which, ("c++", "g++", "clang++"))):
            return "it needs a C++ compiler"
        return None

    def as_timed(self, call: partial[Any]) -> partial[Any]:
        import torch

        # Each shape counts as compiling the same code once more; after eight PyTorch gives up.
        torch.compiler.reset()
        function = call.func
        return partial(torch.compile(lambda *args: function(*args), dynamic=False), *call.args)


class PyTorchCopy(PyTorch):
    """x cloned, or x and dy read and their sum written, on all threads."""

    name = "copy (PyTorch)"
    is_copy = True

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        import torch

        return partial(torch.clone, torch.from_numpy(x))

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        import torch

        return partial(torch.add, torch.from_numpy(x), torch.from_numpy(dy))
