"""How the kernels over views take arrays: the order of the axes, and what must be brought into it.

The axes of the rows come first, the normalised ones last. Only statistics that stand in another
order are copied.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lnfast import _axes, _checks
from lnfast._arguments import Backward, Forward

Array = NDArray[Any]
Axes = tuple[int, ...]


class Gradients(NamedTuple):
    """How a backward pass goes: rows that share a weight lie together."""

    order: Axes
    alike: int  # rows that share a weight
    mean: Array | None
    rstd: Array
    dweight: Array | None  # of each such rows, to compute into: (rows / alike, cols)
    dbias: Array | None


def forward_order(args: Forward) -> Axes:
    return (*_leads(args.axes, args.x.ndim), *args.axes)


def backward(args: Backward) -> Gradients:
    shape, mean = args.x.shape, args.mean
    own, shared = _lead_axes(args)
    order = (*own, *shared, *args.axes)

    def sums(wanted: bool) -> Array | None:
        rows, cols = prod(shape[i] for i in own), prod(args.normalized_shape)
        return np.empty((rows, cols), _checks.computed(args.x.dtype)) if wanted else None

    return Gradients(
        order=order,
        alike=prod(shape[i] for i in shared),
        mean=None if mean is None else np.ascontiguousarray(mean.transpose(order)),
        rstd=np.ascontiguousarray(args.rstd.transpose(order)),
        dweight=sums(args.output_mask[1]),
        dbias=sums(args.output_mask[2]),
    )


def parameter_gradient(args: Backward, sums: Array | None) -> Array | None:
    """Dweight or dbias in the shape and dtype of the weight."""
    if sums is None:
        return None
    weight, axes = args.weight, args.axes
    if weight is None or weight.ndim == len(axes):
        gradient = sums.reshape(args.normalized_shape)
    else:
        own, shared = _lead_axes(args)
        order = (*own, *shared, *axes)
        lengths = [args.x.shape[i] if i in own or i in axes else 1 for i in order]
        aligned = sums.reshape(lengths).transpose(np.argsort(order))
        gradient = np.ascontiguousarray(aligned).reshape(weight.shape)
    with np.errstate(all="ignore"):
        return gradient.astype(args.x.dtype if weight is None else weight.dtype, copy=False)


def _leads(axes: Axes, count: int) -> Axes:
    return tuple(i for i in range(count) if i not in axes)


def _lead_axes(args: Backward) -> tuple[Axes, Axes]:
    """The leading axes along which the weight differs, and those along which it does not."""
    leads = _leads(args.axes, args.x.ndim)
    if args.weight is None:
        return (), leads
    lengths = _axes.aligned(args.weight, args.axes, args.x.ndim).shape
    own = tuple(i for i in leads if lengths[i] != 1)
    return own, tuple(i for i in leads if lengths[i] == 1)
