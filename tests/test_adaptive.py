"""weight and bias with leading axes: each row as if its own were given to it alone."""

import numpy as np
import pytest
from norms import NORMS, Norm
from variants import DTYPES, assert_all_same_bits, assert_same_bits, numbers

import lnfast
from lnfast import reference

# Shapes of x and of its parameters: one for each sample, each position, each row, groups in the
# middle, and some that only look so. Backward takes blocks of 32 rows and 65,536 elements and more.
SHAPES = [
    ((4, 9, 33), (4, 1, 33)),
    ((4, 9, 33), (9, 33)),
    ((4, 9, 33), (1, 9, 33)),
    ((4, 9, 33), (4, 9, 33)),
    ((4, 9, 33), (1, 1, 33)),
    ((4, 1, 33), (4, 1, 33)),
    ((5, 1), (5, 1)),
    ((3, 4, 5, 16), (3, 1, 5, 16)),
    ((3, 4, 5, 16), (1, 4, 1, 16)),
    ((3, 4, 5, 16), (4, 1, 16)),
    ((2, 3000, 64), (2, 1, 64)),
    ((300, 8), (300, 8)),
]


def operands(shape, own, dtype):
    x, dy = numbers(shape, dtype, offset=2), numbers(shape, dtype, seed=1)
    return x, dy, numbers(own, dtype, seed=2), numbers(own, dtype, seed=3)


def row_axes(shape, own):
    """Those along which the parameters are shared."""
    lengths = (1,) * (len(shape) - len(own)) + own
    return tuple(i for i, n in enumerate(lengths[:-1]) if n == 1)


