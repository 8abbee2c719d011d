"""Every cell of the grid, forward and backward: lnfast timed, and faster than PyTorch.

pytest benchmarks/test_grid.py runs it; `lnfast bench` prints the same grid as one table.
"""

import pytest

from lnfast.bench import Cell, calls_per_block, grid, make_operands, measure, prepare
from lnfast.peers import PEERS

ROUNDS = 20  # blocks of calls that pytest-benchmark times
SECONDS = 1.0  # of lnfast and PyTorch in turns
ONE_CALL = Cell(1, 768, "float32", "forward")


@pytest.mark.parametrize(
    "cell", grid(), ids=lambda cell: f"{cell.rows}x{cell.cols}-{cell.dtype}-{cell.direction}"
)
def test_faster_than_pytorch(benchmark, cell):
    call = prepare(PEERS["lnfast"], cell.direction, make_operands(cell))
    benchmark.group = cell.direction
    benchmark.extra_info["bytes"] = cell.bytes_moved
    benchmark.pedantic(call, iterations=calls_per_block(call), rounds=ROUNDS, warmup_rounds=1)

    pytorch = PEERS["pytorch"]
    if reason := pytorch.missing():
        pytest.skip(f"no ratio to PyTorch: {reason}")
    timings = measure(cell, [pytorch], seconds=SECONDS).timings
    benchmark.extra_info["ratio to PyTorch"] = timings["PyTorch"].ratio
    assert [timing.problem for timing in timings.values()] == [None, None]
    assert timings["PyTorch"].ratio > (6 if cell == ONE_CALL else 1)
