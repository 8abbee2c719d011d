"""The pieces that layer norm splits into: exact as promised, from slices as from whole rows.

What they take, and what they refuse, is in test_split_arguments.py.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import lnfast
from lnfast.check import bounds, oracle
from lnfast.check.families import FAMILIES, draw

DTYPES = [np.float32, np.float64]
U = Fraction(1, 2**53)
LARGEST, NORMAL = (
    Fraction(float(v)) for v in (np.finfo(float).max, np.finfo(float).smallest_normal)
)
TINY = Fraction(float(np.finfo(float).smallest_subnormal))
# From the code: 8 lanes, trees of 32, chunks of 4096, groups of 8 rows and fewer of long ones.
LENGTHS = [1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 65, 768, 1001, 4096, 4097, 8193]


def exact_moments(row, shift=0.0):
    """Mean − shift and m2 of finite numbers, as fractions."""
    ratios = [float(v).as_integer_ratio() for v in row]
    scale = max(d for _, d in ratios)
    whole = [n * (scale // d) for n, d in ratios]
    total, squares, count = sum(whole), sum(v * v for v in whole), len(whole)
    m2 = Fraction(count * squares - total * total, count) / scale**2
    return Fraction(total, count) / scale - Fraction(shift), m2


def root(value):
    """√value, to 100 bits."""
    bits = 100 + value.denominator.bit_length()
    return Fraction(math.isqrt(int(value * 4**bits)), 2**bits)


def assert_moments(found, row, shift=0.0, halves=(1, Fraction(5, 4), 6)):
    """Within halves of an epsilon of |mean| and of σ, and of m2."""
    mean, m2 = exact_moments(row, shift)
    of_mean, of_sigma, of_m2 = halves
    sigma = root(m2 / len(row))
    assert abs(Fraction(found[1]) - mean) <= U * (of_mean * abs(mean) + of_sigma * sigma) + TINY
    if m2 * (1 + 6 * U) >= LARGEST:
        assert found[2] == np.inf or abs(Fraction(found[2]) - m2) <= of_m2 * U * m2
    else:
        assert abs(Fraction(found[2]) - m2) <= of_m2 * U * m2 + (
            NORMAL * U * 4 if m2 < NORMAL else 0
        )


# moments


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_moments(family, dtype):
    for cols in LENGTHS:
        x = draw(family, 2 if cols > 768 else 9, cols, dtype)[0]
        near = x[:, cols // 2 : cols // 2 + 1].astype(float)
        moments, shifted = lnfast.moments(x), lnfast.moments(x, shift=near)
        assert (moments[0] == cols).all()
        assert moments[2].tobytes() == shifted[2].tobytes()
        for i, row in enumerate(x):
            assert_moments([float(a[i, 0]) for a in moments], row)
            assert_moments([float(a[i, 0]) for a in shifted], row, near[i, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [5, 100, 5000])
def test_a_sample_that_misses(dtype, cols):
    """Where what the pivot is taken from lies far from the rest, it is moved."""
    x = np.random.default_rng(cols).standard_normal((8, cols))
    x[0, 0] = x[1, -1] = 1e12
    x[2, : cols // 2] += 1e9
    x[3] = 0.1
    x[3, -1] = 0.3
    x[4], x[5] = 0.1, 1e30 if dtype == np.float32 else 1e300
    for start in range(8):
        x[6, start::64] = 1e15
    x = x.astype(dtype)
    moments = lnfast.moments(x)
    for i, row in enumerate(x):
        assert_moments([float(a[i, 0]) for a in moments], row)
    assert moments[2][4] == moments[2][5] == 0
    assert moments[1][4] == x[4, 0] and moments[1][5] == x[5, 0]


def test_a_sample_that_misses_by_far():
    """All of a float64 row that is looked at for a pivot nine σ off, the rest alike: what a square
    is rounded by about such a pivot shows in the sum. (It has a spread, which allows for the rest.)
    """
    cols = 5000
    rng = np.random.default_rng(4)
    values, others = rng.random((2, 40, 1))
    x = values + np.zeros((1, cols))
    for start in (cols - 8) * np.arange(8) // 7:
        x[:, start : start + 8] = others + (others - values) * rng.normal(0, 0.5, (40, 8))
    moments = lnfast.moments(x)
    for i, row in enumerate(x):
        assert_moments([float(a[i, 0]) for a in moments], row)


def test_a_shift_far_off():
    """Beyond the range in which a huge or tiny row is scaled."""
    x = np.array([[1.0, 3.0, 8.0], [1e-130, 3e-130, 8e-130], [1e300, 3e300, -8e300]])
    shift = np.array([[-1e308], [1e305], [1e-290]])
    _, mean, _ = lnfast.moments(x, shift=shift)
    for i, row in enumerate(x):
        assert abs(Fraction(float(mean[i, 0])) - exact_moments(row, shift[i, 0])[0]) <= U * abs(
            Fraction(float(mean[i, 0]))
        ) + U * Fraction(float(np.abs(row).max()))


# merge_moments


def random_moments(rng, shape=()):
    count = rng.integers(1, 10 ** rng.integers(1, 7), shape).astype(float)
    mean = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4)
    return count, mean, rng.random(shape) * count


def test_merging(implementation):
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = random_moments(rng), random_moments(rng)
        found = [Fraction(float(v)) for v in implementation.merge_moments(a, b)]
        (n_a, mean_a, m2_a), (n_b, mean_b, m2_b) = ([Fraction(float(v)) for v in m] for m in (a, b))
        count = n_a + n_b
        mean = (n_a * mean_a + n_b * mean_b) / count
        m2 = m2_a + m2_b + (mean_b - mean_a) ** 2 * n_a * n_b / count
        assert found[0] == count
        # the definition moves the mean from a's, whichever is larger
        far = 3 if implementation is lnfast else 5 * (1 + (n_b / n_a))
        sigma = root(m2 / count)
        assert abs(found[1] - mean) <= U * (abs(mean) + far * sigma)
        assert abs(found[2] - m2) <= 7 * U * m2


def test_merging_stacked_arrays(implementation):
    """As they are sent and received."""
    rng = np.random.default_rng(6)
    a, b = random_moments(rng, (3, 1)), random_moments(rng, (3, 1))
    expected = implementation.merge_moments(a, b)
    found = implementation.merge_moments(np.stack(a), np.stack(b))
    assert np.stack(found).tobytes() == np.stack(expected).tobytes()


def test_merging_in_either_order():
    rng = np.random.default_rng(1)
    a, b = random_moments(rng, (50, 1)), random_moments(rng, (50, 1))
    b[0][::3] = a[0][::3]
    for one, other in zip(lnfast.merge_moments(a, b), lnfast.merge_moments(b, a), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("mean", [0.0, np.nan])
def test_merging_with_nothing(implementation, mean):
    """The moments of no elements are neutral; so are they with NaN, which NumPy has for a mean."""
    some = implementation.moments(np.array([[1.0, 2.0, 6.0], [4.0, 4.0, 5.0]]))
    nothing = (0, np.full((2, 1), mean), 0)
    for merged in (
        implementation.merge_moments(some, nothing),
        implementation.merge_moments(nothing, some),
        implementation.merge_moments(some, implementation.moments(np.ones((2, 0)))),
    ):
        for a, b in zip(merged, some, strict=True):
            np.testing.assert_array_equal(a, b)
    count, _, m2 = implementation.merge_moments(nothing, nothing)
    assert not count.any() and not m2.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_merged_slices_are_the_whole(dtype):
    """Of many slices, one after the other and as a tree: a merge's error for each."""
    x = np.random.default_rng(2).normal(3, 2, (4, 1000)).astype(dtype)
    edges = [0, 1, 3, 10, 100, 107, 499, 500, 996, 1000]
    parts = [lnfast.moments(x[:, a:b]) for a, b in itertools.pairwise(edges)]
    in_turn = parts[0]
    for part in parts[1:]:
        in_turn = lnfast.merge_moments(in_turn, part)
    tree = parts
    while len(tree) > 1:
        pairs = [tree[i : i + 2] for i in range(0, len(tree), 2)]
        tree = [lnfast.merge_moments(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    for merged in (in_turn, tree[0]):
        assert (merged[0] == 1000).all()
        for i, row in enumerate(x):  # |mean| / σ is below 2; a part's mean below 4 of them
            halves = 1 + len(parts), 4 * len(parts), 6 + (7 + 2 * 4) * len(parts)
            assert_moments([float(a[i, 0]) for a in merged], row, halves=halves)


# from slices as from whole rows


def in_slices(x, weight, bias, dy, eps, edges, implementation=lnfast, shifted=False):
    """y, dx, dweight and dbias, as machines that have a slice of the features each would have them.

    shifted: in two rounds, of which the second takes the first one's mean for a shift.
    """
    ln = implementation
    slices = [slice(a, b) for a, b in itertools.pairwise([0, *edges, x.shape[1]])]
    parts = [(x[:, s], dy[:, s], weight[s], bias[s]) for s in slices]
    shift = None
    for _ in range(1 + shifted):
        whole = ln.moments(parts[0][0], shift=shift)
        for part in parts[1:]:
            whole = ln.merge_moments(whole, ln.moments(part[0], shift=shift))
        count, mean, m2 = whole
        if shifted and shift is None:
            shift = mean
    with np.errstate(divide="ignore"):  # a constant row, whose eps is 0
        rstd = 1 / np.sqrt(m2 / count + eps)
    y = [ln.normalize(x, mean, rstd, w, b, shift=shift) for x, _, w, b in parts]
    sums = [ln.backward_sums(dy, x, mean, rstd, w, shift=shift) for x, dy, w, _ in parts]
    h, h_xhat = sum(s[0] for s in sums), sum(s[1] for s in sums)
    dx = [
        ln.backward_apply(dy, x, mean, rstd, w, h, h_xhat, count, shift=shift)
        for x, dy, w, _ in parts
    ]
    gradients = [np.concatenate([s[i] for s in sums]) for i in (2, 3)]
    return np.concatenate(y, axis=1), np.concatenate(dx, axis=1), *gradients


def edges_of(cols):
    return [[], [cols // 3], [cols // 4, cols // 2, cols * 3 // 4]]


@pytest.mark.parametrize("family", FAMILIES)
def test_slices_of_float32(family):
    """Within the bounds of layer_norm's own functions, on every family of rows."""
    for cols, eps in itertools.product((1, 3, 16, 33, 65, 768, 4097), bounds.EPS):
        case = bounds.Case(family, "float32", 6, cols, eps)
        x, weight, bias, dy = bounds.operands(case)
        for edges in edges_of(cols):
            found = in_slices(x, weight, bias, dy, eps, edges)
            for name, share in bounds.judge(found, x, weight, bias, dy, eps).items():
                assert share <= 1, (case, edges, name)


# Rows whose m2 a float64 holds
IN_RANGE = [
    family
    for family in FAMILIES
    if family
    not in ("huge constant", "to the largest", "past the squares", "small", "tiny", "subnormal")
]


@pytest.mark.parametrize("family", IN_RANGE)
def test_slices_of_float64(family):
    """The same of float64, with a shift: at offsets of 10¹² too."""
    for cols, eps in itertools.product((1, 3, 16, 33, 65, 768, 4097), bounds.EPS):
        case = bounds.Case(family, "float64", 6, cols, eps)
        x, weight, bias, dy = bounds.operands(case)
        for edges in edges_of(cols):
            found = in_slices(x, weight, bias, dy, eps, edges, shifted=True)
            for name, share in bounds.judge(found, x, weight, bias, dy, eps).items():
                assert share <= 1, (case, edges, name)


def test_what_a_shift_is_for():
    """Without one, a float64 mean costs 2^-53 · |mean| · rstd for each time it is rounded."""
    x, weight, bias, dy = draw("offset 1e6", 6, 768, np.float64)
    exact = oracle.exact_forward(x, weight, bias)
    y = in_slices(x, weight, bias, dy, 1e-5, [300])[0]
    error = np.abs(y - exact.y)
    lost = 2.0**-53 * np.abs(exact.mean * exact.rstd * weight)
    allowed = 3 * np.finfo(float).eps * exact.y_scale
    # of each slice, of their merger twice and of its result
    assert (error <= allowed + 4 * lost).all()
    assert (error > 100 * allowed).any()
    y = in_slices(x, weight, bias, dy, 1e-5, [300], shifted=True)[0]
    assert (np.abs(y - exact.y) <= allowed).all()


def test_a_shift_for_float32():
    """One last bit in a row of a million: the only rows for which a float64 mean is not enough."""
    cols = 1_000_690  # the mean lies halfway between two float64
    x = np.full((1, cols), 2.0**24 - 1, np.float32)
    x[0, 7] += 1
    rng = np.random.default_rng(5)
    weight, bias = rng.standard_normal((2, cols)).astype(np.float32)
    dy = rng.standard_normal((1, cols)).astype(np.float32)
    for shifted in (False, True):
        found = in_slices(x, weight, bias, dy, 0.0, [300_000], shifted=shifted)
        shares = bounds.judge(found, x, weight, bias, dy, 0.0)
        assert (max(shares.values()) <= 1) == shifted, shares


@pytest.mark.parametrize("dtype", DTYPES)
def test_slices_of_rows(dtype):
    """dweight and dbias of slices of the rows, added: half an epsilon more for each addition."""
    x, weight, _, dy = draw("normal", 300, 70, dtype)
    count, mean, m2 = lnfast.moments(x)
    rstd = 1 / np.sqrt(m2 / count + 1e-5)
    found = [np.zeros(70, dtype), np.zeros(70, dtype)]
    for part in (slice(0, 1), slice(1, 130), slice(130, 300)):
        _, _, *gradients = lnfast.backward_sums(dy[part], x[part], mean[part], rstd[part], weight)
        found = [a + b for a, b in zip(found, gradients, strict=True)]
    exact = oracle.exact_backward(dy, x, weight)
    eps_m = np.finfo(dtype).eps
    for name, halves in (("dweight", 8 + 3), ("dbias", 4 + 3)):
        got, scale = found[name == "dbias"], getattr(exact, f"{name}_scale")
        assert (np.abs(got - getattr(exact, name)) <= halves / 2 * eps_m * scale).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shifted", [False, True])
def test_statistics_as_given(dtype, shifted):
    """y and dx of any statistics, which need not be the row's, in wider arithmetic."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("compares with a longdouble wider than float64")
    rng = np.random.default_rng(3)
    rows, cols = 9, 301
    x, dy = rng.standard_normal((2, rows, cols)).astype(dtype)
    weight, bias = rng.standard_normal((2, cols)).astype(dtype)
    mean, rstd, h, h_xhat, count = rng.uniform(0.5, 2, (5, rows, 1))
    shift = rng.uniform(-0.5, 0.5, (rows, 1)) if shifted else None
    wide = [a.astype(np.longdouble) for a in (x, dy, weight, bias, mean, rstd, h, h_xhat, count)]
    w_x, w_dy, w_weight, w_bias, w_mean, w_rstd, w_h, w_h_xhat, w_count = wide
    center = w_mean + (shift if shifted else 0)
    xhat, w_dh = (w_x - center) * w_rstd, w_dy * w_weight
    m = np.maximum(1, np.abs(xhat))
    eps_m = np.finfo(dtype).eps
    of_y, of_dx = (1, 1) if dtype == np.float32 else (2 + shifted, 6 + shifted)

    y = lnfast.normalize(x, mean, rstd, weight, bias, shift=shift)
    # rounding x − shift is of |x − shift| ≤ |x − shift − mean| + |mean|, and |mean| ≤ 2
    wider = 1 + 2 * shifted
    scale = np.abs(w_weight) * m * wider + np.abs(w_bias)
    assert (np.abs(y - (xhat * w_weight + w_bias)) <= of_y * eps_m * scale).all()

    dx = lnfast.backward_apply(dy, x, mean, rstd, weight, h, h_xhat, count, shift=shift)
    exact = w_rstd * (w_dh - w_h / w_count - xhat * w_h_xhat / w_count)
    scale = w_rstd * (np.abs(w_dh) + w_h / w_count + m * wider * w_h_xhat / w_count)
    assert (np.abs(dx - exact) <= of_dx * eps_m * scale).all()

    # float64: 8 half epsilons; float32: a sum of D terms in eight lanes
    halves = 8 + 2 * shifted if dtype == np.float64 else 6 + cols / 8
    sums = lnfast.backward_sums(dy, x, mean, rstd, weight, shift=shift)
    for got, terms in ((sums[0], w_dh), (sums[1], w_dh * xhat)):
        size = (np.abs(w_dh) * m * wider).sum(axis=1, keepdims=True)
        assert (np.abs(got - terms.sum(axis=1, keepdims=True)) <= halves * 2.0**-53 * size).all()
