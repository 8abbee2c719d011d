"""No access past an array where rows are gathered: strides, masks, residuals, half types.

As test_memory.py: each argument ends, or begins, where readable memory does.
"""

import numpy as np
import pytest
from guarded import Guarded
from norms import NORMS, Norm

import lnfast

# Tails of all registers and of squares of 16 columns; rows of which few make a block.
COLUMNS = [*range(1, 36), 63, 64, 65, 127, 129, 768, 1001, 20_011]


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture(params=[False, True], ids=["before a guard", "behind a guard"])
def guard(request):
    guarded = Guarded()
    yield lambda a: guarded.array(np.ascontiguousarray(a), first=request.param)
    guarded.rooms.clear()


def assert_same(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def through(norm, x, dy, weight, bias, out, dx, **keywords):
    """Every result of the two passes, into arrays that are given."""
    shape = None if "axis" in keywords else x.shape[-1]
    parameters = norm.parameters_of(weight, bias)
    y, cache = norm.forward(x, shape, *parameters, out=out, **keywords)
    return y, *norm.backward(dy, cache, out=dx)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", NORMS)
def test_masks_and_half_types(name, dtype, guard):
    norm = Norm(name)
    for cols in COLUMNS:
        rows = 9 if cols < 1000 else 3
        x, dy = numbers((2, rows, cols), dtype)
        weight, bias = numbers((2, cols), dtype if dtype != np.float16 else np.float32, 1)
        for mask in (numbers((rows, cols), "f4", 2) > 0, np.arange(cols) < cols // 2, None):
            keywords = {} if mask is None else {"mask": mask}
            wanted = through(norm, x, dy, weight, bias, None, None, **keywords)
            arrays = [guard(a) for a in (x, dy, weight, bias, x, dy)]
            keywords = {} if mask is None else {"mask": guard(mask)}
            assert_same(through(norm, *arrays, **keywords), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", NORMS)
def test_axes(name, dtype, guard):
    norm = Norm(name)
    for cols in COLUMNS[:-1]:
        for inner in (1, 3, 4, 17, 66) if cols < 100 else (5,):
            x, dy = numbers((2, 2, cols, inner), dtype)
            weight, bias = numbers((2, cols), np.float32, 1)
            wanted = through(norm, x, dy, weight, bias, None, None, axis=1)
            arrays = [guard(a) for a in (x, dy, weight, bias, x, dy)]
            assert_same(through(norm, *arrays, axis=1), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", NORMS)
def test_residuals(name, dtype, guard):
    norm, forward = Norm(name), getattr(lnfast, f"add_{name}_forward")
    for cols in COLUMNS:
        x, dy = numbers((2, 9, cols), dtype)
        parameters = norm.parameters_of(*numbers((2, cols), np.float32, 1))
        for residual in (numbers((9, cols), dtype, 2), numbers((9, 1), dtype, 2)):
            y, s, cache = forward(x, residual, cols, *parameters)
            wanted = y, s, *norm.backward(dy, cache, ds=x)
            given = [guard(a) for a in (x, residual)]
            out, sum_out, ds, dx = (guard(x) for _ in range(4))
            y, s, cache = forward(*given, cols, *parameters, out=out, sum_out=sum_out)
            assert_same((y, s, *norm.backward(guard(dy), cache, ds=ds, out=dx)), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_past_the_caches(dtype, guard):
    """Sums, y and dx of this size are written past the caches, every element of them."""
    shape = (530, 16_411 * 4 // np.dtype(dtype).itemsize)
    x, residual, dy = (numbers(shape, dtype, seed) for seed in range(3))
    wanted = x + residual
    known = lnfast.layer_norm(wanted, shape[-1])
    y, s, cache = lnfast.add_layer_norm_forward(
        guard(x), guard(residual), shape[-1], out=guard(x), sum_out=guard(x)
    )
    assert_same((y, s), (known, wanted))
    dx = lnfast.layer_norm_backward(dy, cache)[0]
    assert_same(lnfast.layer_norm_backward(dy, cache, ds=guard(x), out=guard(x))[:1], (dx + x,))
