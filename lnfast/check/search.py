"""A search for inputs that come nearer to the bounds than the families do.

Many candidates stand side by side, rows for y and dx, columns for dweight and dbias. In each round
every one is changed a little, and the change stays where the error's share of its bound is no less
than before. The same seed finds the same on every machine, for the results have the same bits.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import lnfast
from lnfast.check import oracle
from lnfast.check.families import Array, draw

QUANTITIES = ("y", "dx", "dweight", "dbias")
CANDIDATES = 64
# Elements of a candidate: what one register holds, tails, a row that takes more than one tree.
SIZES = (2, 3, 5, 8, 17, 33, 64, 130)
STARTS = (
    *("normal", "offset 1e4", "offset 1e9", "massive first", "two-valued", "heavy tails"),
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

    def shares(self, quantity: str) -> Array:
        """The worst share in each row (of y, dx) or column (of dweight, dbias)."""
        x, weight, bias, dy, eps = self
        y, cache = lnfast.layer_norm_forward(x, x.shape[1], weight, bias, eps)
        if quantity == "y":
            return np.asarray(oracle.y_shares(y, x, weight, bias, eps).max(axis=1))
        mask = tuple(name == quantity for name in QUANTITIES[1:])
        gradients = lnfast.layer_norm_backward(dy, cache, output_mask=mask)
        for shares in oracle.gradient_shares(*gradients, dy, x, weight, eps):
            if shares is not None:
                return np.asarray(shares.max(axis=1) if quantity == "dx" else shares)
        raise AssertionError(quantity)


def search(dtype: str, quantity: str, rounds: int, seed: int = 0) -> Iterator[Found]:
    """What each start comes to after so many rounds: its worst candidate."""
    for number, start in enumerate(STARTS):
        for size in SIZES:
            yield climb(dtype, quantity, start, size, rounds, seed + number)


def climb(dtype: str, quantity: str, start: str, size: int, rounds: int, seed: int) -> Found:
    rng = np.random.default_rng([seed, size])
    by_row = quantity in ("y", "dx")
    shape = (CANDIDATES, size) if by_row else (size, CANDIDATES)
    eps = (1e-5, 1e-30)[seed % 2]
    problem = Problem(*draw(start, *shape, np.dtype(dtype).type), eps)
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
