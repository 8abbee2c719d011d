"""As test_hostile.py, for axis, mask, residual, ds, sum_out and the half types.

The result of the reference, or its error, which names the argument; never a crash, a changed input,
a warning, or an output written to before an error.
"""

import re

import numpy as np
from hostile import OUTS, REAL, anything, arrays, fuzz, values
from hypothesis import given
from hypothesis import strategies as st
from norms import NORMS, Norm
from test_hostile import NAMES, attempt, just

import lnfast
from lnfast import reference

NAMED = re.compile(rf"({'|'.join([*NAMES, 'axis', 'mask', 'residual', 'ds', 'sum_out', 'sum'])})\b")
SHAPES = [(4,), (2, 4), (2, 3, 4), (3, 9), (2, 17, 3), (3, 2, 16), (0, 4), (2, 0, 3), (1, 5, 1, 2)]
KINDS = [*REAL, "f2", "f4", "f8"]


def broadcasts(draw, shape):
    """A shape that broadcasts to this one."""
    cut = draw(st.integers(0, len(shape)))
    return tuple(n if draw(st.booleans()) else 1 for n in shape[cut:])


@st.composite
def calls(draw, adds=False):
    """Arguments that fit each other, but for one or none of them."""
    norm = draw(st.sampled_from(list(NORMS)))
    shape = draw(st.sampled_from(SHAPES))
    kind = draw(st.sampled_from(KINDS))
    result = kind if kind in ("f2", "f4") else "f4" if kind == ">f4" else "f8"
    axis = None if adds else draw(st.sampled_from([None, 0, -1, (0,), [0, -1], len(shape) - 1]))
    numbers = range(len(shape))[-1:] if axis is None else np.atleast_1d(axis) % len(shape)
    lengths = tuple(shape[i] for i in sorted({*map(int, numbers)}))
    own = (*shape[: -len(lengths)], *lengths) if draw(st.booleans()) and axis is None else lengths
    outs = arrays(shape, [result], layouts=OUTS, forms=())
    good = {
        "x": arrays(shape, [kind]),
        "out": st.one_of(just(None), just(None), outs),
        "check_finite": just(False, False, True),
        "num_threads": just(None, 1, 2),
    }
    for name in Norm(norm).parameters:
        good[name] = st.one_of(just(None), arrays(own, REAL), arrays(lengths, [*REAL, "f2"]))
    if axis is None:
        good["normalized_shape"] = just(lengths)
    if adds:
        good["residual"] = arrays(broadcasts(draw, shape), KINDS)
        good["sum_out"] = st.one_of(just(None), outs)
    else:
        good["axis"] = just(axis)
        good["mask"] = st.one_of(just(None), arrays(broadcasts(draw, shape), ["?"]))
    odd = draw(st.sampled_from([None, None, *sorted(good)]))
    makers = {n: draw(anything(shape)) if n == odd else draw(s) for n, s in good.items()}
    return norm, makers


def agree(function, makers):
    """The same error, or results of one dtype and shape; those of lnfast."""
    outcomes = []
    for module in (lnfast, reference):
        outcomes.append(attempt(getattr(module, function), makers, NAMED))
    compiled, defined = outcomes
    assert (compiled.error, compiled.message) == (defined.error, defined.message)
    for got, known in zip(compiled.results, defined.results, strict=True):
        if got is None or isinstance(got, tuple):
            continue
        got, known = np.asarray(got), np.asarray(known)
        assert (got.dtype, got.shape) == (known.dtype, known.shape)
        if not compiled.room.changed and got.dtype.kind == "f":
            eps, size = np.finfo(got.dtype).eps, max(got.size, 1)
            # integers up to 9, and at most 9 for a weight: |weight| m + |bias|, or a sum of two
            few = 8 * max(eps, 2e-15) * (9 * size**0.5 + 18)
            np.testing.assert_allclose(got.astype("f8"), known.astype("f8"), rtol=8 * eps, atol=few)


@fuzz(600)
@given(call=calls(), kind=st.sampled_from(["", "_forward"]))
def test_axes_masks_and_half_types(call, kind):
    norm, makers = call
    agree(norm + kind, makers)


@fuzz(400)
@given(call=calls(adds=True), kind=st.sampled_from(["", "_forward"]))
def test_residuals(call, kind):
    norm, makers = call
    agree(f"add_{norm}{kind}", makers)


@st.composite
def records(draw):
    """A record with an axis and a mask, dy and ds; one or none of them odd."""
    norm = draw(st.sampled_from([Norm(name, reference) for name in NORMS]))
    shape = draw(st.sampled_from(SHAPES[1:]))
    kind = draw(st.sampled_from(["f2", "f4", "f8"]))
    x = values(shape, kind, draw(st.integers(0, 3)))
    mask = values(broadcasts(draw, shape), "?", 1)
    _, cache = norm.forward(x, axis=0, mask=draw(st.sampled_from([None, mask])))
    fields = {name: just(value) for name, value in cache._asdict().items()}
    odd = draw(st.sampled_from([None, "axis", "mask", "dy", "ds", "x", "weight", "rstd"]))
    fields = {n: draw(anything(shape)) if n == odd else draw(s) for n, s in fields.items()}
    makers = {"dy": arrays(shape, KINDS), "ds": st.one_of(just(None), arrays(shape, KINDS))}
    makers = {n: draw(anything(shape)) if n == odd else draw(s) for n, s in makers.items()}
    makers["cache"] = lambda room: tuple.__new__(
        norm.record, [make(room) for make in fields.values()]
    )
    return norm.name, makers


@fuzz(400)
@given(call=records())
def test_backward(call):
    norm, makers = call
    outcomes = [
        attempt(getattr(module, f"{norm}_backward"), makers, NAMED)
        for module in (lnfast, reference)
    ]
    assert len({(o.error, o.message) for o in outcomes}) == 1
    for got, known in zip(*(o.results for o in outcomes), strict=True):
        got, known = np.asarray(got), np.asarray(known)
        assert (got.dtype, got.shape) == (known.dtype, known.shape)


def test_draws_reach_results():
    """The draws are no use if all of them are errors."""
    found = {"results": 0, "errors": 0}

    @fuzz(100)
    @given(call=calls())
    def count(call):
        norm, makers = call
        outcome = attempt(getattr(lnfast, norm), makers, NAMED)
        found["errors" if outcome.error else "results"] += 1

    count()
    assert found["results"] > 30 and found["errors"] > 5, found
