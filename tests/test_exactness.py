"""The bounds of exactness, on every family of rows, judged by exact arithmetic.

A share is an error over its bound; the promise is that none exceeds 1. No other tolerance stands in
this file. The families are in lnfast/check/families.py, for `lnfast check` tries them too.
"""

import numpy as np
import pytest

import lnfast
from lnfast.check import bounds, oracle
from lnfast.check.bounds import LENGTHS
from lnfast.check.families import FAMILIES, draw, noise

DTYPES = [np.float32, np.float64]
NORMS = tuple(bounds.BOUNDS_OF)


def judge(x, weight, bias, dy, eps, norms=NORMS):
    for norm in norms:
        shares = bounds.shares(x, weight, bias, dy, eps, norm)
        assert max(shares.values()) <= 1, (norm, shares)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds(name, dtype, norm):
    for case in bounds.cases(dtype, norm=norm):
        if case.family == name:
            x, weight, bias, dy = bounds.operands(case)
            if len(x):
                shares = bounds.shares(x, weight, bias, dy, case.eps, norm)
                assert max(shares.values()) <= 1, (case, shares)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["normal", "offset 1e6", "massive last", "two-valued", "to the largest", "tiny"]
)
def test_bounds_of_long_rows(name, dtype):
    for rows, cols in [(2, 65537), (1, 2**20)]:
        judge(*draw(name, rows, cols, dtype), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["normal", "offset 1e4", "two-valued", "alternating"])
