"""What the training programs share: their options, seeds, progress, spreads and curves.

Runs are paired: for one seed every variant starts from the same weights and sees the same
batches in the same order, so that a difference is the variant's.
"""

import argparse
from itertools import cycle
from math import sqrt
from statistics import fmean, stdev

import matplotlib
import numpy as np
from tqdm import tqdm


def parse(description, *, steps, seeds, short_steps, short_seeds=2, rate=None, arguments=None):
    """The options that every program has, and a rate where it has one; the short form is for CI."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=positive, help=f"how many (default {seeds})")
    parser.add_argument("--steps", type=positive, help=f"steps of a run (default {steps})")
    if rate is not None:
        parser.add_argument("--rate", type=float, default=rate, help=f"default {rate}")
    parser.add_argument("--short", action="store_true", help="few steps, to see that it runs")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the curves")
    options = parser.parse_args(arguments)
    options.steps = options.steps or (short_steps if options.short else steps)
    number = options.seeds or (short_seeds if options.short else seeds)
    options.seeds = range(options.seed, options.seed + number)
    return options


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def progress(items, what):
    """The items, with a bar on a terminal."""
    return tqdm(items, desc=what, leave=False, dynamic_ncols=True, disable=None)


def shuffle(count, steps, batch, rng):
    """Which of `count` examples each step sees, (steps, batch): all once, then all once more, ...

    What is left of a round and fills no batch is left out, so that no batch has one twice.
    """
    each = count // batch
    rounds = [rng.permutation(count)[: each * batch] for _ in range(-(-steps // each))]
    return np.concatenate(rounds).reshape(-1, batch)[:steps]


def spread(values, form=".3f"):
    """Mean ± standard deviation over the seeds, as text."""
    deviation = stdev(values) if len(values) > 1 else float("nan")
    return f"{fmean(values):{form}} ± {deviation:{form}}"


def paired(values, others, form="+.3f"):
    """Mean of values − others, seed by seed, ± the standard error of that mean, as text."""
    differences = [value - other for value, other in zip(values, others, strict=True)]
    error = stdev(differences) / sqrt(len(differences)) if len(differences) > 1 else float("nan")
    return f"{fmean(differences):{form}} ± {error:{form.lstrip('+')}}"


def draw(path, panels, *, columns=2, sharey=False, styles=("-",)):
    """Save a picture of `panels`: {title: (x label, y label, {name: (x, runs)})}.

    `runs` has a row for each seed; a line is their mean, its shade one standard deviation.
    `sharey="row"` gives the panels of a row the same scale. `styles` of the lines take turns.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(panels) // columns)
    width = min(columns, len(panels))
    figure, axes = pyplot.subplots(
        rows,
        width,
        figsize=(5.5 * width, 3.8 * rows),
        sharey=sharey,
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, (title, (x_label, y_label, curves)) in zip(axes.flat, panels.items(), strict=False):
        for (name, (x, runs)), style in zip(curves.items(), cycle(styles), strict=False):
            mean = np.mean(runs, axis=0)
            deviation = np.std(runs, axis=0, ddof=min(1, len(runs) - 1))
            (line,) = axis.plot(x, mean, style, label=name)
            axis.fill_between(
                x, mean - deviation, mean + deviation, color=line.get_color(), alpha=0.2, lw=0
            )
        axis.set(title=title, xlabel=x_label, ylabel=y_label)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"drawn: {path}")
