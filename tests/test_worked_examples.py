"""test_worked_examples.py: small examples worked out by hand, and what they say layer norm is."""

import importlib

import numpy as np
import pytest

from lnfast.check import oracle

DTYPES = [np.float32, np.float64]
THIRD = 1 / 3

# torch.manual_seed(42); torch.rand(2, 3, 4); layer_norm over (4,), and over (3, 4), in float32.
SENTENCES = """
    0.88226926   0.91500396   0.38286376   0.95930564
    0.3904482    0.60089535   0.25657248   0.7936413
    0.94077146   0.13318592   0.9345981    0.59357965
    0.86940444   0.5677153    0.74109405   0.4294045
    0.8854429    0.57390445   0.26658005   0.62744915
    0.26963168   0.44136357   0.29692084   0.8316855
"""
BY_TOKEN = """
    0.4167768    0.55683684  -1.7200009    0.74638796
   -0.5865251    0.44258425  -1.2411919    1.385133
    0.8792427   -1.5672477    0.86054116  -0.17253624
    1.3004194   -0.50336313   0.53325886  -1.3303156
    1.3505274   -0.065638825 -1.4626491    0.17776032
   -0.8480033   -0.08261631  -0.7263791    1.6569985
"""
BY_SENTENCE = """
    0.8209119    0.9359107   -0.9335271    1.091545
   -0.9068825   -0.16757017  -1.3771954    0.50955707
    1.0264333   -1.8106592    1.004746    -0.19327061
    1.372806     0.0045304573 0.79086936  -0.6227618
    1.4455465    0.032600693  -1.3612329   0.27544636
   -1.3473924   -0.5685228   -1.2236258    1.2017361
"""


@pytest.fixture(params=["lnfast", "lnfast.reference"])
def ln(request):
    return importlib.import_module(request.param)


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.__name__)
def dtype(request):
    return request.param


def batch(text, dtype):
    return np.array(text.split(), np.float32).reshape(2, 3, 4).astype(dtype)


def assert_y(y, stated, x, weight=None, bias=None, eps=1e-5, decimals=15):
    """What is stated is right to its last decimal, and y (all rows of x, flat) within its bound."""
    exact = oracle.exact_forward(x, weight, bias, eps).y
    np.testing.assert_allclose(exact, stated, rtol=0, atol=0.6 * 10.0**-decimals)
    assert oracle.forward_share(y, x, weight, bias, eps) <= 1


def assert_gradients(gradients, stated, dy, x, weight=None, eps=1e-5):
    for exact, values in zip(oracle.exact_backward(dy, x, weight, eps), stated, strict=False):
        np.testing.assert_allclose(exact, values, rtol=0, atol=2e-15)
    shares = oracle.backward_shares(*gradients, dy, x, weight, eps)
    assert max(shares) <= 1, shares


