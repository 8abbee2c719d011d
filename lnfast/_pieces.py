"""Arguments of the pieces (split.py): checked, and made rows and columns.

Both the compiled functions and lnfast.reference come through here, so both raise the same errors.
As in lnfast._arguments, what runs code of the caller's comes before every check, and no array of
the caller's is written to before the last of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _axes, _checks, _out

Array = NDArray[Any]
Shape = tuple[int, ...]
Moments = tuple[Array, Array, Array]
Given = Mapping[str, ArrayLike | None]
Operands = dict[str, Array | None]

FLOAT64 = np.dtype(np.float64)

# As in src/kernels.h
MOMENTS, NORMALIZE, BACKWARD_SUMS, BACKWARD_APPLY, JVP, DOUBLE_BACKWARD = range(6)


class Layout(NamedTuple):
    """How an array's axes make rows, one for each group that is normalised, and columns."""

    shape: Shape
    axes: Shape  # that make a row, in their order

    @property
    def statistic(self) -> Shape:
        """The shape of what there is one of for each row: it broadcasts against the array."""
        return tuple(1 if axis in self.axes else n for axis, n in enumerate(self.shape))

    @property
    def parameter(self) -> Shape:
        """The shape of what there is one of for each column."""
        return tuple(self.shape[axis] for axis in self.axes)

    @property
    def trailing(self) -> bool:
        return self.axes == tuple(range(len(self.shape)))[-len(self.axes) :]

    @property
    def table(self) -> Shape:
        """How many rows and columns."""
        return math.prod(self.statistic), math.prod(self.parameter)

    def to_table(self, array: Array) -> Array:
        """An array of this shape as rows and columns, in plain memory: its own where it can be."""
        if not self.trailing:
            array = np.moveaxis(array, self.axes, range(-len(self.axes), 0))
        return np.ascontiguousarray(array).reshape(self.table)

    def from_table(self, table: Array) -> Array:
        """The reverse: a C-contiguous array of this shape."""
        if self.trailing:
            return table.reshape(self.shape)
        lead = tuple(n for axis, n in enumerate(self.shape) if axis not in self.axes)
        moved = np.moveaxis(
            table.reshape(lead + self.parameter), range(-len(self.axes), 0), self.axes
        )
        return np.ascontiguousarray(moved)


@dataclass(frozen=True)
class Piece:
    """A piece's checked operands, those it writes among them: `lnfast._api._run_piece` takes them.

    x and what has its shape are tables, statistics have an element for each row, parameters one
    for each column; all are plain, parameters of x's dtype, statistics float64.
    """

    number: int
    layout: Layout
    operands: Operands
    out: Array | None  # the very object that was given
    num_threads: int

    def __getitem__(self, name: str) -> Any:
        return self.operands[name]

    def statistics(self, *names: str) -> tuple[Array, ...]:
        return tuple(self[name].reshape(self.layout.statistic) for name in names)

    def parameters(self, *names: str) -> tuple[Array, ...]:
        return tuple(self[name].reshape(self.layout.parameter) for name in names)

    def deliver(self) -> Array:
        """The result that has x's shape: what the caller gets is out where that was given."""
        return _out.deliver(self.layout.from_table(self["out"]), self.out)


def moments(x: ArrayLike, axis: object, shift: ArrayLike | None, num_threads: object) -> Piece:
    given = _checks.converted("x", x)
    axes = _axes.numbers(axis)
    statistics = _converted(shift=shift)
    threads = _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    layout, operands = _operands(given, axes, statistics, {})
    rows, cols = layout.table
    operands |= {"count": np.full(rows, float(cols)), "mean": np.zeros(rows), "m2": np.zeros(rows)}
    return Piece(MOMENTS, layout, operands, None, threads)


def normalize(
    x: ArrayLike,
    statistics: Given,
    parameters: Given,
    axis: object,
    out: object,
    num_threads: object,
) -> Piece:
    given = _checks.converted("x", x)
    axes = _axes.numbers(axis)
    arrays, columns = _converted(**statistics), _converted(**parameters)
    threads = _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    layout, operands = _operands(given, axes, arrays, columns)
    return with_room(NORMALIZE, layout, operands, ["x"], out, threads)


def backward_sums(
    dy: ArrayLike,
    x: ArrayLike,
    statistics: Given,
    weight: ArrayLike | None,
    axis: object,
    num_threads: object,
) -> Piece:
    gradient, given = _checks.converted("dy", dy), _checks.converted("x", x)
    axes = _axes.numbers(axis)
    arrays, columns = _converted(**statistics), _converted(weight=weight)
    threads = _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    layout, operands = _operands(given, axes, arrays, columns, gradient)
    (rows, cols), dtype = layout.table, operands["x"].dtype  # type: ignore[union-attr]
    operands |= {name: np.zeros(rows) for name in ("sum_h", "sum_h_xhat")}
    operands |= {name: np.zeros(cols, dtype) for name in ("dweight", "dbias")}
    return Piece(BACKWARD_SUMS, layout, operands, None, threads)


