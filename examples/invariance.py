"""What does the output of a normalised layer not change with? Table 1 of the layer norm paper.

    python examples/invariance.py
    python examples/invariance.py --plot invariance.png

Ba, Kiros, Hinton 2016, arXiv 1607.06450, section 5.1: six changes of the weights or of the data,
three norms. Each entry is computed: a layer norm(x @ weight) * gain + bias, with eps 0 in float64,
before and after the change, on random numbers. Its output either stays the same within what
rounding can do (the bound is computed along with it), or some element of it moves by about as
much as its own size. Anything between the two would be an error of the program or of the norm,
and ends it. The largest change is printed as evidence.
"""

import argparse
from typing import NamedTuple

import matplotlib
import numpy as np
from experiment import positive, progress
from network import BatchNorm

from lnfast import LayerNorm

CASES, INPUTS, NEURONS = 24, 16, 20
SCALE = 3.7  # no power of two, so that the change rounds
CLEAR = 0.1  # what has moved has moved by at least as much; outputs are of order one
EPSILON = np.finfo(np.float64).eps


class Layer(NamedTuple):
    """What a normalised layer computes its output from, in float64."""

    x: np.ndarray  # (CASES, INPUTS), the data set
    weight: np.ndarray  # (INPUTS, NEURONS), a column is a neuron's incoming weights
    gain: np.ndarray  # (NEURONS,)
    bias: np.ndarray  # (NEURONS,)


def batch_norm(layer):
    """Each neuron by its mean and deviation over the data set."""
    norm = BatchNorm(NEURONS, eps=0, dtype=np.float64)
    norm.weight, norm.bias = layer.gain, layer.bias
    summed = layer.x @ layer.weight
    return norm.forward(summed)[0], summed.std(axis=0)


def weight_norm(layer):
    """Each neuron by the length of its incoming weights."""
    length = np.linalg.norm(layer.weight, axis=0)
    return layer.x @ layer.weight / length * layer.gain + layer.bias, length


def layer_norm(layer):
    """Each case by its mean and deviation over the neurons."""
    norm = LayerNorm(NEURONS, eps=0, dtype=np.float64)
    norm.weight[:], norm.bias[:] = layer.gain, layer.bias
    summed = layer.x @ layer.weight
    return norm(summed), summed.std(axis=1)


# Each gives the output and the deviations (or lengths) that it has divided by.
NORMS = {
    "batch norm": batch_norm,
    "weight norm": weight_norm,
    "layer norm": layer_norm,
}


def scale_matrix(layer, rng):
    return layer._replace(weight=layer.weight * SCALE)


def centre_matrix(layer, rng):
    # W' = W + 1 γᵀ where a row is a neuron: the same vector for all neurons' incoming weights
    return layer._replace(weight=layer.weight + rng.standard_normal((INPUTS, 1)))


def scale_vector(layer, rng):
    weight = layer.weight.copy()
    weight[:, rng.integers(NEURONS)] *= SCALE
    return layer._replace(weight=weight)


def scale_data(layer, rng):
    return layer._replace(x=layer.x * SCALE)


def centre_data(layer, rng):
    return layer._replace(x=layer.x + rng.standard_normal(INPUTS))


def scale_case(layer, rng):
    x = layer.x.copy()
    x[rng.integers(CASES)] *= SCALE
    return layer._replace(x=x)


CHANGES = {
    "weight matrix re-scaled": scale_matrix,
    "weight matrix re-centred": centre_matrix,
    "weight vector re-scaled": scale_vector,
    "data set re-scaled": scale_data,
    "data set re-centred": centre_data,
    "one case re-scaled": scale_case,
}


def draw_layer(rng):
    x, weight = rng.standard_normal((CASES, INPUTS)), rng.standard_normal((INPUTS, NEURONS))
    return Layer(x, weight, rng.uniform(0.5, 1.5, NEURONS), rng.standard_normal(NEURONS))


