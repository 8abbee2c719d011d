"""What layer norm takes in pieces, and its derivatives, beside the whole, in microseconds.

    python benchmarks/pieces.py [--rows 1024] [--cols 768] [--seconds 3]

Every call allocates its results. The calls take turns.
"""

import argparse
from functools import partial
from statistics import median

import numpy as np

import lnfast
from lnfast.bench import take_turns
from lnfast.bench.cells import EPS, GRID, Cell, make_operands
from lnfast.bench.command import parse_seconds
from lnfast.machine import describe, look_around

WIDTH = 40  # of the names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--cols", type=int, default=768)
    parser.add_argument("--seconds", type=parse_seconds, default=3, help="for each dtype")
    arguments = parser.parse_args()
    # Having freed this once, glibc keeps what results leave. Without it the two large results of
    # double backward, given back to the system at every call, cost three times the arithmetic.
    np.zeros(30 * 2**20, np.uint8)
    threads = lnfast.get_num_threads()
    print(*describe(look_around([], threads)), sep="\n")
    columns = []
    for dtype in GRID:
        cell = Cell(arguments.rows, arguments.cols, dtype, "forward")
        times = take_turns(calls_of(make_operands(cell)), arguments.seconds)
        columns.append({name: median(blocks) for name, blocks in times.items()})
    print(f"\n{f'µs a call, {cell.rows}×{cell.cols}':<{WIDTH}}" + "".join(f"{d:>9}" for d in GRID))
    for name in columns[0]:
        print(f"{name:<{WIDTH}}" + "".join(f"{1e6 * column[name]:9,.1f}" for column in columns))


def calls_of(operands):
    x, dy, weight, bias = operands.x, operands.dy, operands.weight, operands.bias
    _, cache = lnfast.layer_norm_forward(x, weight.shape, weight, bias, EPS)
    half = lnfast.moments(x)
    count, mean, m2 = half
    row = x, mean, 1 / np.sqrt(m2 / count + EPS)
    sums = lnfast.backward_sums(dy, *row, weight)[:2]
    return {
        "layer_norm": partial(lnfast.layer_norm, x, weight.shape, weight, bias, EPS),
        "moments": partial(lnfast.moments, x),
        "merge_moments": partial(lnfast.merge_moments, half, half),
        "normalize": partial(lnfast.normalize, *row, weight, bias),
        "layer_norm_backward": partial(lnfast.layer_norm_backward, dy, cache),
        "backward_sums": partial(lnfast.backward_sums, dy, *row, weight),
        "backward_apply": partial(lnfast.backward_apply, dy, *row, weight, *sums, count),
        "layer_norm_jvp": partial(lnfast.layer_norm_jvp, dy, cache, weight, bias),
        "layer_norm_double_backward": partial(
            lnfast.layer_norm_double_backward, x, weight, bias, dy, cache
        ),
    }


if __name__ == "__main__":
    main()
