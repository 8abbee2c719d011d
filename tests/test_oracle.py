"""test_oracle.py: the oracle, judged by mpmath at 60 digits; that it finds bad formulas out."""

import mpmath
import numpy as np
import pytest

from lnfast.check import oracle

FLOAT64_MAX = np.finfo(np.float64).max
FLOAT32_MAX = np.finfo(np.float32).max
TINY = np.finfo(np.float64).smallest_subnormal

noise = np.random.default_rng(20)
HARD_ROWS = {
    "plain": noise.standard_normal(7),
    "offset 1e12": 1e12 + noise.standard_normal(9),
    "one unit in the last place": np.array([1e12, np.nextafter(1e12, 2e12), 1e12, 1e12, 1e12]),
    "mixed magnitudes": np.array([1e150, 1.0, -1e150, 1e-150, 3e-3, -7.0]),
    "one far element": np.array([1e30, 1.0, 2.0, 3.0]),
    "cancelling": np.array([1e16, 3.0, -1e16, 2.0**-40]),
    "subnormal": np.array([1.0, 2.0, 5.0, -7.0, 0.0]) * TINY,
    "subnormal and normal": np.array([TINY, 1e-300, -1e-310, 2e-308]),
    "1.7e308": np.array([1.7e308, -1.7e308, 1.7e308, 1.6e308]),
    "1.7e308 and subnormal": np.array([1.7e308, TINY, -1.5e308, 3 * TINY, 1.7e308]),
    "constant": np.full(6, 0.1),
    "constant 1.7e308": np.full(3, 1.7e308),
    "one element": np.array([-3.7]),
    "two elements": np.array([5.0, 5.0 + 2**-50]),
}
HARD_CASES = [
    (name, eps)
    for name, row in HARD_ROWS.items()
    for eps in (0.0, 1e-5, 1e-310, 0.3)
    if eps > 0 or np.ptp(row / 4) > 0
]


def exact(values):
    return [mpmath.mpf(float(value)) for value in values]


def from_longdouble(value):
    """A longdouble is the sum of what float64 takes of it, and of what is left; scaled to fit."""
    fraction, exponent = np.frexp(value)
    high = float(fraction)
    return mpmath.ldexp(mpmath.mpf(high) + mpmath.mpf(float(fraction - high)), int(exponent))


def within(results, exact_values, error, scales):
    """Every longdouble lies within error * scale of its exact value."""
    for result, value, scale in zip(results, exact_values, scales, strict=True):
        assert abs(from_longdouble(result) - value) <= error * scale


def mp_statistics(row, eps, centred=True):
    mean = mpmath.fsum(row) / len(row) if centred else mpmath.mpf(0)
    var = mpmath.fsum((x - mean) ** 2 for x in row) / len(row)
    return mean, 1 / mpmath.sqrt(var + mpmath.mpf(eps))


def mp_jacobian(row, eps, centred):
    """d xhat_i / d x_j = rstd ((i == j) - 1/D - xhat_i xhat_j / D), and xhat; RMSNorm: no 1/D."""
    mean, rstd = mp_statistics(row, eps, centred)
    xhat = [(x - mean) * rstd for x in row]
    size = len(row)
    share = mpmath.mpf(centred) / size
    jacobian = [
        [rstd * ((i == j) - share - xhat[i] * xhat[j] / size) for j in range(size)]
        for i in range(size)
    ]
    return jacobian, xhat, rstd


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


def parameters(size):
    rng = np.random.default_rng(size)
    return rng.standard_normal(size), rng.standard_normal(size)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("name", "eps"), HARD_CASES)
