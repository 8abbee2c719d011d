"""Rows that lie otherwise, for tests of what promises the bits of a plain array."""

from itertools import product

import numpy as np

DTYPES = [np.float32, np.float64]


def numbers(shape, dtype, seed=0, offset=0.0):
    return (np.random.default_rng(seed).standard_normal(shape) + offset).astype(dtype)


def rows_last(x, axes):
    """A contiguous copy with the normalised axes last, and their lengths."""
    axes = (axes,) if isinstance(axes, int) else axes
    axes = sorted(axis % x.ndim for axis in axes)
    leads = [axis for axis in range(x.ndim) if axis not in axes]
    return np.ascontiguousarray(x.transpose(*leads, *axes)), tuple(x.shape[i] for i in axes)


def assert_same_bits(got, wanted, what=""):
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), what
    assert got.tobytes() == wanted.tobytes(), what


def assert_all_same_bits(got, wanted, what=""):
    for a, b in zip(got, wanted, strict=True):
        assert_same_bits(a, b, what)


LAYOUTS = {
    "contiguous": lambda a: a,
    "fortran": np.asfortranarray,
    "reversed": lambda a: np.ascontiguousarray(a[::-1, ..., ::-1])[::-1, ..., ::-1],
    "every second": lambda a: np.repeat(np.repeat(a, 2, axis=0), 2, axis=-1)[::2, ..., ::2],
    "swapped": lambda a: np.ascontiguousarray(a.swapaxes(0, -1)).swapaxes(0, -1),
}
PAIRS = list(product(LAYOUTS, LAYOUTS))
