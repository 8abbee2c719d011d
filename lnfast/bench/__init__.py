"""The measurement: lnfast and its peers side by side, on the same arrays and threads.

Each cell of the grid is measured by itself. Every peer's result is compared with the definition
first; then the peers take turns in short blocks of calls, so that whatever slows the machine slows
all of them. A time is the median over a peer's blocks, a ratio the median over the turns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from statistics import median
from time import perf_counter, sleep

import lnfast
from lnfast.bench.cells import EPS, LAYER_NORM, RMS_NORM, Cell, Operands, make_operands
from lnfast.bench.check import Expected
from lnfast.bench.peers import COPIES, PEERS, REFILLING, Call, Peer

SECONDS, QUICK_SECONDS = 5.0, 1.0  # for a cell: some twenty turns, and five
BLOCK_SECONDS = 4e-3  # one peer's share of a turn: long against the clock, short against a hiccup
# Before it, the peer fills the cache with its own data, and the system finds its woken threads a
# core each, which can take some milliseconds.
WARM_SECONDS = 6e-3
# A thread pool spins for some 5 ms after its last call, on a core that the next peer needs.
REST_SECONDS = 10e-3
MIN_TURNS = 5  # even where a single call outlasts the time given to its cell


@dataclass(frozen=True)
class Timing:
    """One peer in one cell."""

    seconds: float | None  # of one call; None where it failed
    ratio: float | None  # seconds over those of lnfast (with out=, if it refills), turn by turn
    problem: str | None  # what is wrong with its result


@dataclass(frozen=True)
class Measurement:
    """One cell: the timings by the peers' names, lnfast first."""

    cell: Cell
    turns: int
    timings: dict[str, Timing]
    copy: str | None  # the copy that took the least time


def measure(
    cell: Cell,
    peers: Sequence[Peer] | None = None,
    num_threads: int | None = None,
    seconds: float = SECONDS,
) -> Measurement:
    """Check lnfast and the peers in one cell, then time them in turns for some seconds.

    By default against every peer and copy that is here, on as many threads as lnfast would use.
    """
    num_threads = available_threads(num_threads)
    ours = PEERS["lnfast"]
    others = present(num_threads=num_threads) if peers is None else peers
    everyone = [ours, *(peer for peer in others if peer is not ours), REFILLING]
    refilling = {peer.name for peer in everyone if peer.refills}
    operands = make_operands(cell)
    expected = Expected(cell, operands)
    calls: dict[str, Call] = {}
    problems: dict[str, str | None] = {}
    with ExitStack() as stack:
        for peer in everyone:
            if peer is REFILLING and not refilling & calls.keys():
                continue  # nobody to measure against it
            try:
                stack.enter_context(peer.on_threads(num_threads))
                call = prepare(peer, cell.direction, operands, cell.norm)
                if call is None:
                    continue
                problems[peer.name] = expected.compare(peer, call())
            except Exception as error:
                if peer in (ours, REFILLING):
                    raise
                problems[peer.name] = f"{type(error).__name__}: {error}"
            else:
                calls[peer.name] = call
        times = take_turns(calls, seconds)

    def own(name: str) -> list[float]:
        return times[REFILLING.name if name in refilling else ours.name]

    timings = {
        name: Timing(median(times[name]), ratio(times[name], own(name)), problem)
        if name in times
        else Timing(None, None, problem)
        for name, problem in problems.items()
    }
    copies = {peer.name: times[peer.name] for peer in COPIES if peer.name in times}
    best = min(copies, key=lambda name: median(copies[name]), default=None)
    return Measurement(cell, len(times[ours.name]), timings, best)


def available_threads(num_threads: int | None = None) -> int:
    """How many threads everyone gets: all that lnfast may use, or fewer."""
    most = lnfast.get_num_threads()
    return min(num_threads or most, most)


def present(peers: Sequence[Peer] | None = None, num_threads: int | None = None) -> list[Peer]:
    """Those of the peers (by default all, and the copies) that can run here."""
    if peers is None:
        peers = [peer for peer in (*PEERS.values(), *COPIES) if peer.by_default]
    return [peer for peer in peers if peer.missing(num_threads) is None]


def prepare(peer: Peer, direction: str, operands: Operands, norm: str = LAYER_NORM) -> Call | None:
    """The peer's call, or None if it has none; a copy's is the same for either norm."""
    x, dy, weight, bias = operands.x, operands.dy, operands.weight, operands.bias
    if norm == RMS_NORM and not peer.is_copy:
        if direction == "forward":
            return peer.rms_forward(x, weight, EPS)
        return peer.rms_backward(dy, x, weight, EPS)
    if direction == "forward":
        return peer.forward(x, weight, bias, EPS)
    return peer.backward(dy, x, weight, EPS)


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
