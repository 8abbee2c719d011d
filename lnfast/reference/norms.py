"""Layer normalisation and RMSNorm."""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _arguments
from lnfast._arguments import LayerNormCache, RMSNormCache

Array = NDArray[Any]
Axes = tuple[int, ...]


def layer_norm(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> Array:
    """Normalise the trailing axes of x: ``(x - mean) * rstd * weight + bias``.

    As `lnfast.layer_norm`, whose documentation holds here; num_threads is checked and unused.
    """
    args = _arguments.forward(
        x, normalized_shape, weight, bias, eps, out, num_threads, check_finite, keep_x=False
    )
    _normalize(args)
    return _arguments.deliver_forward(args)


def layer_norm_forward(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, LayerNormCache]:
    """Layer normalisation, and the record that the backward pass needs.

    As `lnfast.layer_norm_forward`; num_threads is checked and unused.
    """
    args = _arguments.forward(
        x, normalized_shape, weight, bias, eps, out, num_threads, check_finite, keep_x=True
    )
    mean, rstd = _normalize(args)
    y = _arguments.deliver_forward(args)
    return y, LayerNormCache(args.x, args.normalized_shape, args.weight, mean, rstd)


def layer_norm_backward(
    dy: ArrayLike,
    cache: LayerNormCache,
    *,
    output_mask: Sequence[bool] = (True, True, True),
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array | None, Array | None, Array | None]:
    """The gradients dx, dweight and dbias of a loss whose gradient for y is dy.

    As `lnfast.layer_norm_backward`; num_threads is checked and unused.
    """
    args = _arguments.backward(dy, cache, output_mask, out, num_threads, check_finite)
    want_dx, want_dweight, want_dbias = args.output_mask
    lead, axes = _split_axes(args.x, args.normalized_shape)
    dweight = dbias = None
    with np.errstate(all="ignore"):
        x, dy, weight = _float64(args.x), _float64(args.dy), _float64(args.weight, missing=1.0)
        xhat = (x - args.mean) * args.rstd
        if want_dweight:
            dweight = (dy * xhat).sum(axis=lead).astype(args.x.dtype)
        if want_dbias:
            dbias = dy.sum(axis=lead).astype(args.x.dtype)
        if args.dx is not None:
            h = dy * weight
            dx = args.rstd * (h - _mean(h, axes) - xhat * _mean(h * xhat, axes))
            args.dx[...] = dx
    return _arguments.deliver_backward(args, dweight, dbias)


def rms_norm(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> Array:
    """Divide the trailing axes of x by their root mean square: ``x * rstd * weight``.

    As `lnfast.rms_norm`, whose documentation holds here; num_threads is checked and unused.
    """
    args = _arguments.forward(
        x, normalized_shape, weight, None, eps, out, num_threads, check_finite, keep_x=False
    )
    _scale(args)
    return _arguments.deliver_forward(args)


def rms_norm_forward(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, RMSNormCache]:
    """Root mean square normalisation, and the record that the backward pass needs.

    As `lnfast.rms_norm_forward`; num_threads is checked and unused.
    """
    args = _arguments.forward(
        x, normalized_shape, weight, None, eps, out, num_threads, check_finite, keep_x=True
    )
    rstd = _scale(args)
    y = _arguments.deliver_forward(args)
    return y, RMSNormCache(args.x, args.normalized_shape, args.weight, rstd)


def rms_norm_backward(
    dy: ArrayLike,
    cache: RMSNormCache,
    *,
    output_mask: Sequence[bool] = (True, True),
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array | None, Array | None]:
    """The gradients dx and dweight of a loss whose gradient for y is dy.

    As `lnfast.rms_norm_backward`; num_threads is checked and unused.
    """
    args = _arguments.backward(dy, cache, output_mask, out, num_threads, check_finite, RMSNormCache)
    lead, axes = _split_axes(args.x, args.normalized_shape)
    dweight = None
    with np.errstate(all="ignore"):
        x, dy, weight = _float64(args.x), _float64(args.dy), _float64(args.weight, missing=1.0)
        xhat = x * args.rstd
        if args.output_mask[1]:
            dweight = (dy * xhat).sum(axis=lead).astype(args.x.dtype)
        if args.dx is not None:
            h = dy * weight
            dx = args.rstd * (h - xhat * _mean(h * xhat, axes))
            args.dx[...] = dx
    return _arguments.deliver_backward(args, dweight, None)[:2]


def _scale(args: _arguments.Forward) -> Array:
    """Fill args.y, and return the rstd of each row."""
    _, axes = _split_axes(args.x, args.normalized_shape)
    with np.errstate(all="ignore"):
        x, weight = _float64(args.x), _float64(args.weight, missing=1.0)
        square = _mean(x**2 + (x - x), axes)  # NaN for an infinity too: it spoils its row
        rstd = 1 / np.sqrt(square + args.eps)
        args.y[...] = x * rstd * weight
    return np.asarray(rstd)


def _normalize(args: _arguments.Forward) -> tuple[Array, Array]:
    """Fill args.y, and return the mean and rstd of each row."""
    _, axes = _split_axes(args.x, args.normalized_shape)
    with np.errstate(all="ignore"):
        x = _float64(args.x)
        weight, bias = _float64(args.weight, missing=1.0), _float64(args.bias, missing=0.0)
        mean = _mean(x, axes)
        mean = mean + _mean(x - mean, axes)  # what rounding took: exact in a constant row
        var = _mean((x - mean) ** 2, axes)
        rstd = 1 / np.sqrt(var + args.eps)
        xhat = (x - mean) * rstd
        args.y[...] = xhat * weight + bias
    return mean, rstd


def _mean(a: Array, axes: Axes) -> Array:
    """The mean over axes, kept as axes of length 1; NaN where there are no elements."""
    count = np.prod([a.shape[axis] for axis in axes])
    return np.asarray(a.sum(axis=axes, keepdims=True) / count)


def _split_axes(x: Array, normalized_shape: Axes) -> tuple[Axes, Axes]:
    """The axes that count the rows, and those that make up a row."""
    first = x.ndim - len(normalized_shape)
    return tuple(range(first)), tuple(range(first, x.ndim))


def _float64(array: Array | None, missing: float = 0.0) -> Array:
    return np.asarray(missing if array is None else array, np.float64)
