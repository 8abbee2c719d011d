"""The norms of x + residual, which comes back too, by definition."""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _arguments
from lnfast._records import LayerNormCache, RMSNormCache
from lnfast.reference._definition import keep, keep_rms, normalize, scale

Array = NDArray[Any]


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
    normalize(args)
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
    mean, rstd = normalize(args)
    y, s = _arguments.deliver_forward(args), _arguments.deliver_sum(args)
    return y, s, keep(args, np.asarray(s), mean, rstd)


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
    scale(args)
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
    rstd = scale(args)
    y, s = _arguments.deliver_forward(args), _arguments.deliver_sum(args)
    return y, s, keep_rms(args, np.asarray(s), rstd)
