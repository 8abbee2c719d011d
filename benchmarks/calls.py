"""What a whole call costs where there is hardly anything to compute, in nanoseconds.

    python benchmarks/calls.py [--dtype float32] [--seconds 5]

One row of 768 elements, and one of 8: the bare door. Outputs are allocated unless `out=` is
given. Every call comes from the same loop, whose own cost is in each number and stands below them.
"""

import argparse
from contextlib import ExitStack
from functools import partial
from statistics import median

import numpy as np

import lnfast
from lnfast.bench import prepare, present, take_turns
from lnfast.bench.cells import EPS, GRID, NORMS, Cell, make_operands
from lnfast.bench.command import parse_seconds
from lnfast.bench.peers import PEERS
from lnfast.machine import describe, look_around

COLS = (768, 8)
WIDTH = 40  # of the names
PYTORCH = PEERS["pytorch"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=list(GRID), default="float32")
    parser.add_argument("--seconds", type=parse_seconds, default=5, help="for each length of row")
    arguments = parser.parse_args()
    peers = present([PYTORCH])
    print(*describe(look_around(peers, 1)), sep="\n")
    columns = [measure(cols, arguments.dtype, peers, arguments.seconds) for cols in COLS]
    print(
        f"\n{f'nanoseconds a call, {arguments.dtype}':<{WIDTH}}"
        + "".join(f"{f'1×{c}':>9}" for c in COLS)
    )
    for name in columns[0]:
        print(f"{name:<{WIDTH}}" + "".join(f"{1e9 * column[name]:9,.0f}" for column in columns))


def measure(cols, dtype, peers, seconds):
    """Seconds of each call on one row, by name: the median over its blocks."""
    operands = make_operands(Cell(1, cols, dtype, "forward"))
    with ExitStack() as stack:
        calls = {**calls_of_lnfast(operands), **yardsticks(operands)}
        for peer in peers:
            stack.enter_context(peer.on_threads(1))
            for norm in NORMS:
                calls[f"{peer.name} functional.{norm}"] = prepare(peer, "forward", operands, norm)
        return {name: median(times) for name, times in take_turns(calls, seconds).items()}


def calls_of_lnfast(operands):
    x, dy, weight, bias = operands.x, operands.dy, operands.weight, operands.bias
    forward, rms = (x, weight.shape, weight, bias, EPS), (x, weight.shape, weight, EPS)
    _, cache = lnfast.layer_norm_forward(*forward)
    _, rms_cache = lnfast.rms_norm_forward(*rms)
    layer = lnfast.LayerNorm(weight.size, dtype=x.dtype)
    return {
        "layer_norm": partial(lnfast.layer_norm, *forward),
        "layer_norm, out=": partial(lnfast.layer_norm, *forward, out=np.empty_like(x)),
        "layer_norm, num_threads=1": partial(lnfast.layer_norm, *forward, num_threads=1),
        "layer_norm_forward": partial(lnfast.layer_norm_forward, *forward),
        "layer_norm_backward": partial(lnfast.layer_norm_backward, dy, cache),
        "rms_norm": partial(lnfast.rms_norm, *rms),
        "rms_norm_forward": partial(lnfast.rms_norm_forward, *rms),
        "rms_norm_backward": partial(lnfast.rms_norm_backward, dy, rms_cache),
        "LayerNorm: layer(x)": partial(layer, x),
        "LayerNorm: layer.forward(x)": partial(layer.forward, x),
        "LayerNorm: layer.backward(dy, cache)": partial(layer.backward, dy, layer.forward(x)[1]),
    }


def yardsticks(operands):
    """What no call that returns an array can do without, and the loop that makes the calls."""
    x = operands.x
    return {
        "np.add(x, x)": partial(np.add, x, x),
        "np.empty_like(x)": partial(np.empty_like, x),
        "len(()): the loop": partial(len, ()),
    }


if __name__ == "__main__":
    main()
