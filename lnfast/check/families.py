"""Rows that layer norm goes wrong on elsewhere, by what makes them hard.

A family is a function of (rows, cols, dtype) to x, in float64 or in the dtype itself, which rounds
it. The numbers are the same on every machine and at every call.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Dtype = type[np.floating[Any]]
Family = Callable[[int, int, Dtype], Array]


def noise(rows: int, cols: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, cols))


def offset(by: float) -> Family:
    return lambda rows, cols, dtype: noise(rows, cols) + by


def massive(place: float) -> Family:
    """One activation of 10,000, at this part of the row."""

    def family(rows: int, cols: int, dtype: Dtype) -> Array:
        x = noise(rows, cols)
        x[:, int(place * (cols - 1))] = 1e4
        return x

    return family


def scaled_to(fraction: float) -> Family:
    """The largest magnitude is that fraction of the largest finite number."""

    def family(rows: int, cols: int, dtype: Dtype) -> Array:
        x = noise(rows, cols)
        x /= abs(x).max()
        return np.asarray(x * float(np.finfo(dtype).max) * fraction)

    return family


def times_smallest(factor: float) -> Family:
    return lambda rows, cols, dtype: (
        noise(rows, cols) * float(np.finfo(dtype).smallest_normal) * factor
    )


def two_valued(rows: int, cols: int, dtype: Dtype) -> Array:
    rng = np.random.default_rng(1)
    a, b = rng.random((2, rows, 1))
    return np.asarray(np.where(rng.random((rows, cols)) < 0.3, a, -b))


def leaning(rows: int, cols: int, dtype: Dtype) -> Array:
    """Two values, whose mean is a quarter of σ: the most that a float64 row summed as it is has."""
    rng = np.random.default_rng(7)
    signs = np.where(rng.random((rows, cols)).argsort(axis=1) < 0.62 * cols, 1, -1)
    return np.asarray(signs * (1 + 1e-6 * rng.random((rows, cols))))


def last_integers(rows: int, cols: int, dtype: Dtype) -> Array:
    """Consecutive numbers where the dtype's step is 2."""
    step = 2.0 / float(np.finfo(dtype).eps)
    return np.asarray(step + 2 * np.random.default_rng(2).integers(0, 4, (rows, cols)))


def one_bit_apart(rows: int, cols: int, dtype: Dtype) -> Array:
    x = np.full((rows, cols), 1.1, dtype)
    x[:, cols // 2] = np.nextafter(x[:, cols // 2], dtype(2))
    return x


FAMILIES: dict[str, Family] = {
    "normal": offset(0),
    "offset 1e2": offset(1e2),
    "offset 1e4": offset(1e4),
    "offset 1e6": offset(1e6),
    "offset 1e9": offset(1e9),
    "offset 1e12": offset(1e12),
    "massive first": massive(0),
    "massive middle": massive(0.5),
    "massive last": massive(1),
    "uniform": lambda rows, cols, dtype: np.random.default_rng(3).random((rows, cols)),
    "heavy tails": lambda rows, cols, dtype: np.exp(8 * noise(rows, cols)),
    "sorted": lambda rows, cols, dtype: np.sort(noise(rows, cols), axis=1),
    "alternating": lambda rows, cols, dtype: noise(rows, 1) * (-1.0) ** np.arange(cols) + 0.1,
    "two-valued": two_valued,
    "leaning": leaning,
    "last integers": last_integers,
    "one bit apart": one_bit_apart,
    "constant": lambda rows, cols, dtype: np.full((rows, cols), 1234.56),
    "huge constant": lambda rows, cols, dtype: np.full((rows, cols), float(np.finfo(dtype).max)),
    "zeros": lambda rows, cols, dtype: np.zeros((rows, cols)),
    "to the largest": scaled_to(1),
    "past the squares": scaled_to(1e-10),
    "small": lambda rows, cols, dtype: (
        noise(rows, cols) * float(np.finfo(dtype).smallest_normal) ** 0.5
    ),
    "tiny": times_smallest(100),
    "subnormal": times_smallest(1e-3),
}


def draw(name: str, rows: int, cols: int, dtype: Dtype) -> tuple[Array, Array, Array, Array]:
    """x, weight, bias, dy of a family, as the dtype rounds them."""
    with np.errstate(over="ignore"):
        x = np.asarray(FAMILIES[name](rows, cols, dtype)).astype(dtype)
    weight = 1 + 0.5 * noise(1, cols, seed=4)[0]
    bias = noise(1, cols, seed=5)[0]
    return x, weight.astype(dtype), bias.astype(dtype), noise(rows, cols, seed=6).astype(dtype)
