"""Arguments of every kind, for test_hostile.py: each strategy draws a function that makes one.

`make(room)` gives a new object each time, since a hostile one may change itself and others: each
implementation gets its own. A Room holds the arrays that one call is given.
"""

import array
import collections.abc
import contextlib
import ctypes
import decimal
import fractions
import os
import tempfile
import warnings

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

# How many times as many examples as in CI.
FUZZ = int(os.environ.get("LNFAST_FUZZ", "1"))


def fuzz(examples):
    return settings(
        max_examples=examples * FUZZ,
        derandomize=FUZZ == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


REAL = ["f4", "f8", ">f4", ">f8", "?", "i1", "u8", ">i2"]  # what x may be
CASTABLE = [*REAL, "f2", "g"]  # what a weight or bias may be
ODD = ["f2", "g", "F", "D", "O", "S3", "U2", "M8[s]", "m8[ms]", "V5", [("a", "f4"), ("b", "O")]]


class Room:
    """The arrays of one call, in the order they were made, for hostile ones to change."""

    def __init__(self):
        self.arrays = []
        self.changed = False  # by a hostile argument

    def add(self, made):
        self.arrays.append(made)
        return made

    def snapshot(self):
        return [np.asarray(a).tobytes() for a in self.arrays]


# What hostile code does to an array of the same call.
CHANGES = {
    "empty": lambda a: a.resize(0, refcheck=False),
    "shrink": lambda a: a.resize(max(a.size - 1, 0), refcheck=False),
    "grow": lambda a: a.resize(2 * a.size + 1, refcheck=False),
    "shape": lambda a: setattr(a, "shape", (1, *a.shape[::-1])),
    "dtype": lambda a: setattr(a, "dtype", np.dtype(f"V{a.itemsize}")),
    "strides": lambda a: setattr(a, "strides", (0,) * a.ndim),
    "read-only": lambda a: a.setflags(write=False),
    "values": lambda a: a.fill(3),
}


def change(a, name):
    """The change, where NumPy lets it be made (newer versions warn, or refuse)."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CHANGES[name](a)


# Arrays


class Lying(np.ndarray):
    """A subclass whose every word about itself is false, and which breaks NumPy's protocols."""

    __array_priority__ = 1e9
    __array_ufunc__ = None
    shape = property(lambda self: (2, 3, 4))
    strides = property(lambda self: (8, 8, 8))
    dtype = property(lambda self: np.dtype("f4"))
    flags = property(lambda self: np.ones(1).flags)
    ndim = size = nbytes = itemsize = property(lambda self: 3)
    __class__ = property(lambda self: np.ma.MaskedArray)

    def refuse(self, *arguments, **keywords):
        raise RuntimeError("a method of the caller's array")

    __array_function__ = __array__ = __len__ = __getitem__ = __iter__ = __bool__ = refuse
    __eq__ = __float__ = __index__ = __repr__ = __str__ = __array_wrap__ = refuse
    __hash__ = None


def values(shape, dtype, seed):
    """Small integers, which every real dtype holds and no sum of them rounds in float64."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc":
        return np.zeros(shape, dtype)
    low = 0 if dtype.kind in "ub" else -9
    return np.random.default_rng(seed).integers(low, 9, shape, endpoint=True).astype(dtype)


def misaligned(a):
    room = np.zeros(a.nbytes + 1, np.uint8)
    moved = np.ndarray(a.shape, a.dtype, room, 1)
    moved[...] = a
    return moved


def with_odd_strides(a):
    """What an axis of length 0 or 1 has for a stride means nothing."""
    steps = [s if n > 1 else 12345 for s, n in zip(a.strides, a.shape, strict=True)]
    return as_strided(a, strides=steps)


def field(a):
    records = np.zeros(a.shape, [("before", "i1"), ("value", a.dtype), ("after", "i2")])
    records["value"] = a
    return records["value"]


def mapped(a):
    if a.size == 0:
        return a
    with tempfile.TemporaryFile() as file:
        copy = np.memmap(file, a.dtype, "w+", shape=a.shape or (1,)).reshape(a.shape)
    copy[...] = a
    return copy


def owner(kind):
    """A subclass instance with memory of its own, which can be resized."""

    def make(a):
        made = np.ndarray.__new__(kind, a.shape, a.dtype)
        np.asarray(made)[...] = a
        return made

    return make


def read_only(a):
    a.setflags(write=False)
    return a


# Each gives an array of the same values, and those of OUTS one to write to.
OUTS = {
    "plain": lambda a: a,
    "Fortran": np.asfortranarray,
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a,
    "stepped": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim and a.dtype != "O" else a,
    "misaligned": lambda a: a if a.dtype.hasobject else misaligned(a),
    "odd strides": with_odd_strides,
    "field": field,
    "memmap": lambda a: a if a.dtype.hasobject else mapped(a),
    "subclass": owner(type("Sub", (np.ndarray,), {})),
    "lying": owner(Lying),
}
LAYOUTS = {
    **OUTS,
    "read-only": read_only,
    "broadcast": lambda a: np.broadcast_to(a, a.shape),
    "matrix": lambda a: a.view(np.matrix) if a.ndim == 2 else a,
    "recarray": lambda a: a.view(np.recarray),
    "masked": np.ma.array,
}


class ArrayMethod:
    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return self.a


class ArrayInterface:
    def __init__(self, a):
        self.a, self.__array_interface__ = a, a.__array_interface__


class PlainSequence(collections.abc.Sequence):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


# Other things that NumPy makes an array of (or an array of objects: "generator").
FORMS = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a) if a.ndim else a[()],
    "memoryview": lambda a: memoryview(a) if a.dtype.kind in "biuf" else a,
    "array.array": lambda a: array.array("d", a.astype("f8")) if is_row(a) else a,
    "ctypes": lambda a: (ctypes.c_float * a.size)(*a.tolist()) if is_row(a) else a,
    "generator": lambda a: (row for row in (a if a.ndim else [a])),
    "sequence": lambda a: PlainSequence(list(a)) if a.ndim else a,
    "__array__": ArrayMethod,
    "__array_interface__": ArrayInterface,
}


def is_row(a):
    return a.ndim == 1 and a.dtype.kind in "biuf"


@st.composite
def arrays(draw, shape, dtypes, special=(), layouts=LAYOUTS, forms=FORMS, content=None):
    """An array of this shape, in any layout or form; now and then with a special value."""
    dtype = draw(st.sampled_from(dtypes))
    layout = draw(st.sampled_from(list(layouts)))
    form = draw(st.sampled_from([None] * 3 * (len(forms) + 1) + list(forms)))
    place = draw(st.sampled_from([None, None, None, 0, -1]))
    value = draw(st.sampled_from(special)) if special else None
    seed = draw(st.integers(0, 3))

    def make(room):
        a = values(shape, dtype, seed) if content is None else content.astype(dtype)
        if place is not None and value is not None and a.size and a.dtype.kind == "f":
            a.reshape(-1)[place] = value
        if form:
            return forms[form](room.add(a))
        return room.add(layouts[layout](a))

    return make


# Objects


class Own:
    """What a method of a hostile object does: raise, give nonsense, or change an array first."""

    def __init__(self, draw, good):
        self.error = draw(st.sampled_from([None, RuntimeError, TypeError, KeyError, Unspeakable]))
        nonsense = [None, "4", -1, 2**80, float("nan"), [1], object, 1.5, np.ones(4)]
        self.answer = draw(st.sampled_from([good] * len(nonsense) + nonsense))
        self.change = draw(st.sampled_from([None, *CHANGES]))
        self.target = draw(st.integers(0, 4))

    def bind(self, room):
        def method(*arguments, **keywords):
            if self.change and room.arrays:
                room.changed = True
                change(room.arrays[self.target % len(room.arrays)], self.change)
            if self.error:
                raise self.error("a method of the caller's")
            return self.answer

        return method


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


METHODS = {
    "__array__": np.ones(4, np.float32),
    "__index__": 4,
    "__float__": 1e-5,
    "__int__": 1,
    "__bool__": True,
    "__len__": 3,
    "__getitem__": True,
    "__iter__": iter(()),
    "__eq__": True,
    "__repr__": "hostile",
    "__array_interface__": {},
    "__array_struct__": None,
    "__class__": np.ndarray,
    "shape": (4,),
    "dtype": np.dtype("f4"),
    "ndim": 0,
    "flags": np.ones(4).flags,
}
PROPERTIES = {"__array_interface__", "__array_struct__", "__class__", *list(METHODS)[-4:]}


class Sequence(PlainSequence):
    """Base of a hostile sequence, whose own methods are drawn."""

    def __init__(self):
        super().__init__([4])


def ended(method):
    """A __getitem__ with an end: NumPy, like list, reads on until an IndexError."""

    def getitem(self, index=0):
        if isinstance(index, int) and index >= 3:
            raise IndexError
        return method(self, index)

    return getitem


@st.composite
def hostile_objects(draw, methods=tuple(METHODS), bases=(object, Sequence, int, float, dict)):
    names = sorted(draw(st.sets(st.sampled_from(methods), min_size=1, max_size=3)))
    base = draw(st.sampled_from(bases))
    own = {name: Own(draw, METHODS[name]) for name in names}

    def make(room):
        bound = {name: method.bind(room) for name, method in own.items()}
        body = {n: property(m) if n in PROPERTIES else m for n, m in bound.items()}
        if "__getitem__" in body:
            body["__getitem__"] = ended(body["__getitem__"])
        return type("Hostile", (base,), {"__hash__": None, **body})()

    return make


THINGS = [
    *[lambda: None, lambda: NotImplemented, lambda: Ellipsis, object, dict, set, list, tuple],
    *[lambda: True, lambda: 0, lambda: 3, lambda: -1, lambda: 2**62, lambda: -(10**5000)],
    *[lambda: 10**5000, lambda: 0.5, lambda: float("nan"), lambda: float("inf"), lambda: -1e-300],
    *[lambda: 1j, lambda: "4", lambda: b"4", lambda: bytearray(b"44"), lambda: {4}, lambda: {4: 4}],
    *[lambda: range(2**70), lambda: range(4, 5), lambda: [10**5000], lambda: [[10**5000]]],
    *[lambda: iter([4]), lambda: (i for i in [4]), lambda: int, lambda: len, lambda: [[1, 2], [3]]],
    *[lambda: decimal.Decimal("sNaN"), lambda: decimal.Decimal("1e-5"), lambda: np.ma.masked],
    *[lambda: fractions.Fraction(1, 3), lambda: np.bool_(True), lambda: np.float16(0.5)],
    *[lambda: np.int64(4), lambda: np.longdouble(1), lambda: np.complex64(1), lambda: np.str_("4")],
    *[lambda: np.datetime64(1, "s"), lambda: np.zeros((), "V4")[()], lambda: (4, True)],
    *[lambda: [None], lambda: (True, False), (lambda: (True,) * 3), (lambda: [1] * 3)],
    lambda: np.array([4, 3]),
    lambda: np.zeros(2, [("a", "f4")]),
]


def things():
    return st.sampled_from(THINGS).map(lambda thing: lambda room: thing())


def anything(shape=(2, 3, 4)):
    """Any object, or an array that is wrong for an argument of this shape."""
    wrong = st.sampled_from([(), shape[1:], (1, *shape), (*shape, 1), shape[::-1], (0,), (1,) * 31])
    return st.one_of(
        things(),
        hostile_objects(),
        hostile_objects(),
        wrong.flatmap(lambda other: arrays(other, CASTABLE)),
        arrays(shape, ODD),
        arrays(shape, REAL),
    )
