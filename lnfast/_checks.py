"""Checks of single arguments, whose errors name the argument, what was needed and what came.

An argument may have methods of its own (__array__, __index__, __len__), which may do anything. They
are called through `ask` and nowhere else, and an object is what its type says, not what its
__class__ or a subclass's properties do.
"""

import itertools
import operator
import reprlib
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
    count = integer("num_threads", num_threads)
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
        number = is_real(dtype) and dtype.kind != "b"
    return float(eps) if number and not getattr(eps, "ndim", 0) else None


def items(name: str, value: Any, most: int) -> tuple[object, ...] | None:
    """What a sequence or an array holds, of what is more than `most` one more; else None."""
    if issubclass(type(value), np.ndarray):
        value = np.asarray(converted(name, value))
        if value.ndim == 0:
            return None
    elif not issubclass(type(value), Sequence):
        return None
    return ask(f"{name} cannot be read", lambda: tuple(itertools.islice(value, most + 1)))


def integer(name: str, value: Any, wanted: str = "an int") -> int:
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
        wanted = items("output_mask", output_mask, count)
    if wanted is None:
        raise TypeError(f"{what}, not {type(output_mask).__name__}")
    if len(wanted) != count:
        many = len(wanted) if len(wanted) < count else "more"
        raise ValueError(f"{what}, not {many}")
    return tuple(flag(f"output_mask[{i}]", value) for i, value in enumerate(wanted))


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


def real(name: str, value: Array) -> Array:
    """Real numbers, as a base ndarray."""
    array = np.asarray(value)
    if not is_real(array.dtype):
        raise TypeError(
            f"{name} has dtype {array.dtype}: it must hold real numbers "
            "(float32, float64, another float, integers or bools)"
        )
    return array


def parameter(name: str, value: Array, shape: Shape, dtype: DType, copy: bool = False) -> Array:
    """Real numbers of exactly this shape, cast once to dtype; copy: memory of its own."""
    array = real(name, value)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, not {array.shape}")
    return plain(array, dtype, copy)


def input_array(x: Array) -> tuple[Array, DType]:
    """x as it came, as a base ndarray, and the dtype that is answered in."""
    array = np.asarray(x)
    if array.dtype.type in (np.float16, np.float32, np.float64) or is_bfloat16(array.dtype):
        dtype = np.dtype(array.dtype.type)
    elif array.dtype.kind in "biu":
        dtype = np.dtype(np.float64)
    else:
        raise TypeError(
            f"x has dtype {array.dtype}: it must be float32, float64, float16 or bfloat16 "
            "(integers and bools become float64)"
        )
    if array.ndim == 0:
        raise ValueError("x is 0-d: it must have at least the one axis that is normalised")
    return array, dtype


def output_gradient(name: str, value: Array, x_shape: Shape) -> Array:
    array = np.asarray(value)
    if array.dtype.type is np.longdouble or not is_real(array.dtype):
        raise TypeError(
            f"{name} has dtype {array.dtype}: it must be float32 or float64 "
            "(or float16, integers or bools, which are cast to x's dtype)"
        )
    if array.shape != x_shape:
        raise ValueError(f"{name} must have the shape of x, {x_shape}, not {array.shape}")
    return array


def is_bfloat16(dtype: DType) -> bool:
    """That of the package ml_dtypes, which need not be there."""
    return dtype.name == "bfloat16" and dtype.isbuiltin == 2 and dtype.itemsize == 2


def is_half(dtype: DType) -> bool:
    return dtype.itemsize == 2


def computed(dtype: DType) -> DType:
    """The dtype that is computed in: float32 for float16 and bfloat16."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


def is_real(dtype: DType) -> bool:
    """Numbers on the real line; dtypes of other packages (bfloat16) by what they cast to."""
    return dtype.kind in "biuf" or (dtype.isbuiltin == 2 and np.can_cast(dtype, np.float64))


def optional_mask(value: Array | None, x_shape: Shape) -> Array | None:
    """Bools that broadcast to x, as they came."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.type is not np.bool_:
        raise TypeError(f"mask has dtype {array.dtype}: it must hold bools, True for what counts")
    broadcast("mask", array, x_shape)
    return array


def addend(name: str, value: Array, dtype: DType, x_shape: Shape) -> Array:
    """Real numbers, cast once to x's dtype and broadcast to its shape."""
    array = real(name, value)
    return broadcast(name, steady(array, dtype), x_shape)


def broadcast(name: str, array: Array, x_shape: Shape) -> Array:
    """The array as large as x, none of its elements copied."""
    try:
        return np.broadcast_to(array, x_shape)
    except ValueError:
        raise ValueError(
            f"{name} with shape {array.shape} must broadcast to that of x, {x_shape}"
        ) from None


def optional_cast(value: Array | None, dtype: DType, copy: bool = False) -> Array | None:
    """A parameter, plain, in x's dtype; beside a half one in float32, unless it has x's."""
    if value is None:
        return None
    return plain(value, dtype if value.dtype == dtype else computed(dtype), copy)


def steady(array: Array, dtype: DType) -> Array:
    """The array itself, any strides, where it is aligned, native and of this dtype, else a copy."""
    if array.flags.aligned and array.dtype.isnative and array.dtype == dtype:
        return array
    return plain(array, dtype)


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
