"""The pieces that layer norm splits into: what they take and refuse, and where they write."""

import doctest
import inspect

import numpy as np
import pytest

import lnfast
from lnfast import reference

DTYPES = [np.float32, np.float64]
NAMES = ["moments", "merge_moments", "normalize", "backward_sums", "backward_apply"]


def operands(dtype=np.float64, shape=(6, 40)):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, *shape)).astype(dtype)
    weight, bias = rng.standard_normal((2, shape[-1])).astype(dtype)
    count, mean, m2 = lnfast.moments(x)
    rstd = 1 / np.sqrt(m2 / count + 1e-5)
    h, h_xhat = rng.standard_normal((2, *mean.shape))
    given = {"x": x, "dy": dy, "mean": mean, "rstd": rstd, "weight": weight, "bias": bias}
    return given | {"sum_h": h, "sum_h_xhat": h_xhat, "count": count}


def run(ln, given, axis=-1, shift=None, **options):
    """All results of all pieces."""
    g = given
    options |= {"axis": axis, "shift": shift}
    row = g["mean"], g["rstd"]
    sums = g["sum_h"], g["sum_h_xhat"], g["count"]
    return (
        *ln.moments(g["x"], **options),
        ln.normalize(g["x"], *row, g["weight"], g["bias"], **options),
        *ln.backward_sums(g["dy"], g["x"], *row, g["weight"], **options),
        ln.backward_apply(g["dy"], g["x"], *row, g["weight"], *sums, **options),
    )


def assert_same_bits(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert type(a) is np.ndarray and a.flags.carray and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_one_signature(name):
    """Of the function and of its definition."""
    compiled, defined = getattr(lnfast, name), getattr(reference, name)
    for kind in ("name", "kind", "default"):
        one, other = (
            [getattr(p, kind) for p in inspect.signature(f).parameters.values()]
            for f in (compiled, defined)
        )
        assert one == other
    assert compiled.__module__ == "lnfast"


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    parser = doctest.DocTestParser()
    test = parser.get_doctest(getattr(lnfast, name).__doc__, {}, name, None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_definition_agrees(dtype):
    given = operands(dtype, (5, 7, 33))
    few = 16 * np.finfo(dtype).eps
    for shift in (None, given["mean"] * 0.75):
        for a, b in zip(
            run(lnfast, given, shift=shift), run(reference, given, shift=shift), strict=True
        ):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=few, atol=few)


def test_shapes_and_dtypes(implementation):
    found = run(implementation, operands(np.float32, (2, 3, 5)))
    row = (2, 3, 1), np.float64
    expected = [row, row, row, ((2, 3, 5), np.float32), row, row]
    expected += [((5,), np.float32)] * 2 + [((2, 3, 5), np.float32)]
    assert [(a.shape, a.dtype) for a in found] == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((4, 5, 6), (1, 2)),
        ((4, 5, 6), [-1, 1]),  # in either order
        ((4, 5, 6), 1),
        ((4, 5, 6), (0, 2)),
        ((4, 5, 6), 0),
        ((4, 5, 6), np.int64(-3)),
        ((4, 5, 6), np.array([0, 1, 2])),
        ((7,), 0),
        ((2, 1, 3, 1), (1, 3)),
    ],
)
def test_axes(implementation, shape, axis, dtype):
    """As by hand: those axes moved to the end, what comes out moved back."""
    rng = np.random.default_rng(1)
    axes = sorted(np.atleast_1d(axis) % len(shape))
    lengths = [shape[a] for a in axes]
    rows = [1 if a in axes else n for a, n in enumerate(shape)]
    x, dy = rng.standard_normal((2, *shape)).astype(dtype)
    weight, bias = rng.standard_normal((2, *lengths)).astype(dtype)
    mean, rstd, h, h_xhat, shift = rng.random((5, *rows))
    given = {"x": x, "dy": dy, "mean": mean, "rstd": rstd, "weight": weight, "bias": bias}
    given |= {"sum_h": h, "sum_h_xhat": h_xhat, "count": 7}
    found = run(implementation, given, axis=axis, shift=shift)

    def table(a):
        return np.moveaxis(a, axes, range(-len(axes), 0)).reshape(-1, int(np.prod(lengths)))

    flat = {"x": table(x), "dy": table(dy), "weight": weight.ravel(), "bias": bias.ravel()}
    flat |= {n: given[n].reshape(-1, 1) for n in ("mean", "rstd", "sum_h", "sum_h_xhat")}
    flat["count"] = np.full((mean.size, 1), 7.0)
    expected = run(implementation, flat, shift=shift.reshape(-1, 1))
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        whole = i in (3, 8)
        assert list(a.shape) == (list(shape) if whole else lengths if i in (6, 7) else rows)
        assert a.flags.c_contiguous
        assert (table(a) if whole else a.reshape(b.shape)).tobytes() == b.tobytes()


