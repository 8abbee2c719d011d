"""add_layer_norm and add_rms_norm: the bits of adding and normalising apart, in place or not."""

import numpy as np
import pytest
from norms import NORMS, Norm
from variants import DTYPES, LAYOUTS, assert_all_same_bits, assert_same_bits, numbers

import lnfast
from lnfast import reference

# Shapes of x and of what is added: of one shape, and broadcast in every way. Blocks are of 64 rows
# or 64 KiB; 4100 × 2100 lies in memory, where sums are written past the caches.
SHAPES = [
    ((2, 3, 4), (3, 4)),
    ((1, 1), (1, 1)),
    ((5, 7), ()),
    ((70, 33), (70, 33)),
    ((6, 30, 70), (6, 1, 70)),
    ((6, 30, 70), (30, 70)),
    ((6, 30, 70), (6, 30, 1)),
    ((6, 30, 70), (1, 30, 1)),
    ((3, 20_000), (3, 20_000)),
    ((4100, 2100), (4100, 2100)),
]


class Adding:
    """A norm's functions that add, and the norm."""

    def __init__(self, name, implementation=lnfast):
        self.norm = Norm(name, implementation)
        self.add = getattr(implementation, f"add_{name}")
        self.forward = getattr(implementation, f"add_{name}_forward")


@pytest.fixture(params=NORMS)
def adding(request, implementation):
    return Adding(request.param, implementation)


def operands(shape, added, dtype):
    x, residual = numbers(shape, dtype), numbers(added, dtype, seed=1)
    weight, bias = numbers(shape[-1:], dtype, seed=2), numbers(shape[-1:], dtype, seed=3)
    return x, residual, weight, bias


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, added", SHAPES)
@pytest.mark.parametrize("name", NORMS)
def test_bits_of_both_apart(name, shape, added, dtype):
    adding = Adding(name)
    norm, (x, residual, *parameters) = adding.norm, operands(shape, added, dtype)
    parameters = norm.parameters_of(*parameters)
    wanted = x + residual
    known, record = norm.forward(wanted, shape[-1], *parameters)
    for threads in (None, 1, 3):
        y, s = adding.add(x, residual, shape[-1], *parameters, num_threads=threads)
        assert_all_same_bits((y, s), (known, wanted))
        y, s, cache = adding.forward(x, residual, shape[-1], *parameters, num_threads=threads)
        assert_all_same_bits((y, s, cache.rstd), (known, wanted, record.rstd))
    assert type(cache) is norm.record and cache.x is s
    dy, ds = numbers(shape, dtype, seed=4), numbers(shape, dtype, seed=5)
    dx, *sums = norm.backward(dy, record)
    assert_all_same_bits(norm.backward(dy, cache, ds=ds), (dx + ds, *sums))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_in_place(name, dtype):
    """out and sum_out over x, the residual, and anything else."""
    adding = Adding(name)
    for shape in [(3, 5), (70, 33), (4100, 2100)]:
        x, residual, *parameters = operands(shape, shape, dtype)
        parameters = adding.norm.parameters_of(*parameters)
        y, s = adding.add(x, residual, shape[-1], *parameters)
        for out, sum_out in [(0, None), (1, None), (None, 0), (None, 1), (0, 1), (1, 0)]:
            given = [x.copy(), residual.copy()]
            targets = {
                name: given[i] for name, i in (("out", out), ("sum_out", sum_out)) if i is not None
            }
            got = adding.add(*given, shape[-1], *parameters, **targets)
            assert_all_same_bits(got, (y, s), (shape, out, sum_out))
            for result, name in zip(got, ("out", "sum_out"), strict=True):
                assert name not in targets or result is targets[name]


def test_the_same_array_twice(adding):
    x = numbers((9, 20), np.float32)
    wanted = adding.add(x, x.copy(), 20)
    assert_all_same_bits(adding.add(x, x, 20), wanted)
    assert_all_same_bits(adding.add(x, x, 20, sum_out=x), wanted)


