"""The check of every result before it is timed."""

from collections.abc import Iterator

import numpy as np

from lnfast import reference
from lnfast.bench.cells import EPS, Cell, Operands
from lnfast.bench.peers import Array, Peer

CHECKED_ELEMENTS = 2**18  # of y and dx, in rows spread over the array
CHUNK_ELEMENTS = 2**20  # of float64 work at a time while dweight and dbias are summed
TOLERANCE = {"float32": 1e-3, "float64": 1e-9}  # catches a wrong result, forgives a rough one


class Expected:
    """What a cell's results should be, in float64: some rows of y or dx, all of dweight, dbias."""

    def __init__(self, cell: Cell, operands: Operands) -> None:
        self.cell = cell
        count = min(cell.rows, max(1, CHECKED_ELEMENTS // cell.cols))
        self.rows = np.unique(np.linspace(0, cell.rows - 1, count).astype(np.intp))
        weight, bias = operands.weight.astype(np.float64), operands.bias.astype(np.float64)
        x, dy = (a[self.rows].astype(np.float64) for a in (operands.x, operands.dy))
        y, cache = reference.layer_norm_forward(x, cell.cols, weight, bias, EPS)
        self.results: dict[str, Array] = {"y": y}
        self.copies: dict[str, Array] = {"y": x}
        if cell.direction == "forward":
            return
        dx, _, _ = reference.layer_norm_backward(dy, cache)
        self.copies = {"dx": x + dy}
        dweight = dbias = np.zeros(cell.cols)
        for rows in chunks(cell):
            x, dy = (a[rows].astype(np.float64) for a in (operands.x, operands.dy))
            _, cache = reference.layer_norm_forward(x, cell.cols, eps=EPS)
            _, of_weight, of_bias = reference.layer_norm_backward(dy, cache)
            assert of_weight is not None and of_bias is not None
            dweight, dbias = dweight + of_weight, dbias + of_bias
        assert dx is not None
        self.results = {"dx": dx, "dweight": dweight, "dbias": dbias}

    def compare(self, peer: Peer, result: object) -> str | None:
        """What is wrong with a peer's result, or None."""
        arrays = peer.arrays(result)
        wanted = self.results if peer.is_layer_norm else self.copies
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


def chunks(cell: Cell) -> Iterator[slice]:
    step = max(1, CHUNK_ELEMENTS // cell.cols)
    return (slice(start, start + step) for start in range(0, cell.rows, step))
