"""`out` anywhere over the inputs, in any layout and dtype: as if they had been copied first.

Or refused, and no byte written. What lies where is drawn; LNFAST_FUZZ as in test_hostile.py.
"""

from typing import NamedTuple

import numpy as np
from hostile import fuzz
from hypothesis import given
from hypothesis import strategies as st
from norms import FUNCTIONS, norm_of

BYTES = 2048


class View(NamedTuple):
    """Where an array lies in a buffer."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, buffer):
        return np.ndarray(self.shape, self.dtype, buffer, self.offset, self.strides)

    def places(self):
        """The bytes of each element."""
        size = np.dtype(self.dtype).itemsize
        for index in np.ndindex(self.shape):
            start = self.offset + sum(i * s for i, s in zip(index, self.strides, strict=True))
            yield range(start, start + size)


@st.composite
def views(draw, shape, dtypes):
    """Half of them plain, which is computed in and from directly; the others are copied."""
    plain = draw(st.booleans())
    dtype = dtypes[0] if plain else draw(st.sampled_from(dtypes))
    size = np.dtype(dtype).itemsize
    strides, place = [], size
    for length in shape[::-1]:
        others = [place, place, -place, place + size, 2 * place, size, 1, 0]
        step = place if plain else draw(st.sampled_from(others))
        strides.insert(0, step)
        place = max(place, abs(step) * length)
    reach = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    low, high = -sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + size
    unit = size if plain else draw(st.sampled_from([1, size]))
    offset = low + unit * draw(st.integers(0, min(24, (BYTES - high - low) // unit)))
    return View(dtype, shape, tuple(strides), offset)


@st.composite
def overlapping(draw):
    """A call whose arrays lie in one buffer, what lies where, and what has memory of its own."""
    shape = draw(st.sampled_from([(2, 4), (3, 4), (2, 3, 2), (4, 1), (2, 9)]))
    native = draw(st.sampled_from(["f4", "f8"]))
    row, any_float = shape[-1:], [native] * 3 + ["f4", "f8", ">f8", "i2", "f2"]
    spans = {name: draw(views(row, any_float)) for name in ("weight", "bias")}
    spans["x"] = draw(views(shape, [native] * 3 + [">" + native]))
    spans["dy"] = draw(views(shape, any_float))
    spans |= {name: draw(views((*shape[:-1], 1), ["f8"])) for name in ("mean", "rstd")}
    spans["out"] = draw(views(shape, [native] * 4 + [">" + native]))
    function = draw(st.sampled_from(FUNCTIONS))
    alone = draw(st.sets(st.sampled_from(sorted(spans.keys() - {"out"}))))
    return function, spans, alone, draw(st.integers(0, 9))


@fuzz(400)
@given(case=overlapping())
def test_out_over_its_inputs(implementation, case):
    """As if the inputs had been copied first, and not a byte beside it; or refused, and no byte."""
    function, spans, alone, seed = case
    norm = norm_of(function)
    buffer = np.random.default_rng(seed).integers(0, 256, BYTES, dtype=np.uint8)
    before = buffer.copy()
    given = {n: s.of(buffer.copy() if n in alone else buffer) for n, s in spans.items()}
    out = given.pop("out")

    def run(a, out):
        cols = a["x"].shape[-1]
        call = getattr(implementation, function)
        if function.endswith("backward"):
            return call(a["dy"], norm.record_of(**a, normalized_shape=(cols,)), out=out)
        y = call(a["x"], cols, *norm.parameters_of(a["weight"], a["bias"]), out=out)
        return y if type(y) is tuple else (y,)

    expected = run({name: a.copy() for name, a in given.items()}, None)
    taken = [b for element in spans["out"].places() for b in element]
    twice = len(set(taken)) < len(taken)
    x_bytes = {b for element in spans["x"].places() for b in element}
    over_x = function.endswith("forward") and "x" not in alone and not x_bytes.isdisjoint(taken)
    try:
        results = run(given, out)
    except ValueError as error:
        assert str(error).startswith(("out must not hold", "out shares memory with x"))
        assert buffer.tobytes() == before.tobytes()
        assert twice if "must not hold" in str(error) else over_x
        return
    assert results[0] is out and not twice and not over_x
    for got, wanted in zip(results, expected, strict=True):
        if isinstance(got, np.ndarray):
            np.testing.assert_array_equal(got, wanted)
    model = before.copy()
    for room in (model, buffer):  # the same NaN for each
        spans["out"].of(room)[...] = np.where(np.isnan(expected[0]), np.nan, expected[0])
    assert buffer.tobytes() == model.tobytes()
