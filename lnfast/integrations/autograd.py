"""Layer norm and RMSNorm for HIPS autograd: reverse mode, forward mode, second derivatives.

    from lnfast.integrations.autograd import layer_norm, rms_norm

What autograd differentiates stands in _autograd_primitives.py.
"""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import lnfast
from lnfast.integrations._missing import missing

try:
    from autograd.tracer import getval, isbox

    from lnfast.integrations._autograd_primitives import forward
except ModuleNotFoundError as error:
    raise missing("autograd", "autograd", error) from None

__all__ = ["layer_norm", "rms_norm"]


def layer_norm(
    x: Any,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: Any = None,
    bias: Any = None,
    eps: SupportsFloat = 1e-5,
) -> Any:
    """`lnfast.layer_norm`, to be differentiated by autograd.

    Parameters
    ----------
    x, normalized_shape, weight, bias, eps
        As in `lnfast.layer_norm`. Derivatives are those with respect to x, weight and bias.

    Returns
    -------
    y : ndarray, x's shape and dtype, or autograd's box of one
        The same bits as from `lnfast.layer_norm`.

    Raises
    ------
    TypeError, ValueError
        As `lnfast.layer_norm`.
    NotImplementedError
        For derivatives of the third order.

    Notes
    -----
    The statistics of x are computed once, in the forward pass. All gradients come from one call of
    `lnfast.layer_norm_backward`, which computes those that are asked for; they have its bits and
    dtypes, which are x's for float32 and float64. Forward mode and second derivatives come from
    `lnfast.layer_norm_jvp` and `lnfast.layer_norm_double_backward`: for float32 and float64, with
    one weight for all rows. x is kept by reference and must not be changed in place before its
    derivatives have been computed.

    Examples
    --------
    >>> import autograd, autograd.numpy as np
    >>> from lnfast.integrations.autograd import layer_norm
    >>> def loss(x):
    ...     return np.sum(layer_norm(x, 3, eps=1 / 3) * np.array([1.0, -1.0, 2.0]))
    >>> autograd.grad(loss)(np.array([[1.0, 2.0, 3.0]])).round(6)
    array([[ 0.666667, -1.666667,  1.      ]])
    """
    if not any(map(isbox, (x, weight, bias))):
        return lnfast.layer_norm(x, normalized_shape, weight, bias, eps)
    plain = getval(x), normalized_shape, getval(weight), getval(bias), eps
    return forward(x, weight, bias, *lnfast.layer_norm_forward(*plain))


def rms_norm(
    x: Any,
    normalized_shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    weight: Any = None,
    eps: SupportsFloat = 1e-6,
) -> Any:
    """`lnfast.rms_norm`, to be differentiated by autograd.

    Parameters
    ----------
    x, normalized_shape, weight, eps
        As in `lnfast.rms_norm`. Derivatives are those with respect to x and weight.

    Returns
    -------
    y : ndarray, x's shape and dtype, or autograd's box of one
        The same bits as from `lnfast.rms_norm`.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        As `layer_norm`.

    Notes
    -----
    As of `layer_norm`, with `lnfast.rms_norm_backward`. Forward mode and second derivatives are
    those of layer norm for rows twice as long, (x, -x), whose mean is 0: with their bounds, at
    twice the work.
    """
    if not any(map(isbox, (x, weight))):
        return lnfast.rms_norm(x, normalized_shape, weight, eps)
    plain = getval(x), normalized_shape, getval(weight), eps
    return forward(x, weight, None, *lnfast.rms_norm_forward(*plain))