def rearranged(a):
    """The same numbers, lying otherwise: stepped, backwards, Fortran, swapped, odd, read-only."""
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    yield wide[..., ::2]
    yield a[..., ::-1].copy()[..., ::-1]
    yield np.asfortranarray(a)
    yield a.astype(a.dtype.newbyteorder())
    odd = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    odd[...] = a
    yield odd
    fixed = a.copy()
    fixed.flags.writeable = False
    yield fixed


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(implementation, dtype):
    given = operands(dtype)
    expected = run(implementation, given)
    kept = {name: a.copy() for name, a in given.items()}
    for arrays in zip(*(rearranged(a) for a in given.values()), strict=True):
        assert_same_bits(run(implementation, dict(zip(given, arrays, strict=True))), expected)
    for name, a in given.items():
        assert a.tobytes() == kept[name].tobytes()


def test_other_arguments_that_are_taken(implementation):
    given = operands(np.float32)
    expected = run(implementation, given)
    lists = {name: a.tolist() for name, a in given.items()} | {"x": given["x"], "count": 40}
    assert_same_bits(run(implementation, lists), expected)
    wide = {name: a.astype(np.float64) for name, a in given.items()} | {"x": given["x"]}
    assert_same_bits(run(implementation, wide), expected)
    whole = implementation.moments([[1, 2, 6], [True, False, True]])
    assert [a.tolist() for a in whole[:2]] == [[[3], [3]], [[3], [2 / 3]]]

    class Labelled(np.ndarray):
        pass

    labelled = {name: a.view(Labelled) for name, a in given.items()}
    assert_same_bits(run(implementation, labelled), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out(implementation, dtype):
    """Anywhere, over an input or a part of one too: the result is as if it were apart."""
    ln = implementation
    g = operands(dtype, (4, 40))

    def calls(g):
        row = g["mean"], g["rstd"]
        yield lambda out: ln.normalize(g["x"], *row, g["weight"], g["bias"], out=out)
        sums = g["sum_h"], g["sum_h_xhat"], g["count"]
        yield lambda out: ln.backward_apply(g["dy"], g["x"], *row, g["weight"], *sums, out=out)

    for i, call in enumerate(calls(g)):
        expected = call(None)
        for place in (
            np.full((4, 40), np.nan, dtype),
            np.full((40, 4), np.nan, dtype).T,
            np.full((4, 80), np.nan, dtype)[:, ::-2],
            np.full((4, 40), np.nan, dtype).astype(np.dtype(dtype).newbyteorder()),
        ):
            assert call(place) is place
            np.testing.assert_array_equal(place, expected)
        for over in ("x", "dy", "weight", "bias", "mean"):
            room = np.zeros(1000, dtype)
            for start in (100, 101, 140):
                moved = {name: a.copy() for name, a in g.items()}
                size = moved[over].nbytes
                inside = room.view(np.uint8)[400 : 400 + size].view(moved[over].dtype)
                inside = inside.reshape(moved[over].shape)
                inside[...] = moved[over]
                moved[over] = inside
                out = room[start : start + 160].reshape(4, 40)
                list(calls(moved))[i](out)
                assert out.tobytes() == expected.tobytes(), (over, start)
    moved = np.moveaxis(np.zeros((40, 4), dtype), 0, 1)
    given = {"mean": g["mean"].T, "rstd": g["rstd"].T}
    y = ln.normalize(g["x"].T, given["mean"], given["rstd"], axis=0, out=moved.T)
    assert y.base is moved.base or y is moved.T or np.shares_memory(y, moved)
    np.testing.assert_array_equal(y.T, ln.normalize(g["x"], g["mean"], g["rstd"]))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (2, 0, 4)])
