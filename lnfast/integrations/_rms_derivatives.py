"""Derivatives of RMSNorm along a direction, and of its backward pass, by those of layer norm.

The row (x, -x), twice as long, has mean 0 and the rstd of x: its layer norm is (y, -y), where
weight stands twice. So it is with what is linear in a tangent (v, -v), and with the derivatives
of all that. The first halves are RMSNorm's, with the bounds and the bits that lnfast promises for
layer norm's.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import lnfast
from lnfast import _checks

Array = NDArray[Any]


def jvp(
    dx: Array | None, cache: lnfast.RMSNormCache, dweight: Array | None, dbias: None = None
) -> Array:
    """The tangent of y, as `lnfast.layer_norm_jvp` has it; there is no bias."""
    dy = lnfast.layer_norm_jvp(_mirror(dx), _mirror_cache(cache), _repeat(dweight))
    return _first_half(dy)


def double_backward(
    ddx: Array | None,
    ddweight: Array | None,
    ddbias: None,
    dy: Array,
    cache: lnfast.RMSNormCache,
) -> tuple[Array, Array, Array]:
    """(gdy, gx, gweight), as `lnfast.layer_norm_double_backward` has them; there is no bias."""
    gdy, gx, gweight = lnfast.layer_norm_double_backward(
        _mirror(ddx), _repeat(ddweight), None, _mirror(dy), _mirror_cache(cache)
    )
    return _first_half(gdy), _first_half(gx), _first_half(gweight)


def _mirror_cache(cache: lnfast.RMSNormCache) -> lnfast.LayerNormCache:
    """The record of (x, -x)."""
    shape, weight = cache.normalized_shape, cache.weight
    if weight is not None:  # here, for an error with the lengths that the caller knows
        weight = _checks.parameter("weight", weight, shape, weight.dtype)
    return lnfast.LayerNormCache(
        _mirror(cache.x),
        (*shape[:-1], 2 * shape[-1]),
        _repeat(weight),
        np.zeros_like(cache.rstd),
        cache.rstd,
    )


def _mirror(v: Array | None) -> Any:
    return None if v is None else np.concatenate([v, -v], axis=-1)


def _repeat(v: Array | None) -> Any:
    return None if v is None else np.concatenate([v, v], axis=-1)


def _first_half(v: Array) -> Array:
    """A copy, which does not keep the other half in memory."""
    return v[..., : v.shape[-1] // 2].copy()
