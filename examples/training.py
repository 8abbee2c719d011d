"""Variants of a character network, trained side by side: the same batches, in turns.

A network has `forward(characters)`, which returns scores and what `backward(dscores, cache)`
needs, and `layers`, whose parameters are learnt. Seconds are those of training alone (forward,
backward, clipping, Adam); as the variants take turns at every step, what else the machine does
meets them all. All is done on one thread: the arrays are small, and threads of BLAS and of OpenMP
that wait for work take each other's time.
"""

from time import perf_counter
from typing import NamedTuple

import numpy as np
from experiment import draw, paired, progress, spread
from network import Adam, clip_gradients, cross_entropy
from threadpoolctl import threadpool_limits

TESTS = 20  # times that a run stops to be tested, if that leaves it STRETCH steps between
STRETCH = 5
WINDOWS = 128  # of the test text


class Curve(NamedTuple):
    """One run. Arrays with an element for each time it was tested."""

    steps: np.ndarray
    seconds: np.ndarray
    train: np.ndarray  # mean loss of the batches since the time before
    test: np.ndarray


@threadpool_limits.wrap(limits=1)
def train(networks, text, size, length, seed, steps, rate, largest):
    """Train all of {name: network}; {name: Curve}.

    Batches are (size, length) characters, the gradients are clipped at the norm `largest`.
    """
    optimizers = {name: Adam(network.layers, rate) for name, network in networks.items()}
    seconds = dict.fromkeys(networks, 0.0)
    losses = {name: [] for name in networks}
    points = {name: [] for name in networks}
    batches = text.batches(seed, size, length)
    count = max(1, min(TESTS, steps // STRETCH))
    tests = set(np.linspace(0, steps, count + 1).astype(int)[1:].tolist())
    for step in progress(range(1, steps + 1), f"seed {seed}"):
        characters, labels = next(batches)
        for name, network in networks.items():
            start = perf_counter()
            losses[name].append(learn(network, optimizers[name], characters, labels, largest))
            seconds[name] += perf_counter() - start
        if step in tests:
            for name, network in networks.items():
                test = evaluate(network, *text.test_windows(WINDOWS, length))
                points[name].append((step, seconds[name], np.mean(losses[name]), test))
                losses[name].clear()
    return {name: Curve(*np.array(points[name]).T) for name in networks}


def learn(network, optimizer, characters, labels, largest):
    """One step; the loss before it."""
    optimizer.zero_grad()
    scores, cache = network.forward(characters)
    loss, dscores = cross_entropy(scores, labels)
    network.backward(dscores, cache)
    clip_gradients(network.layers, largest)
    optimizer.step()
    return loss


def evaluate(network, characters, labels):
    scores, _ = network.forward(characters)
    return cross_entropy(scores, labels)[0]


def equal_seconds(runs):
    """For each seed the seconds that the variant that was done first took for its whole run."""
    return [min(c.seconds[-1] for c in curves) for curves in zip(*runs.values(), strict=True)]


def print_losses(runs):
    """Test losses of {name: [Curve of each seed]}, at equal steps and at equal seconds.

    At equal seconds the losses of the slower variants are interpolated between the tests before
    and after.
    """
    first, seconds = next(iter(runs)), equal_seconds(runs)
    by_steps = {name: [c.test[-1] for c in curves] for name, curves in runs.items()}
    by_seconds = {
        name: [np.interp(s, c.seconds, c.test) for s, c in zip(seconds, curves, strict=True)]
        for name, curves in runs.items()
    }
    steps = f"in {runs[first][0].steps[-1]:.0f} steps"
    time = f"in {spread(seconds, '.1f')} s"
    minus = f"minus {first}"
    print(
        "Test loss in nats a character and ms a step: mean ± standard deviation over the seeds;\n"
        f"{minus}: mean ± standard error of the difference from it, seed by seed.\n"
    )
    print_row("", steps, minus, time, minus, "ms a step")
    for name, curves in runs.items():
        cells = []
        for losses in (by_steps, by_seconds):
            cells.append(spread(losses[name]))
            cells.append("" if name == first else paired(losses[name], losses[first]))
        cells.append(spread([1e3 * c.seconds[-1] / c.steps[-1] for c in curves], ".1f"))
        print_row(name, *cells)
    print(f"\nTest loss {steps}, of each seed:\n")
    for name, losses in by_steps.items():
        print(f"{name:12}" + "".join(f"{loss:9.3f}" for loss in losses))


def print_row(name, *cells):
    print(f"{name:12}" + "".join(f"{cell:>18}" for cell in cells))


def draw_losses(path, runs, more=None):
    """Loss of training and test against steps and against seconds, and `more` panels."""
    panels = {}
    for part, title in (("train", "Training loss"), ("test", "Test loss")):
        by_steps, by_seconds = {}, {}
        for name, curves in runs.items():
            losses = [getattr(curve, part) for curve in curves]
            by_steps[name] = curves[0].steps, losses
            # each seed has its own seconds: all are read off at the same ones
            first = max(curve.seconds[0] for curve in curves)
            last = min(curve.seconds[-1] for curve in curves)
            seconds = np.linspace(first, last, 10 * TESTS)
            read = [
                np.interp(seconds, curve.seconds, loss)
                for curve, loss in zip(curves, losses, strict=True)
            ]
            by_seconds[name] = seconds, read
        panels[f"{title} against steps"] = "steps", "nats a character", by_steps
        panels[f"{title} against time"] = "seconds of training", "nats a character", by_seconds
    draw(path, panels | (more or {}), styles=("-", "-", "--"))  # some curves lie on one another