def test_nothing(implementation, shape):
    g = {"x": np.zeros(shape), "dy": np.zeros(shape), "weight": np.ones(shape[-1])}
    g |= {
        "bias": g["weight"],
        "mean": np.zeros((*shape[:-1], 1)),
        "rstd": np.ones((*shape[:-1], 1)),
    }
    g |= {"sum_h": g["mean"], "sum_h_xhat": g["mean"], "count": shape[-1]}
    count, mean, m2, y, h, h_xhat, dweight, dbias, dx = run(implementation, g)
    assert y.shape == dx.shape == shape and dweight.shape == dbias.shape == shape[-1:]
    assert (count == shape[-1]).all()
    for a in (mean, m2, h, h_xhat, dweight, dbias):
        assert not a.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_own_row(implementation, dtype, bad):
    g = operands(dtype, (9, 100))
    _, mean, m2 = implementation.moments(g["x"])
    clean = run(implementation, g | {"mean": mean, "rstd": 1 / np.sqrt(m2 / 100 + 1e-5)})
    others = np.arange(9) != 4
    x = g["x"].copy()
    x[4, 50] = bad
    _, mean, m2 = found = implementation.moments(x)
    assert np.isnan(mean[4]).all() and np.isnan(m2[4]).all()
    for a, b in zip(found, clean[:3], strict=True):
        assert a[others].tobytes() == b[others].tobytes()
    rstd = 1 / np.sqrt(m2 / 100 + 1e-5)
    g |= {"x": x, "mean": mean, "rstd": rstd}
    y, h, h_xhat, dweight, dbias, dx = run(implementation, g)[3:]
    assert np.isnan(y[4]).all() and np.isnan(h_xhat[4]).all() and np.isnan(dx[4]).all()
    assert np.isnan(dweight).all()
    assert dbias.tobytes() == clean[7].tobytes() and h.tobytes() == clean[4].tobytes()
    for a, b in ((y, clean[3]), (h_xhat, clean[5]), (dx, clean[8])):
        assert a[others].tobytes() == b[others].tobytes()


