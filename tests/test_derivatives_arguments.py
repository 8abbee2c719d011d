"""Derivatives of layer norm: what they take and refuse, and where they write."""

import numpy as np
import pytest
from test_split_arguments import assert_same_bits, rearranged

import lnfast

DTYPES = [np.float32, np.float64]


def operands(dtype=np.float64, rows=6, cols=40):
    rng = np.random.default_rng(0)
    x, dy, ddx = rng.standard_normal((3, rows, cols)).astype(dtype)
    weight, ddweight, ddbias = rng.standard_normal((3, cols)).astype(dtype)
    _, cache = lnfast.layer_norm_forward(x, cols, weight)
    fields = {"x": cache.x, "weight": cache.weight, "mean": cache.mean, "rstd": cache.rstd}
    return fields | {"dy": dy, "ddx": ddx, "ddweight": ddweight, "ddbias": ddbias}


def run(ln, g, normalized_shape=None, **options):
    """All results of both."""
    lengths = normalized_shape or np.shape(g["ddweight"])
    cache = lnfast.LayerNormCache(g["x"], lengths, g["weight"], g["mean"], g["rstd"])
    seconds = g["ddx"], g["ddweight"], g["ddbias"]
    return (
        ln.layer_norm_jvp(g["ddx"], cache, *seconds[1:], **options),
        *ln.layer_norm_double_backward(*seconds, g["dy"], cache, **options),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(implementation, dtype):
    g = operands(dtype)
    expected = run(implementation, g)
    kept = {name: a.copy() for name, a in g.items()}
    for arrays in zip(*(rearranged(a) for a in g.values()), strict=True):
        assert_same_bits(run(implementation, dict(zip(g, arrays, strict=True))), expected)
    for name, a in g.items():
        assert a.tobytes() == kept[name].tobytes()


def test_other_arguments_that_are_taken(implementation):
    g = operands(np.float32)
    expected = run(implementation, g)
    wide = {name: a.astype(np.float64) for name, a in g.items()} | {"x": g["x"]}
    lists = {name: a.tolist() for name, a in g.items()} | {"x": g["x"]}
    for given in (wide, lists):
        assert_same_bits(run(implementation, given, 40), expected)
    whole = {name: a.reshape(6, 5, 8) for name, a in g.items() if a.shape == (6, 40)}
    whole |= {name: a.reshape(5, 8) for name, a in g.items() if a.shape == (40,)}
    whole |= {name: a.reshape(6, 1, 1) for name, a in g.items() if a.shape == (6, 1)}
    found = run(implementation, whole)
    assert [a.shape for a in found] == [(6, 5, 8)] * 3 + [(5, 8)]
    assert_same_bits([a.reshape(b.shape) for a, b in zip(found, expected, strict=True)], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "absent", [["ddx"], ["ddweight"], ["ddbias"], ["ddx", "ddweight", "ddbias"]]
)
def test_none_is_zeros(implementation, dtype, absent):
    """In a row of NaN too, which it is no less for having no tangent."""
    g = operands(dtype)
    g["x"][2, 3] = g["mean"][2] = g["rstd"][2] = np.nan
    none = g | dict.fromkeys(absent)
    zeros = g | {name: np.zeros_like(g[name]) for name in absent}
    for a, b in zip(run(implementation, none, 40), run(implementation, zeros), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isnan(a).any()
    g["weight"] = None
    ones = run(implementation, g | {"weight": np.ones(40, dtype)})
    assert_same_bits(run(implementation, g), ones)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out(implementation, dtype):
    """Anywhere, over an input or a part of one too: the result is as if it were apart."""
    g = operands(dtype, 4, 40)

    def jvp(g, out=None):
        cache = lnfast.LayerNormCache(g["x"], 40, g["weight"], g["mean"], g["rstd"])
        return implementation.layer_norm_jvp(g["ddx"], cache, g["ddweight"], g["ddbias"], out=out)

    expected = jvp(g)
    for place in (
        np.full((4, 40), np.nan, dtype),
        np.full((40, 4), np.nan, dtype).T,
        np.full((4, 80), np.nan, dtype)[:, ::-2],
        np.full((4, 40), np.nan, dtype).astype(np.dtype(dtype).newbyteorder()),
    ):
        assert jvp(g, place) is place
        np.testing.assert_array_equal(place, expected)
    for over in g:
        room = np.zeros(1000, dtype)
        for start in (100, 101, 140):
            moved = {name: a.copy() for name, a in g.items()}
            a = moved[over]
            moved[over] = room.view(np.uint8)[400 : 400 + a.nbytes].view(a.dtype).reshape(a.shape)
            moved[over][...] = a
            out = room[start : start + 160].reshape(4, 40)
            jvp(moved, out)
            assert out.tobytes() == expected.tobytes(), (over, start)


@pytest.mark.parametrize(("rows", "cols"), [(0, 5), (3, 0), (0, 0)])
def test_nothing(implementation, rows, cols):
    dy, gdy, gx, gweight = run(implementation, operands(rows=rows, cols=cols))
    assert dy.shape == gdy.shape == gx.shape == (rows, cols)
    assert gweight.shape == (cols,) and not gweight.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["x", "dy", "ddx"])
def test_what_is_not_finite_spoils_its_own_row(implementation, name, bad, dtype):
    g = operands(dtype, 9, 100)
    clean = run(implementation, g)
    g[name][4, 50] = bad
    if name == "x":
        _, cache = lnfast.layer_norm_forward(g["x"], 100, g["weight"])
        g |= {"mean": cache.mean, "rstd": cache.rstd}
    found = run(implementation, g)
    others = np.arange(9) != 4
    for i, (a, b) in enumerate(zip(found[:3], clean[:3], strict=True)):
        assert a[others].tobytes() == b[others].tobytes()
        if name == "dy" and i < 2:  # which is not there
            assert a.tobytes() == b.tobytes()
        else:
            assert not np.isfinite(a[4]).any()
    assert not np.isfinite(found[3][50])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.ones((6, 40), complex)}, TypeError, "x has dtype complex128"),
        ({"weight": np.ones(6)}, ValueError, r"weight must have shape \(40,\), not \(6,\)"),
        ({"mean": np.ones(6)}, ValueError, r"mean must have shape \(6, 1\), not \(6,\)"),
        ({"rstd": np.ones((6, 40))}, ValueError, r"rstd must have shape \(6, 1\)"),
        ({"dy": None}, TypeError, "dy must be an array, not None"),
        ({"dy": np.ones((40, 6))}, ValueError, r"dy must have the shape of x, \(6, 40\), not"),
        (
            {"ddx": np.ones(40)},
            ValueError,
            r"dd?x must have the shape of x, \(6, 40\), not \(40,\)",
        ),
        ({"ddx": np.ones((6, 40), complex)}, TypeError, "dd?x has dtype complex128"),
        ({"ddx": np.ma.ones((6, 40))}, TypeError, "dd?x is a masked array"),
        ({"ddweight": np.ones(6)}, ValueError, r"dd?weight must have shape \(40,\), not \(6,\)"),
        ({"ddbias": 1.0}, ValueError, r"dd?bias must have shape \(40,\), not \(\)"),
        ({"ddbias": ["a"] * 40}, TypeError, "dd?bias has dtype"),
        ({"num_threads": 0}, ValueError, "num_threads must be at least 1"),
    ],
)
def test_errors(implementation, change, error, message):
    g = operands() | change
    threads = {"num_threads": g.pop("num_threads", 1)}
    cache = lnfast.LayerNormCache(g["x"], 40, g["weight"], g["mean"], g["rstd"])
    seconds = g["ddx"], g["ddweight"], g["ddbias"]
    with pytest.raises(error, match=message):
        implementation.layer_norm_double_backward(*seconds, g["dy"], cache, **threads)
    if "dy" not in change:  # jvp's names have one d
        with pytest.raises(error, match="^" + message.replace("dd?", "d")):
            implementation.layer_norm_jvp(g["ddx"], cache, *seconds[1:], **threads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_axes(implementation, dtype):
    """Those of the record: as by hand, moved to the end."""
    x, dy, ddx = np.random.default_rng(2).standard_normal((3, 4, 5, 6)).astype(dtype)
    weight, ddweight, ddbias = np.random.default_rng(3).standard_normal((3, 5)).astype(dtype)
    _, cache = lnfast.layer_norm_forward(x, None, weight, axis=1)
    found = implementation.layer_norm_double_backward(ddx, ddweight, ddbias, dy, cache)
    x, dy, ddx = (np.moveaxis(a, 1, 2).copy() for a in (x, dy, ddx))
    _, last = lnfast.layer_norm_forward(x, 5, weight)
    expected = implementation.layer_norm_double_backward(ddx, ddweight, ddbias, dy, last)
    assert_same_bits([np.moveaxis(a, 1, 2).copy() for a in found[:2]], expected[:2])
    assert_same_bits(found[2:], expected[2:])
    out = np.zeros((4, 5, 6), dtype)
    ddx = np.moveaxis(ddx, 2, 1)
    assert implementation.layer_norm_jvp(ddx, cache, ddweight, ddbias, out=out) is out
    assert_same_bits([out], found[:1])


def test_records_that_are_not_known(implementation):
    x = np.ones((2, 3))
    _, cache = lnfast.layer_norm_forward(x, 3, mask=[True, True, False])
    with pytest.raises(ValueError, match="cache has a mask"):
        implementation.layer_norm_jvp(x, cache)
    _, cache = lnfast.layer_norm_forward(x, 3, np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"weight must have shape \(3,\), not \(2, 3\)"):
        implementation.layer_norm_double_backward(x, None, None, x, cache)
    _, cache = lnfast.layer_norm_forward(x.astype(np.float16), 3)
    with pytest.raises(TypeError, match="x has dtype float16: it must be float32 or float64 here"):
        implementation.layer_norm_jvp(x, cache)


def test_errors_of_the_record_and_out(implementation):
    g = operands()
    x, dy = g["x"], g["dy"]
    _, record = lnfast.rms_norm_forward(x, 40)
    with pytest.raises(TypeError, match="cache must be of type LayerNormCache, not RMSNormCache"):
        implementation.layer_norm_jvp(dy, record)
    with pytest.raises(TypeError, match="cache must be of type LayerNormCache, not tuple"):
        implementation.layer_norm_double_backward(dy, None, None, dy, (1, 2))
    _, cache = lnfast.layer_norm_forward(x, 40)
    with pytest.raises(ValueError, match=r"out must have the shape of x, \(6, 40\)"):
        implementation.layer_norm_jvp(dy, cache, out=np.zeros((6, 41)))
    with pytest.raises(ValueError, match="out must be writable"):
        implementation.layer_norm_jvp(dy, cache, out=np.broadcast_to(0.0, (6, 40)))
