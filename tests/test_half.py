"""float16 and bfloat16: the float32 result, rounded once; the same bits with and without the
processor's conversions, every value of them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from norms import NORMS, Norm
from variants import LAYOUTS, assert_all_same_bits, assert_same_bits, numbers

import lnfast
from lnfast import reference

try:
    from ml_dtypes import bfloat16
except ModuleNotFoundError:
    bfloat16 = None
needs_bfloat16 = pytest.mark.skipif(bfloat16 is None, reason="ml_dtypes is not installed")
HALVES = [np.float16, pytest.param(bfloat16, marks=needs_bfloat16, id="bfloat16")]
# From the code: 16, 8 and 4 lanes, blocks of 64 rows and 64 KiB.
SHAPES = [(1, 1), (3, 3), (70, 4), (70, 7), (65, 16), (9, 33), (20, 768), (3, 20_000), (2000, 96)]


def operands(shape, half):
    x, dy = (numbers(shape, np.float32, seed=i).astype(half) for i in (0, 1))
    weight, bias = numbers((2, shape[-1]), np.float32, seed=2)
    return x, dy, weight, bias


def wide(norm, x, dy, weight, bias, half):
    """y and the gradients in float32, y and dx then rounded; and the record."""
    y, cache = norm.forward(x.astype(np.float32), x.shape[-1], *norm.parameters_of(weight, bias))
    dx, *sums = norm.backward(dy.astype(np.float32), cache)
    return (y.astype(half), dx.astype(half), *sums), cache


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NORMS)
def test_float32_rounded_once(name, shape, half):
    norm, made = Norm(name), operands(shape, half)
    wanted, record = wide(norm, *made, half)
    x, dy, *parameters = made
    parameters = norm.parameters_of(*parameters)
    for threads in (1, None, 3):
        y, cache = norm.forward(x, shape[-1], *parameters, num_threads=threads)
        got = y, *norm.backward(dy, cache, num_threads=threads)
        assert_all_same_bits(got, wanted)
        assert_same_bits(norm.normalize(x, shape[-1], *parameters, num_threads=threads), y)
    for name in norm.statistics:
        assert_same_bits(getattr(cache, name), getattr(record, name))
    assert cache.x is x


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("shape", [(4100, 2100), (140_000, 64)])  # rows in parts, and whole
@pytest.mark.parametrize("name", NORMS)
def test_past_the_caches(name, shape, half):
    """More than a last-level cache holds, wherever y begins; some rows go the exact way."""
    norm, (rows, cols) = Norm(name), shape
    assert 4 * rows * cols >= 2**25  # x and y: STREAM_BYTES of kernels.pxd
    x, _, weight, bias = operands((37, cols), half)
    x[5, 1] = np.inf
    parameters = norm.parameters_of(weight, bias)
    known = norm.normalize(x.astype(np.float32), cols, *parameters).astype(half)
    x, known = (np.resize(a, shape) for a in (x, known))
    room = np.empty(rows * cols + 64, half)
    for start in (0, 1, 8, 32):
        y = room[start : start + rows * cols].reshape(shape)
        y[...] = 7
        norm.normalize(x, cols, *parameters, out=y)
        assert_same_bits(y, known)
    assert_same_bits(norm.normalize(x, cols, *parameters), known)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("rows", [1, 3, 4, 8, 12, 15])  # strips of 4, groups of 8, and a rest
@pytest.mark.parametrize("name", NORMS)
def test_rows_that_are_no_usual_ones(name, rows, half):
    """Among others a row that is not finite, one of huge gradients, one far from 0; outputs left
    out; no weight. Tiles of 256 columns, three quarters of one and ends of every length."""
    norm = Norm(name)
    for cols in (8, 200, 256, *range(304, 321), 4104):
        x, dy, *parameters = operands((rows, cols), half)
        x[0, 0] = np.nan if rows > 4 else x[0, 0]
        x[rows // 2] = x[rows // 2] / half(64) + half(1000)
        dy[-1] *= half(1e4 if half is np.float16 else 3e37)
        for some in (norm.parameters_of(*parameters), ()):
            y, cache = norm.forward(x, cols, *some)
            known, record = norm.forward(x.astype(np.float32), cols, *some)
            assert_same_bits(y, known.astype(half))
            dx, *sums = norm.backward(dy.astype(np.float32), record)
            with np.errstate(over="ignore"):
                wanted = dx.astype(half), *(a if some else a.astype(half) for a in sums)
            for k in range(len(wanted)):
                mask = [i == k for i in range(len(wanted))]
                got = norm.backward(dy, cache, output_mask=mask)
                assert_same_bits(got[k], wanted[k])
            assert_all_same_bits(norm.backward(dy, cache), wanted)


@pytest.mark.parametrize("half", HALVES)
def test_in_place(norm, half):
    for shape in [(20, 768), (13, 301)]:
        x, dy, weight, bias = operands(shape, half)
        parameters = norm.parameters_of(weight, bias)
        wanted, cache = norm.forward(x, shape[1], *parameters)
        known = norm.backward(dy, cache)
        for of in (0, 1):
            own = [x.copy(), dy.copy()]
            got = norm.backward(own[1], cache._replace(x=own[0]), out=own[of])
            assert got[0] is own[of]
            assert_all_same_bits(got, known)
        y = x.copy()
        assert norm.normalize(y, shape[1], *parameters, out=y) is y
        assert_same_bits(y, wanted)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("shape", [(11_000, 512), (10_900, 520), (87_500, 64), (18_600, 301)])
@pytest.mark.parametrize("name", NORMS)
def test_gradients_past_the_caches(name, shape, half):
    """Rows that are whole lines and not, wherever dx begins; the last rows are no whole strip, one
    goes the exact way."""
    norm, (rows, cols) = Norm(name), shape
    assert 6 * rows * cols >= 2**25  # x, dy and dx: STREAM_BYTES of kernels.pxd
    x, dy, weight, bias = operands((37, cols), half)
    x[5, 1] = np.inf
    x, dy = (np.resize(a, shape) for a in (x, dy))
    parameters = norm.parameters_of(weight, bias)
    _, cache = norm.forward(x, cols, *parameters)
    wide_cache = cache._replace(x=x.astype(np.float32))
    known, *known_sums = norm.backward(dy.astype(np.float32), wide_cache)
    known = known.astype(half)
    room = np.empty(rows * cols + 64, half)
    for start in (0, 1, 8, 32):
        dx = room[start : start + rows * cols].reshape(shape)
        dx[...] = 7
        _, *sums = norm.backward(dy, cache, out=dx)
        assert_same_bits(dx, known)
        assert_all_same_bits(sums, known_sums)


@pytest.mark.parametrize("half", HALVES)
def test_parameters_of_the_same_type(norm, half):
    """The same as their float32 values; and gradients in that type."""
    x, dy, weight, bias = operands((9, 33), half)
    narrow = norm.parameters_of(weight.astype(half), bias.astype(half))
    y, cache = norm.forward(x, 33, *narrow)
    known, record = norm.forward(x, 33, *(a.astype(np.float32) for a in narrow))
    assert_same_bits(y, known)
    assert cache.weight.dtype == half and record.weight.dtype == np.float32
    (dx, *sums), (known_dx, *known_sums) = norm.backward(dy, cache), norm.backward(dy, record)
    assert_same_bits(dx, known_dx)
    assert_all_same_bits(sums, [a.astype(half) for a in known_sums])
    # any other becomes float32
    y, cache = norm.forward(x, 33, *(a.astype(np.float64) for a in narrow))
    assert_same_bits(y, known)
    assert cache.weight.dtype == np.float32
    # and without any, x's
    assert [a.dtype for a in norm.backward(dy, norm.forward(x, 33)[1])] == [half] * (
        1 + len(narrow)
    )


@pytest.mark.parametrize("half", HALVES)
def test_error(half):
    """Half a unit of the half type, and what float32 may be off by."""
    x, _, weight, bias = operands((50, 768), half)
    y = lnfast.layer_norm(x, 768, weight, bias).astype(np.float64)
    exact = lnfast.layer_norm(x.astype(np.float64), 768, weight, bias)
    xhat = lnfast.layer_norm(x.astype(np.float64), 768)
    info = np.finfo(half) if half is np.float16 else None
    digits = 10 if half is np.float16 else 7
    least = float(info.smallest_normal) if info else 2.0**-126
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), least))) - digits)
    scale = np.abs(weight) * np.maximum(1, np.abs(xhat)) + np.abs(bias)
    bound = unit / 2 + 3 * np.finfo(np.float32).eps * scale
    assert (np.abs(y - exact) <= bound).all()
    assert (np.abs(y - exact) > bound / 3).any()


# Every value, by rows that give it back: mean 0 (x and −x) and rstd 1 (eps makes it so).


@pytest.mark.parametrize("half", HALVES)
def test_every_value_is_widened(half):
    """rms_norm of each value alone, in float32 and in the half type."""
    every = np.arange(65536, dtype=np.uint16).view(half).reshape(-1, 1)
    with np.errstate(invalid="ignore"):
        plain = every.astype(np.float32)
    finite = np.isfinite(plain[:, 0])
    _, cache = lnfast.rms_norm_forward(every, 1, eps=0.5)
    _, known = lnfast.rms_norm_forward(plain, 1, eps=0.5)
    assert_same_bits(cache.rstd[finite], known.rstd[finite])
    assert np.isnan(cache.rstd[~finite]).all() and finite.sum() > 63000


@pytest.mark.parametrize("half", HALVES)
def test_every_rounding(half):
    """bias through zeros: y is any float32 wanted, rounded. Around every half value, and its
    middles with the next, to nearest even."""
    every = np.arange(0x7C00 if half is np.float16 else 0x7F80, dtype=np.uint16).view(half)
    values = every.astype(np.float32)
    with np.errstate(over="ignore"):
        middles = (values[1:].astype(np.float64) + values[:-1]) / 2
        last = values[-1].astype(np.float64)
        middles = np.append(middles, last + (last - values[-2]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf))]
    bias = np.concatenate([values, middles, *near])
    bias = np.concatenate([bias, -bias[bias != 0]])  # 0 + -0 is 0
    x = np.zeros((2, bias.size), half)
    with np.errstate(over="ignore"):
        wanted = bias.astype(half)
    y = lnfast.layer_norm(x, bias.size, None, bias)
    assert_same_bits(y[1], wanted)
    full = np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)  # NaN, all bits set
    special = np.array([np.inf, -np.inf, np.nan, -np.nan, *full, 1e30, -3e38], np.float32)
    special = np.resize(special, 75)  # whole registers, and less
    y = lnfast.layer_norm(np.zeros((1, 75), half), 75, None, special)[0]
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = special.astype(half)
    np.testing.assert_array_equal(y.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("half", HALVES)
def test_instruction_sets(half):
    """The digest of all results, one process for each."""
    program = """
