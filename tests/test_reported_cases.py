"""test_reported_cases.py: wrong numbers that users of other libraries reported, and their kinds."""

import numpy as np
import pytest

import lnfast
from lnfast.check import oracle

DTYPES = [np.float32, np.float64]
SIZES = [2, 3, 7, 8, 16, 31, 33, 64, 100, 257, 1000, 4099]


def forward(x, weight=None, bias=None, eps=1e-5):
    """Normalise the last axis of x; y is within the promised bound in every row."""
    y, cache = lnfast.layer_norm_forward(x, x.shape[-1], weight, bias, eps)
    rows = x.reshape(-1, x.shape[-1])
    share = oracle.forward_share(y.reshape(rows.shape), rows, weight, bias, eps)
    assert share <= 1, share
    return y, cache


def backward(dy, cache, eps=1e-5):
    """The gradients for x (R, D), each within its promised bound."""
    found = lnfast.layer_norm_backward(dy, cache)
    shares = oracle.backward_shares(*found, dy, cache.x, cache.weight, eps)
    assert max(shares) <= 1, shares
    return found


def assert_stated(values, stated, dtype=np.float32):
    """As stated to eight digits, give or take three eps of the dtype."""
    tolerance = 3 * np.finfo(dtype).eps + 6e-8
    np.testing.assert_allclose(values, stated, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("start", [40000, 80000])
def test_four_steps_far_from_zero(start, dtype):
    # onnxruntime#28463, tvm#19592: NaN
    y, cache = forward(start + np.arange(4, dtype=dtype)[None])
    assert_stated(y, [[-1.3416354, -0.4472118, 0.4472118, 1.3416354]])
    assert cache.mean == start + 1.5


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6, 8e6])
@pytest.mark.parametrize("size", SIZES)
def test_steps_far_from_zero_of_any_length(size, offset):
    x = (offset + np.arange(size) % 5 + np.array([[0], [1], [-3]])).astype(np.float32)
    _, cache = forward(x)
    np.testing.assert_allclose(cache.mean[:, 0], x.mean(axis=1, dtype=float), rtol=1e-7)
    backward(np.cos(x), cache)
    _, cache = forward(x.astype(float) * 1e6 + np.sin(x))
    backward(np.cos(x), cache)


def test_256_times_1234():
    # onnxruntime#21935: NaN
    y, cache = forward(np.full((1, 256), 1234.0, np.float32))
    assert not y.any()
    np.testing.assert_allclose(cache.rstd, [[316.227766]], rtol=1e-9)


def test_three_times_minus_eleven():
    # jax#30426, flax#1491: NaN
    y, _ = forward(np.full((1, 3), -11.000002, np.float32))
    assert not y.any()


@pytest.mark.parametrize("eps", [1e-5, 1e-12, 1e-30])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, *SIZES])
def test_constant_rows(size, dtype, eps):
    values = [1234, -11.000002, 0.1, 1 / 3, 65504, 16777217, 1e-40, 3e38, -1e30, 0]
    x = np.repeat(np.array(values, dtype)[:, None], size, axis=1)
    weight, bias = np.linspace(-3, 2, size), np.linspace(0.1, 1.7, size)
    y, cache = forward(x, weight, bias, eps)
    assert (y == bias.astype(dtype)).all()
    np.testing.assert_allclose(cache.mean[:, 0], x[:, 0], rtol=2e-7)
    np.testing.assert_allclose(cache.rstd, eps**-0.5, rtol=1e-9)


@pytest.mark.parametrize(
    ("offset", "first"),
    [(0, -1.3416408), (100, -1.3415277), (1000, -1.3415078), (10000, -1.3313334)],
)
def test_small_steps_on_an_offset(offset, first):
    # burn#5607: off by more than 1, in the vector path only
    x = (offset + np.arange(16) * 1e-3).astype(np.float32)
    for rows in (1, 2, 5, 16):
        y, _ = forward(np.tile(x, (rows, 1)))
        assert_stated(y[:, 0], np.full(rows, first))


