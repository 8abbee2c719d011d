"""Arguments: what every entry point does with those that are not already plain.

Checks whose errors explain themselves, conversion to plain arrays, and what becomes of `out`.
A plain array is a C-contiguous, aligned base ndarray in native byte order. Both the compiled
functions and lnfast.reference come through here, so both raise the same errors. Nothing in
this file writes to an array of the caller's before every argument has been checked.
"""

import operator
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]

# Candidates np.shares_memory may try (some milliseconds) before an overlap is assumed.
OVERLAP_WORK = 1_000_000
# More than the largest machines run at once. OpenMP makes room for the number asked for, and ends
# the whole process where it cannot (libgomp at 2³¹ − 1: "Out of memory allocating 481 GB").
MAX_THREADS = 1024


class LayerNormCache(NamedTuple):
    """What the backward pass needs to know of a forward pass.

    `x` is kept by reference: changing it in place before the backward pass changes the
    gradients. `weight` is a copy. `layer_norm_forward` returns this record; anyone may build
    one from other sources (and pickle it): `layer_norm_backward` checks every field.

    Attributes
    ----------
    x : ndarray of float32 or float64, shape ``lead + normalized_shape``
        The input of the forward pass; a copy only where that was not C-contiguous, aligned
        and in native byte order.
    normalized_shape : tuple of int
        The trailing shape of `x` over which each row is normalised.
    weight : ndarray of x's dtype, shape ``normalized_shape``, or None
        The scale that the forward pass used; None stands for ones.
    mean : ndarray of float64, shape ``lead + (1,) * len(normalized_shape)``
        The mean of each row.
    rstd : ndarray of float64, the same shape
        ``1 / sqrt(var + eps)`` of each row. eps is in here, and so is not kept itself.
    """

    x: Array
    normalized_shape: Shape
    weight: Array | None
    mean: Array
    rstd: Array


LayerNormCache.__module__ = "lnfast"  # its public home, and the name that pickle writes


class Forward(NamedTuple):
    """Checked arguments of a forward pass. x, weight, bias, y: plain arrays of one dtype."""

    x: Array
    normalized_shape: Shape
    weight: Array | None
    bias: Array | None
    eps: float
    y: Array  # to compute into: out's own memory where that is safe, else a fresh array
    out: Array | None  # the very object that was given
    num_threads: int
    check_finite: bool


class Backward(NamedTuple):
    """Checked arguments of a backward pass. All arrays plain; mean and rstd are float64."""

    dy: Array
    x: Array
    normalized_shape: Shape
    weight: Array | None
    mean: Array
    rstd: Array
    output_mask: tuple[bool, bool, bool]
    dx: Array | None  # to compute into, as Forward.y; None where output_mask[0] is False
    out: Array | None
    num_threads: int
    check_finite: bool


def forward(
    x: ArrayLike,
    normalized_shape: object,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    eps: object,
    out: object,
    num_threads: object,
    check_finite: object,
    *,
    keep_x: bool,
) -> Forward:
    """Check the arguments of a forward pass; keep_x: its cache will hold x and weight."""
    given, dtype = _input(x)
    lengths = trailing_shape(normalized_shape, weight, given.shape)
    args = Forward(
        x=_plain(given, dtype),
        normalized_shape=lengths,
        weight=_optional("weight", weight, lengths, dtype, given.shape, copy=keep_x),
        bias=_optional("bias", bias, lengths, dtype, given.shape),
        eps=epsilon(eps),
        y=given,  # until the rest has been checked
        out=_output(out, given.shape, dtype),
        num_threads=threads(num_threads),
        check_finite=flag("check_finite", check_finite),
    )
    if keep_x and args.out is not None and _share_memory(args.out, given):
        raise ValueError(
            "out shares memory with x, which the cache keeps for the backward pass: "
            "give another out, or a copy of x"
        )
    if args.check_finite:
        _require_finite(x=args.x, weight=args.weight, bias=args.bias)
    target = None if args.check_finite else args.out
    y = _destination(target, args.x, in_place=[args.x], apart=[args.weight, args.bias])
    return args._replace(y=y)


