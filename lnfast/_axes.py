"""Which axes of x are normalised, and how other arrays lie to them.

They are the last ones, of lengths `normalized_shape`, or those that `axis` names. A parameter has
their lengths, or as many more axes as broadcast against the other axes of x.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnfast import _checks

Array = NDArray[Any]
Axes = tuple[int, ...]
Shape = tuple[int, ...]

INTS = "an int or a sequence of ints"


def trailing_shape(lengths: Shape | None, weight: Array | None, x_shape: Shape) -> Shape:
    """normalized_shape, which x_shape must end with; None: the shape of weight."""
    source = ""
    if lengths is None:
        if weight is None:
            raise ValueError("normalized_shape is None, and there is no weight to take it from")
        lengths, source = np.asarray(weight).shape, " (the shape of weight)"
        if not lengths:
            raise ValueError("weight is 0-d: normalized_shape, taken from it, would be empty")
    if x_shape[-len(lengths) :] != lengths:
        axes = "axis" if len(lengths) == 1 else f"{len(lengths)} axes"
        raise ValueError(
            f"normalized_shape {lengths}{source} does not match the last {axes} "
            f"of x with shape {x_shape}{_places(lengths, x_shape)}"
        )
    return lengths


def shape(normalized_shape: Any) -> Shape:
    """normalized_shape as a tuple of lengths, not empty, none negative."""
    if issubclass(type(normalized_shape), str | bytes | bytearray):
        raise TypeError(f"normalized_shape must be {INTS}, not {type(normalized_shape).__name__}")
    items = _checks.items("normalized_shape", normalized_shape, _checks.MAX_AXES)
    if items is None:
        items = (normalized_shape,)
    if len(items) > _checks.MAX_AXES:
        raise ValueError(f"normalized_shape has more than the {_checks.MAX_AXES} axes of any array")
    lengths = tuple(_checks.integer("normalized_shape", length, INTS) for length in items)
    if not lengths:
        raise ValueError("normalized_shape is empty: at least one axis is normalised")
    if max(map(abs, lengths)) > sys.maxsize:
        raise ValueError(f"normalized_shape has a length beyond {sys.maxsize}")
    if min(lengths) < 0:
        raise ValueError(f"normalized_shape {lengths} has a negative length")
    return lengths


def _places(lengths: Shape, x_shape: Shape) -> str:
    """': 768 stands on axis 1' for every length that x has, but on another axis than wanted."""
    first = len(x_shape) - len(lengths)
    found = []
    for axis, length in enumerate(lengths, start=first):
        others = [str(other) for other, n in enumerate(x_shape) if n == length]
        if others and str(axis) not in others:
            axes = "axis" if len(others) == 1 else "axes"
            found.append(f"{length} stands on {axes} {' and '.join(others)}")
    return f": {', '.join(found)}" if found else ""


def numbers(axis: Any) -> Axes:
    """`axis` as a tuple of ints, not empty; which axes x has is seen later."""
    items = None
    if not issubclass(type(axis), str | bytes | bytearray):
        items = _checks.items("axis", axis, _checks.MAX_AXES)
    axes = tuple(_checks.integer("axis", i, INTS) for i in ((axis,) if items is None else items))
    if not axes:
        raise ValueError("axis is empty: at least one axis is normalised")
    return axes


def normalized(
    axis: Axes | None, lengths: Shape | None, weight: Array | None, x_shape: Shape
) -> tuple[Axes, Shape]:
    """The normalised axes of x, rising, and their lengths."""
    if axis is None:
        lengths = trailing_shape(lengths, weight, x_shape)
        return tuple(range(len(x_shape) - len(lengths), len(x_shape))), lengths
    if lengths is not None:
        raise ValueError("axis and normalized_shape both say what is normalised: give one of them")
    count = len(x_shape)
    for number in axis:
        if not -count <= number < count:
            raise ValueError(f"axis {number} is none of x's, whose shape is {x_shape}")
    axes = tuple(sorted(number % count for number in axis))
    if len(set(axes)) < len(axes):
        raise ValueError(f"axis {axis} names an axis of x, whose shape is {x_shape}, twice")
    return axes, tuple(x_shape[i] for i in axes)


def kept(
    axis: Axes | None, lengths: Shape | None, weight: Array | None, x_shape: Shape
) -> tuple[Axes, Shape]:
    """The same of a record, which may hold both."""
    if axis is None or lengths is None:
        return normalized(axis, lengths, weight, x_shape)
    axes, found = normalized(axis, None, None, x_shape)
    if found != lengths:
        raise ValueError(
            f"normalized_shape {lengths} does not match axis {axis} of x with shape {x_shape}"
        )
    return axes, found


def are_last(axes: Axes, x_shape: Shape) -> bool:
    return axes[0] == len(x_shape) - len(axes)


def row_shape(axes: Axes, x_shape: Shape) -> Shape:
    """That of a mean: 1 for each normalised axis."""
    return tuple(1 if i in axes else length for i, length in enumerate(x_shape))


def fitting(name: str, value: Array | None, axes: Axes, x_shape: Shape) -> Array | None:
    """A parameter, if it is there and has a shape that goes with x; as a base ndarray."""
    if value is None:
        return None
    array, lengths = _checks.real(name, value), tuple(x_shape[i] for i in axes)
    if array.shape == lengths:
        return array
    leads = len(axes) < array.ndim <= len(x_shape)
    if leads and all(
        n == x_shape[i] or (n == 1 and i not in axes)
        for i, n in enumerate(array.shape, start=len(x_shape) - array.ndim)
    ):
        return array
    if leads:
        raise ValueError(
            f"{name} with shape {array.shape} must have the lengths {lengths} that are normalised, "
            f"and before them what broadcasts against x with shape {x_shape}"
        )
    where = _places(array.shape, x_shape)
    where = where and f"{where} of x"
    raise ValueError(f"{name} must have shape {lengths}, not {array.shape}{where}")


def alike(parameters: dict[str, Array | None]) -> dict[str, Array | None]:
    """weight and bias where one has leading axes, for a record, which knows the shape of one."""
    weight, bias = parameters["weight"], parameters["bias"]
    if weight is None and bias is not None:
        return {"weight": np.ones_like(bias), "bias": bias}
    if weight is not None and bias is not None and weight.shape != bias.shape:
        raise ValueError(
            f"weight and bias must have the same shape, not {weight.shape} and {bias.shape}: "
            "their gradients come back in it"
        )
    return parameters


def aligned(parameter: Array, axes: Axes, count: int) -> Array:
    """A parameter whose axes stand where x, of `count` axes, has them."""
    shape = [1] * (count - parameter.ndim) + list(parameter.shape)
    if parameter.ndim == len(axes):
        shape = [1] * count
        for i, length in zip(axes, parameter.shape, strict=True):
            shape[i] = length
    return parameter.reshape(shape)
