"""LayerNorm and RMSNorm: layers with parameters, for networks trained in NumPy."""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from lnfast import _api
from lnfast._arguments import LayerNormCache, RMSNormCache
from lnfast._parameters import Parameters

Array = NDArray[Any]


class LayerNorm(Parameters):
    """Layer normalisation with parameters that are learnt.

    The cache is explicit because one layer is used at many time steps: `forward` returns one
    for each call, and `backward` takes the one it is to differentiate. Names and order of the
    arguments follow `torch.nn.LayerNorm`. There are no running statistics and there is no
    training switch: the layer computes the same in both.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing shape of x that is normalised.
    eps : float, default 1e-5
        Added to the variance, inside the root. At least 0.
    elementwise_affine : bool, default True
        Whether there is a weight (ones at first) and, with `bias`, a bias (zeros at first).
    bias : bool, default True
        Whether there is a bias; without effect where `elementwise_affine` is False.
    dtype : float32 or float64, default float32
        Of the parameters and their gradients. The results of a call have the dtype of its x.

    Attributes
    ----------
    weight, bias : ndarray of shape ``normalized_shape``, or None
        The parameters. Change them in place (``layer.weight -= step``).
    grad_weight, grad_bias : ndarray of the same shape and dtype, or None
        The sums of all gradients since `zero_grad`.
    normalized_shape : tuple of int
    eps : float
    elementwise_affine : bool

    Examples
    --------
    >>> layer = LayerNorm(4)
    >>> y, cache = layer.forward(numpy.arange(8, dtype=numpy.float32).reshape(2, 4))
    >>> dx = layer.backward(numpy.ones_like(y), cache)
    >>> for name, parameter, gradient in layer.parameters():
    ...     parameter -= 0.1 * gradient
    >>> layer.zero_grad()
    """

    def __init__(
        self,
        normalized_shape: SupportsIndex | Sequence[SupportsIndex],
        eps: SupportsFloat = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, dtype)

    def __call__(
        self,
        x: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        out: Array | None = None,
        num_threads: SupportsIndex | None = None,
        check_finite: bool = False,
    ) -> Array:
        """Return y, for inference: nothing is kept. Keywords as of `lnfast.layer_norm`."""
        return _api.layer_norm(
            x,
            self.normalized_shape,
            self.weight,
            self.bias,
            self.eps,
            mask=mask,
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )

    def forward(
        self,
        x: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        out: Array | None = None,
        num_threads: SupportsIndex | None = None,
        check_finite: bool = False,
    ) -> tuple[Array, LayerNormCache]:
        """Return y and the cache for `backward`. Keywords as of `lnfast.layer_norm_forward`.

        The cache keeps x by reference and the weight as a copy: between forward and backward
        the weight may be changed in place, x may not.
        """
        return _api.layer_norm_forward(
            x,
            self.normalized_shape,
            self.weight,
            self.bias,
            self.eps,
            mask=mask,
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )

    def backward(
        self,
        dy: ArrayLike,
        cache: LayerNormCache,
        *,
        ds: ArrayLike | None = None,
        out: Array | None = None,
        num_threads: SupportsIndex | None = None,
        check_finite: bool = False,
    ) -> Array:
        """Return dx, and add dweight and dbias into `grad_weight` and `grad_bias`.

        Parameters
        ----------
        dy : array_like, shape of x
            The gradient of the loss for y.
        cache : LayerNormCache
            From the call of `forward` that made this y.
        ds, out, num_threads, check_finite
            As of `lnfast.layer_norm_backward`.

        Returns
        -------
        dx : ndarray, shape and dtype of x

        Raises
        ------
        TypeError, ValueError
            As `lnfast.layer_norm_backward` does, and for the cache of a layer of another
            shape. The gradients are then as they were.
        """
        dx, dweight, dbias = _api.layer_norm_backward(
            dy,
            self._own(cache, LayerNormCache),
            ds=ds,
            output_mask=(True, self.grad_weight is not None, self.grad_bias is not None),
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )
        assert dx is not None  # the mask asked for it
        self._add_gradients(dweight, dbias)
        return dx

    def __repr__(self) -> str:
        parts = self._described()
        if self.elementwise_affine and self.bias is None:
            parts.insert(3, "bias=False")
        return f"LayerNorm({', '.join(parts)})"


class RMSNorm(Parameters):
    """Root mean square normalisation with a weight that is learnt.

    As `LayerNorm`, without centring and without a bias. Names and order of the arguments follow
    `torch.nn.RMSNorm`, whose default eps is another: the machine epsilon of x's dtype.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing shape of x that is normalised.
    eps : float, default 1e-6
        Added to the mean square, inside the root. At least 0.
    elementwise_affine : bool, default True
        Whether there is a weight (ones at first).
    dtype : float32 or float64, default float32
        Of the weight and its gradient. The results of a call have the dtype of its x.

    Attributes
    ----------
    weight, grad_weight : ndarray of shape ``normalized_shape``, or None
        The parameter, to be changed in place, and the sum of all gradients since `zero_grad`.
    normalized_shape : tuple of int
    eps : float
    elementwise_affine : bool
    """

    def __init__(
        self,
        normalized_shape: SupportsIndex | Sequence[SupportsIndex],
        eps: SupportsFloat = 1e-6,
        elementwise_affine: bool = True,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, False, dtype)

    def __call__(
        self,
        x: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        out: Array | None = None,
        num_threads: SupportsIndex | None = None,
        check_finite: bool = False,
    ) -> Array:
        """Return y, for inference: nothing is kept. Keywords as of `lnfast.rms_norm`."""
        return _api.rms_norm(
            x,
            self.normalized_shape,
            self.weight,
            self.eps,
            mask=mask,
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )

    def forward(
        self,
        x: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        out: Array | None = None,
        num_threads: SupportsIndex | None = None,
        check_finite: bool = False,
    ) -> tuple[Array, RMSNormCache]:
        """Return y and the cache for `backward`. Keywords as of `lnfast.rms_norm_forward`.

        The cache keeps x by reference and the weight as a copy: between forward and backward
        the weight may be changed in place, x may not.
        """
        return _api.rms_norm_forward(
            x,
            self.normalized_shape,
            self.weight,
            self.eps,
            mask=mask,
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )

    def backward(
        self,
        dy: ArrayLike,
        cache: RMSNormCache,
        *,
        ds: ArrayLike | None = None,
        out: Array | None = None,
        num_threads: SupportsIndex | None = None,
        check_finite: bool = False,
    ) -> Array:
        """Return dx, and add dweight into `grad_weight`.

        Arguments, result and errors as of `LayerNorm.backward`.
        """
        dx, dweight = _api.rms_norm_backward(
            dy,
            self._own(cache, RMSNormCache),
            ds=ds,
            output_mask=(True, self.grad_weight is not None),
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )
        assert dx is not None  # the mask asked for it
        self._add_gradients(dweight)
        return dx

    def __repr__(self) -> str:
        return f"RMSNorm({', '.join(self._described())})"
