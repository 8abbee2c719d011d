"""Derivatives of layer normalisation along a direction, and of its backward pass."""

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _tangents
from lnfast._pieces import Piece
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
    """The tangent of y to tangents of x, weight and bias.

    As `lnfast.layer_norm_jvp`; num_threads is checked and unused.
    """
    piece = _tangents.jvp(dx, cache, dweight, dbias, out, num_threads)
    with np.errstate(all="ignore"):
        piece["out"][...] = _push_forward(piece)
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
    """Gradients of the backward pass with respect to dy, x and weight.

    As `lnfast.layer_norm_double_backward`; num_threads is checked and unused.
    """
    piece = _tangents.double_backward(ddx, ddweight, ddbias, dy, cache, num_threads)
    with np.errstate(all="ignore"):
        a, dy = _float64(piece["ddx"]), _float64(piece["dy"])
        h, q = dy * _float64(piece["weight"], missing=1.0), dy * _float64(piece["ddweight"])
        xhat, rstd = _xhat(piece), piece["rstd"][:, np.newaxis]
        p_a, p_h = _project(a, xhat, rstd), _project(h, xhat, rstd)
        piece["out"][...] = _push_forward(piece)
        piece["gweight"][:] = (dy * p_a).sum(axis=0)
        piece["gx"][...] = _project(q, xhat, rstd) - rstd * (
            xhat * _mean(a * p_h) + _mean(h * xhat) * p_a + _mean(a * xhat) * p_h
        )
    gdy, gx = (piece.layout.from_table(piece[name]) for name in ("out", "gx"))
    return (gdy, gx, *piece.parameters("gweight"))  # type: ignore[return-value]


def _push_forward(piece: Piece) -> Array:
    """What tangents of x, weight and bias do to y."""
    xhat, weight = _xhat(piece), _float64(piece["weight"], missing=1.0)
    p = _project(_float64(piece["ddx"]), xhat, piece["rstd"][:, np.newaxis])
    along = p * weight + xhat * _float64(piece["ddweight"])
    return np.asarray(along + _float64(piece["ddbias"]))


def _project(v: Array, xhat: Array, rstd: Array) -> Array:
    """What a tangent of x does to xhat, or a gradient for xhat to x: it is symmetric."""
    v = v + np.zeros_like(xhat)
    return np.asarray(rstd * (v - _mean(v) - xhat * _mean(v * xhat)))


def _xhat(piece: Piece) -> Array:
    d = _float64(piece["x"]) - piece["mean"][:, np.newaxis]
    return np.asarray((d - _mean(d)) * piece["rstd"][:, np.newaxis])  # less what rounding took


def _mean(a: Array) -> Array:
    return np.asarray(a.sum(axis=1, keepdims=True) / a.shape[1])


def _float64(array: Array | None, missing: float = 0.0) -> Array:
    return np.asarray(missing if array is None else array, np.float64)