def rounding(layer, output, deviations):
    """How far the computed output may be from that of exact arithmetic on unrounded arguments.

    To first order, with u = EPSILON / 2, A the largest of Σ |x| |weight| and m the number of
    elements of a mean. The change has rounded an element once and the sum of INPUTS products
    rounds INPUTS times: a is off by (INPUTS + 1) u A, a − mean by twice that and (m + 1) u A,
    the deviation, relatively, by as much over itself and (m / 2 + 3) u. xhat times the gain
    takes on both, and a few u of its own with the bias.
    """
    summed = (np.abs(layer.x) @ np.abs(layer.weight)).max()
    most = max(CASES, NEURONS)
    off = EPSILON * (INPUTS + 1 + (most + 1) / 2) * summed / deviations.min()
    gain, bias = np.abs(layer.gain).max(), np.abs(layer.bias).max()
    xhat = (np.abs(output).max() + bias) / np.abs(layer.gain).min()
    return gain * (off * (1 + xhat) + EPSILON * (most / 4 + 4) * xhat) + EPSILON * bias


class Entry(NamedTuple):
    invariant: bool
    difference: float  # the largest of all draws for a yes, the smallest for a no
    rounding: float  # the largest bound on what rounding can do, of all draws


def decide(normalize, change, seeds):
    """Whether the output stays, on each draw; an ArithmeticError where that is not clear."""
    stayed, moved, bounds = [], [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        before = draw_layer(rng)
        after = change(before, rng)
        (output, deviations), (changed, changed_deviations) = normalize(before), normalize(after)
        difference = np.abs(changed - output).max().item()
        bound = rounding(before, output, deviations) + rounding(after, changed, changed_deviations)
        bounds.append(bound.item())
        if difference <= bound:
            stayed.append(difference)
        elif difference >= CLEAR:
            moved.append(difference)
        else:
            raise ArithmeticError(f"{difference:.1e} is neither rounding ({bound:.1e}) nor clear")
    if stayed and moved:
        raise ArithmeticError(f"stays in {len(stayed)} draws, moves in {len(moved)}")
    return Entry(bool(stayed), max(stayed) if stayed else min(moved), max(bounds))


def decide_all(seeds):
    """{(norm, change): Entry}"""
    pairs = [(norm, change) for norm in NORMS for change in CHANGES]
    return {
        (norm, change): decide(NORMS[norm], CHANGES[change], seeds)
        for norm, change in progress(pairs, "entries")
    }


def print_table(entries, number):
    bound = max(entry.rounding for entry in entries.values())
    print(f"Does the output stay? {number} draws of weights and data. Beside a yes, the largest")
    print(f"change of an element in any draw (rounding alone: up to {bound:.0e}); beside a no, the")
    print("largest in the draw that changed least.\n")
    for words in zip(*(change.rsplit(" ", 1) for change in CHANGES), strict=True):
        print(f"{'':12}" + "".join(f"{word:>15}" for word in words))
    for norm in NORMS:
        print(f"{norm:12}", end="")
        for change in CHANGES:
            entry = entries[norm, change]
            print(f"{'yes' if entry.invariant else 'no':>6}{entry.difference:9.1e}", end="")
        print()


def draw_table(path, entries):
    """Save the table as a picture: a yes is dark."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(9, 3.2), layout="constrained")
    invariant = [[entries[norm, change].invariant for change in CHANGES] for norm in NORMS]
    axis.imshow(invariant, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    for row, norm in enumerate(NORMS):
        for column, change in enumerate(CHANGES):
            entry = entries[norm, change]
            text = f"{'yes' if entry.invariant else 'no'}\n{entry.difference:.0e}"
            colour = "white" if entry.invariant else "black"
            axis.text(column, row, text, ha="center", va="center", color=colour)
    axis.set_xticks(range(len(CHANGES)), [change.replace(" re-", "\nre-") for change in CHANGES])
    axis.set_yticks(range(len(NORMS)), NORMS)
    axis.set_title("Does the output stay? Below, the largest change of an element")
    axis.tick_params(length=0)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"drawn: {path}")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=positive, help="how many draws (default 100)")
    parser.add_argument("--short", action="store_true", help="2 draws, to see that it runs")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the table")
    options = parser.parse_args(arguments)
    number = options.seeds or (2 if options.short else 100)
    entries = decide_all(range(options.seed, options.seed + number))
    print_table(entries, number)
    if options.plot:
        draw_table(options.plot, entries)


if __name__ == "__main__":
    main()
