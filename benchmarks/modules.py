"""What `lnfast.integrations.torch.swap_layer_norms` does to the time of a PyTorch module.

    pip install '.[torch]'
    python benchmarks/modules.py [--repeat 15]

torch.nn.LayerNorm in float32, as it is and swapped, in turns: in inference mode, and forward with
backward. A ratio is the median over the turns of the time before over the time after: above 1,
lnfast is faster. An operator written in Python costs PyTorch some 15 µs a call.
"""

import argparse
from copy import deepcopy
from statistics import median
from time import perf_counter

import torch
from clients import positive

from lnfast.bench import ratio
from lnfast.integrations.torch import swap_layer_norms

SHAPES = (1, 768), (128, 768), (1024, 768), (4096, 64), (8192, 768), (8192, 4096)
BLOCK = 4_000_000  # elements that a block of calls works on, if that is not too many calls
CALLS = 2_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=positive, default=15, help="turns (default 15)")
    repeat = parser.parse_args().repeat
    print(f"{'µs':10}{'inference':>12}{'swapped':>10}{'ratio':>8}", end="")
    print(f"{'and backward':>15}{'swapped':>10}{'ratio':>8}")
    for rows, cols in SHAPES:
        module = torch.nn.LayerNorm(cols)
        swapped = deepcopy(module)
        swap_layer_norms(swapped)
        x, dy = torch.randn(2, rows, cols)
        print(f"{f'{rows}×{cols}':10}", end="", flush=True)
        for run, width in ((infer, 12), (learn, 15)):
            before, after = take_turns(run, (module, swapped), x, dy, repeat)
            cells = median(before) * 1e6, median(after) * 1e6, ratio(before, after)
            print("{:{}.1f}{:10.1f}{:8.2f}".format(cells[0], width, *cells[1:]), end="", flush=True)
        print()


def infer(module, x, dy):
    with torch.inference_mode():
        module(x)


def learn(module, x, dy):
    module.zero_grad()
    module(x.detach().requires_grad_()).backward(dy)


def take_turns(run, modules, x, dy, repeat):
    """Seconds of a call, for each module and turn."""
    calls = max(1, min(CALLS, BLOCK // x.numel()))
    seconds = [[] for _ in modules]
    for turn in range(repeat):
        for number in range(len(modules)) if turn % 2 == 0 else reversed(range(len(modules))):
            start = perf_counter()
            for _ in range(calls):
                run(modules[number], x, dy)
            seconds[number].append((perf_counter() - start) / calls)
    return seconds


if __name__ == "__main__":
    main()
