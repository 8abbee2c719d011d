"""Derivatives of layer norm along a direction, and of its backward pass: for forward mode, gradient
penalties and Hessian-vector products. The arithmetic is compiled (src/rows/derivatives.h).
"""

from typing import Any, SupportsIndex

from numpy.typing import ArrayLike, NDArray

from lnfast import _tangents
from lnfast._api import _run_piece
from lnfast._records import LayerNormCache

Array = NDArray[Any]


def layer_norm_jvp(
    dx: ArrayLike | None,
    cache: LayerNormCache,
    dweight: ArrayLike | None = None,
    dbias: ArrayLike | None = None,
    *,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
) -> Array:
    """The tangent of y to tangents of x, weight and bias (forward mode, a Jacobian-vector product).

    ::

        dy = P(dx) * weight + xhat * dweight + dbias
        P(v) = rstd * (v - mean(v) - xhat * mean(v * xhat))         means over each group

    Here dx, dweight, dbias and dy are changes of x, weight, bias and y, not gradients of a loss.

    Parameters
    ----------
    dx : array_like, x's shape, or None
        Tangent of x, cast to x's dtype. Any strides, byte order and alignment; never written to
        unless it is `out`. None for zeros, here and below.
    cache : LayerNormCache
        From `layer_norm_forward`, or built by hand; every field is checked. `cache.x` must be as
        it was in the forward pass: float32 or float64, over any axes, without a mask and with one
        weight for all rows.
    dweight, dbias : array_like, shape ``normalized_shape``, optional
        Tangents of weight and bias, cast to x's dtype; defined without a weight or bias as well.
    out : ndarray, optional
        Receives dy: x's shape and dtype, any strides, writable. It may be dx, and may overlap any
        input.
    num_threads : int, optional
        As in `layer_norm`. The result has the same bits for every number.

    Returns
    -------
    dy : ndarray, x's shape and dtype
        A fresh C-contiguous array, or `out`.

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit; nothing has been changed.

    Notes
    -----
    dy is within 1 machine epsilon of float32, 12 of float64, relative to
    ``abs(weight) * S(dx) + m * abs(dweight) + abs(dbias)`` with ``m = max(1, abs(xhat))`` and
    ``S(v) = rstd * (abs(v) + mean(abs(v)) + m * mean(abs(v) * m))``, where nothing on the way
    leaves the range of float64. NaN and infinity spoil their own group and no other. Ba, Kiros,
    Hinton, "Layer Normalization", 2016, arXiv 1607.06450.

    Examples
    --------
    >>> import numpy as np, lnfast
    >>> y, cache = lnfast.layer_norm_forward(np.array([[1.0, 2.0, 3.0]]), 3, [3, 3, 3], eps=1 / 3)
    >>> lnfast.layer_norm_jvp([[1.0, 0.0, 0.0]], cache).round(12) + 0.0
    array([[ 1., -1.,  0.]])
    """
    piece = _tangents.jvp(dx, cache, dweight, dbias, out, num_threads)
    _run_piece(piece.number, piece.num_threads, piece.operands)
    return piece.deliver()


def layer_norm_double_backward(
    ddx: ArrayLike | None,
    ddweight: ArrayLike | None,
    ddbias: ArrayLike | None,
    dy: ArrayLike,
    cache: LayerNormCache,
    *,
    num_threads: SupportsIndex | None = None,
) -> tuple[Array, Array, Array]:
    """Gradients of the backward pass: of what is computed from dx, dweight and dbias.

    ::

        gdy = P(ddx) * weight + xhat * ddweight + ddbias
        gx = P(dy * ddweight)
             - rstd * (xhat * mean(ddx * P(h)) + mean(h * xhat) * P(ddx) + mean(ddx * xhat) * P(h))
        gweight = sum(dy * P(ddx))                                  a sum over the groups
        h = dy * weight,    P(v) = rstd * (v - mean(v) - xhat * mean(v * xhat))

    Parameters
    ----------
    ddx : array_like, x's shape, or None
        Gradient of the loss with respect to the dx that `layer_norm_backward` gave, cast to x's
        dtype; None for zeros, here and below.
    ddweight, ddbias : array_like, shape ``normalized_shape``, or None
        Gradients with respect to its dweight and dbias.
    dy : array_like, x's shape
        What it was given.
    cache : LayerNormCache
        What it was given, with what `layer_norm_jvp` asks of it; every field is checked.
    num_threads : int, optional
        As in `layer_norm`. The results have the same bits for every number.

    Returns
    -------
    gdy, gx : ndarray, x's shape and dtype
        Gradients with respect to dy and x; x's part in mean and rstd is in gx. Fresh C-contiguous
        arrays.
    gweight : ndarray, shape ``normalized_shape``, x's dtype
        Gradient with respect to weight. Defined without a weight as well. (The bias has none.)

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit.
    MemoryError
        Where there is no room for the sums of the blocks of rows.

    Notes
    -----
    Of float32 each is within 1 machine epsilon, of float64 gdy and gweight within 12 and gx within
    20, with m and S as in `layer_norm_jvp` relative to

    ::

        gdy       abs(weight) * S(ddx) + m * abs(ddweight) + abs(ddbias)
        gx        S(dy * ddweight) + rstd * (mean(abs(h) * m) * S(ddx) + mean(abs(ddx) * m) * S(h)
                  + m * rstd * (mean(abs(ddx * h)) + mean(abs(ddx)) * mean(abs(h))
                                + mean(abs(ddx) * m) * mean(abs(h) * m)))
        gweight   sum(abs(dy) * S(ddx))

    where nothing on the way leaves the range of float64. NaN and infinity spoil their own group,
    and gweight. Ba, Kiros, Hinton 2016, arXiv 1607.06450.

    Examples
    --------
    Half the squared norm of dx, a gradient penalty, has dx for its gradient with respect to dx:

    >>> import numpy as np, lnfast
    >>> y, cache = lnfast.layer_norm_forward(np.array([[1.0, 2.0, 3.0]]), 3, eps=1 / 3)
    >>> dy = np.array([[1.0, -1.0, 2.0]])
    >>> dx, _, _ = lnfast.layer_norm_backward(dy, cache)
    >>> gdy, gx, gweight = lnfast.layer_norm_double_backward(dx, None, None, dy, cache)
    >>> gx.round(6)
    array([[ 1.074074,  0.740741, -1.814815]])
    """
    piece = _tangents.double_backward(ddx, ddweight, ddbias, dy, cache, num_threads)
    _run_piece(piece.number, piece.num_threads, piece.operands)
    gdy, gx = (piece.layout.from_table(piece[name]) for name in ("out", "gx"))
    return (gdy, gx, *piece.parameters("gweight"))  # type: ignore[return-value]


# Their public home
layer_norm_jvp.__module__ = layer_norm_double_backward.__module__ = "lnfast"
