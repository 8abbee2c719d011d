"""From how many elements a second thread pays: lnfast on one thread and on two, in turns.

    python benchmarks/threads.py [--cols 768] [--dtype float32] [--seconds 0.3]

Calls follow one another at once, so the second thread is awake, or nearly: what is measured is
the handing over of work and the waiting for its end, not the waking of a thread long asleep.
The two columns differ in nothing but num_threads.
"""

import argparse
from functools import partial
from statistics import median

import numpy as np

import lnfast
from lnfast.bench import ratio, take_turns
from lnfast.bench.cells import DIRECTIONS, EPS, GRID
from lnfast.bench.table import microseconds
from lnfast.machine import describe, look_around

ELEMENTS = [round(2 ** (10 + step / 2)) for step in range(19)]  # 1,024 to 524,288


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cols", type=int, default=768, help="elements of a row")
    parser.add_argument("--dtype", choices=list(GRID), default="float32")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each size and direction")
    arguments = parser.parse_args()
    if lnfast.get_num_threads() < 2:
        parser.exit(1, "there is one thread here: nothing to compare\n")
    print(*describe(look_around([], 2)), sep="\n")
    for direction in DIRECTIONS:
        print(f"\n{direction}, {arguments.dtype}, rows of {arguments.cols}")
        print(f"{'rows':>10}{'elements':>12}{'1 thread':>12}{'2 threads':>12}{'speed-up':>11}")
        print_sizes(direction, arguments)


def print_sizes(direction, arguments):
    """A line for each number of elements, then the first from which on two threads are faster."""
    break_even = None
    for rows in sorted({max(2, round(n / arguments.cols)) for n in ELEMENTS}):
        calls = calls_by_threads(direction, rows, arguments.cols, arguments.dtype)
        times = take_turns(calls, arguments.seconds)
        speedup = ratio(times["1"], times["2"])
        elements = rows * arguments.cols
        one, two = (f"{microseconds(median(times[threads]))} µs" for threads in ("1", "2"))
        print(f"{rows:>10,}{elements:>12,}{one:>12}{two:>12}{speedup:>11.2f}", flush=True)
        break_even = (break_even or elements) if speedup > 1 else None
    if break_even is None:
        print("a second thread does not pay up to there")
    else:
        print(f"a second thread pays from {break_even:,} elements")


def calls_by_threads(direction, rows, cols, dtype):
    rng = np.random.default_rng(rows)
    x, dy = (rng.standard_normal((rows, cols), np.dtype(dtype)) for _ in range(2))
    weight, bias = (rng.standard_normal(cols, np.dtype(dtype)) for _ in range(2))
    if direction == "forward":
        call = partial(lnfast.layer_norm, x, cols, weight, bias, EPS)
    else:
        _, cache = lnfast.layer_norm_forward(x, cols, weight, bias, EPS)
        call = partial(lnfast.layer_norm_backward, dy, cache)
    return {str(threads): partial(call, num_threads=threads) for threads in (1, 2)}


if __name__ == "__main__":
    main()
