"""float64's a · b + c is rounded once where the processor has no instruction for it as well."""

import ctypes
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from runs import shared_library

HERE = Path(__file__).parent
LANES = 8  # of the widest register: any count of them is whole


@pytest.fixture(scope="module")
def multiply_add(tmp_path_factory):
    library = ctypes.CDLL(
        str(
            shared_library(
                HERE / "multiply_add.c",
                tmp_path_factory.mktemp("library"),
                *(f"-I{HERE.parent / 'src'}", "-std=gnu11", "-ffp-contract=off", "-lm"),
            )
        )
    )

    def call(a, b, c):
        a, b, c = (np.resize(v, -(-len(a) // LANES) * LANES) for v in (a, b, c))
        result = np.full_like(a, np.nan)
        pointers = (ctypes.c_void_p(v.ctypes.data) for v in (a, b, c, result))
        library.multiply_adds(ctypes.c_long(len(a)), *pointers)
        return result

    return call


def exact(a, b, c):
    """Rounded once; beyond the largest number infinite, and 0 with the sign that addition has."""
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        return a * b + c if a == 0 or b == 0 else 0.0
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf


def assert_exact(found, a, b, c):
    expected = np.array([exact(*v) for v in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])
    assert found[: len(a)].tobytes() == expected.tobytes()


def mixed(rng, size, powers):
    return rng.standard_normal(size) * 2.0 ** rng.integers(-powers, powers + 1, size)


@pytest.mark.parametrize("powers", [0, 3, 60, 500])
def test_numbers_of_every_size(multiply_add, powers):
    a, b, c = (mixed(np.random.default_rng(k), 4000, powers) for k in range(3))
    assert_exact(multiply_add(a, b, c), a, b, c)


@pytest.mark.parametrize("shift", [53, 54, 106, 107])
def test_a_sum_half_way_but_for_what_the_product_lacks(multiply_add, shift):
    """a · b is near a power of two that ends half a last place below c: its error decides."""
    rng = np.random.default_rng(shift)
    c = (1 + rng.integers(0, 2**20, 4000) * 2.0**-52) * rng.choice([-1, 1], 4000)
    a = rng.uniform(1, 2, 4000)
    b = 2.0**-shift / a * rng.choice([-1, 1], 4000)
    assert_exact(multiply_add(a, b, c), a, b, c)


def test_a_product_that_cancels(multiply_add):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4000))
    c = -(a * b) * (1 + 2.0**-52 * rng.integers(-1, 2, 4000))
    assert_exact(multiply_add(a, b, c), a, b, c)


def test_the_ends_of_the_range(multiply_add):
    ends = [0.0, -0.0, 5e-324, -1e-310, 2.0**-1022, 1e-200, 1.0, -3.0, 1e200, 2.0**900, -1.7e308]
    a, b, c = (v.ravel() for v in np.meshgrid(ends, ends, ends))
    assert_exact(multiply_add(a, b, c), a, b, c)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(multiply_add, value):
    others = np.array([0.0, 1.0, -2.5, np.inf, np.nan])
    x, y = (v.ravel() for v in np.meshgrid(others, others))
    z = np.full_like(x, value)
    for a, b, c in ((x, y, z), (x, z, y), (z, x, y)):
        with np.errstate(invalid="ignore"):
            expected = a * b + c  # exact where it is finite
        np.testing.assert_array_equal(multiply_add(a, b, c)[: len(a)], expected)
