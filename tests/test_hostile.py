"""Any object for any argument: the result of the reference, or its error, which names the argument.

Never a crash, a changed input, a warning, or an `out` written to before an error. The arguments are
drawn by hostile.py, the same in every run; LNFAST_FUZZ=100 draws a hundred times as many, others
each time.
"""

import re
from typing import Any, NamedTuple

import numpy as np
from hostile import OUTS, REAL, Room, anything, arrays, fuzz, values
from hypothesis import given
from hypothesis import strategies as st
from norms import NORMS, Norm

import lnfast
from lnfast import LayerNorm, RMSNorm, reference

# Rows of the kernels' lane lengths and around them; no rows, no columns, many axes.
SHAPES = [(), (4,), (1, 1), (2, 4), (2, 3, 4), (5, 3), (4, 8), (3, 9), (2, 17), (9, 33)]
SHAPES += [(0, 4), (3, 0), (2, 0, 3), (2, 1, 1, 4), (2, 4), (2, 3, 4)]
# All axes but one that NumPy has: 32 before version 2, then 64.
SHAPES += [(1,) * (29 if np.lib.NumpyVersion(np.__version__) < "2.0.0" else 61) + (2, 4)]
FLOATS = ["f4", "f8", "f4", "f8", ">f4", ">f8"]
NAMES = "x normalized_shape weight bias eps out num_threads check_finite dy cache mean rstd".split()
NAMES += ["output_mask", "y", "dx", "dweight", "dbias", "state", "dtype", "elementwise_affine", "n"]
NAMED = re.compile(rf"({'|'.join(NAMES)})\b")


def just(*choices):
    return st.sampled_from(choices).map(lambda value: lambda room: value)


@st.composite
def good_shapes(draw, lengths):
    """normalized_shape in every form."""
    forms = [tuple, list, np.array, lambda n: [np.uint8(k) for k in n]]
    if len(lengths) == 1:
        forms += [lambda n: n[0], lambda n: np.int64(n[0]), lambda n: range(n[0], n[0] + 1)]
    form = draw(st.sampled_from(forms))
    return lambda room: form(lengths)


@st.composite
def calls(draw, backward=False):
    """A norm, and arguments that fit each other, but for one, two or none of them.

    For backward also the largest rstd, or None where the record's fields do not belong together.
    """
    norm = draw(st.sampled_from([Norm(name) for name in NORMS]))
    shape = draw(st.sampled_from(SHAPES))
    axes = draw(st.integers(1, min(len(shape), 3) or 1))
    lengths = shape[len(shape) - axes :]
    dtype = draw(st.sampled_from(REAL + 4 * FLOATS))
    result = np.dtype(dtype).newbyteorder("=").str[1:] if "f" in dtype else "f8"
    good = {
        "eps": just(1e-5, 0.25, 0, 0.0, 1, np.float32(0.5), np.array(0.5)),
        "out": st.one_of(just(None), arrays(shape, [result], layouts=OUTS, forms=())),
        "num_threads": just(None, None, 1, 2, 3, np.int64(2), 2**40),
        "check_finite": just(False, False, False, True, np.bool_(False)),
    }
    infinite = [np.nan, np.inf, -np.inf]
    parameter = arrays(lengths, REAL + FLOATS, [np.nan])
    if backward:
        del good["eps"]
        masks = [(True,) * 3, [True, False, True], (False, True, False), np.array([True] * 3)]
        masks = [mask[: len(norm.gradients)] for mask in masks]
        good["output_mask"] = just(masks[0], *masks)
        good["dy"] = arrays(shape, REAL + FLOATS, [np.nan])
        fields, largest = good_fields(draw, norm, shape, lengths, dtype)
    else:
        good["x"] = arrays(shape, [dtype], infinite)
        good["normalized_shape"] = good_shapes(lengths)
        good |= {name: st.one_of(just(None), parameter) for name in norm.parameters}
        fields = {}
    names = sorted([*good, *fields])
    odd = draw(st.sets(st.sampled_from(names), max_size=2)) if draw(st.booleans()) else set()
    made = {n: draw(anything(shape)) if n in odd else draw(s) for n, s in good.items()}
    if backward:
        for name, field in fields.items():
            fields[name] = draw(anything(shape)) if name in odd else field
        made["cache"] = draw(caches(norm, fields))
        return norm, made, None if odd & {*fields} else largest
    for name in (*norm.parameters, "eps", "num_threads", "check_finite", "out"):
        if draw(st.integers(0, 3)) == 0 and name not in odd:
            del made[name]
    return norm, made