def test_bounds_of_many_rows(name, dtype):
    judge(*draw(name, 40_000, 16, dtype), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_of_a_million_rows(dtype):
    judge(*draw("normal", 10**6, 3, dtype), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_one_sign(dtype):
    """Nothing cancels in the sums over 40,000 rows: what rounding there is adds up."""
    x, weight, _, dy = draw("uniform", 40_000, 9, dtype)
    judge(x, weight, None, abs(dy) + dtype(0.1), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [-0.9, -0.5, -0.3, 0.3, 0.45])
def test_gradients_of_every_size(dtype, power):
    """dy and weight from near the smallest to near the largest; their product leaves the range."""
    limit = float(np.finfo(dtype).max)
    for other in (-power, power, 0.0):
        x, weight, bias, dy = draw("normal", 37, 65, dtype)
        judge(
            x, (weight * limit**other).astype(dtype), bias, (dy * limit**power).astype(dtype), 1e-5
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of_x", [-0.8, -0.5, -0.2, -0.15, 0.15, 0.2, 0.4, 0.5, 0.9])
def test_products_of_every_size(dtype, of_x):
    """h · (x − mean) or rstd² · h leaves the range on the way, though no factor does, nor dx."""
    limit = float(np.finfo(dtype).max)
    for of_dy in (-0.9, -0.8, -0.7, -0.5, -0.4, -0.2, 0.2, 0.5, 0.8, 0.9):
        for cols in (9, 65):
            x, weight, bias, dy = draw("normal", 9, cols, dtype)
            judge(
                (x * limit**of_x).astype(dtype), weight, bias, (dy * limit**of_dy).astype(dtype), 0
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", range(4, 20, 2))
def test_sums_that_round_one_way(dtype, power):
    """A lane of one value: as it grows, every further addition is rounded by the same amount.

    The squares' sum is then off by 2^-46, which (mean / σ)² = 2^(2 power) multiplies.
    """
    start = 1 + np.random.default_rng(power).random((64, 1)).astype(dtype)
    x = start + np.resize(dtype([-1, 1]), 4096) * dtype(2.0**-power)
    weight, bias = noise(2, 4096).astype(dtype)
    judge(x, weight, bias, noise(64, 4096, seed=6).astype(dtype), 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_means_that_underflow_to_zero(dtype):
    """Σ h is 0 and every h · (x − mean) underflows, but h is not 0, nor its mean with xhat."""
    signs = np.resize(dtype([1, -1]), (9, 66))
    x, dy = signs * dtype(2**-60), signs * np.finfo(dtype).smallest_normal
    judge(x, None, None, dy, 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 5, 69, 1000])
def test_sums_beyond_the_largest(rows, dtype):
    """They are infinite, no NaN, whether a strip, a block or the fold goes beyond it."""
    x = np.resize(dtype([1, -1]), (rows, 64))
    _, cache = lnfast.layer_norm_forward(x, 64)
    for dy in (np.zeros_like(x), np.full_like(x, np.finfo(dtype).max)):
        dy[[0, -1]] = np.finfo(dtype).max
        _, dweight, dbias = lnfast.layer_norm_backward(dy, cache)
        assert np.array_equal(dbias, np.full(64, np.inf))
        assert np.array_equal(dweight, np.inf * x[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_frozen_weight(name, dtype):
    """Weights of 0: no row has a gradient, but dweight is there all the same."""
    x, weight, bias, dy = draw(name, 37, 65, dtype)
    judge(x, np.zeros_like(weight), bias, dy, 1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_where_the_mean_is_hard(frozen):
    """σ is a thousandth of a step of float32: its mean in float64 does not do for xhat.

    It lies half way between two float64, 600.5 steps above the one value: 2^-53 / σ is 7 eps.
    """
    x, weight, bias, dy = draw("one bit apart", 2, 894_040, np.float32)
    judge(x, weight * np.float32(not frozen), bias, dy, 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weight_and_gradient_of_opposite_sizes(dtype):
    """h = dy · weight is of ordinary size, though no common scale brings both factors in range."""
    x, weight, bias, dy = draw("normal", 37, 64, dtype)
    size = float(np.finfo(dtype).max) ** np.where(np.arange(64) % 2, 0.9, -0.9)
    judge(x, (weight * size).astype(dtype), bias, (dy / size).astype(dtype), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_every_eps(dtype, eps):
    for name in ("normal", "offset 1e4", "constant", "zeros", "to the largest", "tiny"):
        judge(*draw(name, 9, 65, dtype), eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0.0, 1234.5, -11.000002, 40000.0, 0.1, 1e30, -3e38, 1e-40])
def test_constant_row_is_bias_exactly(dtype, value):
    for cols in LENGTHS:
        bias = noise(1, cols)[0].astype(dtype)
        for eps in (1e-300, 1e-12, 1e-5):
            x = np.full((3, cols), value, dtype)
            y, cache = lnfast.layer_norm_forward(x, cols, bias + 1, bias, eps)
            assert np.array_equal(y, np.broadcast_to(bias, x.shape))
            assert np.array_equal(cache.mean, x[:, :1].astype(float))
            assert np.allclose(cache.rstd, eps**-0.5, rtol=1e-7, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_constant_row_without_eps(dtype):
    x = np.array([[1, 2, 3], [7, 7, 7], [0, 0, 0], [4, 5, 7]], dtype)
    y = lnfast.layer_norm(x, 3, eps=0)
    assert np.array_equal(np.isnan(y).all(axis=1), [False, True, True, False])
    assert np.isfinite(y[[0, 3]]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_column(dtype):
    x, dy = noise(50, 1).astype(dtype), noise(50, 1, seed=1).astype(dtype)
    x[::2] *= dtype(1e-4)  # a mean below √eps
    y, cache = lnfast.layer_norm_forward(x, 1, [3.0], [0.7])
    dx, dweight, dbias = lnfast.layer_norm_backward(dy, cache)
    assert np.all(y == dtype(0.7)) and np.all(dx == 0) and dweight[0] == 0 and dbias[0] != 0


@pytest.mark.parametrize("offset", [0, 0.25, 0.3, 3, 1e4])
def test_a_record_built_by_numpy(offset):
    """NumPy's sums do for backward, which takes a mean near 0 as it is."""
    x, dy = noise(40, 768) + offset, noise(40, 768, seed=1)
    weight = 1 + 0.5 * noise(1, 768, seed=2)[0]
    mean = x.mean(axis=1, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    record = lnfast.LayerNormCache(x, (768,), weight, mean, rstd)
    shares = oracle.gradient_shares(*lnfast.layer_norm_backward(dy, record), dy, x, weight, 1e-5)
    assert max(share.max() for share in shares) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_own_row(dtype, bad):
    for cols in (1, 2, 9, 64, 1001):
        x, weight, bias, dy = draw("normal", 37, cols, dtype)
        clean, clean_cache = lnfast.layer_norm_forward(x, cols, weight, bias)
        clean_dx, _, clean_dbias = lnfast.layer_norm_backward(dy, clean_cache)
        spoilt = x.copy()
        spoilt[5, cols // 2] = bad
        y, cache = lnfast.layer_norm_forward(spoilt, cols, weight, bias)
        dx, dweight, dbias = lnfast.layer_norm_backward(dy, cache)
        others = np.arange(37) != 5
        for good, now in (
            (clean, y),
            (clean_cache.mean, cache.mean),
            (clean_cache.rstd, cache.rstd),
            (clean_dx, dx),
        ):
            assert np.isnan(now[5]).all()
            assert now[others].tobytes() == good[others].tobytes()
        assert np.isnan(dweight).all()
        assert dbias.tobytes() == clean_dbias.tobytes()
