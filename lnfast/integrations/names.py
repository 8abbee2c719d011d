"""Names and argument orders that people already type: for code that has them, change an import.

    layer_norm(x, g, b), rms_norm(x, g)            as in GPT-2 and Llama written in NumPy
    layernorm_forward, layernorm_backward          as in the exercises of Stanford's course CS231n

All are lnfast's functions over the last axis of x, and have their bits, dtypes and errors.
"""

from collections.abc import Mapping
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

import lnfast
from lnfast import LayerNormCache

__all__ = ["layer_norm", "layernorm_backward", "layernorm_forward", "rms_norm"]

Array = NDArray[Any]


def layer_norm(x: ArrayLike, g: ArrayLike, b: ArrayLike, eps: SupportsFloat = 1e-5) -> Array:
    """``g * (x - mean) / sqrt(variance + eps) + b`` over the last axis.

    Parameters
    ----------
    x : array_like, shape ``(..., D)``
    g, b : array_like, shape ``(D,)``
        Scale and shift. With more axes in front, they broadcast against x's.
    eps : float, default 1e-5

    Returns
    -------
    y : ndarray, x's shape and dtype
        What `lnfast.layer_norm` gives: float32 for float32 x, whatever the dtype of g and b.

    Raises
    ------
    TypeError, ValueError
        As `lnfast.layer_norm`, to which g is the weight and b the bias.

    Examples
    --------
    >>> from lnfast.integrations.names import layer_norm
    >>> layer_norm([[1.0, 2.0, 3.0]], g=[1, 2, 3], b=[0, 1, -1], eps=1 / 3)
    array([[-1.,  1.,  2.]])
    """
    return lnfast.layer_norm(x, np.shape(x)[-1:], g, b, eps)


def rms_norm(x: ArrayLike, g: ArrayLike, eps: SupportsFloat = 1e-6) -> Array:
    """``g * x / sqrt(mean(x**2) + eps)`` over the last axis.

    As `layer_norm`, by `lnfast.rms_norm`.

    Examples
    --------
    >>> from lnfast.integrations.names import rms_norm
    >>> rms_norm([[1.0, 2.0, 2.0]], g=[1, 2, 3], eps=1)
    array([[0.5, 2. , 3. ]])
    """
    return lnfast.rms_norm(x, np.shape(x)[-1:], g, eps)


def layernorm_forward(
    x: ArrayLike, gamma: ArrayLike, beta: ArrayLike, ln_param: Mapping[str, Any]
) -> tuple[Array, LayerNormCache]:
    """Layer normalisation of each row, and what `layernorm_backward` needs.

    Parameters
    ----------
    x : array_like, shape (N, D)
        Kept by reference: changing it in place before `layernorm_backward` changes the gradients.
    gamma, beta : array_like, shape (D,)
        Scale and shift.
    ln_param : dict
        ``ln_param["eps"]`` is added to the variance, 1e-5 where it is missing. Other keys, such as
        those for batch normalisation, are ignored. Never written to.

    Returns
    -------
    out : ndarray, x's shape and dtype
    cache : LayerNormCache

    Raises
    ------
    TypeError, ValueError
        As `lnfast.layer_norm_forward`, to which gamma is the weight and beta the bias.

    Examples
    --------
    >>> from lnfast.integrations.names import layernorm_backward, layernorm_forward
    >>> out, cache = layernorm_forward([[1.0, 2.0, 3.0]], [1, 2, 3], [0, 1, -1], {"eps": 1 / 3})
    >>> out
    array([[-1.,  1.,  2.]])
    >>> dx, dgamma, dbeta = layernorm_backward([[1.0, -1.0, 2.0]], cache)
    >>> dx.round(6)
    array([[ 1.      , -3.666667,  2.666667]])
    """
    return lnfast.layer_norm_forward(x, np.shape(x)[-1:], gamma, beta, ln_param.get("eps", 1e-5))


def layernorm_backward(dout: ArrayLike, cache: LayerNormCache) -> tuple[Array, Array, Array]:
    """Gradients with respect to x, gamma and beta.

    Parameters
    ----------
    dout : array_like, shape (N, D)
        Gradient of the loss with respect to out.
    cache : LayerNormCache
        From `layernorm_forward`.

    Returns
    -------
    dx : ndarray, shape (N, D)
    dgamma, dbeta : ndarray, shape (D,)
        Sums over the rows. All three have x's dtype.

    Raises
    ------
    TypeError, ValueError
        As `lnfast.layer_norm_backward`.
    """
    return lnfast.layer_norm_backward(dout, cache)  # type: ignore[return-value]