def test_overlaps(adding):
    """As if the inputs had been copied first."""
    room = numbers((12, 20), np.float32)
    wanted = adding.add(room[:8].copy(), room[2:10].copy(), 20)
    for name, rows in [("out", 1), ("out", 3), ("sum_out", 1), ("sum_out", 3), ("sum_out", 0)]:
        made = room.copy()
        out = made[rows : rows + 8]
        assert_all_same_bits(adding.add(made[:8], made[2:10], 20, **{name: out}), wanted)
    for rows in (1, 3):  # of the residual alone
        made = room.copy()
        sum_out = made[rows : rows + 8]
        got = adding.add(room[:8].copy(), made[2:10], 20, sum_out=sum_out)
        assert_all_same_bits(got, wanted)
    weight = np.ones(160, np.float32)
    made = adding.add(room[:8], room[2:10], 20, weight[:20], sum_out=weight.reshape(8, 20))
    assert_all_same_bits(made, wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(adding, layout):
    x, residual, *parameters = operands((6, 20, 33), (6, 20, 33), np.float32)
    parameters = adding.norm.parameters_of(*parameters)
    wanted = adding.add(x, residual, 33, *parameters)
    change = LAYOUTS[layout]
    for given in [(change(x), residual), (x, change(residual)), (change(x), change(residual))]:
        assert_all_same_bits(adding.add(*given, 33, *parameters), wanted)
    out, sum_out = change(np.zeros_like(x)), change(np.zeros_like(x))
    got = adding.add(x, residual, 33, *parameters, out=out, sum_out=sum_out)
    assert got[0] is out and got[1] is sum_out
    assert_all_same_bits([np.ascontiguousarray(a) for a in got], wanted)


def test_dtypes(adding):
    """The residual is cast once to x's dtype; what is no float becomes float64."""
    x, wide = numbers((4, 6), np.float32), numbers((4, 6), np.float64, seed=1)
    got = adding.add(x, wide, 6)
    assert_all_same_bits(got, adding.add(x, wide.astype(np.float32), 6))
    got = adding.add([[1, 2, 4]], np.array([True, False, True]), 3)
    assert got[1].dtype == np.float64 and got[1].tolist() == [[2, 2, 5]]
    swapped = adding.add(x.astype(">f4"), x.astype(">f4"), 6)
    assert_all_same_bits(swapped, adding.add(x, x, 6))


@pytest.mark.parametrize("name", NORMS)
def test_against_the_reference(name):
    adding, defined = Adding(name), Adding(name, reference)
    for dtype in DTYPES:
        x, residual, *parameters = operands((6, 30, 70), (30, 1), dtype)
        parameters = adding.norm.parameters_of(*parameters)
        got = adding.forward(x, residual, 70, *parameters)
        known = defined.forward(x, residual, 70, *parameters)
        few = 8 * np.finfo(dtype).eps
        assert_same_bits(got[1], known[1])
        np.testing.assert_allclose(got[0], known[0], rtol=few, atol=few * 8)
        dy, ds = numbers(x.shape, dtype, seed=4), numbers(x.shape, dtype, seed=5)
        gradients = adding.norm.backward(dy, got[2], ds=ds)
        for a, b in zip(gradients, defined.norm.backward(dy, known[2], ds=ds), strict=True):
            np.testing.assert_allclose(a, b, rtol=few, atol=few * 100)


def test_gradient_of_a_broadcast_residual():
    """Central differences: that of s, summed over the axes along which it was broadcast."""
    x, residual, weight, bias = operands((3, 4, 5), (4, 1), np.float64)
    dy, ds = numbers(x.shape, np.float64, seed=4), numbers(x.shape, np.float64, seed=5)

    def loss(x, residual):
        y, s = lnfast.add_layer_norm(x, residual, 5, weight, bias)
        return (dy * y + ds * s).sum()

    cache = lnfast.add_layer_norm_forward(x, residual, 5, weight, bias)[2]
    dx = lnfast.layer_norm_backward(dy, cache, ds=ds)[0]
    step = 1e-6
    for i in np.ndindex(4, 1):
        moved = residual.copy()
        moved[i] += step
        low = residual.copy()
        low[i] -= step
        slope = (loss(x, moved) - loss(x, low)) / (2 * step)
        np.testing.assert_allclose(dx.sum(axis=(0, 2))[i[0]], slope, rtol=1e-7, atol=1e-7)


def test_ds_in_place(norm):
    """dx over dy, x or ds, which are read first."""
    x, dy, ds = (numbers((70, 33), np.float32, seed=i) for i in range(3))
    cache = norm.forward(x, 33)[1]
    wanted = norm.backward(dy, cache, ds=ds)
    for i in range(3):
        arrays = [dy.copy(), x.copy(), ds.copy()]
        got = norm.backward(arrays[0], cache._replace(x=arrays[1]), ds=arrays[2], out=arrays[i])
        assert got[0] is arrays[i]
        assert_all_same_bits(got, wanted)
    assert_all_same_bits(norm.backward(dy, cache, ds=ds[:, ::-1][:, ::-1]), wanted)


BAD = {
    "of more rows": ((2, 3, 4), (3, 3, 4), {}, ValueError, r"residual with shape \(3, 3, 4\)"),
    "that enlarges x": ((1, 4), (3, 4), {}, ValueError, r"must broadcast to that of x, \(1, 4\)"),
    "of more axes": ((3, 4), (1, 3, 4), {}, ValueError, "must broadcast to that of x"),
    "out is sum_out": (
        (3, 4),
        (3, 4),
        dict.fromkeys(["out", "sum_out"], np.zeros((3, 4))),
        ValueError,
        "out shares memory with sum_out",
    ),
    "sum_out short": (
        (3, 4),
        (3, 4),
        {"sum_out": np.zeros((3, 3))},
        ValueError,
        r"sum_out must have the shape of x, \(3, 4\), not \(3, 3\)",
    ),
    "sum_out narrow": (
        (3, 4),
        (3, 4),
        {"sum_out": np.zeros((3, 4), "f4")},
        ValueError,
        "sum_out must have the dtype of the result, float64, not float32",
    ),
    "sum_out a list": ((3, 4), (3, 4), {"sum_out": []}, TypeError, "sum_out must be a NumPy array"),
}


@pytest.mark.parametrize("shape, added, keywords, error, message", BAD.values(), ids=BAD)
def test_errors(adding, shape, added, keywords, error, message):
    for function in (adding.add, adding.forward):
        with pytest.raises(error, match=message) as raised:
            function(np.ones(shape), np.ones(added), 4, **keywords)
        assert raised.type is error
        assert not any(np.any(a) for a in keywords.values())


def test_errors_of_residuals(adding):
    x = np.ones((3, 4))
    for residual, error, message in [
        (None, TypeError, "residual has dtype object"),
        (x * 1j, TypeError, "residual has dtype complex"),
        (np.ma.array(x), TypeError, "residual is a masked array"),
        ([[1, 2], [3]], ValueError, "residual cannot be made an array"),
        ("x", TypeError, "residual has dtype"),
    ]:
        with pytest.raises(error, match=message):
            adding.add(x, residual, 4)
    with pytest.raises(ValueError, match=r"^residual\[0, 1\] is inf$"):
        adding.add(x, np.where(np.eye(3, 4, 1) > 0, np.inf, x), 4, check_finite=True)
    with pytest.raises(ValueError, match=r"^sum\[0, 0\] overflows to inf$"):
        adding.add(x * 1e308, x * 1e308, 4, check_finite=True)


def test_errors_of_ds(norm):
    x = np.ones((3, 4))
    cache = norm.forward(x, 4)[1]
    no_dx = [name != "dx" for name in norm.gradients]
    for ds, keywords, error, message in [
        (np.ones(4), {}, ValueError, r"ds must have the shape of x, \(3, 4\), not \(4,\)"),
        (x * 1j, {}, TypeError, "ds has dtype complex"),
        (np.ma.array(x), {}, TypeError, "ds is a masked array"),
        (x, {"output_mask": no_dx}, ValueError, r"ds is for dx.*output_mask\[0\]"),
        (x * np.nan, {"check_finite": True}, ValueError, r"ds\[0, 0\] is nan"),
    ]:
        with pytest.raises(error, match=message):
            norm.backward(x, cache, ds=ds, **keywords)


def test_empty(adding):
    for shape in [(0, 4), (3, 0)]:
        x = np.empty(shape, np.float32)
        y, s, cache = adding.forward(x, x, shape[-1])
        assert y.shape == s.shape == shape
        assert np.isnan(cache.rstd).all()
        assert adding.norm.backward(x, cache, ds=x)[0].shape == shape


def test_what_is_not_finite_spoils_its_own_row(adding):
    x, residual = numbers((5, 9), np.float32), numbers((5, 9), np.float32, seed=1)
    clean = adding.add(x, residual, 9)
    residual[2, 3] = np.inf
    y, s = adding.add(x, residual, 9)
    assert np.isnan(y[2]).all() and np.isinf(s[2, 3])
    others = [0, 1, 3, 4]
    assert_all_same_bits((y[others], s[others]), [a[others] for a in clean])
