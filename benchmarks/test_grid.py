"""Every cell of the grid, both norms and directions: lnfast and its peers timed, PyTorch outrun.

pytest benchmarks/test_grid.py runs it; `lnfast bench` prints the same grid as one table.
"""

import pytest

from lnfast.bench import available_threads, calls_per_block, measure, prepare
from lnfast.bench.cells import NORMS, RMS_NORM, Cell, grid, make_operands
from lnfast.bench.check import Expected
from lnfast.bench.peers import COPIES, PEERS

# What the libraries warn of when they are imported or compile is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

ROUNDS = 20  # blocks of calls that pytest-benchmark times
SECONDS = 1.0  # of lnfast and PyTorch in turns
ONE_CALL = Cell(1, 768, "float32", "forward")

each_cell = pytest.mark.parametrize(
    "cell",
    [cell for norm in NORMS for cell in grid(norm=norm)],
    ids=lambda cell: f"{cell.rows}x{cell.cols}-{cell.dtype}-{cell.norm}-{cell.direction}",
)


@pytest.mark.parametrize(
    "peer", [*PEERS.values(), *COPIES], ids=lambda peer: peer.name.replace(" ", "-")
)
@each_cell
def test_time(benchmark, cell, peer):
    """One after the other; the ratios that count are those measured in turns."""
    threads = available_threads()
    if reason := peer.missing(threads):
        pytest.skip(f"{peer.name}: {reason}")
    operands = make_operands(cell)
    with peer.on_threads(threads):
        call = prepare(peer, cell.direction, operands, cell.norm)
        if call is None:
            pytest.skip(f"{peer.name} has no {cell.norm} {cell.direction} in {cell.dtype}")
        assert Expected(cell, operands).compare(peer, call()) is None
        benchmark.group = str(cell)
        benchmark.extra_info["bytes"] = cell.bytes_moved
        benchmark.pedantic(call, iterations=calls_per_block(call), rounds=ROUNDS, warmup_rounds=1)


@each_cell
def test_faster_than_pytorch(cell):
    pytorch = PEERS["pytorch"]
    if reason := pytorch.missing():
        pytest.skip(f"no ratio to PyTorch: {reason}")
    timings = measure(cell, [pytorch], seconds=SECONDS).timings
    assert [timing.problem for timing in timings.values()] == [None, None]
    assert timings["PyTorch"].ratio > least_ratio(cell)


def least_ratio(cell):
    """Above 1 everywhere; more where PyTorch pays for its calls, or has no kernel of its own."""
    if cell.norm == RMS_NORM:
        return 3 if cell.direction == "forward" else 1
    return 6 if cell == ONE_CALL else 1