def test_forward_of_hard_rows(name, eps, centred):
    x = HARD_ROWS[name]
    weight, bias = parameters(len(x)) if centred else (parameters(len(x))[0], np.zeros(len(x)))
    result = oracle.exact_forward(x[None], weight, bias if centred else None, eps, centred)
    mean, rstd = mp_statistics(exact(x), eps, centred)
    xhat = [(value - mean) * rstd for value in exact(x)]
    m = [max(1, abs(value)) if centred else abs(value) for value in xhat]
    scale = [abs(w) * a + abs(b) for w, a, b in zip(weight, m, bias, strict=True)]
    y = [w * a + b for w, a, b in zip(exact(weight), xhat, exact(bias), strict=True)]
    within(result.y[0], y, oracle.Y_ERROR, scale)
    within(result.y_scale[0], scale, 2.0**-48, scale)
    within(result.xhat[0], xhat, oracle.Y_ERROR, m)
    within(result.rstd[0], [rstd], oracle.Y_ERROR, [rstd])
    within(result.mean[0], [mean], 2.0**-63, [abs(mean) + 2.0**-60 / rstd])


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("name", "eps"), HARD_CASES)
def test_backward_of_hard_rows_by_the_explicit_jacobian(name, eps, centred):
    row = HARD_ROWS[name]
    size = len(row)
    x = np.stack([row, row[::-1], -row])
    weight, _ = parameters(size)
    dy = np.random.default_rng(3).standard_normal(x.shape) * np.array([[1.0], [1e-300], [1e300]])
    result = oracle.exact_backward(dy, x, weight, eps, centred)
    dweight, dweight_scale = [mpmath.mpf(0)] * size, [mpmath.mpf(0)] * size
    for i in range(len(x)):
        jacobian, xhat, rstd = mp_jacobian(exact(x[i]), eps, centred)
        h = [g * w for g, w in zip(exact(dy[i]), exact(weight), strict=True)]
        dx = [mpmath.fdot(column, h) for column in zip(*jacobian, strict=True)]
        m = [max(1, abs(a)) for a in xhat]
        mean_h = mpmath.fsum(map(abs, h)) / size * centred
        mean_hm = mpmath.fsum(abs(a) * b for a, b in zip(h, m, strict=True)) / size
        scale = [rstd * (abs(a) + mean_h + b * mean_hm) for a, b in zip(h, m, strict=True)]
        within(result.dx[i], dx, oracle.DX_ERROR, scale)
        within(result.dx_scale[i], scale, oracle.DX_ERROR, scale)
        for j, g in enumerate(exact(dy[i])):
            dweight[j] += g * xhat[j]
            dweight_scale[j] += abs(g) * m[j]
    within(result.dweight, dweight, oracle.DWEIGHT_ERROR, dweight_scale)
    within(result.dweight_scale, dweight_scale, oracle.DWEIGHT_ERROR, dweight_scale)
    columns = [exact(column) for column in dy.T]
    dbias_scale = [mpmath.fsum(map(abs, column)) for column in columns]
    within(result.dbias, map(mpmath.fsum, columns), oracle.DBIAS_ERROR, dbias_scale)
    within(result.dbias_scale, dbias_scale, oracle.DBIAS_ERROR, dbias_scale)


def test_long_row_of_two_neighbours():
    # The least sigma a mean can have, and the most terms: the derivation's worst case.
    size = 2**20
    x = np.full((1, size), 1e12)
    x[0, 12345] = np.nextafter(1e12, 2e12)
    step = mpmath.mpf(float(x[0, 12345])) - mpmath.mpf(1e12)
    far = mpmath.sqrt(size - 1)
    result = oracle.exact_forward(x, eps=0)
    within(result.xhat[0, 12344:12346], [-1 / far, far], oracle.Y_ERROR, [1, far])
    within(result.rstd[0], [size / (step * far)], oracle.Y_ERROR, [size / (step * far)])