def backward(
    dy: ArrayLike,
    cache: object,
    output_mask: object,
    out: object,
    num_threads: object,
    check_finite: object,
) -> Backward:
    """Check the arguments of a backward pass, the fields of its cache included."""
    if not isinstance(cache, LayerNormCache):
        raise TypeError(
            f"cache must be a LayerNormCache, not {type(cache).__name__}: layer_norm_forward "
            "returns one beside y, and LayerNormCache(x, normalized_shape, weight, mean, rstd) "
            "builds one"
        )
    x, dtype = _input(cache.x)
    lengths = trailing_shape(cache.normalized_shape, cache.weight, x.shape)
    row_shape = x.shape[: x.ndim - len(lengths)] + (1,) * len(lengths)
    args = Backward(
        dy=_output_gradient(dy, x.shape, dtype),
        x=_plain(x, dtype),
        normalized_shape=lengths,
        weight=_optional("weight", cache.weight, lengths, dtype, x.shape),
        mean=parameter("mean", cache.mean, row_shape, np.dtype(np.float64)),
        rstd=parameter("rstd", cache.rstd, row_shape, np.dtype(np.float64)),
        output_mask=_mask(output_mask),
        dx=None,  # until the rest has been checked
        out=_output(out, x.shape, dtype),
        num_threads=threads(num_threads),
        check_finite=flag("check_finite", check_finite),
    )
    if args.out is not None and not args.output_mask[0]:
        raise ValueError("out is for dx, which output_mask[0] = False does not ask for")
    if args.check_finite:
        _require_finite(dy=args.dy, x=args.x, weight=args.weight)
        if x.size:  # a row of no elements has NaN for statistics, and rightly so
            _require_finite(mean=args.mean, rstd=args.rstd)
            _require_positive(rstd=args.rstd)
    if not args.output_mask[0]:
        return args
    target = None if args.check_finite else args.out
    in_place, apart = [args.dy, args.x], [args.weight, args.mean, args.rstd]
    return args._replace(dx=_destination(target, args.x, in_place=in_place, apart=apart))


def deliver_forward(args: Forward) -> Array:
    """Hand y over, once computed: what the caller gets is out where that was given."""
    if args.check_finite:
        _require_finite(overflow=True, y=args.y)
    return _deliver(args.y, args.out)


def deliver_backward(
    args: Backward, dweight: Array | None, dbias: Array | None
) -> tuple[Array | None, Array | None, Array | None]:
    """Hand the gradients over, once computed; those not asked for are None."""
    if args.check_finite:
        _require_finite(overflow=True, dx=args.dx, dweight=dweight, dbias=dbias)
    dx = None if args.dx is None else _deliver(args.dx, args.out)
    return dx, dweight, dbias


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


def _mask(output_mask: object) -> tuple[bool, bool, bool]:
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


# Arrays that are read


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
    return _plain(array, dtype, copy)


def _optional(
    name: str, value: object, shape: Shape, dtype: DType, x_shape: Shape, copy: bool = False
) -> Array | None:
    return None if value is None else parameter(name, value, shape, dtype, x_shape, copy)


def _input(x: object) -> tuple[Array, DType]:
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


def _output_gradient(dy: object, x_shape: Shape, dtype: DType) -> Array:
    array = _array("dy", dy)
    if array.dtype.type is np.longdouble or not _is_real(array.dtype):
        raise TypeError(
            f"dy has dtype {array.dtype}: it must be float32 or float64 "
            "(or float16, integers or bools, which are cast to x's dtype)"
        )
    if array.shape != x_shape:
        raise ValueError(f"dy must have the shape of x, {x_shape}, not {array.shape}")
    return _plain(array, dtype)


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


