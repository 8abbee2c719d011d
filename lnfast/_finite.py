"""check_finite=True: ValueError that names the array and the first place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]


def require_finite(
    *, overflow: bool = False, mask: Array | None = None, **arrays: Array | None
) -> None:
    """ValueError at the first NaN or Inf, of those that a mask does not hide.

    overflow: these are results, of finite inputs.
    """
    for name, array in arrays.items():
        if array is not None:
            spoiled = ~np.isfinite(array)
            place = _first(spoiled if mask is None else spoiled & mask)
            if place is not None:
                verb = "overflows to" if overflow and np.isinf(array[place]) else "is"
                raise ValueError(f"{_entry(name, place)} {verb} {array[place]}")


def require_positive(*, rstd: Array) -> None:
    place = _first(rstd <= 0)
    if place is not None:
        raise ValueError(f"{_entry('rstd', place)} is {rstd[place]}: it must be above 0")


def _first(found: NDArray[np.bool_]) -> Shape | None:
    if not found.any():
        return None
    return tuple(int(i) for i in np.unravel_index(found.argmax(), found.shape))


def _entry(name: str, place: Shape) -> str:
    return f"{name}[{', '.join(map(str, place))}]"