def test_weight_bias_and_dy_are_cast_to_the_dtype_of_x():
    x = np.array([[1.0, 2.0, 4.0]], np.float32)
    tenth, rounded = np.full(3, 0.1), np.full(3, 0.1, np.float32)
    assert (
        oracle.exact_forward(x, tenth, tenth).y == oracle.exact_forward(x, rounded, rounded).y
    ).all()
    gradients = oracle.exact_backward(tenth[None], x)
    assert (gradients.dbias == rounded.astype(np.longdouble)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_correct_rounding_keeps_the_promise(dtype):
    rng = np.random.default_rng(4)
    x, dy = rng.standard_normal((2, 37, 129)).astype(dtype) * dtype(3) + dtype(5)
    weight, bias = rng.standard_normal((2, 129)).astype(dtype)
    y = oracle.exact_forward(x, weight, bias).y.astype(dtype)
    assert 0.05 < oracle.forward_share(y, x, weight, bias) <= 0.5 / 3 + 0.01
    exact = oracle.exact_backward(dy, x, weight)
    gradients = [gradient.astype(dtype) for gradient in exact[:3]]
    shares = oracle.backward_shares(*gradients, dy, x, weight)
    assert all(0.001 < share <= 0.26 for share in shares)
    assert oracle.backward_shares(None, None, gradients[2], dy, x, weight)[:2] == (None, None)
    for i in range(3):
        wrong = [np.nextafter(g, dtype(np.inf)) if i == j else g for j, g in enumerate(gradients)]
        for _ in range(5000):
            wrong[i] = np.nextafter(wrong[i], dtype(np.inf))
        shares = oracle.backward_shares(*wrong, dy, x, weight)
        assert [share > 1 for share in shares] == [i == j for j in range(3)]


def test_the_mean_of_squares_is_found_out():
    x = 300 + np.random.default_rng(5).standard_normal((8, 256))
    mean = x.mean(axis=1, keepdims=True)
    var = (x * x).mean(axis=1, keepdims=True) - mean * mean
    assert oracle.forward_share((x - mean) / np.sqrt(var + 1e-5), x) > 1
    x = x.astype(np.float32)
    mean = x.mean(axis=1, keepdims=True)
    var = (x * x).mean(axis=1, keepdims=True) - mean * mean
    y = (x - mean) / np.sqrt(var + np.float32(1e-5))
    assert oracle.forward_share(y, x) > 1


def test_a_float32_mean_is_found_out():
    x = (1000 + np.random.default_rng(6).standard_normal((8, 256))).astype(np.float32)
    wide = x.astype(np.float64)
    mean = wide.mean(axis=1, keepdims=True)
    rstd = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    assert oracle.forward_share(((wide - mean) * rstd).astype(np.float32), x) <= 1
    rounded = mean.astype(np.float32)
    assert oracle.forward_share(((wide - rounded) * rstd).astype(np.float32), x) > 1


def test_a_float64_mean_is_found_out_in_the_gradients():
    x = 1e9 + np.random.default_rng(7).standard_normal((5, 64))
    dy = np.ones_like(x)
    exact = oracle.exact_backward(dy, x)
    xhat = (x - x.mean(axis=1, keepdims=True)) * exact.rstd.astype(np.float64)
    shares = oracle.backward_shares(None, (dy * xhat).sum(axis=0), None, dy, x)
    assert shares[1] > 1


def test_missing_eps_and_the_sample_variance_are_found_out():
    x = np.random.default_rng(8).standard_normal((3, 10))
    assert oracle.forward_share(oracle.exact_forward(x, eps=0).y.astype(float), x) > 1
    centred = x - x.mean(axis=1, keepdims=True)
    sample = centred / np.sqrt(x.var(axis=1, ddof=1, keepdims=True) + 1e-5)
    assert oracle.forward_share(sample, x) > 1


@pytest.mark.parametrize(
    ("dtype", "largest"), [(np.float32, FLOAT32_MAX), (np.float64, FLOAT64_MAX)]
)
def test_overflow(dtype, largest):
    x = np.array([[-1, 0, 0, 1]], dtype)
    weight = np.array([largest, 1, largest / 4, largest / 1.5], dtype)
    y = np.array([[-np.inf, 0, 0, largest / dtype(1.5) * np.sqrt(dtype(2))]], dtype)
    assert oracle.forward_share(y, x, weight, eps=0) <= 1
    for column, value in [
        (0, np.inf),  # the true result is -1.41 times the largest number
        (0, -largest),
        (1, np.inf),  # well in range
        (1, np.nan),
        (2, np.nan),  # out of range by its bound: Inf will do, NaN will not
        (3, largest / 2),  # nor will a wrong finite number
    ]:
        wrong = y.copy()
        wrong[0, column] = value
        assert oracle.forward_share(wrong, x, weight, eps=0) > 1, (column, value)
    excused = y.copy()
    excused[0, 2:] = np.inf
    assert oracle.forward_share(excused, x, weight, eps=0) <= 1


def test_overflow_of_gradients():
    x = np.array([[-1.0, 0, 0, 1], [-1, 0, 0, 1]])
    dy = np.array([[1.5e308, 0, 0, 0], [1.5e308, 0, 0, 1]])
    with np.errstate(over="ignore"):
        exact = [g.astype(float) for g in oracle.exact_backward(dy, x, eps=0)[:3]]
    assert exact[2][0] == np.inf and exact[1][0] == -np.inf
    assert max(oracle.backward_shares(*exact, dy, x, eps=0)) <= 1
    for i in range(3):
        wrong = [g.copy() for g in exact]
        wrong[i][..., 0] = np.nan
        assert oracle.backward_shares(*wrong, dy, x, eps=0)[i] == np.inf
    wrong = [g.copy() for g in exact]
    wrong[2][0] = FLOAT64_MAX
    assert oracle.backward_shares(*wrong, dy, x, eps=0)[2] > 1


def test_rows_whose_rstd_is_no_float64_are_left_out_of_backward():
    x = np.array([[0, TINY, 0], [1.0, 2, 4]])
    exact = oracle.exact_backward(np.ones((2, 3)), x, eps=0)
    gradients = [np.full((2, 3), np.nan), np.full(3, np.nan), exact.dbias.astype(float)]
    gradients[0][1] = exact.dx[1]
    shares = oracle.backward_shares(*gradients, np.ones((2, 3)), x, eps=0)
    assert shares[0] <= 1 and shares[1] == 0 and shares[2] <= 1


def test_what_the_caller_must_leave_out():
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match="row 0 is constant and eps is 0"):
        oracle.exact_forward(x, eps=0)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or Inf"):
            oracle.exact_forward(np.array([[1.0, bad]]))
    with pytest.raises(ValueError, match="y must be float32"):
        oracle.forward_share(x, x.astype(np.float32))
    with pytest.raises(ValueError, match="dx must be float64 of shape"):
        oracle.backward_shares(x[0], x[0], x[0], x, x)
    with pytest.raises(TypeError, match="float16"):
        oracle.exact_forward(x.astype(np.float16))


def test_no_rows():
    x = np.empty((0, 3))
    assert oracle.forward_share(x, x) == 0
    assert oracle.backward_shares(x, np.zeros(3), np.zeros(3), x, x) == (0, 0, 0)
    assert oracle.backward_shares(x, np.ones(3), np.zeros(3), x, x)[1] > 1
