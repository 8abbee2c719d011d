"""Checks of single arguments, whose errors name the argument, what was needed and what came."""

import operator
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]

# More than the largest machines run at once. OpenMP makes room for the number asked for, and ends
# the whole process where it cannot (libgomp at 2³¹ − 1: "Out of memory allocating 481 GB").
MAX_THREADS = 1024


# Scalars and shapes


def threads(num_threads: object) -> int:
    """num_threads as an int of at least 1, or 0 for None: decide yourself."""
    if num_threads is None:
        return 0
    count = _integer("num_threads", num_threads)
    if count < 1:
        raise ValueError(f"num_threads must be at least 1 or None, not {count}")
    return min(count, MAX_THREADS)


def flag(name: str, value: object) -> bool:
    """A bool, Python's or NumPy's, and nothing that is only truthy."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return bool(value)


def epsilon(eps: Any) -> float:
    """Eps as a float: finite and at least 0."""
    if isinstance(eps, np.ndarray) and eps.ndim == 0 and not isinstance(eps, np.ma.MaskedArray):
        eps = np.asarray(eps)[()]
    number = hasattr(eps, "__float__") and not isinstance(eps, bool | np.ndarray)
    if isinstance(eps, np.generic):
        number = _is_real(eps.dtype) and eps.dtype.kind != "b"
    if not number or np.ndim(eps):
        raise TypeError(f"eps must be a real number, not {type(eps).__name__}")
    try:
        value = float(eps)
    except Exception as error:
        raise _kind(error)(f"eps must be a finite number of at least 0: {error}") from error
    if not 0 <= value < np.inf:
        raise ValueError(f"eps must be a finite number of at least 0, not {value}")
    return value


def trailing_shape(normalized_shape: object, weight: ArrayLike | None, x_shape: Shape) -> Shape:
    """normalized_shape as a tuple that x_shape ends with; None: the shape of weight."""
    source = ""
    if normalized_shape is not None:
        lengths = shape(normalized_shape)
    elif weight is None:
        raise ValueError("normalized_shape is None, and there is no weight to take it from")
    else:
        lengths, source = _array("weight", weight).shape, " (the shape of weight)"
        if not lengths:
            raise ValueError("weight is 0-d: normalized_shape, taken from it, would be empty")
    if x_shape[-len(lengths) :] != lengths:
        axes = "axis" if len(lengths) == 1 else f"{len(lengths)} axes"
        raise ValueError(
            f"normalized_shape {lengths}{source} does not match the last {axes} "
            f"of x with shape {x_shape}{_places(lengths, x_shape)}"
        )
    return lengths


def shape(normalized_shape: Any) -> Shape:
    """normalized_shape as a tuple of lengths, not empty, none negative."""
    if isinstance(normalized_shape, str | bytes | bytearray):
        raise TypeError(
            "normalized_shape must be an int or a sequence of ints, "
            f"not {type(normalized_shape).__name__}"
        )
    if isinstance(normalized_shape, np.ndarray) and normalized_shape.ndim:
        normalized_shape = list(normalized_shape)
    if isinstance(normalized_shape, Sequence):
        lengths = tuple(_integer("normalized_shape", length) for length in normalized_shape)
    else:
        lengths = (_integer("normalized_shape", normalized_shape),)
    if not lengths:
        raise ValueError("normalized_shape is empty: at least one axis is normalised")
    if min(lengths) < 0:
        raise ValueError(f"normalized_shape {lengths} has a negative length")
    return lengths


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        what = "an int or a sequence of ints" if name == "normalized_shape" else "an int"
        raise TypeError(f"{name} must be {what}, not {reprlib.repr(value)}") from None


def mask(output_mask: object) -> tuple[bool, bool, bool]:
    if isinstance(output_mask, np.ndarray) and output_mask.ndim == 1:
        output_mask = list(output_mask)
    if not isinstance(output_mask, Sequence) or isinstance(output_mask, str | bytes | bytearray):
        raise TypeError(
            "output_mask must be three bools, for dx, dweight and dbias, "
            f"not {type(output_mask).__name__}"
        )
    if len(output_mask) != 3:
        raise ValueError(
            f"output_mask must be three bools, for dx, dweight and dbias, not {len(output_mask)}"
        )
    dx, dweight, dbias = (flag(f"output_mask[{i}]", wanted) for i, wanted in enumerate(output_mask))
    return dx, dweight, dbias


def _places(lengths: Shape, x_shape: Shape) -> str:
    """': 768 stands on axis 1' for every length that x has, but on another axis than wanted."""
    first = len(x_shape) - len(lengths)
    found = []
    for axis, length in enumerate(lengths, start=first):
        others = [str(other) for other, n in enumerate(x_shape) if n == length]
        if others and str(axis) not in others:
            axes = "axis" if len(others) == 1 else "axes"
            found.append(f"{length} stands on {axes} {' and '.join(others)}")
    return f": {', '.join(found)}" if found else ""


# Arrays


def parameter(
    name: str, value: object, shape: Shape, dtype: DType, x_shape: Shape = (), copy: bool = False
) -> Array:
    """Real numbers of exactly this shape, cast once to dtype; copy: memory of its own."""
    array = _array(name, value)
    if not _is_real(array.dtype):
        raise TypeError(
            f"{name} has dtype {array.dtype}: it must hold real numbers "
            "(float32, float64, another float, integers or bools)"
        )
    if array.shape != shape:
        where = _places(array.shape, x_shape)
        where = where and f"{where} of x"
        raise ValueError(f"{name} must have shape {shape}, not {array.shape}{where}")
    return plain(array, dtype, copy)


def optional(
    name: str, value: object, shape: Shape, dtype: DType, x_shape: Shape, copy: bool = False
) -> Array | None:
    return None if value is None else parameter(name, value, shape, dtype, x_shape, copy)


def input_array(x: object) -> tuple[Array, DType]:
    """x as it came, as a base ndarray, and the dtype it is computed and answered in."""
    array = _array("x", x)
    if array.dtype.type in (np.float32, np.float64):
        dtype = np.dtype(array.dtype.type)
    elif array.dtype.kind in "biu":
        dtype = np.dtype(np.float64)
    else:
        raise TypeError(
            f"x has dtype {array.dtype}: it must be float32 or float64 "
            "(integers and bools become float64)"
        )
    if array.ndim == 0:
        raise ValueError("x is 0-d: it must have at least the one axis that is normalised")
    return array, dtype


def output_gradient(dy: object, x_shape: Shape, dtype: DType) -> Array:
    array = _array("dy", dy)
    if array.dtype.type is np.longdouble or not _is_real(array.dtype):
        raise TypeError(
            f"dy has dtype {array.dtype}: it must be float32 or float64 "
            "(or float16, integers or bools, which are cast to x's dtype)"
        )
    if array.shape != x_shape:
        raise ValueError(f"dy must have the shape of x, {x_shape}, not {array.shape}")
    return plain(array, dtype)


def _array(name: str, value: object) -> Array:
    """Any array_like as a base ndarray, nothing copied that is an array already."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be dropped: fill it first")
    try:
        return np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:
        raise _kind(error)(f"{name} cannot be made an array: {error}") from error


def _kind(error: Exception) -> type[TypeError] | type[ValueError]:
    return TypeError if isinstance(error, TypeError) else ValueError


def _is_real(dtype: DType) -> bool:
    """Numbers on the real line; dtypes of other packages (bfloat16) by what they cast to."""
    return dtype.kind in "biuf" or (dtype.isbuiltin == 2 and np.can_cast(dtype, np.float64))


def plain(array: Array, dtype: DType, copy: bool = False) -> Array:
    """The array itself where it is plain and of this dtype already, else a copy that is."""
    with np.errstate(all="ignore"):
        if copy or not array.flags.aligned:
            return np.array(array, dtype, order="C")
        return np.asarray(array, dtype, order="C")
