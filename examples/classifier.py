"""How far does the batch size move a classifier's curve? Plain, with layer norm, with batch norm.

    python examples/classifier.py --short
    python examples/classifier.py --plot classifier.png

A multilayer perceptron learns to tell images of 10 classes, in batches of 128 and of 4. Batch
norm takes its statistics from the batch, and those of 4 images are rough; layer norm takes them
from the one image. For one seed all six runs start from the same weights and see the same images
in the same order, so that batches of 4 are the batches of 128 cut in pieces: as many examples,
32 times as many steps. `--steps` counts those of 128.

The rate. Adam's step is of the rate's size however large the gradient, so the noise of n steps
adds up to rate · √n. The rate for batches of 4 is therefore that for 128 times √(4 / 128): over
the same examples the noise is the same. It is constant, and the same with and without a norm;
nothing has been tuned for any of them. Batch norm's running statistics, too, forget over the same
number of examples.
"""

from functools import partial
from math import sqrt
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

import images
import numpy as np
from experiment import draw, paired, parse, progress, shuffle, spread
from network import Adam, BatchNorm, cross_entropy, perceptron
from threadpoolctl import threadpool_limits

from lnfast import LayerNorm

VARIANTS = ("plain", "layer norm", "batch norm")
BATCHES = LARGE, SMALL = 128, 4
RATE = 1e-3  # of Adam, for batches of 128
KEPT = 0.9  # of batch norm's running statistics, after 128 examples
HIDDEN = (128, 128)
CLASSES = 10
POINTS = 20  # of a curve


class Run(NamedTuple):
    """One training run: curves over its points, and the time that its steps took."""

    examples: list  # seen so far
    accuracy: list  # of all test images, percent
    loss: list  # mean over the batches since the point before
    seconds: float  # training only


def build(variant, inputs, batch, rng, *, hidden=HIDDEN, dtype=np.float32):
    """The network of a variant, for batches of `batch`."""
    norm = {
        "plain": None,
        "layer norm": partial(LayerNorm, dtype=dtype),
        "batch norm": partial(BatchNorm, momentum=1 - KEPT ** (batch / LARGE), dtype=dtype),
    }[variant]
    return perceptron(inputs, hidden, CLASSES, rng, norm=norm, dtype=dtype)


@threadpool_limits.wrap(limits=1)  # the arrays are small: threads would wait for each other
def train(network, data, order, batch, rate):
    optimizer = Adam([network], rate * sqrt(batch / LARGE))
    x, test = (part.reshape(len(part), -1) for part in (data.train, data.test))
    examples, accuracy, loss, seconds = [], [], [], 0.0
    for part in np.array_split(order, min(POINTS, len(order))):
        started = perf_counter()
        losses = []
        for chosen in part.reshape(-1, batch):
            scores, caches = network.forward(x[chosen])
            batch_loss, dscores = cross_entropy(scores, data.train_labels[chosen])
            optimizer.zero_grad()
            network.backward(dscores, caches)
            optimizer.step()
            losses.append(batch_loss)
        seconds += perf_counter() - started
        right = network(test).argmax(axis=1) == data.test_labels
        examples.append(part.size + (examples[-1] if examples else 0))
        accuracy.append(100 * right.mean().item())
        loss.append(fmean(losses))
    return Run(examples, accuracy, loss, seconds)


def compare(data, steps, seeds, rate=RATE):
    """{(variant, batch): a run for each seed}"""
    runs = {(variant, batch): [] for variant in VARIANTS for batch in BATCHES}
    inputs = data.train[0].size
    for seed, (variant, batch) in progress([(s, key) for s in seeds for key in runs], "runs"):
        network = build(variant, inputs, batch, np.random.default_rng([seed, 0]))
        order = shuffle(len(data.train), steps, LARGE, np.random.default_rng([seed, 1]))
        runs[variant, batch].append(train(network, data, order, batch, rate))
    return runs


def distance(run, other):
    """How far two curves of test accuracy lie apart: mean over their points, percentage points."""
    return np.abs(np.subtract(run.accuracy, other.accuracy)).mean().item()


def print_table(runs, steps):
    seeds = len(runs["plain", LARGE])
    print(f"\nAfter {steps * LARGE:,} examples, {seeds} seeds (± standard deviation):\n")
    print(f"{'':12}{'batch':>6}{'steps':>8}{'seconds':>9}{'test accuracy, %':>19}")
    for (variant, batch), each in runs.items():
        seconds = fmean(run.seconds for run in each)
        accuracy = spread([run.accuracy[-1] for run in each], ".2f")
        print(f"{variant:12}{batch:6}{steps * LARGE // batch:8,}{seconds:9.2f}{accuracy:>19}")

    print("\nDifferences, seed by seed, percentage points (± standard error of the mean):\n")
    print(f"{'':12}{'4 − 128, at the end':>22}{'over the curve':>18}", end="")
    print("".join(f"{f'− plain, at {batch}':>18}" for batch in BATCHES))
    ends = {key: [run.accuracy[-1] for run in each] for key, each in runs.items()}
    for variant in VARIANTS:
        apart = list(map(distance, runs[variant, SMALL], runs[variant, LARGE]))
        moved = paired(ends[variant, SMALL], ends[variant, LARGE], "+.2f")
        row = f"{variant:12}{moved:>22}{paired(apart, [0] * seeds, '.2f'):>18}"
        if variant != "plain":
            for batch in BATCHES:
                row += f"{paired(ends[variant, batch], ends['plain', batch], '+.2f'):>18}"
        print(row)


def panels(runs):
    """Test error above, training loss below; a panel for each variant, a curve for each batch."""

    def curves(variant, values):
        return {
            f"batches of {batch}": (
                runs[variant, batch][0].examples,
                [values(run) for run in runs[variant, batch]],
            )
            for batch in BATCHES
        }

    seen = "examples seen"
    errors = {
        variant: (
            seen,
            "test error, %",
            curves(variant, lambda run: np.subtract(100, run.accuracy)),
        )
        for variant in VARIANTS
    }
    losses = {
        f"{variant}, training": (seen, "mean loss", curves(variant, lambda run: run.loss))
        for variant in VARIANTS
    }
    return errors | losses


def main(arguments=None):
    options = parse(__doc__, steps=400, seeds=5, short_steps=10, rate=RATE, arguments=arguments)
    data = images.load()
    print(data)
    runs = compare(data, options.steps, options.seeds, options.rate)
    print_table(runs, options.steps)
    if options.plot:
        draw(options.plot, panels(runs), columns=len(VARIANTS), sharey="row")


if __name__ == "__main__":
    main()
