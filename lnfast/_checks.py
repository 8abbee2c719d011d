"""Checks of single arguments, whose errors name the argument, what was needed and what came.

An argument may have methods of its own (__array__, __index__, __len__), which may do anything. They
are called through `ask` and nowhere else, and an object is what its type says, not what its
__class__ or a subclass's properties do.
"""

import itertools
import operator
import reprlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]
T = TypeVar("T")

# More than the largest machines run at once. OpenMP makes room for the number asked for, and ends
# the whole process where it cannot (libgomp at 2³¹ − 1: "Out of memory allocating 481 GB").
MAX_THREADS = 1024

# Axes that NumPy gives an array at most, in any version.
MAX_AXES = 64


# Scalars and shapes


def threads(num_threads: object) -> int:
    """num_threads as an int of at least 1, or 0 for None: decide yourself."""
    if num_threads is None:
        return 0
    count = _integer("num_threads", num_threads)
    if count < 1:
        raise ValueError(f"num_threads must be at least 1 or None, not {shown(count)}")
    return min(count, MAX_THREADS)


def flag(name: str, value: object) -> bool:
    """A bool, Python's or NumPy's, and nothing that is only truthy."""
    if type(value) not in (bool, np.bool_):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return bool(value)


def epsilon(eps: Any) -> float:
    """Eps as a float: finite and at least 0."""
    value = ask("eps must be a finite number of at least 0", _real_number, eps)
    if value is None:
        raise TypeError(f"eps must be a real number, not {type(eps).__name__}")
    if not 0 <= value < np.inf:
        raise ValueError(f"eps must be a finite number of at least 0, not {value}")
    return value


def _real_number(eps: Any) -> float | None:
    """Eps as a float, whatever its value; None for what is no real number."""
    if issubclass(type(eps), np.ndarray) and not issubclass(type(eps), np.ma.MaskedArray):
        eps = np.asarray(eps)[()]  # of a 0-d array, its scalar
    kind = type(eps)
    number = hasattr(kind, "__float__") and not issubclass(kind, bool | np.ndarray)
    if issubclass(kind, np.generic):
        dtype = np.asarray(eps).dtype
        number = _is_real(dtype) and dtype.kind != "b"
    return float(eps) if number and not getattr(eps, "ndim", 0) else None


def trailing_shape(lengths: Shape | None, weight: Array | None, x_shape: Shape) -> Shape:
    """normalized_shape, which x_shape must end with; None: the shape of weight."""
    source = ""
    if lengths is None:
        if weight is None:
            raise ValueError("normalized_shape is None, and there is no weight to take it from")
        lengths, source = np.asarray(weight).shape, " (the shape of weight)"
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
    if issubclass(type(normalized_shape), str | bytes | bytearray):
        raise TypeError(
            "normalized_shape must be an int or a sequence of ints, "
            f"not {type(normalized_shape).__name__}"
        )
    items = _items("normalized_shape", normalized_shape, MAX_AXES)
    if items is None:
        items = (normalized_shape,)
    if len(items) > MAX_AXES:
        raise ValueError(f"normalized_shape has more than the {MAX_AXES} axes of any array")
    lengths = tuple(_integer("normalized_shape", length) for length in items)
    if not lengths:
        raise ValueError("normalized_shape is empty: at least one axis is normalised")
    if max(map(abs, lengths)) > sys.maxsize:
        raise ValueError(f"normalized_shape has a length beyond {sys.maxsize}")
    if min(lengths) < 0:
        raise ValueError(f"normalized_shape {lengths} has a negative length")
    return lengths


def _items(name: str, value: Any, most: int) -> tuple[object, ...] | None:
    """What a sequence or an array holds, of what is more than `most` one more; else None."""
    if issubclass(type(value), np.ndarray):
        value = np.asarray(converted(name, value))
        if value.ndim == 0:
            return None
    elif not issubclass(type(value), Sequence):
        return None
    return ask(f"{name} cannot be read", lambda: tuple(itertools.islice(value, most + 1)))


