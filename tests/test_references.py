"""A call, right or wrong, holds on to none of its arguments, and to no memory of Python's.

Whatever only the collector of cycles would free counts as held.
"""

import gc
import sys
import tracemalloc

import numpy as np
import pytest
from norms import FUNCTIONS, NORMS, norm_of
from test_arguments import ONES, X, bad_rows, changed

import lnfast

REPEATS = 300
# The smallest object that Python's allocator hands out, in bytes.
SMALLEST = 16
RECORDS = tuple(record for record, *_ in NORMS.values())
# What any call may borrow. Others move these counts too, by less than REPEATS (None by a hundred).
SHARED = (
    *(None, True, False, 0, 1, ()),
    *(np.dtype(np.float32), np.dtype(np.float64), np.ndarray, *RECORDS),
    *(ValueError, TypeError, MemoryError, *(getattr(lnfast, name) for name in FUNCTIONS)),
)


def assert_nothing_stays(call, arguments, raises=None):
    """REPEATS calls gain or lose no reference and no memory, and make no cycles."""
    mine = list(own(arguments))
    watched = [*mine, *SHARED]
    repeat(call, arguments, raises)  # the first calls fill what is kept for good
    for _ in range(2):  # in one of them the interpreter's own table of names may grow
        before, after, cycles, added = measure(call, arguments, raises, watched)
        assert after[: len(mine)] == before[: len(mine)]
        for value, old, new in zip(watched, before, after, strict=True):
            assert abs(new - old) < REPEATS, value
        assert cycles == 0
        if added < REPEATS * SMALLEST or raises is MemoryError:  # NumPy traces what it did not get
            return
    raise AssertionError(f"{added} bytes more")


def measure(call, arguments, raises, watched):
    """The references to what is watched before and after, the cycles, and the bytes added."""
    gc.collect()
    gc.disable()
    gc.freeze()  # what is there already need not be looked at again
    tracemalloc.start()
    try:
        before = [sys.getrefcount(value) for value in watched]
        size = tracemalloc.get_traced_memory()[0]
        repeat(call, arguments, raises)
        after = [sys.getrefcount(value) for value in watched]
        cycles = gc.collect()  # it also empties the interpreter's lists of freed objects
        forget()
        added = tracemalloc.get_traced_memory()[0] - size - sys.getsizeof(after)
    finally:
        tracemalloc.stop()
        gc.unfreeze()
        gc.enable()
    return before, after, cycles, added


# Attribute names that the interpreter remembers: every message with a repr in it makes new ones.
forget = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache


def repeat(call, arguments, raises):
    for _ in range(REPEATS):
        try:
            call(**arguments)
        except (ValueError, TypeError, MemoryError) as error:
            assert raises and isinstance(error, raises), error
        else:
            assert not raises


def own(arguments):
    """The arguments whose counts nobody else moves, and the fields of a cache among them."""
    for value in arguments.values():
        if isinstance(value, RECORDS):
            yield from own(value._asdict())
        if value is not None and not isinstance(value, bool | int | float | str | bytes):
            yield value


BAD_OUT = {
    "out a list": ({"out": X.tolist()}, TypeError),
    "out of another dtype": ({"out": X.astype(np.float64)}, ValueError),
    "out read-only": ({"out": np.broadcast_to(X[0], X.shape)}, ValueError),
}
# Errors that come late in a call: of what it found, and of what there was no room for.
LATE_FORWARD = {
    "not finite": ({"check_finite": True, "x": X * np.float32(np.nan)}, ValueError),
    "overflow": ({"check_finite": True, "weight": ONES * np.float32(3e38)}, ValueError),
    "no room": ({"x": np.broadcast_to(np.float32(1), (2**58, 4))}, MemoryError),
}
LATE_BACKWARD = {
    "not finite": ({"check_finite": True, "dy": X * np.float32(np.nan)}, ValueError),
    "overflow": ({"check_finite": True, "cache.rstd": np.full((2, 3, 1), 1e300)}, ValueError),
    "rstd": ({"check_finite": True, "cache.rstd": np.zeros((2, 3, 1))}, ValueError),
}
NO_ROWS, NO_STATISTIC = np.empty((0, 2**58), np.float32), np.empty((0, 1))


def late_rows(function):
    """As bad_rows of tests/test_arguments.py, of errors that come late."""
    norm = norm_of(function)
    if not function.endswith("backward"):
        return LATE_FORWARD
    no_rows = norm.record(NO_ROWS, (2**58,), None, *(NO_STATISTIC for _ in norm.statistics))
    no_dx = [name != "dx" for name in norm.gradients]
    return LATE_BACKWARD | {
        "out without dx": ({"out": X.copy(), "output_mask": no_dx}, ValueError),
        "no room": ({"dy": NO_ROWS, "cache": no_rows}, MemoryError),
    }


def bad_calls():
    for function in FUNCTIONS:
        for name, row in (bad_rows(function) | BAD_OUT | late_rows(function)).items():
            yield pytest.param(function, *row[:2], id=f"{function}-{name}")
        if function.endswith("forward"):
            yield pytest.param(function, {"out": X}, ValueError, id=f"{function}-out x")


@pytest.mark.parametrize(("function", "change", "error"), list(bad_calls()))
def test_errors(function, change, error):
    assert_nothing_stays(getattr(lnfast, function), changed(function, change), error)


THREE = np.ones((3, *X.shape[1:]), X.dtype)
CHANGES = {
    "plain": {},
    "out": {"out": np.empty_like(X)},
    "strided out": {"out": np.empty_like(X)[:, ::-1]},
    "overlapping out": {"x": THREE[:2], "dy": THREE[:2], "out": THREE[1:]},
    "strided": {"x": X[::-1], "dy": X[::-1]},
    "list": {"x": X.tolist(), "dy": X.tolist()},
    "another dtype": {"x": X.astype(int), "dy": X.astype(int), "num_threads": np.int64(1)},
    "finite": {"check_finite": True},
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", CHANGES)
def test_calls(function, name):
    other = "x" if function.endswith("backward") else "dy"
    change = {key: value for key, value in CHANGES[name].items() if key != other}
    if function.endswith("forward") and name == "overlapping out":
        change.pop("x")  # its cache needs x
    assert_nothing_stays(getattr(lnfast, function), changed(function, change))


@pytest.mark.parametrize("kind", [lnfast.LayerNorm, lnfast.RMSNorm])
def test_layer(kind):
    layer = kind(4)
    y, cache = layer.forward(X)
    state = layer.state_dict()
    mine = {**vars(layer), "x": X, "y": y, "cache": cache}

    def checked(call, raises=None):
        assert_nothing_stays(lambda **_: call(), mine, raises)

    checked(lambda: layer(X))
    checked(lambda: layer.forward(X))
    checked(lambda: layer.backward(y, cache))
    checked(lambda: layer.load_state_dict(state))
    checked(lambda: list(layer.parameters()))
    checked(lambda: layer.zero_grad())
    checked(lambda: kind(4, dtype=np.float64))
    checked(lambda: layer.backward(y[0], cache), ValueError)
    checked(lambda: layer.backward(y, (y, cache)), TypeError)
    checked(lambda: layer.backward(y, cache._replace(normalized_shape=(3,))), ValueError)
    checked(lambda: layer(X, out=X[0]), ValueError)
    checked(lambda: layer.load_state_dict({**state, list(state)[-1]: y}), ValueError)
    checked(lambda: kind(4, eps="1"), TypeError)
    checked(lambda: lnfast.set_num_threads(0), ValueError)
    checked(lnfast.config)
