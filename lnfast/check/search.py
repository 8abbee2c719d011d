"""A search for inputs that come nearer to the bounds than the families do.

Many candidates stand side by side, rows for y and dx, columns for dweight and dbias. In each round
every one is changed a little, and the change stays where the error's share of its bound is no less
than before. The same seed finds the same on every machine, for the results have the same bits.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lnfast.check import bounds, oracle
from lnfast.check.families import Array, draw

QUANTITIES = ("y", "dx", "dweight", "dbias")
CANDIDATES = 64
# Elements of a candidate: what one register holds, tails, a row that takes more than one tree.
SIZES = (2, 3, 5, 8, 17, 33, 64, 130)
STARTS = (
    *("normal", "offset 1e4", "offset 1e9", "massive first", "two-valued", "leaning"),
    "heavy tails",
    "past the squares",  # goes the exact way
)
CLIMBS = len(STARTS) * len(SIZES)


class Found(NamedTuple):
    share: float  # of the bound
    start: str
    size: int
    eps: float


class Problem(NamedTuple):
    x: Array
    weight: Array
    bias: Array
    dy: Array
    eps: float
    norm: str = "layer_norm"

    def shares(self, quantity: str) -> Array:
        """The worst share in each row (of y, dx) or column (of dweight, dbias)."""
        x, weight, bias, dy, eps, norm = self
        centred = norm == "layer_norm"
        if quantity == "y":
            y = bounds.results(x, weight, bias, None, eps, norm)[0]
            assert y is not None
            shares = oracle.y_shares(y, x, weight, bias if centred else None, eps, centred)
            return np.asarray(shares.max(axis=1))
        wanted = tuple(name == quantity for name in QUANTITIES[1:])
        _, dx, dweight, dbias = bounds.results(x, weight, bias, dy, eps, norm, wanted)
        for found in oracle.gradient_shares(dx, dweight, dbias, dy, x, weight, eps, centred):
            if found is not None:
                return np.asarray(found.max(axis=1) if quantity == "dx" else found)
        raise AssertionError(quantity)


def search(
    dtype: str, quantity: str, rounds: int, seed: int = 0, norm: str = "layer_norm"
) -> Iterator[Found]:
    """What each start comes to after so many rounds: its worst candidate."""
    for number, start in enumerate(STARTS):
        for size in SIZES:
            yield climb(dtype, quantity, start, size, rounds, seed + number, norm)


def climb(
    dtype: str,
    quantity: str,
    start: str,
    size: int,
    rounds: int,
    seed: int,
    norm: str = "layer_norm",
) -> Found:
    rng = np.random.default_rng([seed, size])
    by_row = quantity in ("y", "dx")
    shape = (CANDIDATES, size) if by_row else (size, CANDIDATES)
    eps = (1e-5, 1e-30)[seed % 2]
    problem = Problem(*draw(start, *shape, np.dtype(dtype).type), eps, norm)
    shares = problem.shares(quantity)
    for _ in range(rounds):
        # A change of x would change all columns of its row: there dy alone is changed.
        changed = problem._replace(
            x=mutate(rng, problem.x) if by_row else problem.x,
            dy=problem.dy if quantity == "y" else mutate(rng, problem.dy),
        )
        now = changed.shares(quantity)
        better = now >= shares
        keep = better[:, None] if by_row else better
        problem = problem._replace(
            x=np.where(keep, changed.x, problem.x), dy=np.where(keep, changed.dy, problem.dy)
        )
        shares = np.where(better, now, shares)
    return Found(float(np.max(shares)), start, size, eps)


def mutate(rng: np.random.Generator, a: Array) -> Array:
    """One element in ten changed: by some last places, a power of two, a factor; or another's."""
    epsilon = np.finfo(a.dtype).eps
    factors = np.stack(
        [
            1 + epsilon * rng.integers(-4, 5, a.shape),
            2.0 ** rng.integers(-2, 3, a.shape),
            rng.standard_normal(a.shape),
        ]
    )
    changed = a * np.take_along_axis(factors, rng.integers(0, 3, (1, *a.shape)), 0)[0]
    other = rng.permuted(rng.permuted(a, axis=0), axis=1)
    changed = np.where(rng.random(a.shape) < 0.25, other, changed)
    touched = rng.random(a.shape) < 0.1
    return np.asarray(np.where(touched, changed, a)).astype(a.dtype)