def _integer(name: str, value: Any) -> int:
    wanted = "an int or a sequence of ints" if name == "normalized_shape" else "an int"
    try:
        if type(value) in (bool, np.bool_):
            raise TypeError
        return ask(f"{name} must be {wanted}", operator.index, value)
    except TypeError:
        raise TypeError(f"{name} must be {wanted}, not {shown(value)}") from None


def mask(output_mask: object, gradients: Sequence[str]) -> tuple[bool, ...]:
    """A bool for each of the gradients."""
    count = len(gradients)
    what = f"{'two' if count == 2 else 'three'} bools, for {', '.join(gradients[:-1])}"
    what = f"output_mask must be {what} and {gradients[-1]}"
    wanted = None
    if not issubclass(type(output_mask), str | bytes | bytearray):
        wanted = _items("output_mask", output_mask, count)
    if wanted is None:
        raise TypeError(f"{what}, not {type(output_mask).__name__}")
    if len(wanted) != count:
        many = len(wanted) if len(wanted) < count else "more"
        raise ValueError(f"{what}, not {many}")
    return tuple(flag(f"output_mask[{i}]", value) for i, value in enumerate(wanted))


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


def converted(name: str, value: object) -> Array:
    """Any array_like as an array, and what is one, of a subclass too, as it is.

    The checks below take what this gives, and begin with its base ndarray. Between them no code of
    the caller's can run: no array is changed that has been looked at.
    """
    if issubclass(type(value), np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be dropped: fill it first")
    if issubclass(type(value), np.ndarray):
        return value  # type: ignore[return-value]
    return ask(f"{name} cannot be made an array", np.asarray, value)


def optional_converted(name: str, value: object) -> Array | None:
    return None if value is None else converted(name, value)


def parameter(
    name: str, value: Array, shape: Shape, dtype: DType, x_shape: Shape = (), copy: bool = False
) -> Array:
    """Real numbers of exactly this shape, cast once to dtype; copy: memory of its own."""
    array = np.asarray(value)
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
    name: str, value: Array | None, shape: Shape, dtype: DType, x_shape: Shape, copy: bool = False
) -> Array | None:
    return None if value is None else parameter(name, value, shape, dtype, x_shape, copy)


def input_array(x: Array) -> tuple[Array, DType]:
    """x as it came, as a base ndarray, and the dtype it is computed and answered in."""
    array = np.asarray(x)
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


def output_gradient(dy: Array, x_shape: Shape, dtype: DType, name: str = "dy") -> Array:
    array = np.asarray(dy)
    if array.dtype.type is np.longdouble or not _is_real(array.dtype):
        raise TypeError(
            f"{name} has dtype {array.dtype}: it must be float32 or float64 "
            "(or float16, integers or bools, which are cast to x's dtype)"
        )
    if array.shape != x_shape:
        raise ValueError(f"{name} must have the shape of x, {x_shape}, not {array.shape}")
    return plain(array, dtype)


def _is_real(dtype: DType) -> bool:
    """Numbers on the real line; dtypes of other packages (bfloat16) by what they cast to."""
    return dtype.kind in "biuf" or (dtype.isbuiltin == 2 and np.can_cast(dtype, np.float64))


def plain(array: Array, dtype: DType, copy: bool = False) -> Array:
    """The array itself where it is plain and of this dtype already, else a copy that is."""
    with np.errstate(all="ignore"):
        if copy or not array.flags.aligned:
            return np.array(array, dtype, order="C")
        return np.asarray(array, dtype, order="C")


# The caller's own code


def ask(what: str, method: Callable[..., T], *arguments: object) -> T:
    """method(*arguments); what it raises becomes an error that begins with `what`."""
    try:
        return method(*arguments)
    except MemoryError:
        raise
    except Exception as error:
        kind = TypeError if issubclass(type(error), TypeError) else ValueError
        raise kind(f"{what}: {shown(error, str)}") from error


def shown(value: object, show: Callable[[object], str] = reprlib.repr) -> str:
    """The value in words, or its type where it has none: an int of 5000 digits, a bad __repr__."""
    try:
        return show(value)
    except Exception:
        return f"<{type(value).__name__}>"
