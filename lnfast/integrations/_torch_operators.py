"""The operators behind lnfast.integrations.torch, as PyTorch knows them: torch.ops.lnfast.

Each norm has three: itself, its backward pass, and the backward pass of that. Here they are
computed, by lnfast on the memory of CPU tensors, of which nothing is copied; what PyTorch is told
of them besides is in _torch_rules.py.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import lnfast
from lnfast.integrations import _rms_derivatives
from lnfast.integrations._missing import missing
from lnfast.integrations._torch_rules import register_derivatives, register_shapes

try:
    from ml_dtypes import bfloat16
except ModuleNotFoundError as error:
    raise missing("ml_dtypes", "torch", error) from None

Shape = Sequence[int]
Mask = Sequence[bool]
Tensors = tuple[Tensor, ...]

# A decorator; what it makes of a function is an operator of PyTorch's
operator: Callable[..., Callable[[Callable[..., Tensors]], Any]] = partial(
    torch.library.custom_op, mutates_args=(), device_types="cpu"
)


def to_array(tensor: Tensor | None) -> Any:
    """The tensor's memory as an array, any strides. NumPy knows bfloat16 by ml_dtypes' type."""
    if tensor is None:
        return None
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy(force=True)  # of one that requires gradients, too


def to_tensor(array: NDArray[Any] | None) -> Tensor:
    """The memory of a fresh array as a tensor; an empty one for what was not asked for."""
    if array is None:
        return torch.empty(0)
    if array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


# Layer norm


@operator(
    "lnfast::layer_norm",
    schema="(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor y, Tensor mean, Tensor rstd)",
)
def layer_norm(
    input: Tensor, normalized_shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensors:
    y, cache = lnfast.layer_norm_forward(
        to_array(input), tuple(normalized_shape), to_array(weight), to_array(bias), eps
    )
    return to_tensor(y), to_tensor(cache.mean), to_tensor(cache.rstd)


@operator(
    "lnfast::layer_norm_backward",
    schema="(Tensor dy, Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor mean,"
    " Tensor rstd, bool[] output_mask) -> (Tensor dx, Tensor dweight, Tensor dbias)",
)
def layer_norm_backward(
    dy: Tensor,
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    output_mask: Mask,
) -> Tensors:
    fields = to_array(weight), to_array(mean), to_array(rstd)
    cache = lnfast.LayerNormCache(to_array(input), tuple(normalized_shape), *fields)
    gradients = lnfast.layer_norm_backward(to_array(dy), cache, output_mask=tuple(output_mask))
    return tuple(map(to_tensor, gradients))


@operator(
    "lnfast::layer_norm_double_backward",
    schema="(Tensor dy, Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor mean,"
    " Tensor rstd, Tensor? ddx, Tensor? ddweight, Tensor? ddbias)"
    " -> (Tensor gdy, Tensor gx, Tensor gweight)",
)
def layer_norm_double_backward(
    dy: Tensor,
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    ddx: Tensor | None,
    ddweight: Tensor | None,
    ddbias: Tensor | None,
) -> Tensors:
    fields = to_array(weight), to_array(mean), to_array(rstd)
    cache = lnfast.LayerNormCache(to_array(input), tuple(normalized_shape), *fields)
    gradients = lnfast.layer_norm_double_backward(
        to_array(ddx), to_array(ddweight), to_array(ddbias), to_array(dy), cache
    )
    return tuple(map(to_tensor, gradients))


# RMS norm


@operator(
    "lnfast::rms_norm",
    schema="(Tensor input, SymInt[] normalized_shape, Tensor? weight, float eps)"
    " -> (Tensor y, Tensor rstd)",
)
def rms_norm(input: Tensor, normalized_shape: Shape, weight: Tensor | None, eps: float) -> Tensors:
    y, cache = lnfast.rms_norm_forward(
        to_array(input), tuple(normalized_shape), to_array(weight), eps
    )
    return to_tensor(y), to_tensor(cache.rstd)


@operator(
    "lnfast::rms_norm_backward",
    schema="(Tensor dy, Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor rstd,"
    " bool[] output_mask) -> (Tensor dx, Tensor dweight)",
)
def rms_norm_backward(
    dy: Tensor,
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None,
    rstd: Tensor,
    output_mask: Mask,
) -> Tensors:
    fields = to_array(weight), to_array(rstd)
    cache = lnfast.RMSNormCache(to_array(input), tuple(normalized_shape), *fields)
    gradients = lnfast.rms_norm_backward(to_array(dy), cache, output_mask=tuple(output_mask))
    return tuple(map(to_tensor, gradients))


@operator(
    "lnfast::rms_norm_double_backward",
    schema="(Tensor dy, Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor rstd,"
    " Tensor? ddx, Tensor? ddweight) -> (Tensor gdy, Tensor gx, Tensor gweight)",
)
def rms_norm_double_backward(
    dy: Tensor,
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None,
    rstd: Tensor,
    ddx: Tensor | None,
    ddweight: Tensor | None,
) -> Tensors:
    fields = to_array(weight), to_array(rstd)
    cache = lnfast.RMSNormCache(to_array(input), tuple(normalized_shape), *fields)
    gradients = _rms_derivatives.double_backward(
        to_array(ddx), to_array(ddweight), None, to_array(dy), cache
    )
    return tuple(map(to_tensor, gradients))


register_shapes(layer_norm, layer_norm_backward, layer_norm_double_backward, statistics=2)
register_shapes(rms_norm, rms_norm_backward, rms_norm_double_backward, statistics=1)
register_derivatives(layer_norm, layer_norm_backward, layer_norm_double_backward)
register_derivatives(rms_norm, rms_norm_backward, rms_norm_double_backward)
