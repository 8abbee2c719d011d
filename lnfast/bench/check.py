"""The check of every result before it is timed."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from lnfast import reference
from lnfast.bench.cells import EPS, RMS_NORM, Cell, Operands
from lnfast.bench.peers import Array, Peer

CHECKED_ELEMENTS = 2**18  # of y and dx, in rows spread over the array
CHUNK_ELEMENTS = 2**20  # of float64 work at a time while the parameters' gradients are summed
TOLERANCE = {"float32": 1e-3, "float64": 1e-9}  # catches a wrong result, forgives a rough one


class Expected:
    """What a cell's results should be, in float64.

    Some rows of y or dx; all of dweight and, in layer norm, dbias.
    """

    def __init__(self, cell: Cell, operands: Operands) -> None:
        self.cell = cell
        count = min(cell.rows, max(1, CHECKED_ELEMENTS // cell.cols))
        self.rows = np.unique(np.linspace(0, cell.rows - 1, count).astype(np.intp))
        x, dy = rows_of(operands, self.rows)
        weight, bias = operands.weight.astype(np.float64), operands.bias.astype(np.float64)
        y, differentiate = define(cell.norm, x, weight, bias)
        self.results: dict[str, Array] = {"y": y}
        self.copies: dict[str, Array] = {"y": x}
        if cell.direction == "forward":
            return
        dx, *sums = differentiate(dy)
        self.copies = {"dx": x + dy}
        sums = [np.zeros(cell.cols) for _ in sums]
        for chunk in chunks(cell):
            x, dy = rows_of(operands, chunk)
            _, differentiate = define(cell.norm, x, weight, bias)
            sums = [total + part for total, part in zip(sums, differentiate(dy)[1:], strict=True)]
        self.results = dict(zip(("dx", "dweight", "dbias"), (dx, *sums), strict=False))

    def compare(self, peer: Peer, result: object) -> str | None:
        """What is wrong with a peer's result, or None."""
        arrays = peer.arrays(result)
        wanted = self.copies if peer.is_copy else self.results
        for (name, want), array in zip(wanted.items(), arrays, strict=True):
            by_row = name in ("y", "dx")
            shape = (self.cell.rows, self.cell.cols) if by_row else (self.cell.cols,)
            if array.shape != shape:
                return f"{name} has shape {array.shape}"
            if array.dtype != self.cell.dtype:
                return f"{name} is {array.dtype}"
            error = float(np.max(np.abs((array[self.rows] if by_row else array) - want)))
            limit = TOLERANCE[self.cell.dtype] * (1 + float(np.max(np.abs(want))))
            if not error <= limit:
                return f"{name} is off by {error:.2g}, more than {limit:.2g}"
        return None


def define(
    norm: str, x: Array, weight: Array, bias: Array
) -> tuple[Array, Callable[[Array], Sequence[Any]]]:
    """y, and the function from dy to the gradients, by the definition."""
    if norm == RMS_NORM:
        y, record = reference.rms_norm_forward(x, weight.shape, weight, EPS)
        return y, partial(reference.rms_norm_backward, cache=record)
    y, cache = reference.layer_norm_forward(x, weight.shape, weight, bias, EPS)
    return y, partial(reference.layer_norm_backward, cache=cache)


def rows_of(operands: Operands, rows: slice | Array) -> Iterator[Array]:
    """Those of x and of dy, in float64."""
    return (a[rows].astype(np.float64) for a in (operands.x, operands.dy))


def chunks(cell: Cell) -> Iterator[slice]:
    step = max(1, CHUNK_ELEMENTS // cell.cols)
    return (slice(start, start + step) for start in range(0, cell.rows, step))
