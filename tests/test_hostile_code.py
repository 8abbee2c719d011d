"""Arguments whose own code runs during the call: as if it had run before it; and what cannot be so.

An __index__, an __array__ or an item of a sequence may resize an array of the same call, change its
dtype or close it for writing. Nothing may be read or written past an array for it.
"""

import collections.abc
import sys

import numpy as np
import pytest
from hostile import CHANGES, Lying, change
from norms import FUNCTIONS, Norm, norm_of

import lnfast
from lnfast import reference


class Sequence(collections.abc.Sequence):
    """Runs code before it says what it holds."""

    def __init__(self, run, items):
        self.run, self.items = run, items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        self.run()
        return self.items[i]


class Number:
    def __init__(self, run, value):
        self.run, self.value = run, value

    def __index__(self):
        self.run()
        return self.value

    def __float__(self):
        self.run()
        return float(self.value)


class ArrayLike:
    def __init__(self, run, value):
        self.run, self.value = run, value

    def __array__(self, dtype=None, copy=None):
        self.run()
        return self.value


class Sub(np.ndarray):
    """A subclass, of which lnfast sees a view: the memory is the caller's."""


FORWARD = {
    "x": ArrayLike,
    "normalized_shape": Number,
    "weight": ArrayLike,
    "bias": ArrayLike,
    "eps": Number,
    "num_threads": Number,
}
BACKWARD = {
    "dy": ArrayLike,
    "x": ArrayLike,
    "normalized_shape": Sequence,
    "weight": ArrayLike,
    "mean": ArrayLike,
    "rstd": ArrayLike,
    "output_mask": Sequence,
    "num_threads": Number,
}


def own(a, kind=np.ndarray):
    """A copy with memory of its own, which can be resized."""
    copy = np.ndarray.__new__(kind, a.shape, a.dtype)
    copy[...] = a
    return copy


def good_arguments(function, kind=np.ndarray):
    """Of any of FUNCTIONS; in place of a cache, its fields."""
    rng = np.random.default_rng(0)
    made = {"x": rng.standard_normal((6, 8)), "out": np.zeros((6, 8))}
    made |= {name: rng.standard_normal(8) for name in norm_of(function).parameters}
    made = {name: own(a.astype("f4"), kind) for name, a in made.items()}
    made |= {"normalized_shape": 8, "eps": 1, "num_threads": 1}
    return backward_of(function, made, kind) if function.endswith("backward") else made


def backward_of(function, made, kind):
    norm = Norm(norm_of(function).name, reference)
    _, cache = norm.forward(np.array(made["x"]), 8)
    made["dy"] = own(np.asarray(made["x"])[::-1], kind)
    made |= {"normalized_shape": (8,), "output_mask": (True,) * len(norm.gradients)}
    made |= {name: own(getattr(cache, name), kind) for name in norm.statistics}
    return {name: value for name, value in made.items() if name not in ("bias", "eps")}


def hostile_kinds(function):
    """The arguments that may have code of their own, and what has it."""
    table = BACKWARD if function.endswith("backward") else FORWARD
    return {name: table[name] for name in table if name in good_arguments(function)}


def outcome(implementation, function, arguments):
    """The bytes of every result, or the error."""
    arguments = dict(arguments)
    if function.endswith("backward"):
        record = norm_of(function).record
        arguments["cache"] = record(*(arguments.pop(name) for name in record._fields[:-2]))
    try:
        results = getattr(implementation, function)(**arguments)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    if function.endswith("forward"):
        results = (results[0], *results[1])
    results = results if type(results) is tuple else (results,)
    return [a.tobytes() if isinstance(a, np.ndarray) else a for a in results]


def cases():
    for function in FUNCTIONS:
        made = good_arguments(function)
        for name in hostile_kinds(function):
            for victim in made:
                if victim != name and isinstance(made[victim], np.ndarray):
                    yield function, name, victim


@pytest.mark.parametrize("kind", [np.ndarray, Sub])
@pytest.mark.parametrize("function, name, victim", list(cases()))
def test_as_if_it_had_run_before(implementation, function, name, victim, kind):
    hostile = hostile_kinds(function)[name]
    for what in CHANGES:
        before, during = (good_arguments(function, kind) for _ in range(2))
        changed = during[victim]
        change(before[victim], what)
        expected = outcome(implementation, function, before)
        once = iter([what])  # a sequence is asked for each of its items
        during[name] = hostile(
            lambda changed=changed, once=once: [change(changed, w) for w in once], during[name]
        )
        assert outcome(implementation, function, during) == expected
        assert not list(once)
        assert changed.shape == before[victim].shape
        assert changed.tobytes() == before[victim].tobytes()


