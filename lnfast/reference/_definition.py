"""The formulas, on checked arguments (lnfast._arguments), and the records of what they found."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnfast import _arguments, _axes, _checks
from lnfast._records import LayerNormCache, RMSNormCache

Array = NDArray[Any]
Axes = tuple[int, ...]


def scale(args: _arguments.Forward) -> Array:
    """Fill args.y (and args.sum), and return the rstd of each row."""
    x, weight, _, live = _forward_operands(args)
    with np.errstate(all="ignore"):
        count = live.sum(axis=args.axes, keepdims=True)
        square = mean_of(x**2 + (x - x), args.axes, count)  # NaN for an infinity too
        rstd = 1 / np.sqrt(square + args.eps)
        args.y[...] = np.where(live, x * rstd * weight, 0)
    return np.asarray(rstd)


def normalize(args: _arguments.Forward) -> tuple[Array, Array]:
    """Fill args.y (and args.sum), and return the mean and rstd of each row."""
    x, weight, bias, live = _forward_operands(args)
    with np.errstate(all="ignore"):
        count = live.sum(axis=args.axes, keepdims=True)
        mean = mean_of(x, args.axes, count)
        # what rounding took: exact in a constant row
        mean = mean + mean_of(np.where(live, x - mean, 0), args.axes, count)
        var = mean_of(np.where(live, x - mean, 0) ** 2, args.axes, count)
        rstd = 1 / np.sqrt(var + args.eps)
        xhat = (x - mean) * rstd
        args.y[...] = np.where(live, xhat * weight + bias, 0)
    return mean, rstd


def mean_of(a: Array, axes: Axes, count: Array) -> Array:
    """The mean over axes, kept as axes of length 1: NaN where the row has no elements, 0 where a
    mask leaves none of them."""
    length = np.prod([a.shape[axis] for axis in axes])
    return np.asarray(a.sum(axis=axes, keepdims=True) / np.where(length, np.maximum(count, 1), 0))


def _forward_operands(args: _arguments.Forward) -> tuple[Array, Array, Array, Array]:
    """x (and residual), weight and bias in float64, so that they broadcast, and what counts."""
    x, live = args.x, _live(args.x, args.mask)
    if args.sum is not None and args.residual is not None:
        with np.errstate(all="ignore"):
            np.add(x, args.residual, out=args.sum)
        x = args.sum
    weight, bias = _parameter(args, args.weight, 1.0), _parameter(args, args.bias, 0.0)
    return np.where(live, _float64(x), 0), weight, bias, live


def backward_operands(args: _arguments.Backward) -> tuple[Array, Array, Array, Array]:
    """x, dy and weight in float64, so that they broadcast, and what counts."""
    live = _live(args.x, args.mask)
    x, dy = (np.where(live, _float64(a), 0) for a in (args.x, args.dy))
    return x, dy, _parameter(args, args.weight, 1.0), live


def _live(x: Array, mask: Array | None) -> Array:
    return np.broadcast_to(np.asarray(True if mask is None else mask), x.shape)


def _parameter(args: Any, parameter: Array | None, missing: float) -> Array:
    if parameter is None:
        return np.asarray(missing)
    return _float64(_axes.aligned(parameter, args.axes, args.x.ndim))


def parameter_sum(args: _arguments.Backward, terms: Array) -> Array:
    """The sum over the rows of one weight, in its shape and dtype."""
    weight = args.weight
    if weight is None:
        rows = tuple(axis for axis in range(terms.ndim) if axis not in args.axes)
        return np.asarray(terms.sum(axis=rows).astype(args.x.dtype))
    lengths = _axes.aligned(weight, args.axes, terms.ndim).shape
    shared = tuple(i for i in range(terms.ndim) if i not in args.axes and lengths[i] == 1)
    return np.asarray(terms.sum(axis=shared).reshape(weight.shape).astype(weight.dtype))


def write_dx(args: _arguments.Backward, dx: Array) -> None:
    assert args.dx is not None  # the mask asked for it
    dx = dx.astype(_checks.computed(args.x.dtype))
    args.dx[...] = dx if args.ds is None else dx + args.ds.astype(dx.dtype)


def keep(args: _arguments.Forward, x: Array, mean: Array, rstd: Array) -> LayerNormCache:
    axis = None if _axes.are_last(args.axes, x.shape) else args.axes
    return LayerNormCache(x, args.normalized_shape, args.weight, mean, rstd, axis, args.mask)


def keep_rms(args: _arguments.Forward, x: Array, rstd: Array) -> RMSNormCache:
    axis = None if _axes.are_last(args.axes, x.shape) else args.axes
    return RMSNormCache(x, args.normalized_shape, args.weight, rstd, axis, args.mask)


def _float64(array: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(array, np.float64)