import hashlib, sys
import numpy as np
import lnfast
if sys.argv[1] == "bfloat16":
    from ml_dtypes import bfloat16 as half
else:
    half = np.float16
digest = hashlib.sha256()
for shape in [(3, 3), (70, 7), (20, 768), (9, 33)]:
    x, dy = (np.random.default_rng(i).standard_normal(shape).astype(half) for i in (0, 1))
    for add in (0, 1):
        if add:
            y, s, cache = lnfast.add_layer_norm_forward(x, dy, shape[-1])
        else:
            y, cache = lnfast.layer_norm_forward(x, shape[-1], x[0], dy[0])
        for a in (y, cache.mean, cache.rstd, *lnfast.layer_norm_backward(dy, cache)):
            digest.update(a.tobytes())
every = np.arange(65536, dtype=np.uint16).view(half).reshape(1, -1)
every = every[:, np.isfinite(every.astype(np.float32))[0]]
for a in (lnfast.rms_norm(every, every.shape[1]), lnfast.layer_norm(every.T, 1, None, [1e-6])):
    digest.update(a.tobytes())
print(digest.hexdigest())
"""
    name = np.dtype(half).name
    digests = {
        isa: subprocess.run(
            [sys.executable, "-P", "-c", program, name],
            env=os.environ | {"LNFAST_ISA": isa},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for isa in lnfast.config()["isa_available"]
    }
    assert len(set(digests.values())) == 1, digests


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(norm, half, layout):
    x, dy, weight, bias = operands((6, 33), half)
    parameters = norm.parameters_of(weight, bias)
    wanted, cache = norm.forward(x, 33, *parameters)
    change = LAYOUTS[layout]
    assert_same_bits(norm.normalize(change(x), 33, *parameters), wanted)
    out = change(x.copy())
    assert norm.normalize(out, 33, *parameters, out=out) is out
    assert_same_bits(np.ascontiguousarray(out), wanted)
    known = norm.backward(dy, cache)
    assert_all_same_bits(norm.backward(change(dy), cache._replace(x=change(x))), known)


@pytest.mark.parametrize("half", HALVES)
def test_axis_mask_and_residual(half):
    """Together: what the float32 arrays give, rounded."""
    for name in NORMS:
        norm = Norm(name)
        x, dy = (numbers((3, 20, 37), np.float32, seed=i).astype(half) for i in (0, 1))
        mask = numbers((3, 20, 37), np.float32, seed=2) > 0
        y, cache = norm.forward(x, axis=1, mask=mask)
        known, record = norm.forward(x.astype(np.float32), axis=1, mask=mask)
        assert_same_bits(y, known.astype(half))
        gradients = norm.backward(dy, cache)
        wanted = norm.backward(dy.astype(np.float32), record)
        assert_all_same_bits(gradients, [a.astype(half) for a in wanted])


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", NORMS)
def test_residual(name, half):
    """The sum is rounded to the half type first, and then normalised."""
    norm = Norm(name)
    for shape in [(3, 5), (70, 33), (4, 768)]:
        x, residual, *_ = operands(shape, half)
        y, s = getattr(lnfast, f"add_{name}")(x, residual, shape[-1])
        assert_same_bits(s, x + residual)
        assert_same_bits(y, norm.normalize(s, shape[-1]))
        dy, ds = residual, x
        y, s, cache = getattr(lnfast, f"add_{name}_forward")(x, residual, shape[-1])
        dx = norm.backward(dy, cache, ds=ds)[0]
        wide_cache = norm.forward(s.astype(np.float32), shape[-1])[1]
        of_y = norm.backward(dy.astype(np.float32), wide_cache)[0]
        assert_same_bits(dx, (of_y + ds.astype(np.float32)).astype(half))


@pytest.mark.parametrize("half", HALVES)
def test_against_the_reference(half):
    for name in NORMS:
        norm, defined = Norm(name), Norm(name, reference)
        x, dy, weight, bias = operands((9, 33), half)
        parameters = norm.parameters_of(weight, bias.astype(half))
        (y, cache), (known, record) = (each.forward(x, 33, *parameters) for each in (norm, defined))
        unit = 2.0**-10 if half is np.float16 else 2.0**-7
        got, wanted = norm.backward(dy, cache), defined.backward(dy, record)
        for a, b in zip((y, *got), (known, *wanted), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            a, b = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=1.01 * unit, atol=unit * np.abs(b).max() / 64)


@pytest.mark.parametrize("half", HALVES)
def test_errors(norm, half):
    x = np.ones((3, 4), half)
    with pytest.raises(ValueError, match="out must have the dtype of the result, .*not float32"):
        norm.normalize(x, 4, out=np.empty((3, 4), np.float32))
    with pytest.raises(ValueError, match=r"^x\[1, 2\] is nan$"):
        norm.normalize(
            np.where(np.arange(12).reshape(3, 4) == 6, half(np.nan), x), 4, check_finite=True
        )
    large = np.full(4, 60000 if half is np.float16 else 3e38, half)
    with pytest.raises(ValueError, match=r"^y\[0, \d\] overflows to -?inf$"):
        norm.normalize(np.arange(4).reshape(1, 4).astype(half), 4, large, check_finite=True)


@needs_bfloat16
def test_other_types_of_ml_dtypes(norm):
    import ml_dtypes

    for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4):
        with pytest.raises(TypeError, match="x has dtype .*float32, float64, float16 or bfloat16"):
            norm.normalize(np.ones((3, 4)).astype(kind), 4)


def test_ml_dtypes_is_not_imported():
    program = "import sys, lnfast; print('ml_dtypes' in sys.modules)"
    run = [sys.executable, "-P", "-c", program]
    assert subprocess.run(run, capture_output=True, text=True).stdout.strip() == "False"
