"""What PyTorch is told of a norm's operators: the shapes of their results, and their derivatives.

By shapes alone work torch.compile, torch.export and meta tensors. The derivative of a norm is its
backward pass, whose derivative is the double backward pass, which has none. Backward passes take
the statistics (mean and rstd) beside input, from which they follow: what statistics contribute
is in the gradient for input, and they have none of their own.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from lnfast.integrations._torch_arguments import has_tangent

Shape = Sequence[int]
Tensors = tuple[Tensor, ...]
Gradients = tuple[Tensor | None, ...]


def register_shapes(norm: Any, backward: Any, double_backward: Any, statistics: int) -> None:
    """For the three operators of a norm that keeps this many statistics."""

    def of_norm(input: Tensor, normalized_shape: Shape, *_: Any) -> Tensors:
        kept = (statistic(input, normalized_shape) for _ in range(statistics))
        return like(input), *kept

    def of_backward(
        dy: Tensor, input: Tensor, normalized_shape: Shape, weight: Tensor | None, *rest: Any
    ) -> Tensors:
        *_, mask = rest
        parameters = (parameter(input, normalized_shape, weight) for _ in mask[1:])
        gradients = only((like(input), *parameters), mask)
        return tuple(torch.empty(0) if g is None else g for g in gradients)

    def of_double_backward(
        dy: Tensor, input: Tensor, normalized_shape: Shape, weight: Tensor | None, *_: Any
    ) -> Tensors:
        return like(input), like(input), parameter(input, normalized_shape, weight)

    norm.register_fake(of_norm)
    backward.register_fake(of_backward)
    double_backward.register_fake(of_double_backward)


def like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def parameter(input: Tensor, normalized_shape: Shape, weight: Tensor | None) -> Tensor:
    return (input if weight is None else weight).new_empty(normalized_shape)


def statistic(input: Tensor, normalized_shape: Shape) -> Tensor:
    """A misfit is an error here too: where nothing is computed, nobody else would notice."""
    lead = input.ndim - len(normalized_shape)
    fits = tuple(input.shape[max(lead, 0) :]) == tuple(normalized_shape)
    if not normalized_shape or not fits:
        raise ValueError(
            f"normalized_shape is {tuple(normalized_shape)}: it must be the trailing shape of "
            f"input, whose shape is {tuple(input.shape)}"
        )
    shape = (*input.shape[:lead], *[1] * len(normalized_shape))
    return input.new_empty(shape, dtype=torch.float64)


def register_derivatives(norm: Any, backward: Any, double_backward: Any) -> None:
    """Of the norm by `backward`, of `backward` by `double_backward`."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        input, ctx.normalized_shape, weight, *_ = inputs
        _, *statistics = output
        ctx.save_for_backward(input, weight, *statistics)
        ctx.mark_non_differentiable(*statistics)

    def differentiate(ctx: Any, dy: Tensor, *_: Tensor) -> Gradients:
        if has_tangent(dy):
            raise NotImplementedError("lnfast's operators have no forward mode: dy has a tangent")
        input, weight, *statistics = ctx.saved_tensors
        needs_input, _, *needs_parameters, _ = ctx.needs_input_grad
        mask = [needs_input, *needs_parameters]
        gradients = backward(dy, input, ctx.normalized_shape, weight, *statistics, mask)
        dx, *parameters = only(gradients, mask)
        return dx, None, *parameters, None

    def keep_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        dy, input, ctx.normalized_shape, weight, *statistics, ctx.mask = inputs
        ctx.save_for_backward(dy, input, weight, *statistics)
        ctx.set_materialize_grads(False)  # None for zeros, as lnfast has it

    def differentiate_backward(ctx: Any, *second: Tensor | None) -> Gradients:
        dy, input, weight, *statistics = ctx.saved_tensors
        gdy, gx, gweight = double_backward(
            dy, input, ctx.normalized_shape, weight, *statistics, *only(second, ctx.mask)
        )
        return gdy, gx, None, None if weight is None else gweight, *[None] * len(statistics), None

    norm.register_autograd(differentiate, setup_context=keep)
    backward.register_autograd(differentiate_backward, setup_context=keep_backward)


def only(gradients: Iterable[Tensor | None], mask: Sequence[bool]) -> list[Tensor | None]:
    """None for what the mask does not ask for, whatever stands in its place."""
    return [gradient if wanted else None for gradient, wanted in zip(gradients, mask, strict=True)]