# errors


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": 1.0}, ValueError, "x is 0-d"),
        ({"x": np.ones((6, 40), complex)}, TypeError, "x has dtype complex128"),
        ({"x": np.ones((6, 40), np.float16)}, TypeError, "x has dtype float16: .* float64 here"),
        ({"x": np.ma.ones((6, 40))}, TypeError, "x is a masked array"),
        (
            {"axis": 2},
            ValueError,
            r"axis 2 is none of x's, whose shape is \(6, 40\)",
        ),
        ({"axis": (1, -1)}, ValueError, r"axis \(1, -1\) names an axis of x.* twice"),
        ({"axis": ()}, ValueError, "axis is empty"),
        ({"axis": True}, TypeError, "axis must be an int or a sequence of ints, not True"),
        ({"axis": 1.0}, TypeError, "axis must be an int or a sequence of ints, not 1.0"),
        ({"axis": "1"}, TypeError, "axis must be an int or a sequence of ints, not '1'"),
        ({"shift": np.ones(6)}, ValueError, r"shift must have shape \(6, 1\), not \(6,\)"),
        ({"shift": "near"}, TypeError, "shift has dtype"),
        ({"num_threads": 0}, ValueError, "num_threads must be at least 1"),
        ({"num_threads": 1.5}, TypeError, "num_threads must be an int"),
        ({"mean": np.ones((6, 40))}, ValueError, r"mean must have shape \(6, 1\), not \(6, 40\)"),
        ({"mean": None}, TypeError, "mean must be an array, not None"),
        ({"rstd": [1.0]}, ValueError, r"rstd must have shape \(6, 1\), not \(1,\)"),
        ({"weight": np.ones(6)}, ValueError, r"weight must have shape \(40,\), not \(6,\)"),
        ({"weight": np.ones(40, complex)}, TypeError, "weight has dtype complex128"),
        ({"bias": 1.0}, ValueError, r"bias must have shape \(40,\), not \(\)"),
        ({"dy": np.ones((40, 6))}, ValueError, r"dy must have the shape of x, \(6, 40\), not"),
        ({"dy": np.ones((6, 40), complex)}, TypeError, "dy has dtype complex128"),
        ({"sum_h": 1.0}, ValueError, r"sum_h must have shape \(6, 1\), not \(\)"),
        ({"sum_h_xhat": None}, TypeError, "sum_h_xhat must be an array"),
        ({"count": [1, 2]}, ValueError, r"count must have shape \(6, 1\), not \(2,\)"),
        ({"count": "many"}, TypeError, "count has dtype"),
    ],
)
def test_errors(implementation, change, error, message):
    given = operands()
    names = {"axis", "shift", "num_threads"}
    options = {name: value for name, value in change.items() if name in names}
    with pytest.raises(error, match=message):
        run(implementation, given | change, **options)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        ([0], TypeError, "out must be a NumPy array, not list"),
        (np.zeros((6, 41)), ValueError, r"out must have the shape of x, \(6, 40\)"),
        (np.zeros((6, 40), np.float32), ValueError, "out must have the dtype of the result"),
        (np.broadcast_to(0.0, (6, 40)), ValueError, "out must be writable"),
        (np.ma.zeros((6, 40)), TypeError, "out must not be a masked array"),
    ],
)
def test_errors_of_out(implementation, out, error, message):
    g = operands()
    row = g["x"], g["mean"], g["rstd"]
    sums = g["sum_h"], g["sum_h_xhat"], g["count"]
    with pytest.raises(error, match=message):
        implementation.normalize(*row, out=out)
    with pytest.raises(error, match=message):
        implementation.backward_apply(g["dy"], *row, None, *sums, out=out)


@pytest.mark.parametrize(
    ("b", "error", "message"),
    [
        (None, TypeError, "b must be a count, a mean and an m2, not NoneType"),
        ("abc", TypeError, "b must be a count, a mean and an m2, not str"),
        ((1, 2), ValueError, "b must be a count, a mean and an m2, not 2"),
        ((1, 2, 3, 4), ValueError, "not more"),
        ((1, 2j, 3), TypeError, "mean of b has dtype complex128"),
        ((1, np.ma.ones(3), 3), TypeError, "mean of b is a masked array"),
        ((-1, 2, 3), ValueError, "count of b must be at least 0, not -1"),
        (
            (1, np.ones(2), np.ones(3)),
            ValueError,
            r"must have shapes that broadcast, .*m2 of b \(3,\)",
        ),
    ],
)
def test_errors_of_merging(implementation, b, error, message):
    with pytest.raises(error, match=message):
        implementation.merge_moments((1, 2.0, 3.0), b)
    swapped = message.replace("of b", "of a").replace("b must", "a must")
    with pytest.raises(error, match=swapped):
        implementation.merge_moments(b, (1, 2.0, 3.0))


def test_an_argument_with_a_mind_of_its_own(implementation):
    """What an __array__ raises says which argument it was."""

    class Stubborn:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("no")

    for name in ("x", "dy", "mean", "rstd", "weight", "bias", "sum_h", "count"):
        with pytest.raises(ValueError, match=f"{name} cannot be made an array: no"):
            run(implementation, operands() | {name: Stubborn()})
