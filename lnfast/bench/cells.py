"""What is measured: the grid of cells, and the arrays of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from lnfast.bench.peers import Array

EPS = 1e-5
LAYER_NORM, RMS_NORM = "layer_norm", "rms_norm"
NORMS = {LAYER_NORM: "Layer normalisation", RMS_NORM: "RMS normalisation"}
DIRECTIONS = ("forward", "backward")

# One row; short, usual and long rows; few and many; in cache and far beyond it; a length that no
# register divides.
GRID: dict[str, tuple[tuple[int, int], ...]] = {
    "float32": (
        *((1, 768), (8, 768), (32, 384), (128, 768), (1024, 768), (512, 1024), (256, 4096)),
        *((4096, 64), (2000, 96), (8192, 768), (16384, 1024), (8192, 4096), (500000, 64)),
        *((64, 65536), (37, 1001)),
    ),
    "float64": ((1, 768), (128, 768), (1024, 768), (4096, 64), (8192, 2048)),
}
QUICK: dict[str, tuple[tuple[int, int], ...]] = {
    "float32": ((1, 768), (128, 768), (1024, 768), (4096, 64), (8192, 768)),
    "float64": ((1024, 768),),
}


@dataclass(frozen=True)
class Cell:
    """(rows, cols) elements of a dtype, forward or backward, in one of the norms."""

    rows: int
    cols: int
    dtype: str
    direction: str
    norm: str = LAYER_NORM  # reports from before there was another do not say

    @property
    def shape(self) -> str:
        return f"{self.rows}×{self.cols}"

    @property
    def bytes_moved(self) -> int:
        """x and y forward; x, dy and dx backward."""
        arrays = 2 if self.direction == "forward" else 3
        return arrays * self.rows * self.cols * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype} {self.norm} {self.direction}"


@dataclass(frozen=True)
class Operands:
    """The arrays of a cell."""

    x: Array  # (rows, cols)
    dy: Array  # (rows, cols)
    weight: Array  # (cols,)
    bias: Array  # (cols,); layer norm's alone


def grid(
    directions: Sequence[str] = DIRECTIONS,
    shapes: Mapping[str, Sequence[tuple[int, int]]] = GRID,
    norm: str = LAYER_NORM,
) -> list[Cell]:
    """The cells of a grid, one direction after the other."""
    return [
        Cell(rows, cols, dtype, direction, norm)
        for direction, dtype in product(directions, shapes)
        for rows, cols in shapes[dtype]
    ]


def make_operands(cell: Cell) -> Operands:
    rng = np.random.default_rng(cell.rows * cell.cols)
    dtype = np.dtype(cell.dtype).type
    x, dy = (rng.standard_normal((cell.rows, cell.cols), dtype) for _ in range(2))
    weight, bias = (rng.standard_normal(cell.cols, dtype) for _ in range(2))
    return Operands(x, dy, weight, bias)
