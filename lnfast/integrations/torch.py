"""PyTorch's layer norm and RMSNorm on CPU tensors, by lnfast.

Functions with the signatures of torch.nn.functional's, modules that are torch.nn's but for their
forward, and an exchange of modules in a model. What computes: _torch_operators.py.
"""

from collections.abc import Sequence

from lnfast.integrations._missing import missing

try:
    from torch import Tensor, nn
except ModuleNotFoundError as error:
    raise missing("torch", "torch", error) from None

from lnfast.integrations import _torch_operators as operators
from lnfast.integrations._torch_arguments import epsilon, refusal, require

__all__ = [
    "LayerNorm",
    "RMSNorm",
    "layer_norm",
    "restore_layer_norms",
    "rms_norm",
    "swap_layer_norms",
]


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalisation, as torch.nn.functional.layer_norm; differentiable twice.

    y, and the gradients, have the bits of `lnfast.layer_norm` and `lnfast.layer_norm_backward` on
    arrays over the same memory. No tensor is copied.

    Parameters
    ----------
    input : Tensor, shape ``lead + normalized_shape``
        float32, float64, float16 or bfloat16, on the CPU, of any strides. Autograd keeps it by
        reference for the backward pass, and refuses that where it has been changed in place.
    normalized_shape : sequence of int
        The trailing shape of input that is normalised.
    weight, bias : Tensor, shape ``normalized_shape``, optional
        Scale and shift: of input's dtype, or float32 beside float16 and bfloat16.
    eps : float, default 1e-5
        Added to the variance.

    Returns
    -------
    y : Tensor, input's shape and dtype
        Contiguous, its memory its own.

    Raises
    ------
    TypeError
        For tensors on other devices, of other dtypes or layouts, or with a tangent (forward mode).
    ValueError
        For shapes that do not fit and an eps out of range.

    Notes
    -----
    Meta and fake tensors give their like: torch.compile (``fullgraph=True``, dynamic shapes) and
    torch.export take the function as one operator, ``torch.ops.lnfast.layer_norm``. torch.func.grad
    does not take operators that are written in Python, torch.vmap takes them one by one.
    Second derivatives are there for float32 and float64.

    Threads are as many as `lnfast.layer_norm` takes by default; torch.set_num_threads bounds them
    where PyTorch and lnfast have loaded the same OpenMP library.
    """
    require(input, weight, bias)
    y: Tensor = operators.layer_norm(input, normalized_shape, weight, bias, eps)[0]
    return y


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Root mean square normalisation, as torch.nn.functional.rms_norm; differentiable twice.

    As `layer_norm`, of which everything holds, by `lnfast.rms_norm`.

    Parameters
    ----------
    input, normalized_shape, weight
        As in `layer_norm`. There is no bias.
    eps : float, optional
        Added to the mean square. By default the machine epsilon of what PyTorch computes in:
        float64's for float64, else float32's.

    Returns
    -------
    y : Tensor, input's shape and dtype

    Raises
    ------
    TypeError, ValueError
        As `layer_norm`.
    """
    require(input, weight)
    y: Tensor = operators.rms_norm(input, normalized_shape, weight, epsilon(eps, input.dtype))[0]
    return y


class LayerNorm(nn.LayerNorm):
    """torch.nn.LayerNorm, its forward by `layer_norm`.

    Arguments, parameters and state dict are those of torch.nn.LayerNorm. Tensors that `layer_norm`
    refuses, those of a model that has been moved to a GPU among them, go to PyTorch's own.
    """

    def forward(self, input: Tensor) -> Tensor:
        if refusal(input, self.weight, self.bias):
            return super().forward(input)
        shape, weight, bias = self.normalized_shape, self.weight, self.bias
        y: Tensor = operators.layer_norm(input, shape, weight, bias, self.eps)[0]
        return y


class RMSNorm(nn.RMSNorm):
    """torch.nn.RMSNorm, its forward by `rms_norm`. As `LayerNorm`."""

    def forward(self, input: Tensor) -> Tensor:
        if refusal(input, self.weight):
            return super().forward(input)
        eps = epsilon(self.eps, input.dtype)
        y: Tensor = operators.rms_norm(input, self.normalized_shape, self.weight, eps)[0]
        return y


def swap_layer_norms(module: nn.Module) -> list[str]:
    """Let lnfast compute the layer norms and RMSNorms of a model, in place.

    They become instances of `LayerNorm` and `RMSNorm` and are otherwise the same objects: their
    parameters, buffers, hooks, dtype and training flag stay, and so do optimisers and state dicts.

    Parameters
    ----------
    module : torch.nn.Module
        The model; it may itself be a layer norm. What is of a subclass of torch.nn.LayerNorm or
        torch.nn.RMSNorm, or has a ``forward`` of its own, is left alone.

    Returns
    -------
    names : list of str
        Which were exchanged, as `torch.nn.Module.named_modules` names them: each module once, the
        model itself as ``""``.

    Notes
    -----
    In eval mode and without gradients torch.nn.TransformerEncoderLayer may compute the whole layer
    in one operator, which takes the weights of its norms and calls none of them;
    ``torch.backends.mha.set_fastpath_enabled(False)`` prevents that.
    """
    return exchange(module, {nn.LayerNorm: LayerNorm, nn.RMSNorm: RMSNorm})


def restore_layer_norms(module: nn.Module) -> list[str]:
    """The way back from `swap_layer_norms`: PyTorch computes them again.

    Returns
    -------
    names : list of str
        Which were exchanged.
    """
    return exchange(module, {LayerNorm: nn.LayerNorm, RMSNorm: nn.RMSNorm})


def exchange(module: nn.Module, classes: dict[type[nn.Module], type[nn.Module]]) -> list[str]:
    """Give modules of exactly these classes another; their names."""
    names = []
    for name, part in module.named_modules():
        if type(part) in classes and "forward" not in vars(part):
            part.__class__ = classes[type(part)]
            names.append(name)
    return names
