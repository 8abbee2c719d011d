"""Layer normalisation and RMSNorm."""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _arguments
from lnfast._records import LayerNormCache, RMSNormCache
from lnfast.reference._definition import (
    backward_operands,
    keep,
    keep_rms,
    mean_of,
    normalize,
    parameter_sum,
    scale,
    write_dx,
)

Array = NDArray[Any]


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
    normalize(args)
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
    mean, rstd = normalize(args)
    return _arguments.deliver_forward(args), keep(args, args.x, mean, rstd)


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
    x, dy, weight, live = backward_operands(args)
    dweight = dbias = None
    with np.errstate(all="ignore"):
        xhat = np.where(live, (x - args.mean) * args.rstd, 0)
        if want_dweight:
            dweight = parameter_sum(args, dy * xhat)
        if want_dbias:
            dbias = parameter_sum(args, dy)
        if want_dx:
            h = dy * weight
            count = live.sum(axis=args.axes, keepdims=True)
            mean_h, mean_h_xhat = (mean_of(v, args.axes, count) for v in (h, h * xhat))
            write_dx(args, np.where(live, args.rstd * (h - mean_h - xhat * mean_h_xhat), 0))
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
    scale(args)
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
    rstd = scale(args)
    return _arguments.deliver_forward(args), keep_rms(args, args.x, rstd)


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
    x, dy, weight, live = backward_operands(args)
    dweight = None
    with np.errstate(all="ignore"):
        xhat = np.where(live, x * args.rstd, 0)
        if args.output_mask[1]:
            dweight = parameter_sum(args, dy * xhat)
        if args.output_mask[0]:
            h = dy * weight
            count = live.sum(axis=args.axes, keepdims=True)
            mean_h_xhat = mean_of(h * xhat, args.axes, count)
            write_dx(args, np.where(live, args.rstd * (h - xhat * mean_h_xhat), 0))
    return _arguments.deliver_backward(args, dweight, None)[:2]
