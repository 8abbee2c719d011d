"""Does layer norm help to find the other half? Retrieval with a margin ranking loss.

    python examples/retrieval.py --short
    python examples/retrieval.py --plot retrieval.png

The upper half of an image is to find its lower half among those of all test images. Two encoders,
one for each half, put them on the unit sphere; their cosine is the score. In training the other
halves in the batch are the wrong answers, and the right one must score higher than each of them
by a margin. For one seed the runs with and without layer norm start from the same weights and see
the same batches. The rate is the same for both and has been tuned for neither.

Recall@k is the share of upper halves whose lower half is among the k best, in percent; the mean
rank is 1 where all are found at once.
"""

from functools import partial
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

import images
import numpy as np
from experiment import draw, paired, parse, progress, shuffle, spread
from network import Adam, perceptron
from threadpoolctl import threadpool_limits

from lnfast import LayerNorm

VARIANTS = ("plain", "layer norm")
BATCH = 128
RATE = 1e-3  # of Adam
MARGIN = 0.2
HIDDEN = (128, 128)
OUTPUTS = 64
CANDIDATES = 1_000  # test images
POINTS = 20  # of a curve


class Point(NamedTuple):
    """Where a run has got to."""

    steps: int
    seconds: float  # of training alone
    loss: float  # mean over the batches since the point before
    recall_1: float  # percent, as the next two
    recall_5: float
    recall_10: float
    mean_rank: float


def build(variant, data, rng, *, hidden=HIDDEN, outputs=OUTPUTS, dtype=np.float32):
    """The encoders of upper and lower halves."""
    norm = {"plain": None, "layer norm": partial(LayerNorm, dtype=dtype)}[variant]
    return [
        perceptron(half.shape[1], hidden, outputs, rng, norm=norm, dtype=dtype)
        for half in halves(data)
    ]


def halves(x):
    """Upper and lower halves (count, pixels) of images (count, height, width)."""
    middle = x.shape[1] // 2
    return [half.reshape(len(x), -1) for half in (x[:, :middle], x[:, middle:])]


