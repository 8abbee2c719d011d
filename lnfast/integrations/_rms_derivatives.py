"""Derivatives of RMSNorm along a direction, and of its backward pass, in plain float64 NumPy.

For lnfast.integrations.autograd: what lnfast/derivatives.py has for layer norm, with its arguments
(there is no bias: dbias and ddbias are None) and without its promises. Over trailing axes, with
rstd and the parameters in float64, and so all else:

    xhat = x * rstd,    P(v) = rstd * (v - xhat * mean(v * xhat))       means over each group
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _checks
from lnfast._records import RMSNormCache

Array = NDArray[Any]


@np.errstate(all="ignore")
def jvp(dx: ArrayLike | None, cache: RMSNormCache, dweight: ArrayLike | None, dbias: None) -> Array:
    """dy = P(dx) * weight + xhat * dweight"""
    xhat, weight = cache.x * cache.rstd, _parameter("weight", cache.weight, cache, 1)
    dy = _project(_or_zero(dx), xhat, cache) * weight
    dy = dy + xhat * _parameter("dweight", dweight, cache, 0)
    return np.asarray(dy, cache.x.dtype)


@np.errstate(all="ignore")
def double_backward(
    ddx: ArrayLike | None,
    ddweight: ArrayLike | None,
    ddbias: None,
    dy: ArrayLike,
    cache: RMSNormCache,
) -> tuple[Array, Array, Array]:
    """Gradients for dy, x and weight:

    gdy = P(ddx) * weight + xhat * ddweight
    gx = P(dy * ddweight)
         - rstd * (xhat * mean(ddx * P(h)) + mean(h * xhat) * P(ddx) + mean(ddx * xhat) * P(h))
    gweight = sum(dy * P(ddx)),    h = dy * weight                      a sum over the groups
    """
    ddx, dy, rstd = _or_zero(ddx), np.asarray(dy), cache.rstd
    xhat, weight = cache.x * rstd, _parameter("weight", cache.weight, cache, 1)
    ddweight = _parameter("ddweight", ddweight, cache, 0)
    h = dy * weight
    p_ddx, p_h = _project(ddx, xhat, cache), _project(h, xhat, cache)
    gdy = p_ddx * weight + xhat * ddweight
    gx = _project(dy * ddweight, xhat, cache) - rstd * (
        xhat * _mean(ddx * p_h, cache)
        + _mean(h * xhat, cache) * p_ddx
        + _mean(ddx * xhat, cache) * p_h
    )
    gweight = (dy * p_ddx).sum(axis=tuple(range(cache.x.ndim - len(cache.normalized_shape))))
    gdy, gx, gweight = (np.asarray(g, cache.x.dtype) for g in (gdy, gx, gweight))
    return gdy, gx, gweight


def _project(v: Array, xhat: Array, cache: RMSNormCache) -> Array:
    return np.asarray(cache.rstd * (v - xhat * _mean(v * xhat, cache)))


def _mean(v: Array, cache: RMSNormCache) -> Array:
    axes = tuple(range(-len(cache.normalized_shape), 0))
    return np.asarray(v.sum(axis=axes, keepdims=True) / math.prod(cache.normalized_shape))


def _or_zero(v: ArrayLike | None) -> Array:
    return np.asarray(0 if v is None else v)


def _parameter(name: str, value: Any, cache: RMSNormCache, missing: int) -> Array:
    """In float64; `missing` everywhere for None."""
    dtype = np.dtype(np.float64)
    if value is None:
        return np.full(cache.normalized_shape, missing, dtype)
    return _checks.parameter(name, np.asarray(value), cache.normalized_shape, dtype)
