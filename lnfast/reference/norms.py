"""Layer normalisation and RMSNorm."""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _arguments, _axes, _checks
from lnfast._records import LayerNormCache, RMSNormCache

Array = NDArray[Any]
Axes = tuple[int, ...]


def layer_norm(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> Array:
    """Normalise the trailing axes of x: ``(x - mean) * rstd * weight + bias``.

    As `lnfast.layer_norm`, whose documentation holds here; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, bias, eps, out, num_threads, check_finite),
        axis=axis,
        mask=mask,
        keep_x=False,
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
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, LayerNormCache]:
    """Layer normalisation, and the record that the backward pass needs.

    As `lnfast.layer_norm_forward`; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, bias, eps, out, num_threads, check_finite),
        axis=axis,
        mask=mask,
        keep_x=True,
    )
    mean, rstd = _normalize(args)
    return _arguments.deliver_forward(args), _keep(args, args.x, mean, rstd)


def layer_norm_backward(
    dy: ArrayLike,
    cache: LayerNormCache,
    *,
    ds: ArrayLike | None = None,
    output_mask: Sequence[bool] = (True, True, True),
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array | None, Array | None, Array | None]:
    """The gradients dx, dweight and dbias of a loss whose gradient for y is dy.

    As `lnfast.layer_norm_backward`; num_threads is checked and unused.
    """
    args = _arguments.backward(dy, cache, output_mask, out, num_threads, check_finite, ds=ds)
    want_dx, want_dweight, want_dbias = args.output_mask
    x, dy, weight, live = _backward_operands(args)
    dweight = dbias = None
    with np.errstate(all="ignore"):
        xhat = np.where(live, (x - args.mean) * args.rstd, 0)
        if want_dweight:
            dweight = _parameter_sum(args, dy * xhat)
        if want_dbias:
            dbias = _parameter_sum(args, dy)
        if want_dx:
            h = dy * weight
            count = live.sum(axis=args.axes, keepdims=True)
            mean_h, mean_h_xhat = (_mean(v, args.axes, count) for v in (h, h * xhat))
            _write_dx(args, np.where(live, args.rstd * (h - mean_h - xhat * mean_h_xhat), 0))
    return _arguments.deliver_backward(args, dweight, dbias)


def rms_norm(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> Array:
    """Divide the trailing axes of x by their root mean square: ``x * rstd * weight``.

    As `lnfast.rms_norm`, whose documentation holds here; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, None, eps, out, num_threads, check_finite),
        axis=axis,
        mask=mask,
        keep_x=False,
    )
    _scale(args)
    return _arguments.deliver_forward(args)


def rms_norm_forward(
    x: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
    mask: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, RMSNormCache]:
    """Root mean square normalisation, and the record that the backward pass needs.

    As `lnfast.rms_norm_forward`; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, None, eps, out, num_threads, check_finite),
        axis=axis,
        mask=mask,
        keep_x=True,
    )
    rstd = _scale(args)
    return _arguments.deliver_forward(args), _keep_rms(args, args.x, rstd)


def rms_norm_backward(
    dy: ArrayLike,
    cache: RMSNormCache,
    *,
    ds: ArrayLike | None = None,
    output_mask: Sequence[bool] = (True, True),
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array | None, Array | None]:
    """The gradients dx and dweight of a loss whose gradient for y is dy.

    As `lnfast.rms_norm_backward`; num_threads is checked and unused.
    """
    args = _arguments.backward(
        dy, cache, output_mask, out, num_threads, check_finite, RMSNormCache, ds=ds
    )
    x, dy, weight, live = _backward_operands(args)
    dweight = None
    with np.errstate(all="ignore"):
        xhat = np.where(live, x * args.rstd, 0)
        if args.output_mask[1]:
            dweight = _parameter_sum(args, dy * xhat)
        if args.output_mask[0]:
            h = dy * weight
            count = live.sum(axis=args.axes, keepdims=True)
            mean_h_xhat = _mean(h * xhat, args.axes, count)
            _write_dx(args, np.where(live, args.rstd * (h - xhat * mean_h_xhat), 0))
    return _arguments.deliver_backward(args, dweight, None)[:2]


def add_layer_norm(
    x: ArrayLike,
    residual: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    out: Array | None = None,
    sum_out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, Array]:
    """Add, round the sum to x's dtype, and normalise it.

    As `lnfast.add_layer_norm`, whose documentation holds here; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, bias, eps, out, num_threads, check_finite),
        adds=True,
        residual=residual,
        sum_out=sum_out,
        keep_x=False,
    )
    _normalize(args)
    return _arguments.deliver_forward(args), _arguments.deliver_sum(args)


def add_layer_norm_forward(
    x: ArrayLike,
    residual: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    out: Array | None = None,
    sum_out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, Array, LayerNormCache]:
    """`add_layer_norm`, and the record that the backward pass needs.

    As `lnfast.add_layer_norm_forward`; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, bias, eps, out, num_threads, check_finite),
        adds=True,
        residual=residual,
        sum_out=sum_out,
        keep_x=True,
    )
    mean, rstd = _normalize(args)
    y, s = _arguments.deliver_forward(args), _arguments.deliver_sum(args)
    return y, s, _keep(args, np.asarray(s), mean, rstd)


