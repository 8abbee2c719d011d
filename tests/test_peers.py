"""Every peer of the benchmark gives what the definitions say, each copy what it copies.

Each in a process of its own, since some leave threads behind that no fork survives:
`python -P tests/test_peers.py NAME` prints what is wrong with a peer.
"""

import subprocess
import sys
from itertools import product

import pytest

from lnfast import bench
from lnfast.bench.cells import DIRECTIONS, GRID, NORMS
from lnfast.bench.peers import COPIES, PEERS

# One element; less than a cache line; rows of which only some are compared; sums of dweight in
# parts; rows that no number of threads divides. The last for a peer that compiles each shape.
SHAPES = ((1, 1), (1, 5), (700, 600), (3, 400_000), (37, 1001))
EVERYONE = {peer.name: peer for peer in (*PEERS.values(), *COPIES)}
THREADS = bench.available_threads()


@pytest.mark.parametrize("name", EVERYONE)
def test_agrees_with_the_definitions(name):
    if reason := EVERYONE[name].missing(THREADS):
        pytest.skip(f"{name}: {reason}")
    command = [sys.executable, "-P", __file__, name]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def problems(peer):
    """What is wrong, cell by cell, on as many threads as there are."""
    shapes = SHAPES if peer.by_default else SHAPES[-1:]
    for shape, dtype, direction, norm in product(shapes, GRID, DIRECTIONS, NORMS):
        cell = bench.Cell(*shape, dtype, direction, norm)
        operands = bench.make_operands(cell)
        with peer.on_threads(THREADS):
            call = bench.prepare(peer, direction, operands, norm)
            problem = call and bench.Expected(cell, operands).compare(peer, call())
        if problem:
            yield f"{cell}: {problem}"


if __name__ == "__main__":
    for problem in problems(EVERYONE[sys.argv[1]]):
        print(problem)
