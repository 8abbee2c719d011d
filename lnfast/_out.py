"""The array that is written: whether `out` will do, where to compute, what the caller gets."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]

# Candidates np.shares_memory may try (some milliseconds) before an overlap is assumed.
OVERLAP_WORK = 1_000_000


def output(name: str, out: Any, x_shape: Shape, dtype: DType) -> Array | None:
    """The caller's own object, once it is known that any result can be written there."""
    if out is None:
        return None
    if not issubclass(type(out), np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, not {type(out).__name__}")
    if issubclass(type(out), np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: its mask would be ignored")
    array = np.asarray(out)  # what a subclass says of its shape may not be so
    if array.shape != x_shape:
        raise ValueError(f"{name} must have the shape of x, {x_shape}, not {array.shape}")
    if array.dtype.type is not dtype.type:
        raise ValueError(f"{name} must have the dtype of the result, {dtype}, not {array.dtype}")
    if not array.flags.writeable:
        raise ValueError(f"{name} must be writable, but it is read-only")
    if _overlaps_itself(array):
        raise ValueError(f"{name} must not hold one element in two places, but its strides do")
    return out  # type: ignore[no-any-return]


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


def share_memory(a: Array, b: Array) -> bool:
    """Whether two arrays have an element in common; yes where that is too hard to tell."""
    try:
        return np.shares_memory(np.asarray(a), np.asarray(b), max_work=OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def destination(
    out: Array | None,
    x: Array,
    in_place: Iterable[Array],
    apart: Iterable[Array | None],
    views: bool = False,
) -> Array:
    """The array to compute into: out where no value still to be read could be lost, else fresh.

    Each of in_place may be out's very memory, element for element: the kernels read an
    element before they write it. Any other overlap, with them or those apart, needs a copy.
    views: out may have any strides.
    """
    y = None if out is None else np.asarray(out)
    if y is not None and (y.flags.carray or (views and y.flags.behaved)) and y.dtype.isnative:
        clear = all(_are_same(y, a) or not np.may_share_memory(y, a) for a in in_place)
        if clear and not any(a is not None and np.may_share_memory(y, a) for a in apart):
            return y
    return np.empty(x.shape, x.dtype)


def _are_same(a: Array, b: Array) -> bool:
    """Whether two arrays of one shape and dtype are the same memory, element for element."""
    steps = zip(a.shape, a.strides, b.strides, strict=True)
    return _address(a) == _address(b) and all(n < 2 or p == q for n, p, q in steps)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def deliver(result: Array, out: Array | None) -> Array:
    if out is None:
        return result
    place = np.asarray(out)
    if not np.may_share_memory(result, place):
        np.copyto(place, result, casting="equiv")
    return out