def _plain(array: Array, dtype: DType, copy: bool = False) -> Array:
    """The array itself where it is plain and of this dtype already, else a copy that is."""
    with np.errstate(all="ignore"):
        if copy or not array.flags.aligned:
            return np.array(array, dtype, order="C")
        return np.asarray(array, dtype, order="C")


# The array that is written


def _output(out: Any, x_shape: Shape, dtype: DType) -> Array | None:
    """The caller's own object, once it is known that any result can be written there."""
    if out is None:
        return None
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {type(out).__name__}")
    if isinstance(out, np.ma.MaskedArray):
        raise TypeError("out must not be a masked array: its mask would be ignored")
    if out.shape != x_shape:
        raise ValueError(f"out must have the shape of x, {x_shape}, not {out.shape}")
    if out.dtype.newbyteorder("=") != dtype:
        raise ValueError(f"out must have the dtype of the result, {dtype}, not {out.dtype}")
    if not out.flags.writeable:
        raise ValueError("out must be writable, but it is read-only")
    if _overlaps_itself(out):
        raise ValueError("out must not hold one element in two places, but its strides do")
    return out


def _overlaps_itself(array: Array) -> bool:
    """Whether two elements of the array share a byte."""
    if array.size < 2 or array.flags.forc:
        return False
    axes = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    extent = array.itemsize  # bytes from the first to the last one that the axes so far reach
    for stride, length in axes:
        if stride < extent:
            break
        extent += stride * (length - 1)
    else:
        return False
    if axes[0][0] < array.itemsize:
        return True
    # Strides that interleave say nothing either way: compare the place of every element.
    places = np.zeros(1, np.int64)
    for stride, length in axes:
        places = np.add.outer(np.arange(length, dtype=np.int64) * stride, places).ravel()
    places.sort()
    return bool((np.diff(places) < array.itemsize).any())


def _share_memory(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _destination(
    out: Array | None, x: Array, in_place: Iterable[Array], apart: Iterable[Array | None]
) -> Array:
    """The array to compute into: out where no value still to be read could be lost, else fresh.

    Each of in_place may be out's very memory, element for element: the kernels read an
    element before they write it. Any other overlap, with them or those apart, needs a copy.
    """
    if out is not None and out.flags.carray and out.dtype.isnative:
        y = np.asarray(out)
        clear = all(_address(y) == _address(a) or not np.may_share_memory(y, a) for a in in_place)
        if clear and not any(a is not None and np.may_share_memory(y, a) for a in apart):
            return y
    return np.empty(x.shape, x.dtype)


def _address(array: Array) -> int:
    # Enough to tell plain arrays of one shape and dtype apart.
    return int(array.__array_interface__["data"][0])


def _deliver(result: Array, out: Array | None) -> Array:
    if out is None:
        return result
    if not np.may_share_memory(result, out):
        np.copyto(np.asarray(out), result, casting="equiv")
    return out


# check_finite=True


def _require_finite(*, overflow: bool = False, **arrays: Array | None) -> None:
    """ValueError at the first NaN or Inf; overflow: these are results, of finite inputs."""
    for name, array in arrays.items():
        if array is not None:
            place = _first(~np.isfinite(array))
            if place is not None:
                verb = "overflows to" if overflow and np.isinf(array[place]) else "is"
                raise ValueError(f"{_entry(name, place)} {verb} {array[place]}")


def _require_positive(*, rstd: Array) -> None:
    place = _first(rstd <= 0)
    if place is not None:
        raise ValueError(f"{_entry('rstd', place)} is {rstd[place]}: it must be above 0")


def _first(found: NDArray[np.bool_]) -> Shape | None:
    if not found.any():
        return None
    return tuple(int(i) for i in np.unravel_index(found.argmax(), found.shape))


def _entry(name: str, place: Shape) -> str:
    return f"{name}[{', '.join(map(str, place))}]"
