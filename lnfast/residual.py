"""Layer normalisation and RMSNorm of x + residual, as in the blocks of transformers.

Signatures and documentation; the work is done by the compiled `lnfast._api`.
"""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

from numpy.typing import ArrayLike, NDArray

from lnfast._api import _add_and_normalize as _add
from lnfast._records import LayerNormCache, RMSNormCache

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
    """Layer normalisation of x + residual, in one pass over memory.

    ::

        s = x + residual                          rounded once to x's dtype
        y = (s - mean) * rstd * weight + bias     as layer_norm(s)

    Parameters
    ----------
    x : array_like, shape ``lead + normalized_shape``
        As in `layer_norm`; float16 and bfloat16 too.
    residual : array_like
        Of a shape that broadcasts to x's by NumPy's rules (and does not enlarge it); cast once to
        x's dtype.
    normalized_shape, weight, bias, eps, num_threads, check_finite
        As in `layer_norm`.
    out : ndarray, optional
        Where y goes: x's shape and dtype, any strides, writable. It may be x or residual, and may
        overlap any input.
    sum_out : ndarray, optional
        Where s goes, likewise: it may be x or residual (the stream of a transformer, updated in
        place). It must share no memory with `out`.

    Returns
    -------
    y, s : ndarray, x's shape and dtype
        Fresh C-contiguous arrays, or `out` and `sum_out`. The same bits as from adding first and
        normalising then.

    Raises
    ------
    TypeError, ValueError
        As `layer_norm`, and for a residual that does not broadcast to x. No argument has been
        changed.
    MemoryError
        Where there is no room for a block of rows; no argument has been changed.

    Notes
    -----
    Ba, Kiros, Hinton, "Layer Normalization", 2016, arXiv 1607.06450; He, Zhang, Ren, Sun, "Deep
    Residual Learning for Image Recognition", 2015, arXiv 1512.03385.

    Examples
    --------
    >>> import numpy as np, lnfast
    >>> y, s = lnfast.add_layer_norm([[1.0, 0.0, 2.0]], [0.0, 2.0, 1.0], 3, eps=1 / 3)
    >>> s
    array([[1., 2., 3.]])
    >>> y
    array([[-1.,  0.,  1.]])
    """
    y, s = _add(
        0,
        False,
        x,
        residual,
        normalized_shape,
        weight,
        bias,
        eps,
        out,
        sum_out,
        num_threads,
        check_finite,
    )
    return y, s


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

    The record is that of ``layer_norm_forward(s)``: it keeps s by reference, and the gradient of
    both x and residual is the dx of ``layer_norm_backward(dy, cache, ds=ds)``, with ds the gradient
    that reaches s by its other uses. (That of a residual that was broadcast is its sum over the
    axes along which it was.)

    Parameters
    ----------
    x, residual, normalized_shape, weight, bias, eps, out, sum_out, num_threads, check_finite
        As in `add_layer_norm`.

    Returns
    -------
    y, s : ndarray, x's shape and dtype
    cache : LayerNormCache
        With s for its x.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `add_layer_norm`.
    """
    y, s, cache = _add(
        0,
        True,
        x,
        residual,
        normalized_shape,
        weight,
        bias,
        eps,
        out,
        sum_out,
        num_threads,
        check_finite,
    )
    return y, s, cache


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
    """Root mean square normalisation of x + residual, in one pass over memory.

    ::

        s = x + residual           rounded once to x's dtype
        y = s * rstd * weight      as rms_norm(s)

    Parameters
    ----------
    x, residual, normalized_shape, weight, eps, out, sum_out, num_threads, check_finite
        As in `add_layer_norm`. There is no bias.

    Returns
    -------
    y, s : ndarray, x's shape and dtype
        Fresh C-contiguous arrays, or `out` and `sum_out`. The same bits as from adding first and
        normalising then.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `add_layer_norm`.

    Notes
    -----
    Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv 1910.07467.
    """
    y, s = _add(
        1,
        False,
        x,
        residual,
        normalized_shape,
        weight,
        None,
        eps,
        out,
        sum_out,
        num_threads,
        check_finite,
    )
    return y, s


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

    As `add_layer_norm_forward`, with `rms_norm_backward`.

    Parameters
    ----------
    x, residual, normalized_shape, weight, eps, out, sum_out, num_threads, check_finite
        As in `add_rms_norm`.

    Returns
    -------
    y, s : ndarray, x's shape and dtype
    cache : RMSNormCache
        With s for its x.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `add_layer_norm`.
    """
    y, s, cache = _add(
        1,
        True,
        x,
        residual,
        normalized_shape,
        weight,
        None,
        eps,
        out,
        sum_out,
        num_threads,
        check_finite,
    )
    return y, s, cache
