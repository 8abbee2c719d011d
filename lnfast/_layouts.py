"""Arrays as the kernels over views take them: the axes of the rows first, the normalised ones last.

Nothing is copied but parameters whose rows are not contiguous, and statistics that stand in another
order.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lnfast import _axes, _checks
from lnfast._arguments import Backward, Forward

Array = NDArray[Any]
Axes = tuple[int, ...]
Shape = tuple[int, ...]


class ForwardViews(NamedTuple):
    """All of the shape of x, with its axes in this order; parameters in the dtype computed in."""

    x: Array
    residual: Array | None
    mask: Array | None
    weight: Array | None
    bias: Array | None
    sum: Array | None
    y: Array


class BackwardViews(NamedTuple):
    """The same; rows that share a weight lie together."""

    x: Array
    dy: Array
    mask: Array | None
    weight: Array | None
    ds: Array | None
    dx: Array | None
    mean: Array | None
    rstd: Array
    alike: int  # rows that share a weight
    dweight: Array | None  # of each such rows, to compute into: (rows / alike, cols)
    dbias: Array | None


def forward(args: Forward) -> ForwardViews:
    shape = args.x.shape
    order = (*_leads(args.axes, len(shape)), *args.axes)

    def turned(array: Array | None) -> Array | None:
        return None if array is None else np.broadcast_to(array, shape).transpose(order)

    def parameter(array: Array | None) -> Array | None:
        return None if array is None else _parameter(array, args.axes, shape, order)

    return ForwardViews(
        x=args.x.transpose(order),
        residual=turned(args.residual),
        mask=turned(args.mask),
        weight=parameter(args.weight),
        bias=parameter(args.bias),
        sum=None if args.sum is None else args.sum.transpose(order),
        y=args.y.transpose(order),
    )


def backward(args: Backward) -> BackwardViews:
    shape = args.x.shape
    own, shared = _lead_axes(args)
    order = (*own, *shared, *args.axes)

    def turned(array: Array | None) -> Array | None:
        return None if array is None else np.broadcast_to(array, shape).transpose(order)

    def sums(wanted: bool) -> Array | None:
        rows, cols = prod(shape[i] for i in own), prod(args.normalized_shape)
        return np.empty((rows, cols), _checks.computed(args.x.dtype)) if wanted else None

    weight, mean = args.weight, args.mean
    return BackwardViews(
        x=args.x.transpose(order),
        dy=args.dy.transpose(order),
        mask=turned(args.mask),
        weight=None if weight is None else _parameter(weight, args.axes, shape, order),
        ds=turned(args.ds),
        dx=None if args.dx is None else args.dx.transpose(order),
        mean=None if mean is None else np.ascontiguousarray(mean.transpose(order)),
        rstd=np.ascontiguousarray(args.rstd.transpose(order)),
        alike=prod(shape[i] for i in shared),
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


def _parameter(array: Array, axes: Axes, shape: Shape, order: Axes) -> Array:
    lengths = tuple(shape[i] for i in order)
    turned = _axes.aligned(array, axes, len(shape)).transpose(order)
    dtype = _checks.computed(array.dtype)
    return np.broadcast_to(np.asarray(turned, dtype, order="C"), lengths)
