"""LayerNorm: parameters, gradients and state, for networks trained in NumPy."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from lnfast import _api, _arguments, _checks
from lnfast._arguments import LayerNormCache

Array = NDArray[Any]


class LayerNorm:
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
        self.normalized_shape = _checks.shape(normalized_shape)
        self.eps = _checks.epsilon(eps)
        self.elementwise_affine = _checks.flag("elementwise_affine", elementwise_affine)
        has_bias = _checks.flag("bias", bias) and self.elementwise_affine
        dtype = _parameter_dtype(dtype)
        self.weight = self._parameter(1, dtype) if self.elementwise_affine else None
        self.bias = self._parameter(0, dtype) if has_bias else None
        self.grad_weight = None if self.weight is None else self._parameter(0, dtype)
        self.grad_bias = None if self.bias is None else self._parameter(0, dtype)

    def _parameter(self, value: int, dtype: np.dtype[Any]) -> Array:
        what = f"normalized_shape {self.normalized_shape} is no shape of an array"
        return _checks.ask(what, np.full, self.normalized_shape, value, dtype)

    def __call__(
        self,
        x: ArrayLike,
        *,
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
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )

    def forward(
        self,
        x: ArrayLike,
        *,
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
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )

    def backward(
        self,
        dy: ArrayLike,
        cache: LayerNormCache,
        *,
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
        out, num_threads, check_finite
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
        # What `forward` made has this layer's own tuple; what is built by hand is looked at.
        cache = _arguments.fields(cache)
        if cache.normalized_shape is not self.normalized_shape:
            weight = _checks.optional_converted("weight", cache.weight)
            if cache.normalized_shape is not None:
                made_for = _checks.shape(cache.normalized_shape)
            else:
                made_for = () if weight is None else np.asarray(weight).shape
            if made_for != self.normalized_shape:
                raise ValueError(
                    f"cache is of another layer: its normalized_shape is {made_for}, "
                    f"this one's {self.normalized_shape}"
                )
            cache = cache._replace(normalized_shape=made_for, weight=weight)
        dx, dweight, dbias = _api.layer_norm_backward(
            dy,
            cache,
            output_mask=(True, self.grad_weight is not None, self.grad_bias is not None),
            out=out,
            num_threads=num_threads,
            check_finite=check_finite,
        )
        assert dx is not None  # the mask asked for it
        with np.errstate(all="ignore"):
            if self.grad_weight is not None:
                self.grad_weight += dweight
            if self.grad_bias is not None:
                self.grad_bias += dbias
        return dx

    def parameters(self) -> Iterator[tuple[str, Array, Array]]:
        """Yield (name, parameter, gradient): the arrays themselves, for an optimiser."""
        if self.weight is not None and self.grad_weight is not None:
            yield "weight", self.weight, self.grad_weight
        if self.bias is not None and self.grad_bias is not None:
            yield "bias", self.bias, self.grad_bias

    def zero_grad(self) -> None:
        """Set the gradients to zero, in place."""
        for _, _, gradient in self.parameters():
            gradient.fill(0)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters, under PyTorch's names: "weight" and "bias"."""
        return {name: parameter.copy() for name, parameter, _ in self.parameters()}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Copy parameters in, into the arrays that are there; all of them, or none on error.

        Parameters
        ----------
        state : mapping of str to array_like
            Exactly the names of `state_dict`; each value of shape ``normalized_shape``.

        Raises
        ------
        KeyError
            For names that are missing or that this layer does not have.
        TypeError, ValueError
            For values that are no real numbers, or of another shape.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"state must be a mapping, not {type(state).__name__}")
        parameters = {name: parameter for name, parameter, _ in self.parameters()}
        missing = [name for name in parameters if name not in state]
        unexpected = [name for name in state if name not in parameters]
        if missing or unexpected:
            raise KeyError(f"state has missing keys {missing}, unexpected keys {unexpected}")
        loaded = {
            name: _checks.parameter(
                name,
                _checks.converted(name, state[name]),
                self.normalized_shape,
                parameter.dtype,
                copy=True,
            )
            for name, parameter in parameters.items()
        }
        for name, parameter in parameters.items():
            parameter[...] = loaded[name]

    def __repr__(self) -> str:
        parts = [
            str(self.normalized_shape),
            f"eps={self.eps}",
            f"elementwise_affine={self.elementwise_affine}",
        ]
        if self.elementwise_affine and self.bias is None:
            parts.append("bias=False")
        if self.weight is not None and self.weight.dtype != np.float32:
            parts.append(f"dtype={self.weight.dtype}")
        return f"LayerNorm({', '.join(parts)})"


def _parameter_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        found = None if dtype is None else np.dtype(dtype)
    except Exception:  # the caller's own, too: np.dtype asks an object for its dtype
        found = None
    if found is None or found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, not {_checks.shown(dtype, repr)}")
    return found
