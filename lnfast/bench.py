"""The measurement: lnfast and its peers side by side, on the same arrays and threads.

Each cell of the grid is measured by itself. Every peer's result is compared with the definition
first; then the peers take turns in short blocks of calls, so that whatever slows the machine slows
all of them. A time is the median over a peer's blocks, a ratio the median over the turns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product, repeat
from statistics import median
from time import perf_counter, sleep

import numpy as np

import lnfast
from lnfast import reference
from lnfast.peers import PEERS, Array, Call, Peer

EPS = 1e-5
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

SECONDS, QUICK_SECONDS = 2.5, 0.5  # for a cell
BLOCK_SECONDS = 4e-3  # one peer's share of a turn: long against the clock, short against a hiccup
# Before it, the peer fills the cache with its own data, and the system finds its woken threads a
# core each, which can take some milliseconds.
WARM_SECONDS = 6e-3
# A thread pool spins for some 5 ms after its last call, on a core that the next peer needs.
REST_SECONDS = 10e-3
MIN_TURNS = 5  # even where a single call outlasts the time given to its cell
CHECKED_ELEMENTS = 2**18  # of y and dx, in rows spread over the array
CHUNK_ELEMENTS = 2**20  # of float64 work at a time while dweight and dbias are summed
TOLERANCE = {"float32": 1e-3, "float64": 1e-9}  # catches a wrong result, forgives a rough one


@dataclass(frozen=True)
class Cell:
    """What is measured: (rows, cols) elements of a dtype, forward or backward."""

    rows: int
    cols: int
    dtype: str
    direction: str

    @property
    def shape(self) -> str:
        return f"{self.rows}×{self.cols}"

    @property
    def bytes_moved(self) -> int:
        """x and y forward; x, dy and dx backward."""
        arrays = 2 if self.direction == "forward" else 3
        return arrays * self.rows * self.cols * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype} {self.direction}"


@dataclass(frozen=True)
class Timing:
    """One peer in one cell."""

    seconds: float | None  # of one call; None where it failed
    ratio: float | None  # seconds over those of lnfast, taken turn by turn
    problem: str | None  # what is wrong with its result


@dataclass(frozen=True)
class Measurement:
    """One cell: the timings by the peers' names, lnfast first."""

    cell: Cell
    turns: int
    timings: dict[str, Timing]


@dataclass(frozen=True)
class Operands:
    """The arrays of a cell."""

    x: Array  # (rows, cols)
    dy: Array  # (rows, cols)
    weight: Array  # (cols,)
    bias: Array  # (cols,)


def grid(
    directions: Sequence[str] = DIRECTIONS,
    shapes: Mapping[str, Sequence[tuple[int, int]]] = GRID,
) -> list[Cell]:
    """The cells of a grid, one direction after the other."""
    return [
        Cell(rows, cols, dtype, direction)
        for direction, dtype in product(directions, shapes)
        for rows, cols in shapes[dtype]
    ]


def measure(
    cell: Cell,
    peers: Sequence[Peer] | None = None,
    num_threads: int | None = None,
    seconds: float = SECONDS,
) -> Measurement:
    """Check lnfast and the peers in one cell, then time them in turns for some seconds.

    By default against every peer that is installed, on as many threads as lnfast would use.
    """
    others = installed() if peers is None else peers
    everyone = [PEERS["lnfast"], *(peer for peer in others if peer is not PEERS["lnfast"])]
    operands = make_operands(cell)
    expected = Expected(cell, operands)
    calls: dict[str, Call] = {}
    problems: dict[str, str | None] = {}
    with ExitStack() as stack:
        for peer in everyone:
            stack.enter_context(peer.on_threads(available_threads(num_threads)))
        for peer in everyone:
            try:
                call = prepare(peer, cell.direction, operands)
                if call is None:
                    continue
                problems[peer.name] = expected.compare(peer, call()) if peer.is_layer_norm else None
            except Exception as error:
                if peer is PEERS["lnfast"]:
                    raise
                problems[peer.name] = f"{type(error).__name__}: {error}"
            else:
                calls[peer.name] = call
        times = take_turns(calls, seconds)
    timings = {
        name: Timing(median(times[name]), ratio(times[name], times["lnfast"]), problem)
        if name in times
        else Timing(None, None, problem)
        for name, problem in problems.items()
    }
    return Measurement(cell, len(times["lnfast"]), timings)


def available_threads(num_threads: int | None = None) -> int:
    """How many threads everyone gets: all that lnfast may use, or fewer."""
    most = lnfast.get_num_threads()
    return min(num_threads or most, most)


def installed() -> list[Peer]:
    return [peer for peer in PEERS.values() if peer.missing() is None]


def make_operands(cell: Cell) -> Operands:
    rng = np.random.default_rng(cell.rows * cell.cols)
    dtype = np.dtype(cell.dtype).type
    x, dy = (rng.standard_normal((cell.rows, cell.cols), dtype) for _ in range(2))
    weight, bias = (rng.standard_normal(cell.cols, dtype) for _ in range(2))
    return Operands(x, dy, weight, bias)


def prepare(peer: Peer, direction: str, operands: Operands) -> Call | None:
    if direction == "forward":
        return peer.forward(operands.x, operands.weight, operands.bias, EPS)
    return peer.backward(operands.dy, operands.x, operands.weight, EPS)


def take_turns(calls: Mapping[str, Call], seconds: float) -> dict[str, list[float]]:
    """Seconds per call of each, one number a turn; the order is reversed from turn to turn."""
    counts = {name: calls_per_block(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    deadline = perf_counter() + seconds
    order = list(calls)
    while len(times[order[0]]) < MIN_TURNS or perf_counter() < deadline:
        for name in order:
            count = counts[name]
            sleep(REST_SECONDS)
            time_calls(calls[name], max(1, round(count * WARM_SECONDS / BLOCK_SECONDS)))
            times[name].append(time_calls(calls[name], count) / count)
        order.reverse()
    return times


def calls_per_block(call: Call) -> int:
    count = 1
    while (took := time_calls(call, count)) < BLOCK_SECONDS / 4:
        count *= 2
    return max(1, round(BLOCK_SECONDS / took * count))


def time_calls(call: Call, count: int) -> float:
    start = perf_counter()
    for _ in repeat(None, count):
        call()
    return perf_counter() - start


def ratio(peer: Sequence[float], own: Sequence[float]) -> float:
    return median(a / b for a, b in zip(peer, own, strict=True))


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
        if cell.direction == "forward":
            return
        dx, _, _ = reference.layer_norm_backward(dy, cache)
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
        for (name, want), array in zip(self.results.items(), arrays, strict=True):
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


def run(
    cells: Sequence[Cell],
    peers: Sequence[Peer] | None = None,
    num_threads: int | None = None,
    seconds: float = SECONDS,
    starts: Callable[[int, int, Cell], None] = lambda number, count, cell: None,
) -> Iterator[Measurement]:
    """Measure one cell after the other; `starts` hears of each beforehand."""
    for number, cell in enumerate(cells, 1):
        starts(number, len(cells), cell)
        yield measure(cell, peers, num_threads, seconds)
