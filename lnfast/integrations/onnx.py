"""The norms of ONNX models, for the evaluator that comes with the package onnx.

    from onnx.reference import ReferenceEvaluator
    from lnfast.integrations.onnx import OPERATORS

    evaluator = ReferenceEvaluator(model, new_ops=OPERATORS)

lnfast then computes the LayerNormalization and RMSNormalization nodes of the graph and of its
subgraphs. The evaluator hands new operators to no function of the model: what stands in one must
be brought into the graph first, by ``onnx.inliner.inline_local_functions``.
"""

from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

import lnfast
from lnfast.integrations._missing import missing

try:
    from onnx import TensorProto
    from onnx.reference.op_run import OpRun
except ModuleNotFoundError as error:
    raise missing("onnx", "onnx", error) from None

Array = NDArray[Any]
Shape = tuple[int, ...]


class LayerNormalization(OpRun):
    """The standard's LayerNormalization, by `lnfast.layer_norm`.

    ::

        Y = (X - Mean) * InvStdDev * Scale + B,    InvStdDev = 1 / sqrt(variance + epsilon)

    Inputs
        X, of float32, float64, float16 or bfloat16; Scale and, optionally, B, of shapes that
        broadcast to X's. None is written to.
    Attributes
        axis: the first axis that is normalised, by default the last one; epsilon: 1e-5;
        stash_type: 1, float32, and no other.
    Outputs
        Y: X's shape and dtype. Mean and InvStdDev, both optional: float32, X's shape with 1 for
        each normalised axis.

    Y has the bits of `lnfast.layer_norm`. The standard computes in float32 what is float64, and
    rounds before and after Scale; lnfast keeps float64 and rounds once.

    Raises
    ------
    ValueError
        For an axis that X does not have, and for shapes that do not broadcast to X's.
    NotImplementedError
        For another stash_type.
    """

    def _run(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        *,
        axis: int,
        epsilon: SupportsFloat,
        stash_type: int,
    ) -> tuple[Array, ...]:
        refuse_other_stash_types(stash_type)
        normalized_shape = trailing_shape(x, axis)
        weight, bias = broadcast(x, normalized_shape, Scale=weight, B=bias)
        arguments = x, normalized_shape, weight, bias, float(epsilon)
        if not any(self.onnx_node.output[1:]):
            return (lnfast.layer_norm(*arguments),)
        y, cache = lnfast.layer_norm_forward(*arguments)
        return y, cast(cache.mean, np.float32), cast(cache.rstd, np.float32)


class RMSNormalization(OpRun):
    """The standard's RMSNormalization, by `lnfast.rms_norm`.

    ::

        Y = X / sqrt(mean(X ** 2) + epsilon) * scale

    Inputs, attributes and errors as of `LayerNormalization`, without B. Y has X's shape and, as in
    the standard, scale's dtype, which may be another than X's.
    """

    def _run(
        self,
        x: Array,
        weight: Array,
        *,
        axis: int,
        epsilon: SupportsFloat,
        stash_type: int,
    ) -> tuple[Array]:
        refuse_other_stash_types(stash_type)
        dtype = weight.dtype
        if x.dtype != dtype:  # float32 at least: the half types have no other in common
            x = x.astype(np.promote_types(x.dtype, np.promote_types(dtype, np.float32)))
        normalized_shape = trailing_shape(x, axis)
        (weight,) = broadcast(x, normalized_shape, scale=weight)
        return (cast(lnfast.rms_norm(x, normalized_shape, weight, float(epsilon)), dtype),)


OPERATORS: list[type[OpRun]] = [LayerNormalization, RMSNormalization]


def refuse_other_stash_types(stash_type: int) -> None:
    if stash_type != TensorProto.FLOAT:
        raise NotImplementedError(f"stash_type must be 1 (float32), not {stash_type}")


def trailing_shape(x: Array, axis: int) -> Shape:
    """normalized_shape: the lengths from `axis` on."""
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is none of X's, whose shape is {x.shape}")
    return x.shape[axis:]


def broadcast(x: Array, normalized_shape: Shape, **parameters: Array | None) -> list[Any]:
    """The parameters, all in one shape that ends with normalized_shape, as lnfast takes them."""
    given = {name: value.shape for name, value in parameters.items() if value is not None}
    for name, shape in given.items():
        if not broadcasts(shape, x.shape):
            raise ValueError(f"{name} with shape {shape} does not broadcast to X's, {x.shape}")
    shape = np.broadcast_shapes(normalized_shape, *given.values())
    return [
        None if value is None else np.broadcast_to(value, shape) for value in parameters.values()
    ]


def broadcasts(shape: Shape, wanted: Shape) -> bool:
    """Whether an array of that shape becomes one of the wanted shape (one way, not both)."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(n in (1, length) for n, length in pairs)


def cast(array: Array, dtype: Any) -> Array:
    """In that dtype; infinite beyond its range, as the standard's Cast has it."""
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)