@pytest.mark.parametrize("what", ["empty", "shrink", "grow", "shape", "dtype", "strides"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_between_the_check_and_the_kernels(function, what):
    """A finalizer, a profiler or another thread may run there: then the call is refused."""
    victims = [name for name, a in good_arguments(function).items() if isinstance(a, np.ndarray)]
    if function.endswith("forward"):
        victims.remove("weight")  # of which there is a copy already
    for victim in victims:
        arguments = good_arguments(function)
        arguments["num_threads"] = np.int64(1)  # the long way
        ran = []

        def profile(frame, event, argument, victim=victim, arguments=arguments, ran=ran):
            checked = frame.f_code.co_name in ("forward", "backward")
            if event == "return" and checked and "_arguments" in frame.f_code.co_filename:
                sys.setprofile(None)
                ran.append(victim)
                change(arguments[victim], what)

        previous = sys.getprofile()
        sys.setprofile(profile)
        try:
            found = outcome(lnfast, function, arguments)
        finally:
            sys.setprofile(previous)
        assert ran == [victim]
        unchanged = good_arguments(function)[victim]
        if (arguments[victim].shape, arguments[victim].dtype) != (unchanged.shape, unchanged.dtype):
            assert found[0] is ValueError and "while the call was being checked" in found[1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
@pytest.mark.parametrize(
    "function, name",
    [(function, name) for function in FUNCTIONS for name in hostile_kinds(function)],
)
def test_interrupts_pass_through(implementation, function, name, error):
    def stop():
        raise error

    arguments = good_arguments(function)
    before = arguments["out"].copy()
    arguments[name] = hostile_kinds(function)[name](stop, arguments[name])
    with pytest.raises(error):
        outcome(implementation, function, arguments)
    np.testing.assert_array_equal(arguments["out"], before)


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize(
    "function, field",
    [
        (function, field)
        for function in FUNCTIONS
        if function.endswith("backward")
        for field in ("x", "weight", *norm_of(function).statistics)
    ],
)
def test_cache_changed_between_the_calls(function, field, what):
    """The record is looked at anew in every call: the reference's error, or its values."""
    found = []
    for implementation in (lnfast, reference):
        made = good_arguments(function)
        del made["out"]
        change(made[field], what)
        found.append(outcome(implementation, function, made))
    assert (found[0][0] is found[1][0]) or type(found[0]) is type(found[1]) is list
    if type(found[0]) is tuple:
        assert found[0] == found[1]


class Claims:
    """No array, but all that is asked of an out."""

    __class__ = np.ndarray
    shape, dtype, size, flags = (2, 3, 4), np.dtype("f4"), 24, np.ones((2, 3, 4), "f4").flags


def test_what_an_object_says_of_itself(implementation):
    """Counts for nothing: its type does, and the memory it has."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) ** 2
    small, full = np.zeros(1, np.float32).view(Lying), x[::-1].copy().view(Lying)
    assert small.shape == x.shape and isinstance(small, np.ma.MaskedArray)
    with pytest.raises(ValueError, match=r"out must have the shape of x, \(2, 3, 4\), not \(1,\)"):
        implementation.layer_norm(x, 4, out=small)
    with pytest.raises(TypeError, match="out must be a NumPy array, not Claims"):
        implementation.layer_norm(x, 4, out=Claims())
    expected = implementation.layer_norm(x[::-1], 4)
    np.testing.assert_array_equal(implementation.layer_norm(full, 4), expected)
    assert implementation.layer_norm(full, 4, out=full) is full
    np.testing.assert_array_equal(np.asarray(full), expected)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arguments_there_are_not(implementation, function):
    good = (np.ones((2, 4)), 4)
    if function.endswith("backward"):
        good = (good[0], norm_of(function).forward(*good)[1])
    function = getattr(implementation, function)
    for arguments, keywords in [
        ((), {}),
        (good[:1], {"x": good[0], "dy": good[0]}),
        (good, {"axes": 1}),
        (good, {"Out": None}),
        ((*good, None, None, 1e-5, None), {}),
    ]:
        with pytest.raises(TypeError):
            function(*arguments, **keywords)


def test_no_columns_take_no_time():
    """2⁴⁰ rows of no elements: nothing is counted through."""
    x = np.empty((2**40, 0), np.float32)
    assert lnfast.layer_norm(x, 0).shape == x.shape
    assert lnfast.layer_norm(x, normalized_shape=(2**40, 0)).shape == x.shape