def test_one_two_three(ln, dtype):
    x, weight, bias = np.array([[1, 2, 3]], dtype), [1, 2, 3], [0, 1, -1]
    assert_y(ln.layer_norm(x, 3, eps=THIRD), [[-1, 0, 1]], x, eps=THIRD)
    y, cache = ln.layer_norm_forward(x, 3, weight, bias, THIRD)
    assert_y(y, [[-1, 1, 2]], x, weight, bias, THIRD)
    np.testing.assert_allclose(cache.mean, [[2]], rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(cache.rstd, [[1]], rtol=4 * np.finfo(dtype).eps)

    # h = [1, -2, 6], mean(h) = mean(h xhat) = 5/3
    dy = np.array([[1, -1, 2]], dtype)
    gradients = ln.layer_norm_backward(dy, cache)
    stated = [[1, -11 / 3, 8 / 3]], [-1, 0, 2], [1, -1, 2]
    assert_gradients(gradients, stated, dy, x, weight, THIRD)
    dx, tolerance = gradients[0][0].astype(float), 50 * float(np.finfo(dtype).eps)
    assert dx.sum() == pytest.approx(0, abs=tolerance)
    # Not 0, as it would be without eps.
    assert dx @ [-1, 0, 1] == pytest.approx(5 / 3, abs=tolerance)


def test_one_two_three_and_a_second_row(ln, dtype):
    x, weight = np.array([[1, 2, 3], [11, 12, 13]], dtype), [1, 2, 3]
    dy = np.array([[1, -1, 2], [2, 0, 1]], dtype)
    y, cache = ln.layer_norm_forward(x, 3, weight, [0, 1, -1], THIRD)
    assert_y(y, [[-1, 1, 2], [-1, 1, 2]], x, weight, [0, 1, -1], THIRD)
    stated = [[1, -11 / 3, 8 / 3], [2 / 3, -5 / 3, 1]], [-3, 0, 3], [3, -1, 3]
    assert_gradients(ln.layer_norm_backward(dy, cache), stated, dy, x, weight, THIRD)


def test_two_four_six(ln, dtype):
    x = np.array([[2, 4, 6]], dtype)
    assert_y(ln.layer_norm(x, 3), [[-1.225, 0, 1.225]], x, decimals=3)


@pytest.mark.parametrize("place", [0, 1, 7])
def test_root_of_three_halves_to_the_bit_whatever_stands_beside_it(ln, dtype, place):
    root = np.sqrt(dtype(1.5))
    x = np.random.default_rng(0).standard_normal((8, 3)).astype(dtype)
    x[3] = [1e30, -1e30, 1e30]
    x[5] = [1e30, 2e30, 4e30]
    x[place] = [1, 2, 3]
    assert ln.layer_norm(x, 3, eps=0)[place].tolist() == [-root, 0, root]
    assert ln.layer_norm(x[place], 3, eps=0).tolist() == [-root, 0, root]


def test_a_common_offset_changes_nothing_and_order_gives_the_sign(ln, dtype):
    low, high, swapped = ln.layer_norm(np.array([[1, 3], [11, 13], [11, 3]], dtype), 2)
    assert low.tobytes() == high.tobytes()
    assert low[0] < 0 < low[1]
    assert swapped[1] < 0 < swapped[0]
    assert_y(low[None], [[-0.999995, 0.999995]], np.array([[1, 3]], dtype), decimals=9)


@pytest.mark.parametrize("factor", [3.0, 1024.0, 2.0**-20, 2.0**40])
def test_a_factor_changes_nothing_if_eps_takes_its_square(ln, dtype, factor):
    x = np.array([[1, 5, -2, 4, 7]], dtype)
    scaled = x * dtype(factor)
    assert oracle.forward_share(ln.layer_norm(scaled, 5, eps=0.25 * factor**2), x, eps=0.25) <= 1
    assert oracle.forward_share(ln.layer_norm(scaled, 5, eps=0.25), x, eps=0.25) > 1000


@pytest.mark.parametrize("eps", [1e-5, 0.5, 2.0, 100.0])
def test_the_variance_of_xhat_is_below_one_by_eps(ln, dtype, eps):
    x = np.array([[0, 2, 2, 0, 4, -2, 3, -1]], dtype)  # mean 1, var 3.75
    y = ln.layer_norm(x, 8, eps=eps).astype(float)
    assert y.var() == pytest.approx(3.75 / (3.75 + eps), rel=16 * float(np.finfo(dtype).eps))


def test_a_normal_batch(ln, dtype):
    x = np.random.default_rng(1).standard_normal((2, 10, 512)).astype(dtype)
    y = ln.layer_norm(x, 512)
    assert oracle.forward_share(y.reshape(20, 512), x.reshape(20, 512)) <= 1
    assert np.abs(y.mean(axis=-1, dtype=float)).max() < 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(y.var(axis=-1, ddof=1, dtype=float), 512 / 511, rtol=3e-5)


def test_a_padding_row_gives_bias(ln, dtype):
    x = np.random.default_rng(2).standard_normal((3, 6)).astype(dtype)
    weight, bias = np.linspace(-1, 2, 6), np.linspace(0.1, 1.7, 6)
    alone = ln.layer_norm(x, 6, weight, bias)
    x[1] = 0
    y = ln.layer_norm(x, 6, weight, bias)
    assert y[1].tobytes() == bias.astype(dtype).tobytes()
    assert y[[0, 2]].tobytes() == alone[[0, 2]].tobytes()


def test_two_axes_are_one_group(ln, dtype):
    x = np.random.default_rng(3).gamma(1.0, size=(4, 5, 7)).astype(dtype)
    weight, bias = np.random.default_rng(4).standard_normal((2, 5, 7)).astype(dtype)
    y = ln.layer_norm(x, (5, 7), weight, bias)
    flat = [a.reshape(-1, 35) for a in (y, x)]
    assert oracle.forward_share(*flat, weight.ravel(), bias.ravel()) <= 1
    xhat = ln.layer_norm(x, (5, 7))
    by_rows = ln.layer_norm(x, 7)
    by_both = ln.layer_norm(by_rows.swapaxes(1, 2), 5).swapaxes(1, 2)
    for other in (by_rows, by_both):
        assert np.abs(xhat - other).max() > 0.1


@pytest.mark.parametrize(
    ("row", "eps"), [([1, 2, 3], THIRD), ([1, 2, 3], 0.0), ([4, -1, 0.5, 7, 7, 2], 0.75)]
)
def test_the_jacobian_of_the_normalisation(ln, dtype, row, eps):
    size = len(row)
    x = np.tile(np.array(row, dtype), (size, 1))
    _, cache = ln.layer_norm_forward(x, size, eps=eps)
    jacobian = ln.layer_norm_backward(np.eye(size, dtype=dtype), cache)[0]
    exact = oracle.exact_backward(np.eye(size, dtype=dtype), x, eps=eps)
    assert oracle.backward_shares(jacobian, None, None, np.eye(size), x, eps=eps)[0] <= 1

    jacobian, rstd = jacobian.astype(float), float(exact.rstd[0, 0])
    bound = 4 * np.finfo(dtype).eps * exact.dx_scale.astype(float) + 2.0**-50 * rstd
    assert (np.abs(jacobian - jacobian.T) <= bound + bound.T).all()
    centred = np.array(row, float) - np.mean(row)
    across = np.linalg.svd(np.stack([np.ones(size), centred]))[2][2:]
    for direction, factor in [
        (np.ones(size), 0),
        (centred, eps * rstd**3),
        *((direction, rstd) for direction in across),
    ]:
        error = np.abs(jacobian @ direction - factor * direction)
        assert (error <= bound @ np.abs(direction)).all()
    if eps == THIRD:
        assert (rstd, eps * rstd**3) == pytest.approx((1, 1 / 3), rel=1e-15)


def test_a_batch_of_sentences_by_token(ln, dtype):
    x = batch(SENTENCES, dtype)
    y, cache = ln.layer_norm_forward(x, normalized_shape=4)
    means = [[0.7849, 0.5104, 0.6505], [0.6519, 0.5883, 0.4599]]
    variances = [[0.0546, 0.0418, 0.1090], [0.0280, 0.0484, 0.0503]]
    np.testing.assert_allclose(cache.mean[..., 0], means, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(cache.rstd[..., 0] ** -2.0 - 1e-5, variances, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(y[0, 0], [0.4168, 0.5568, -1.7200, 0.7464], rtol=0, atol=5.1e-5)
    assert_y(y.reshape(6, 4), batch(BY_TOKEN, float).reshape(6, 4), x.reshape(6, 4), decimals=6)


def test_a_batch_of_sentences_by_sentence(ln, dtype):
    x = batch(SENTENCES, dtype)
    y, cache = ln.layer_norm_forward(x, (3, 4))
    assert cache.mean.shape == cache.rstd.shape == (2, 1, 1)
    np.testing.assert_allclose(cache.mean.ravel(), [0.6486, 0.5667], rtol=0, atol=5.1e-5)
    variances = cache.rstd.ravel() ** -2.0 - 1e-5
    np.testing.assert_allclose(variances, [0.0810, 0.0486], rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(y[0, 0], [0.8209, 0.9359, -0.9335, 1.0915], rtol=0, atol=5.1e-5)
    stated = batch(BY_SENTENCE, float).reshape(2, 12)
    assert_y(y.reshape(2, 12), stated, x.reshape(2, 12), decimals=6)


def test_a_later_token_reaches_earlier_ones_only_by_sentence(ln, dtype):
    x = batch(SENTENCES, dtype)
    changed = x.copy()
    changed[:, 2] = [9, -3, 0.5, 2]
    by_token = [ln.layer_norm(a, 4)[:, :2] for a in (x, changed)]
    assert by_token[0].tobytes() == by_token[1].tobytes()
    by_sentence = [ln.layer_norm(a, (3, 4))[:, :2] for a in (x, changed)]
    assert (by_sentence[0] != by_sentence[1]).all()
