"""Which tensors lnfast takes."""

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

# The dtypes of input, and of a weight or bias beside it
DTYPES = {
    torch.float32: {torch.float32},
    torch.float64: {torch.float64},
    torch.float16: {torch.float16, torch.float32},
    torch.bfloat16: {torch.bfloat16, torch.float32},
}


def refusal(input: object, weight: object, bias: object = None) -> str:
    """Why lnfast does not take these tensors, in words; empty where it does."""
    if input is None:
        return "input must be a tensor, not None"
    beside = None
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            return f"{name} must be a tensor, not {type(tensor).__name__}"
        if tensor.device.type not in ("cpu", "meta"):
            return f"{name} is on {tensor.device}: lnfast computes on the CPU"
        if tensor.layout != torch.strided or tensor.is_nested:
            return f"{name} is sparse or nested: it must be dense"
        if has_tangent(tensor):
            return f"{name} has a tangent: lnfast's operators have no forward mode"
        if beside is None:
            if tensor.dtype not in DTYPES:
                known = ", ".join(str(dtype) for dtype in DTYPES)
                return f"{name} has dtype {tensor.dtype}: it must be one of {known}"
            beside = tensor.dtype
        elif tensor.dtype not in DTYPES[beside]:
            return f"{name} has dtype {tensor.dtype}, which does not go with input's, {beside}"
    return ""


def require(input: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> None:
    reason = refusal(input, weight, bias)
    if reason:
        raise TypeError(reason)


def has_tangent(tensor: Tensor) -> bool:
    """Whether forward mode is at work, in which operators without one give zeros, silently."""
    return unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def epsilon(eps: float | None, dtype: torch.dtype) -> float:
    """That of rms_norm: by default the machine epsilon of what PyTorch computes in."""
    if eps is not None:
        return eps
    return torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
