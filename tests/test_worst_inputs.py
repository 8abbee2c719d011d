"""The bounds on inputs that nobody has thought of: hypothesis looks for worse than the families.

LNFAST_SEARCH=100 pytest tests/test_worst_inputs.py tries a hundred times as many.
"""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings, target
from hypothesis import strategies as st

from lnfast.check import bounds, search
from lnfast.check.families import FAMILIES, draw

FACTOR = int(os.environ.get("LNFAST_SEARCH", "1"))
DTYPES = {"float32": np.float32, "float64": np.float64}
# Whole registers, one less and one more; a step of 64 that ends half way; a chunk and a bit.
LENGTHS = st.sampled_from([1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 96, 97, 4097])
START = "offset 1e4"
POWERS = {"float32": 120, "float64": 1000}  # of two, that a factor may have


@st.composite
def factors(draw_from, dtype, size):
    """A power of two for each element: one for all, one for each of two kinds, or any."""
    most = POWERS[dtype]
    kind = draw_from(st.sampled_from(["one", "two", "spread"]))
    low, high = sorted(draw_from(st.tuples(*[st.integers(-most, most)] * 2)))
    if kind == "one":
        low = high
    seed = draw_from(st.integers(0, 2**32 - 1))
    powers = np.random.default_rng(seed).integers(low, high + 1, size)
    return 2.0 ** (
        np.where(powers - low < (high - low) / 2, low, high) if kind == "two" else powers
    )


@st.composite
def operands(draw_from, dtype):
    """x, weight, bias, dy and eps: a family, changed in ways that another family has not."""
    real = DTYPES[dtype]
    rows, cols = draw_from(st.integers(1, 40)), draw_from(LENGTHS)
    if cols > 100:
        rows = min(rows, 9)
    name = draw_from(st.sampled_from(sorted(FAMILIES)))
    event(name)
    x, weight, bias, dy = (a.astype(np.float64) for a in draw(name, rows, cols, real))
    with np.errstate(over="ignore", invalid="ignore"):
        if draw_from(st.booleans()):
            x = x + 2.0 ** draw_from(st.integers(-60, 60))
        if draw_from(st.booleans()):
            x = x * draw_from(factors(dtype, draw_from(st.sampled_from([(1, 1), (rows, 1)]))))
        if draw_from(st.booleans()):
            weight = weight * draw_from(factors(dtype, cols))
        if draw_from(st.booleans()):
            dy = dy * draw_from(factors(dtype, draw_from(st.sampled_from([(rows, 1), (1, cols)]))))
        for place in draw_from(st.lists(st.integers(0, cols - 1), max_size=3)):
            x[:, place] = x[0, 0] * draw_from(st.sampled_from([-1, 0, 1, 1 + 2**-20, 2**40]))
        if draw_from(st.booleans()):
            weight[:: draw_from(st.integers(1, 5))] = 0
        limit = float(np.finfo(real).max)
        arrays = [
            np.nan_to_num(np.clip(a, -limit, limit)).astype(real) for a in (x, weight, bias, dy)
        ]
    eps = draw_from(st.sampled_from([1e-5, 1e-12, 1e-30, 1e-300, 1.0]))
    return *arrays, eps


@pytest.mark.parametrize("norm", bounds.BOUNDS_OF)
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_input_exceeds_its_bound(dtype, norm):
    @settings(
        max_examples=250 * FACTOR,
        derandomize=FACTOR == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(operands(dtype))
    def property_of_bounds(case):
        shares = bounds.shares(*case, norm)
        for name, share in shares.items():
            target(min(share, 2.0), label=name)
        assert max(shares.values()) <= 1, shares

    property_of_bounds()


@pytest.mark.parametrize(
    ("norm", "quantity"),
    [(norm, quantity) for norm, found in bounds.BOUNDS_OF.items() for quantity in found],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_search_exceeds_no_bound(dtype, quantity, norm):
    found = list(search.search(dtype, quantity, 10 * FACTOR, norm=norm))
    assert len(found) == search.CLIMBS
    assert 0 < max(found).share <= 1, max(found)


@pytest.mark.parametrize("quantity", search.QUANTITIES)
def test_search_climbs(quantity):
    """More rounds find no less, and somewhat more in the end; the same seed finds the same."""
    shares = [
        search.climb("float32", quantity, START, 17, rounds, 0).share for rounds in (0, 5, 40)
    ]
    assert shares == sorted(shares) and shares[2] > shares[0] * 1.05
    assert search.climb("float32", quantity, START, 17, 5, 0).share == shares[1]