def samples(shape, own):
    """For each row of the parameters: where in x it is used, as an index."""
    lengths = (1,) * (len(shape) - len(own)) + own
    for index in np.ndindex(lengths[:-1]):
        yield tuple(slice(None) if n == 1 else i for i, n in zip(index, lengths, strict=False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, own", SHAPES)
@pytest.mark.parametrize("name", NORMS)
def test_bits_of_each_sample_alone(name, shape, own, dtype):
    norm, (x, dy, weight, bias) = Norm(name), operands(shape, own, dtype)
    cols = shape[-1]
    for threads in (1, None, 3):
        y, cache = norm.forward(x, cols, *norm.parameters_of(weight, bias), num_threads=threads)
        dx, *sums = norm.backward(dy, cache, num_threads=threads)
        assert all(a.shape == own and a.dtype == dtype for a in sums)
        flat = [a.reshape(-1, cols) for a in (weight, bias, *sums)]
        for i, index in enumerate(samples(shape, own)):
            rows = np.ascontiguousarray(x[index]).reshape(-1, cols)
            known, record = norm.forward(rows, cols, *norm.parameters_of(flat[0][i], flat[1][i]))
            assert_same_bits(y[index].reshape(-1, cols), known)
            gradients = norm.backward(np.ascontiguousarray(dy[index]).reshape(-1, cols), record)
            assert_same_bits(dx[index].reshape(-1, cols), gradients[0])
            assert_all_same_bits((a[i] for a in flat[2:]), gradients[1:])


@pytest.mark.parametrize(
    "mixed", [("own", None), (None, "own"), ("own", "shared"), ("shared", "own")]
)
def test_weight_and_bias_apart(norm, mixed):
    """Without a record each has its own shape."""
    x, _, weight, bias = operands((4, 9, 33), (4, 1, 33), np.float32)
    choose = {"own": lambda a: a, "shared": lambda a: a[0, 0], None: lambda a: None}
    parameters = [choose[kind](a) for kind, a in zip(mixed, (weight, bias), strict=True)]
    y = norm.normalize(x, 33, *norm.parameters_of(*parameters))
    for i in range(4):
        of_sample = [a if a is None or a.ndim == 1 else a[i, 0] for a in parameters]
        known = norm.normalize(x[i], 33, *norm.parameters_of(*of_sample))
        assert_same_bits(y[i], known)


def test_many_samples_on_many_threads(norm):
    """Each a block of its own, whose sums no other thread's touch."""
    x, dy, weight, bias = operands((64, 30, 257), (64, 1, 257), np.float32)
    cache = norm.forward(x, 257, *norm.parameters_of(weight, bias))[1]
    wanted = norm.backward(dy, cache, num_threads=1)
    for _ in range(5):
        assert_all_same_bits(norm.backward(dy, cache, num_threads=4), wanted)


def test_records_know_one_shape(implementation):
    x, dy, weight, bias = operands((4, 9, 33), (4, 1, 33), np.float32)
    for pair in [(weight, bias[0, 0]), (weight[0, 0], bias), (weight, bias[:1])]:
        with pytest.raises(ValueError, match="weight and bias must have the same shape, not"):
            implementation.layer_norm_forward(x, 33, *pair)
    y, cache = implementation.layer_norm_forward(x, 33, None, bias)
    known, record = implementation.layer_norm_forward(x, 33, np.ones_like(bias), bias)
    assert_same_bits(y, known)
    got = implementation.layer_norm_backward(dy, cache)
    assert_all_same_bits(got, implementation.layer_norm_backward(dy, record))
    assert got[2].shape == bias.shape


@pytest.mark.parametrize("name", NORMS)
def test_against_the_reference(name):
    norm, defined = Norm(name), Norm(name, reference)
    for shape, own in SHAPES:
        x, dy, weight, bias = operands(shape, own, np.float32)
        parameters = norm.parameters_of(weight, bias)
        (y, cache), (known, record) = (
            each.forward(x, shape[-1], *parameters) for each in (norm, defined)
        )
        got, wanted = norm.backward(dy, cache), defined.backward(dy, record)
        for a, b in zip((y, *got), (known, *wanted), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            # 4 eps of rstd (|h| + m mean(|h| m)), which cancels where a row has one element
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * (1 + np.abs(b).max()))


def test_sums_over_the_rows_that_share():
    x, dy, weight, bias = operands((3, 4, 5, 16), (3, 1, 5, 16), np.float64)
    cache = lnfast.layer_norm_forward(x, 16, weight, bias)[1]
    _, dweight, dbias = lnfast.layer_norm_backward(dy, cache)
    xhat = (x - cache.mean) * cache.rstd
    for got, term in ((dweight, dy * xhat), (dbias, dy)):
        np.testing.assert_allclose(got, term.sum(axis=1, keepdims=True), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("own", [(4, 9, 1, 1), (1, 9, 5, 1), (4, 9, 1, 6), (9, 5, 6)])
def test_any_axis(own):
    """Channels first: (B, C, H, W) with one weight for each sample, row or column."""
    for name in NORMS:
        norm, (x, dy, weight, bias) = Norm(name), operands((4, 9, 5, 6), own, np.float32)
        y, cache = norm.forward(x, None, *norm.parameters_of(weight, bias), axis=1)
        dx, *sums = norm.backward(dy, cache)
        order = (0, 2, 3, 1)
        full = (1,) * (4 - len(own)) + own
        turned = [np.ascontiguousarray(a.transpose(order)) for a in (x, dy)]
        of_rows = [np.ascontiguousarray(a.reshape(full).transpose(order)) for a in (weight, bias)]
        known, record = norm.forward(turned[0], 9, *norm.parameters_of(*of_rows))
        wanted = norm.backward(turned[1], record)
        back = [np.ascontiguousarray(a.transpose(0, 3, 1, 2)) for a in (known, *wanted)]
        assert_all_same_bits((y, dx), back[:2])
        assert_all_same_bits(sums, [a.reshape(own) for a in back[2:]])


@pytest.mark.parametrize(
    "own", [(2, 1, 33), (4, 2, 33), (5, 33), (4, 9, 32), (4, 1, 1), (4, 9, 9, 33)]
)
def test_errors(norm, own):
    x = np.ones((4, 9, 33))
    for name in norm.parameters:
        for function in (norm.normalize, norm.forward):
            with pytest.raises(ValueError, match=rf"^{name} (with|must have) shape"):
                function(x, 33, **{name: np.ones(own)})


def test_empty(norm):
    for shape, own in [((0, 9, 4), (1, 1, 4)), ((3, 0, 4), (3, 1, 4)), ((3, 2, 0), (3, 1, 0))]:
        x, one = np.empty(shape, np.float32), np.ones(own, np.float32)
        y, cache = norm.forward(x, shape[-1], *norm.parameters_of(one, one))
        dx, *sums = norm.backward(x, cache)
        assert y.shape == dx.shape == shape
        assert all(a.shape == own and not a.any() for a in sums)