@pytest.mark.parametrize("size", SIZES)
def test_small_steps_on_an_offset_of_any_length(size):
    offsets = np.array([0, 100, 1000, 10000, -77777])[:, None]
    _, cache = forward((offsets + np.arange(size) * 1e-3).astype(np.float32))
    backward(np.sin(np.arange(5 * size)).reshape(5, size).astype(np.float32), cache)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_rows_of_small_noise_around_100(dtype):
    # pytorch#40307: variance 0
    noise = np.random.default_rng(0).standard_normal((64, 32768), np.float32)
    _, cache = forward((dtype(0.01) * noise + dtype(100)).astype(dtype))
    np.testing.assert_allclose(cache.rstd, 95.35, rtol=0.02)


def test_one_long_counter_in_rows_of_32():
    # pytorch#81090: off by 2000
    x = np.arange(6_400_000, dtype=np.float32).reshape(-1, 32)
    y = lnfast.layer_norm(x, 32)
    stated = (np.arange(32) - 15.5) / np.sqrt(85.25001)
    bound = 3 * np.finfo(np.float32).eps * np.maximum(1, np.abs(stated))
    assert (np.abs(y - stated) <= bound).all()


@pytest.mark.parametrize("power", [24, 53])
def test_a_mean_that_is_no_number_of_the_dtype(power):
    dtype = np.float32 if power == 24 else np.float64
    x = (dtype(2.0**power) + np.array([0, 2, 4, 6], dtype))[None]
    y, cache = forward(x)
    assert_stated(y, [[-1.3416394, -0.4472131, 0.4472131, 1.3416394]], dtype)
    dx, dweight, dbias = backward(np.eye(4, dtype=dtype)[:1], cache)
    assert_stated(dweight, [-1.3416394, 0, 0, 0], dtype)
    # rstd (dy - 1/4 - xhat xhat[0] / 4)
    assert_stated(dx, [[0.13416435, -0.17888513, -0.04472145, 0.08944223]], dtype)
    assert dbias.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_ten_zeros_with_a_tiny_eps(dtype):
    # pytorch#41527
    y, cache = forward(np.zeros((1, 10), dtype), eps=1e-12)
    assert not y.any()
    np.testing.assert_allclose(cache.rstd, [[1e6]], rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eps_arrives(dtype):
    # TIM-VX#589: a constant row beside another
    x = np.array([[2] * 6, [0, 1, 2, 3, 4, 5]], dtype)
    y, _ = forward(x)
    assert not y[0].any()
    half = [-1.46385, -0.87831, -0.29277]
    np.testing.assert_allclose(y[1], [*half, *(-v for v in half[::-1])], rtol=0, atol=6e-6)
    for eps in (0.0, 1e-12, 1e-3, 1.0, 1e6):
        y, cache = forward(x[1:], eps=eps)
        np.testing.assert_allclose(cache.rstd, [[1 / np.sqrt(35 / 12 + eps)]], rtol=5e-7)
        backward(np.cos(x[1:]), cache, eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_is_subtracted(dtype):
    # llama.cpp#173: RMSNorm where LayerNorm was meant
    y, _ = forward(np.array([[1, 2, 3, 4]], dtype), eps=0)
    stated = [[-1.3416408, -0.4472136, 0.4472136, 1.3416408]]
    assert_stated(y, stated, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-1, -0.5, 0.4, 0.9])
@pytest.mark.parametrize("size", SIZES)
def test_any_magnitude_without_eps(size, exponent, dtype):
    # The kind behind NaN, variance 0 and eps scaled by a guard: squares that leave the range.
    info = np.finfo(dtype)
    scale = float(info.smallest_subnormal) * 1e3 if exponent == -1 else float(info.max) ** exponent
    x = (np.random.default_rng(size).standard_normal((4, size)) * scale).astype(dtype)
    _, cache = forward(x, eps=0)
    backward(np.random.default_rng(1).standard_normal(x.shape).astype(dtype), cache, eps=0)