def backward_apply(
    dy: ArrayLike,
    x: ArrayLike,
    statistics: Given,
    weight: ArrayLike | None,
    axis: object,
    out: object,
    num_threads: object,
) -> Piece:
    gradient, given = _checks.converted("dy", dy), _checks.converted("x", x)
    axes = _axes.numbers(axis)
    arrays, columns = _converted(**statistics), _converted(weight=weight)
    threads = _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    layout, operands = _operands(given, axes, arrays, columns, gradient)
    return with_room(BACKWARD_APPLY, layout, operands, ["x", "dy"], out, threads)


def merge_moments(a: object, b: object) -> tuple[Moments, Moments]:
    """Two times count, mean and m2: float64, all of one shape."""
    names = [f"{name} of {which}" for which in "ab" for name in ("count", "mean", "m2")]
    given = [*_three("a", a), *_three("b", b)]
    arrays = [_checks.converted(name, value) for name, value in zip(names, given, strict=True)]
    plain = [
        _checks.parameter(name, array, np.asarray(array).shape, FLOAT64)
        for name, array in zip(names, arrays, strict=True)
    ]
    try:
        same = np.broadcast_arrays(*plain)
    except ValueError:
        shapes = ", ".join(f"{name} {a.shape}" for name, a in zip(names, plain, strict=True))
        raise ValueError(f"a and b must have shapes that broadcast, not {shapes}") from None
    for name, count in (("a", same[0]), ("b", same[3])):
        if (count < 0).any():
            raise ValueError(f"count of {name} must be at least 0, not {count.min()}")
    return (same[0], same[1], same[2]), (same[3], same[4], same[5])


def _three(name: str, moments: Any) -> tuple[Any, ...]:
    wanted = f"{name} must be a count, a mean and an m2"
    items = None
    if not issubclass(type(moments), str | bytes | bytearray):
        items = _checks.items(name, moments, 3)
    if items is None:
        raise TypeError(f"{wanted}, not {type(moments).__name__}")
    if len(items) != 3:
        raise ValueError(f"{wanted}, not {len(items) if len(items) < 3 else 'more'}")
    return items


def input_array(x: Array) -> tuple[Array, np.dtype[Any]]:
    """As _checks.input_array, without the dtypes that the pieces do not know."""
    given, dtype = _checks.input_array(x)
    if _checks.is_half(dtype):
        raise TypeError(f"x has dtype {given.dtype}: it must be float32 or float64 here")
    return given, dtype


def _converted(**values: ArrayLike | None) -> Operands:
    return {name: _checks.optional_converted(name, value) for name, value in values.items()}


def _operands(
    x: Array,
    axes: Shape,
    statistics: Operands,
    parameters: Operands,
    dy: Array | None = None,
) -> tuple[Layout, Operands]:
    """What was converted, checked against x. A count may be one number for all rows."""
    given, dtype = input_array(x)
    layout = Layout(given.shape, _axes.normalized(axes, None, None, given.shape)[0])
    operands: Operands = {"x": layout.to_table(_checks.plain(given, dtype))}
    if dy is not None:
        dy = _checks.output_gradient("dy", dy, given.shape)
        operands["dy"] = layout.to_table(_checks.plain(dy, dtype))
    for name, array in statistics.items():
        if array is None and name != "shift":
            raise TypeError(f"{name} must be an array, not None")
        if array is not None:
            if name == "count" and np.asarray(array).ndim == 0:
                array = np.broadcast_to(np.asarray(array), layout.statistic)
            array = _checks.parameter(name, array, layout.statistic, FLOAT64).reshape(-1)
        operands[name] = array
    for name, array in parameters.items():
        if array is not None:
            array = _checks.parameter(name, array, layout.parameter, dtype).reshape(-1)
        operands[name] = array
    return layout, operands


def with_room(
    number: int,
    layout: Layout,
    operands: Operands,
    in_place: Sequence[str],
    out: object,
    threads: int,
) -> Piece:
    """With an array to compute into: out's own memory where that is safe, else a fresh one."""
    x: Any = operands["x"]
    target = _out.output("out", out, layout.shape, x.dtype)
    place = None
    if target is not None and layout.trailing:
        array = np.asarray(target)
        place = array.reshape(layout.table) if array.flags.c_contiguous else None
    apart = [a for name, a in operands.items() if name not in in_place]
    same = [a for name in in_place if (a := operands[name]) is not None]
    operands["out"] = _out.destination(place, x, in_place=same, apart=apart)
    return Piece(number, layout, operands, target, threads)
