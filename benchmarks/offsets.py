"""What it costs where an output lies ahead of the inputs in its page of memory.

    python benchmarks/offsets.py [--dtype float32] [--seconds 1] [--threads 1]

A processor tells whether a load follows a store to the same place by the place within the page:
where y or dx lies shortly ahead of x or dy there, it has loads wait for stores that have nothing to
do with them, for long where a store goes past the caches. NumPy's arrays of 2, 4, 8 and 16 MiB lie
16 bytes ahead of one another as a rule. Each line is a shape, each column a distance in bytes, each
figure the time over that of the first column: 1 is what it should be.
"""

import argparse
from functools import partial
from statistics import median

import numpy as np

import lnfast
from lnfast.bench import take_turns
from lnfast.bench.cells import DIRECTIONS, EPS, GRID
from lnfast.bench.table import microseconds
from lnfast.machine import describe, look_around

DISTANCES = (512, 0, 16, 32, 64, 128, 256, -64)  # the first: far enough to be free of it
# In the caches and beyond them; rows a multiple of a page apart, nearly one, and far from one.
SHAPES = (
    (128, 768),
    (64, 1024),
    (1024, 4096),
    (64, 65536),
    (4000, 1040),
    (4000, 1032),
    (5461, 768),
)
PAGE = 4096


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=list(GRID), default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1, help="for each shape and direction")
    arguments = parser.parse_args()
    print(*describe(look_around([], arguments.threads)), sep="\n")
    for direction in DIRECTIONS:
        print(f"\n{direction}, {arguments.dtype}, out= so many bytes ahead of x and dy in its page")
        print(f"{'shape':12}{'µs':>10}" + "".join(f"{distance:8}" for distance in DISTANCES))
        for shape in SHAPES:
            calls = calls_by_distance(
                direction, shape, np.dtype(arguments.dtype), arguments.threads
            )
            times = take_turns(calls, arguments.seconds)
            free, *_ = seconds = [median(times[str(distance)]) for distance in DISTANCES]
            columns = "".join(f"{s / free:8.2f}" for s in seconds)
            rows, cols = shape
            print(f"{f'{rows:,}×{cols:,}':12}{microseconds(free):>10}{columns}", flush=True)


def calls_by_distance(direction, shape, dtype, threads):
    rng = np.random.default_rng(0)
    x, dy = (at_offset(shape, dtype, 0) for _ in range(2))
    x[:], dy[:] = (rng.standard_normal(shape, dtype) for _ in range(2))
    weight, bias = (rng.standard_normal(shape[1], dtype) for _ in range(2))
    if direction == "forward":
        call = partial(lnfast.layer_norm, x, shape[1], weight, bias, EPS)
    else:
        _, cache = lnfast.layer_norm_forward(x, shape[1], weight, bias, EPS)
        call = partial(lnfast.layer_norm_backward, dy, cache)
    room = np.empty(x.nbytes + 2 * PAGE, np.uint8)  # one for all: each call of a turn writes to it
    return {
        str(distance): partial(
            call, out=at_offset(shape, dtype, distance, room), num_threads=threads
        )
        for distance in DISTANCES
    }


def at_offset(shape, dtype, offset, room=None):
    """An array that begins so many bytes into a page."""
    size = int(np.prod(shape)) * dtype.itemsize
    if room is None:
        room = np.empty(size + 2 * PAGE, np.uint8)
    first = (offset - room.ctypes.data) % PAGE
    return room[first : first + size].view(dtype).reshape(shape)


if __name__ == "__main__":
    main()
