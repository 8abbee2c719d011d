"""PyTorch: as a program calls it, compiled by torch.compile, and its copy."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lnfast.bench.peers.peer import Array, Peer


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

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> partial[Any]:
        import torch

        tensors = [torch.from_numpy(a) for a in (x, weight, bias)]
        return partial(
            torch.nn.functional.layer_norm, tensors[0], weight.shape, tensors[1], tensors[2], eps
        )

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> partial[Any]:
        import torch

        # The bias says only that there is one: its values are not used.
        dyt, xt, wt, bt = (torch.from_numpy(a) for a in (dy, x, weight, weight))
        _, mean, rstd = torch.native_layer_norm(xt, weight.shape, wt, bt, eps)
        gradients = torch.ops.aten.native_layer_norm_backward
        return partial(gradients, dyt, xt, list(weight.shape), mean, rstd, wt, bt, [True] * 3)

    def arrays(self, result: Any) -> tuple[Array, ...]:
        tensors = result if isinstance(result, tuple) else (result,)
        return tuple(tensor.numpy() for tensor in tensors)


class TorchCompile(PyTorch):
    """The same two calls compiled for the shape at hand, which takes many seconds each."""

    name = "torch.compile"
    by_default = False

    def missing(self, num_threads: int | None = None) -> str | None:
        if reason := super().missing(num_threads):
            return reason
        if not any(map(shutil.which, ("c++", "g++", "clang++"))):
            return "it needs a C++ compiler"
        return None

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> partial[Any]:
        return compiled(super().forward(x, weight, bias, eps))

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> partial[Any]:
        return compiled(super().backward(dy, x, weight, eps))


class PyTorchCopy(PyTorch):
    """x cloned, or x and dy read and their sum written, on all threads."""

    name = "copy (PyTorch)"
    is_layer_norm = False

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> partial[Any]:
        import torch

        return partial(torch.clone, torch.from_numpy(x))

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> partial[Any]:
        import torch

        return partial(torch.add, torch.from_numpy(x), torch.from_numpy(dy))


def compiled(call: partial[Any]) -> partial[Any]:
    """A prepared call of PyTorch, compiled for its arguments."""
    import torch

    # Each shape counts as compiling the same code once more, and after eight PyTorch gives up.
    torch.compiler.reset()
    function = call.func
    return partial(torch.compile(lambda *args: function(*args), dynamic=False), *call.args)