def good_fields(draw, norm, shape, lengths, dtype):
    """The fields of the cache of a forward pass, in any layout or form; and the largest rstd."""
    x = values(shape, dtype, draw(st.integers(0, 3)))
    statistics = [np.ones(()) for _ in norm.statistics]
    if shape:
        _, (_, _, _, *statistics, _, _) = Norm(norm.name, reference).forward(x, lengths)
    made = {
        "x": draw(arrays(shape, [dtype], content=x)),
        "normalized_shape": draw(good_shapes(lengths)),
        "weight": draw(st.one_of(just(None), arrays(lengths, REAL + FLOATS))),
    }
    for name, statistic in zip(norm.statistics, statistics, strict=True):
        made[name] = draw(arrays(statistic.shape, ["f8", ">f8"], content=statistic))
    return made, statistics[-1].max(initial=0)


@st.composite
def caches(draw, norm, fields):
    """A record of these fields: as it should be, of a subclass, too short, or none at all."""
    records = [record for record, *_ in NORMS.values()]
    kind = draw(st.sampled_from([norm.record] * 9 + [derived(norm.record), tuple, *records]))
    count = len(norm.record._fields)
    length = draw(st.sampled_from([count] * 15 + [0, 1, count - 1, count + 1]))

    def make(room):
        values = [*(fields[name](room) for name in norm.fields), None, None]
        return tuple.__new__(kind, (*values, None)[:length])

    return make


def derived(record):
    """A record that says something else than it holds."""

    def refuse(self, *index):
        return 1 / 0

    methods = dict.fromkeys(["__iter__", "__getitem__", "__len__"], refuse)
    return type("Derived", (record,), {"x": property(refuse), **methods})


# One call, and what comes of it


class Outcome(NamedTuple):
    error: type | None
    message: str
    results: tuple[Any, ...]
    room: Room


def attempt(function, makers, named=NAMED):
    room = Room()
    arguments = {name: make(room) for name, make in makers.items()}
    out = arguments.get("out")
    before = room.snapshot()
    try:
        results = function(**arguments)
    except (TypeError, ValueError, MemoryError) as error:
        assert room.changed or room.snapshot() == before
        if isinstance(error, MemoryError):
            return Outcome(MemoryError, "", (), room)
        assert type(error) in (TypeError, ValueError), type(error)
        assert named.match(str(error)), str(error)
        return Outcome(type(error), re.sub("[0-9a-fx]{9,}", "", str(error)), (), room)
    for array, old in zip(room.arrays, before, strict=True):
        written = any(array is arguments.get(name) for name in ("out", "sum_out"))
        assert room.changed or written or np.asarray(array).tobytes() == old
    results = results if type(results) is tuple else (results,)
    if out is not None and arguments.get("output_mask", [True])[0]:
        assert results[0] is out
    return Outcome(None, "", results, room)


def same(norm, function, makers):
    """The outcomes for lnfast and for the reference, which agree on all but the roundings."""
    compiled = attempt(getattr(norm, function), makers)
    defined = attempt(getattr(Norm(norm.name, reference), function), makers)
    assert (compiled.error, compiled.message) == (defined.error, defined.message)
    return compiled, defined


def assert_alike(got, wanted, scale):
    """Arrays of one dtype and shape, NaN where NaN is, and equal but for their roundings.

    scale: of the bounds in DESIGN; what is drawn are integers up to 9. The promise is 4 eps of it,
    the reference rounds once and its float64 sums of n terms lose less than n eps of float64.
    """
    if wanted is None or got is None:
        assert got is wanted
        return
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if got.size and scale is not None:
        tolerance = (5 + scale[0] * (got.dtype == np.float64)) * np.finfo(got.dtype).eps * scale[1]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


