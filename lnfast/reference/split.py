"""The pieces that layer normalisation splits into: moments, merged, and what is made of them."""

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _pieces

Array = NDArray[Any]
Axis = SupportsIndex | Sequence[SupportsIndex]


def moments(
    x: ArrayLike,
    axis: Axis = -1,
    *,
    shift: ArrayLike | None = None,
    num_threads: SupportsIndex | None = None,
) -> tuple[Array, Array, Array]:
    """Count, mean and squared distances from it, along axis.

    As `lnfast.moments`; num_threads is checked and unused.
    """
    piece = _pieces.moments(x, axis, shift, num_threads)
    with np.errstate(all="ignore"):
        x, shift = _float64(piece["x"]), _rows(piece["shift"])
        count = x.shape[1]
        if count:
            mean = x.sum(axis=1, keepdims=True) / count
            rest = (x - mean).sum(axis=1, keepdims=True) / count  # what rounding took
            piece["mean"][:] = ((mean - shift) + rest)[:, 0]
            piece["m2"][:] = (((x - mean) - rest) ** 2).sum(axis=1)
    counts, means, m2s = piece.statistics("count", "mean", "m2")
    return counts, means, m2s


def merge_moments(a: Sequence[ArrayLike], b: Sequence[ArrayLike]) -> tuple[Array, Array, Array]:
    """The moments of all elements, from those of two parts. As `lnfast.merge_moments`."""
    (count_a, mean_a, m2_a), (count_b, mean_b, m2_b) = _pieces.merge_moments(a, b)
    with np.errstate(all="ignore"):
        count = np.asarray(count_a + count_b)
        delta = mean_b - mean_a
        mean = mean_a + delta * count_b / count
        m2 = m2_a + m2_b + delta**2 * count_a * count_b / count
    # No elements on one side: the other, whatever stands for the mean of none.
    empty = [count_a == 0, count_b == 0]
    return count, np.select(empty, [mean_b, mean_a], mean), np.select(empty, [m2_b, m2_a], m2)


def normalize(
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: Axis = -1,
    shift: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
) -> Array:
    """Layer normalisation by statistics that are given.

    As `lnfast.normalize`; num_threads is checked and unused.
    """
    statistics: dict[str, ArrayLike | None] = {"mean": mean, "rstd": rstd, "shift": shift}
    parameters: dict[str, ArrayLike | None] = {"weight": weight, "bias": bias}
    piece = _pieces.normalize(x, statistics, parameters, axis, out, num_threads)
    with np.errstate(all="ignore"):
        weight, bias = _float64(piece["weight"], missing=1.0), _float64(piece["bias"])
        piece["out"][...] = _xhat(piece) * weight + bias
    return piece.deliver()


def backward_sums(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    axis: Axis = -1,
    shift: ArrayLike | None = None,
    num_threads: SupportsIndex | None = None,
) -> tuple[Array, Array, Array, Array]:
    """What dx needs of all parts of a row, and dweight and dbias of this part.

    As `lnfast.backward_sums`; num_threads is checked and unused.
    """
    statistics: dict[str, ArrayLike | None] = {"mean": mean, "rstd": rstd, "shift": shift}
    piece = _pieces.backward_sums(dy, x, statistics, weight, axis, num_threads)
    with np.errstate(all="ignore"):
        dy, xhat = _float64(piece["dy"]), _xhat(piece)
        h = dy * _float64(piece["weight"], missing=1.0)
        piece["sum_h"][:] = h.sum(axis=1)
        piece["sum_h_xhat"][:] = (h * xhat).sum(axis=1)
        piece["dweight"][:] = (dy * xhat).sum(axis=0)
        piece["dbias"][:] = dy.sum(axis=0)
    sum_h, sum_h_xhat = piece.statistics("sum_h", "sum_h_xhat")
    return (sum_h, sum_h_xhat, *piece.parameters("dweight", "dbias"))  # type: ignore[return-value]


def backward_apply(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None,
    sum_h: ArrayLike,
    sum_h_xhat: ArrayLike,
    count: ArrayLike,
    *,
    axis: Axis = -1,
    shift: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
) -> Array:
    """The gradient of x, from sums over whole rows.

    As `lnfast.backward_apply`; num_threads is checked and unused.
    """
    statistics: dict[str, ArrayLike | None] = {"mean": mean, "rstd": rstd, "shift": shift}
    statistics |= {"sum_h": sum_h, "sum_h_xhat": sum_h_xhat, "count": count}
    piece = _pieces.backward_apply(dy, x, statistics, weight, axis, out, num_threads)
    with np.errstate(all="ignore"):
        h = _float64(piece["dy"]) * _float64(piece["weight"], missing=1.0)
        mean_h, mean_h_xhat = (
            _rows(piece[name]) / _rows(piece["count"]) for name in ("sum_h", "sum_h_xhat")
        )
        piece["out"][...] = _rows(piece["rstd"]) * (h - mean_h - _xhat(piece) * mean_h_xhat)
    return piece.deliver()


def _xhat(piece: _pieces.Piece) -> Array:
    x, shift = _float64(piece["x"]), _rows(piece["shift"])
    return ((x - shift) - _rows(piece["mean"])) * _rows(piece["rstd"])


def _rows(statistic: Array | None) -> Array:
    """A column, to go with a table's rows."""
    return np.zeros((1, 1)) if statistic is None else statistic[:, np.newaxis]


def _float64(array: Array | None, missing: float = 0.0) -> Array:
    return np.asarray(missing if array is None else array, np.float64)