def to_sphere(x):
    """u = x / |x| for each row, and what `from_sphere` needs."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    length = np.maximum(length, np.finfo(x.dtype).tiny)
    return x / length, length


def from_sphere(du, u, length):
    """dx = (du − u (u · du)) / |x|."""
    return (du - u * (u * du).sum(axis=1, keepdims=True)) / length


def ranking_loss(scores, margin=MARGIN):
    """Hinge loss of scores (upper, lower), whose diagonal is right, and its gradient.

    Mean over all pairs i ≠ j of max(0, margin − s_ii + s_ij) + max(0, margin − s_jj + s_ij):
    a wrong lower half j for the upper half i, and a wrong upper half i for the lower half j.
    """
    right = np.diagonal(scores)
    pairs = scores.size - len(scores)
    loss, dscores = 0.0, np.zeros_like(scores)
    for axis, wanted in ((1, right[:, None]), (0, right[None, :])):
        hinge = margin - wanted + scores
        np.fill_diagonal(hinge, 0)
        violated = hinge > 0
        loss += hinge[violated].sum().item() / pairs
        dscores += violated
        dscores[np.diag_indices_from(dscores)] -= violated.sum(axis=axis)
    return loss, dscores / scores.dtype.type(pairs)


def differentiate(encoders, halves):
    """The loss of a batch; adds the gradients of all parameters into the encoders."""
    (upper, upper_caches), (lower, lower_caches) = (
        encoder.forward(half) for encoder, half in zip(encoders, halves, strict=True)
    )
    (u, u_length), (v, v_length) = to_sphere(upper), to_sphere(lower)
    loss, dscores = ranking_loss(u @ v.T)
    encoders[0].backward(from_sphere(dscores @ v, u, u_length), upper_caches)
    encoders[1].backward(from_sphere(dscores.T @ u, v, v_length), lower_caches)
    return loss


def rank(scores):
    """The rank of the right answer, on the diagonal, in each row: 1 is the best.

    Others of the same score come first, so that scores that are all alike, or NaN, find nothing.
    """
    worse = scores < np.diagonal(scores)[:, None]
    return scores.shape[1] - worse.sum(axis=1)


@threadpool_limits.wrap(limits=1)  # the arrays are small: threads would wait for each other
def train(encoders, data, order, rate):
    optimizer = Adam(encoders, rate)
    train_halves, test_halves = halves(data.train), halves(data.test[:CANDIDATES])
    points, steps, seconds = [], 0, 0.0
    for part in np.array_split(order, min(POINTS, len(order))):
        started = perf_counter()
        losses = []
        for chosen in part:
            optimizer.zero_grad()
            losses.append(differentiate(encoders, [half[chosen] for half in train_halves]))
            optimizer.step()
        seconds += perf_counter() - started
        steps += len(part)
        upper, lower = (
            to_sphere(encoder(half))[0] for encoder, half in zip(encoders, test_halves, strict=True)
        )
        ranks = rank(upper @ lower.T)
        recalls = [100 * (ranks <= k).mean().item() for k in (1, 5, 10)]
        points.append(Point(steps, seconds, fmean(losses), *recalls, ranks.mean().item()))
    return points


def compare(data, steps, seeds, rate=RATE):
    """{variant: the points of a run for each seed}"""
    runs = {variant: [] for variant in VARIANTS}
    for seed, variant in progress([(s, v) for s in seeds for v in VARIANTS], "runs"):
        encoders = build(variant, data.train, np.random.default_rng([seed, 0]))
        order = shuffle(len(data.train), steps, BATCH, np.random.default_rng([seed, 1]))
        runs[variant].append(train(encoders, data, order, rate))
    return runs


def print_table(runs):
    ends = {variant: [points[-1] for points in each] for variant, each in runs.items()}
    steps, seeds = ends["plain"][0].steps, len(ends["plain"])
    print(f"\nAfter {steps:,} steps, {seeds} seeds (± standard deviation):\n")
    head = "".join(f"{f'Recall@{k}, %':>17}" for k in (1, 5, 10))
    print(f"{'':12}{'seconds':>8}{head}{'mean rank':>17}")
    fields = ("recall_1", "recall_5", "recall_10", "mean_rank")
    columns = {
        variant: [[getattr(end, field) for end in each] for field in fields]
        for variant, each in ends.items()
    }
    for variant, each in columns.items():
        seconds = fmean(end.seconds for end in ends[variant])
        print(f"{variant:12}{seconds:8.2f}" + "".join(f"{spread(c, '.2f'):>17}" for c in each))
    differences = map(paired, columns["layer norm"], columns["plain"], ["+.2f"] * len(fields))
    print("\nlayer norm − plain, seed by seed, percentage points and ranks (± standard error):\n")
    print(f"{'':20}" + "".join(f"{difference:>17}" for difference in differences))


def print_reached(runs):
    """How soon each gets to the best Recall@10 that the plain encoders of its seed got to."""
    best = [max(point.recall_10 for point in points) for points in runs["plain"]]
    print("\nTo the best Recall@10 of the plain encoders of the same seed:\n")
    for variant, each in runs.items():
        reached = [
            next((point for point in points if point.recall_10 >= level), None)
            for points, level in zip(each, best, strict=True)
        ]
        there = [point for point in reached if point is not None]
        text = f"{variant:12}{len(there)} of {len(reached)} seeds"
        if there:
            steps = fmean(point.steps for point in there)
            seconds = fmean(point.seconds for point in there)
            text += f", after {steps:,.0f} steps, {seconds:.2f} seconds on average"
        print(text)


def panels(runs):
    """Recall@10 against steps and against seconds, which are the seeds' mean; training loss."""

    def column(points, field):
        return [getattr(point, field) for point in points]

    def curves(x, y):
        return {
            variant: (
                np.mean([column(points, x) for points in each], axis=0),
                [column(points, y) for points in each],
            )
            for variant, each in runs.items()
        }

    return {
        "by steps": ("steps", "Recall@10, %", curves("steps", "recall_10")),
        "by time": ("seconds of training", "Recall@10, %", curves("seconds", "recall_10")),
        "training": ("steps", "mean loss", curves("steps", "loss")),
    }


def main(arguments=None):
    options = parse(__doc__, steps=2000, seeds=5, short_steps=60, rate=RATE, arguments=arguments)
    data = images.load()
    print(data)
    runs = compare(data, options.steps, options.seeds, options.rate)
    print_table(runs)
    print_reached(runs)
    if options.plot:
        draw(options.plot, panels(runs), columns=3)


if __name__ == "__main__":
    main()