@fuzz(600)
@given(call=calls(), function=st.sampled_from(["normalize", "forward"]))
def test_forward(call, function):
    norm, makers = call
    compiled, defined = same(norm, function, makers)
    if compiled.error:
        return
    y, *cache = compiled.results
    known, *known_cache = defined.results
    y = np.asarray(y)
    # |weight| m + |bias|; m is at most the root of a row's length.
    assert_alike(y, known, (y.size, 9 * y.size**0.5 + 9))
    if function == "forward":
        (cache,), (known_cache,) = cache, known_cache
        assert type(cache) is type(known_cache) is norm.record
        assert cache.normalized_shape == known_cache.normalized_shape
        for got, wanted in zip(cache, known_cache, strict=True):
            if isinstance(got, np.ndarray):
                assert type(got) is np.ndarray and got.flags.carray or got is cache.x
                assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)


@fuzz(600)
@given(call=calls(backward=True))
def test_backward(call):
    norm, makers, rstd = call
    compiled, defined = same(norm, "backward", makers)
    for i, (got, wanted) in enumerate(zip(compiled.results, defined.results, strict=True)):
        scale = None
        if rstd is not None and wanted is not None:
            size = np.asarray(compiled.room.arrays[0]).size
            # |h| + mean|h| + m mean(|h| m) for dx; the sums of |dy| m and of |dy| for the others
            scale = [81 * (2 + size) * rstd, 9 * size**1.5, 9 * size][i]
        assert_alike(got, wanted, None if scale is None else (size, scale))


# The layers and the rest of the surface


@fuzz(200)
@given(
    kind=st.sampled_from([LayerNorm, RMSNorm]),
    name=st.sampled_from(["normalized_shape", "eps", "elementwise_affine", "dtype", "bias"]),
    make=anything((4,)),
)
def test_layer_constructor(kind, name, make):
    kind = LayerNorm if name == "bias" else kind
    try:
        layer = kind(**{"normalized_shape": (4,), name: make(Room())})
    except (TypeError, ValueError) as error:
        assert type(error) in (TypeError, ValueError) and NAMED.match(str(error)), str(error)
        return
    assert all(type(n) is int for n in layer.normalized_shape) and type(layer.eps) is float
    for _, parameter, gradient in layer.parameters():
        assert parameter.shape == gradient.shape == layer.normalized_shape
        assert parameter.dtype == gradient.dtype and parameter.dtype in (np.float32, np.float64)


@fuzz(200)
@given(call=calls(backward=True))
def test_layer_backward(call):
    """dx of the function; gradients added in full, or as they were."""
    norm, makers, _ = call
    makers = {name: make for name, make in makers.items() if name != "output_mask"}
    layer = norm.layer(4)
    gradients = [gradient for _, _, gradient in layer.parameters()]

    def backward(**arguments):
        try:
            return layer.backward(**arguments)
        except (TypeError, ValueError):
            assert not np.any(gradients)
            raise

    outcome = attempt(backward, makers)
    if outcome.error is None:
        wanted = attempt(norm.backward, makers)
        for got, known in zip((outcome.results[0], *gradients), wanted.results, strict=True):
            got, known = np.asarray(got), np.asarray(known)  # out may lie about its dtype
            np.testing.assert_array_equal(got, known.astype(got.dtype))


@fuzz(200)
@given(weight=anything((4,)), bias=arrays((4,), REAL))
def test_layer_state(weight, bias):
    """Both parameters, or neither."""
    layer = LayerNorm(4)
    room = Room()
    state = {"weight": weight(room), "bias": bias(room)}
    try:
        layer.load_state_dict(state)
    except (TypeError, ValueError) as error:
        assert type(error) in (TypeError, ValueError) and NAMED.match(str(error)), str(error)
        assert (layer.weight == 1).all() and (layer.bias == 0).all()
        return
    if not room.changed:
        np.testing.assert_array_equal(layer.bias, np.asarray(room.arrays[-1]))


@fuzz(100)
@given(make=anything((4,)))
def test_set_num_threads(make):
    before = lnfast.get_num_threads()
    try:
        lnfast.set_num_threads(make(Room()))
    except (TypeError, ValueError) as error:
        assert type(error) in (TypeError, ValueError) and NAMED.match(str(error)), str(error)
        assert lnfast.get_num_threads() == before
    finally:
        lnfast.set_num_threads(None)
    assert lnfast.get_num_threads() == before
