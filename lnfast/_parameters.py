"""What the layers have in common: parameters that are learnt, their gradients, and their state."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from lnfast import _arguments, _axes, _checks

Array = NDArray[Any]


class Parameters:
    """The base of LayerNorm and RMSNorm."""

    def __init__(
        self,
        normalized_shape: SupportsIndex | Sequence[SupportsIndex],
        eps: SupportsFloat,
        elementwise_affine: bool,
        bias: bool,
        dtype: DTypeLike,
    ) -> None:
        self.normalized_shape = _axes.shape(normalized_shape)
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

    def _own(self, cache: Any, record: type[_arguments.Record]) -> Any:
        """The cache, once it is known to be of a layer of this shape."""
        # What `forward` made has this layer's own tuple; what is built by hand is looked at.
        own = _arguments.fields(cache, record)
        if own.normalized_shape is not self.normalized_shape:
            weight = _checks.optional_converted("weight", own.weight)
            if own.normalized_shape is not None:
                made_for = _axes.shape(own.normalized_shape)
            else:
                made_for = () if weight is None else np.asarray(weight).shape
            if made_for != self.normalized_shape:
                raise ValueError(
                    f"cache is of another layer: its normalized_shape is {made_for}, "
                    f"this one's {self.normalized_shape}"
                )
            own = own._replace(normalized_shape=made_for, weight=weight)
        return own

    def _add_gradients(self, dweight: Array | None, dbias: Array | None = None) -> None:
        with np.errstate(all="ignore"):
            if self.grad_weight is not None:
                self.grad_weight += dweight
            if self.grad_bias is not None:
                self.grad_bias += dbias

    def _described(self) -> list[str]:
        """The arguments that made it, but for a missing bias."""
        parts = [
            str(self.normalized_shape),
            f"eps={self.eps}",
            f"elementwise_affine={self.elementwise_affine}",
        ]
        if self.weight is not None and self.weight.dtype != np.float32:
            parts.append(f"dtype={self.weight.dtype}")
        return parts

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


def _parameter_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        found = None if dtype is None else np.dtype(dtype)
    except Exception:  # the caller's own, too: np.dtype asks an object for its dtype
        found = None
    if found is None or found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, not {_checks.shown(dtype, repr)}")
    return found