def add_rms_norm(
    x: ArrayLike,
    residual: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    out: Array | None = None,
    sum_out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, Array]:
    """Add, round the sum to x's dtype, and divide it by its root mean square.

    As `lnfast.add_rms_norm`, whose documentation holds here; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, None, eps, out, num_threads, check_finite),
        adds=True,
        residual=residual,
        sum_out=sum_out,
        keep_x=False,
    )
    _scale(args)
    return _arguments.deliver_forward(args), _arguments.deliver_sum(args)


def add_rms_norm_forward(
    x: ArrayLike,
    residual: ArrayLike,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat = 1e-6,
    *,
    out: Array | None = None,
    sum_out: Array | None = None,
    num_threads: SupportsIndex | None = None,
    check_finite: bool = False,
) -> tuple[Array, Array, RMSNormCache]:
    """`add_rms_norm`, and the record that the backward pass needs.

    As `lnfast.add_rms_norm_forward`; num_threads is checked and unused.
    """
    args = _arguments.forward(
        *(x, normalized_shape, weight, None, eps, out, num_threads, check_finite),
        adds=True,
        residual=residual,
        sum_out=sum_out,
        keep_x=True,
    )
    rstd = _scale(args)
    y, s = _arguments.deliver_forward(args), _arguments.deliver_sum(args)
    return y, s, _keep_rms(args, np.asarray(s), rstd)


def _scale(args: _arguments.Forward) -> Array:
    """Fill args.y (and args.sum), and return the rstd of each row."""
    x, weight, _, live = _forward_operands(args)
    with np.errstate(all="ignore"):
        count = live.sum(axis=args.axes, keepdims=True)
        square = _mean(x**2 + (x - x), args.axes, count)  # NaN for an infinity too
        rstd = 1 / np.sqrt(square + args.eps)
        args.y[...] = np.where(live, x * rstd * weight, 0)
    return np.asarray(rstd)


def _normalize(args: _arguments.Forward) -> tuple[Array, Array]:
    """Fill args.y (and args.sum), and return the mean and rstd of each row."""
    x, weight, bias, live = _forward_operands(args)
    with np.errstate(all="ignore"):
        count = live.sum(axis=args.axes, keepdims=True)
        mean = _mean(x, args.axes, count)
        # what rounding took: exact in a constant row
        mean = mean + _mean(np.where(live, x - mean, 0), args.axes, count)
        var = _mean(np.where(live, x - mean, 0) ** 2, args.axes, count)
        rstd = 1 / np.sqrt(var + args.eps)
        xhat = (x - mean) * rstd
        args.y[...] = np.where(live, xhat * weight + bias, 0)
    return mean, rstd


def _mean(a: Array, axes: Axes, count: Array) -> Array:
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


def _backward_operands(args: _arguments.Backward) -> tuple[Array, Array, Array, Array]:
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


def _parameter_sum(args: _arguments.Backward, terms: Array) -> Array:
    """The sum over the rows of one weight, in its shape and dtype."""
    weight = args.weight
    if weight is None:
        rows = tuple(axis for axis in range(terms.ndim) if axis not in args.axes)
        return np.asarray(terms.sum(axis=rows).astype(args.x.dtype))
    lengths = _axes.aligned(weight, args.axes, terms.ndim).shape
    shared = tuple(i for i in range(terms.ndim) if i not in args.axes and lengths[i] == 1)
    return np.asarray(terms.sum(axis=shared).reshape(weight.shape).astype(weight.dtype))


def _write_dx(args: _arguments.Backward, dx: Array) -> None:
    assert args.dx is not None  # the mask asked for it
    dx = dx.astype(_checks.computed(args.x.dtype))
    args.dx[...] = dx if args.ds is None else dx + args.ds.astype(dx.dtype)


def _keep(args: _arguments.Forward, x: Array, mean: Array, rstd: Array) -> LayerNormCache:
    axis = None if _axes.are_last(args.axes, x.shape) else args.axes
    return LayerNormCache(x, args.normalized_shape, args.weight, mean, rstd, axis, args.mask)


def _keep_rms(args: _arguments.Forward, x: Array, rstd: Array) -> RMSNormCache:
    axis = None if _axes.are_last(args.axes, x.shape) else args.axes
    return RMSNormCache(x, args.normalized_shape, args.weight, rstd, axis, args.mask)


def _float64(array: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(array, np.float64)
