"""Calls that are wrong: the same error from every implementation, and nothing written."""

import decimal

import numpy as np
import pytest
from norms import FUNCTIONS, norm_of

import lnfast
from lnfast import reference

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) ** 2
ONES = np.ones(4, np.float32)
STATISTIC = np.ones((2, 3, 1))


class Unconvertible:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array in here")


# Bad arguments of both forward functions: keywords that differ from a good call, the error, and
# what its message must say.
FORWARD = {
    "shape neither given nor taken": (
        {"normalized_shape": None, "weight": None},
        ValueError,
        "no weight",
    ),
    "shape bool": ({"normalized_shape": True}, TypeError, "normalized_shape.*True"),
    "shape NumPy bool": ({"normalized_shape": np.True_}, TypeError, "normalized_shape"),
    "shape of bools": ({"normalized_shape": [True]}, TypeError, "normalized_shape.*True"),
    "shape float": ({"normalized_shape": 4.0}, TypeError, r"normalized_shape.*4\.0"),
    "shape of floats": ({"normalized_shape": np.array([4.0])}, TypeError, "normalized_shape"),
    "shape str": ({"normalized_shape": "4"}, TypeError, "normalized_shape.*str"),
    "shape bytes": ({"normalized_shape": b"\x04"}, TypeError, "normalized_shape.*bytes"),
    "shape nested": ({"normalized_shape": [[3, 4]]}, TypeError, "normalized_shape"),
    "shape a set": ({"normalized_shape": {4}}, TypeError, "normalized_shape"),
    "shape negative": ({"normalized_shape": -1}, ValueError, r"\(-1,\).*negative"),
    "shape empty": ({"normalized_shape": ()}, ValueError, "normalized_shape is empty"),
    "shape too long": (
        {"normalized_shape": (1, 2, 3, 4)},
        ValueError,
        r"\(1, 2, 3, 4\).*last 4 axes of x with shape \(2, 3, 4\)",
    ),
    "shape on another axis": (
        {"normalized_shape": 3},
        ValueError,
        r"normalized_shape \(3,\).*last axis of x with shape \(2, 3, 4\): 3 stands on axis 1$",
    ),
    "shape swapped": (
        {"normalized_shape": (4, 3)},
        ValueError,
        r"last 2 axes.*: 4 stands on axis 2, 3 stands on axis 1$",
    ),
    "shape nowhere": ({"normalized_shape": 5}, ValueError, r"\(2, 3, 4\)$"),
    "shape of the weight": (
        {"normalized_shape": None, "weight": np.ones(3)},
        ValueError,
        r"\(3,\) \(the shape of weight\).*3 stands on axis 1$",
    ),
    "weight 0-d for the shape": (
        {"normalized_shape": None, "weight": 1.0},
        ValueError,
        "weight is 0-d",
    ),
    "x 0-d": ({"x": 1.5}, ValueError, "x is 0-d"),
    "x None": ({"x": None}, TypeError, "x has dtype object.*float32, float64"),
    "x ragged": ({"x": [[1, 2], [3]]}, ValueError, "x cannot be made an array"),
    "x raises": ({"x": Unconvertible()}, ValueError, "x cannot be made an array: no array in"),
    "x masked": ({"x": np.ma.array(X)}, TypeError, "x is a masked array"),
    "weight short": (
        {"weight": np.ones(3)},
        ValueError,
        r"weight must have shape \(4,\), not \(3,\): 3 stands on axis 1 of x$",
    ),
    "weight of other rows": (
        {"weight": np.ones((2, 4))},
        ValueError,
        r"weight with shape \(2, 4\) must have the lengths \(4,\).*x with shape \(2, 3, 4\)$",
    ),
    "weight of more axes than x": (
        {"weight": np.ones((1, 2, 3, 4))},
        ValueError,
        r"weight must have shape \(4,\), not \(1, 2, 3, 4\)",
    ),
    "weight scalar": ({"weight": 1.0}, ValueError, r"weight must have shape \(4,\), not \(\)"),
    "weight complex": ({"weight": ONES * 1j}, TypeError, "weight has dtype complex"),
    "weight str": ({"weight": ["1"] * 4}, TypeError, "weight has dtype"),
    "weight object": ({"weight": [decimal.Decimal(1)] * 4}, TypeError, "weight has dtype object"),
    "weight of durations": ({"weight": np.ones(4, "m8[s]")}, TypeError, "weight has dtype"),
    "weight masked": ({"weight": np.ma.ones(4)}, TypeError, "weight is a masked array"),
    "weight raises": ({"weight": Unconvertible()}, ValueError, "weight cannot be made an array"),
    "bias long": ({"bias": np.ones(5)}, ValueError, r"bias must have shape \(4,\), not \(5,\)$"),
    "bias complex": ({"bias": ONES * 1j}, TypeError, "bias has dtype complex"),
    "bias masked": ({"bias": np.ma.ones(4)}, TypeError, "bias is a masked array"),
    "eps NaN": ({"eps": np.nan}, ValueError, "eps.*nan"),
    "eps infinite": ({"eps": np.float32("inf")}, ValueError, "eps.*inf"),
    "eps negative": ({"eps": -1e-5}, ValueError, "eps.*-1e-05"),
    "eps too large": ({"eps": 10**400}, ValueError, "eps.*too large"),
    "eps signalling": ({"eps": decimal.Decimal("sNaN")}, ValueError, "eps.*NaN"),
    "eps str": ({"eps": "1e-5"}, TypeError, "eps.*str"),
    "eps None": ({"eps": None}, TypeError, "eps.*NoneType"),
    "eps bool": ({"eps": True}, TypeError, "eps.*bool"),
    "eps NumPy bool": ({"eps": np.True_}, TypeError, "eps.*bool"),
    "eps complex": ({"eps": 1j}, TypeError, "eps.*complex"),
    "eps NumPy complex": ({"eps": np.complex64(1)}, TypeError, "eps.*complex64"),
    "eps a date": ({"eps": np.datetime64(1, "s")}, TypeError, "eps.*datetime64"),
    "eps an array": ({"eps": np.array([1e-5])}, TypeError, "eps.*ndarray"),
}
for dtype in ("longdouble", "complex64", "object", "U3", "M8[s]", "m8[s]", "V8"):
    FORWARD[f"x {dtype}"] = (
        {"x": np.empty((2, 3, 4), dtype)},
        TypeError,
        "x has dtype.*float32, float64, float16 or bfloat16",
    )

BOTH = {
    "threads 0": ({"num_threads": 0}, ValueError, "num_threads must be at least 1.*not 0"),
    "threads negative": ({"num_threads": np.int64(-2)}, ValueError, "num_threads.*not -2"),
    "threads float": ({"num_threads": 2.0}, TypeError, r"num_threads must be an int, not 2\.0"),
    "threads bool": ({"num_threads": True}, TypeError, "num_threads must be an int, not True"),
    "threads str": ({"num_threads": "2"}, TypeError, "num_threads must be an int"),
    "check_finite int": ({"check_finite": 1}, TypeError, "check_finite must be a bool, not int"),
    "check_finite None": ({"check_finite": None}, TypeError, "check_finite.*NoneType"),
}

# Fields of the cache stand beside the arguments of the call: {"cache.x": …}.
BACKWARD = {
    "dy of another shape": (
        {"dy": X[0]},
        ValueError,
        r"dy must have the shape of x, \(2, 3, 4\), not \(3, 4\)",
    ),
    "dy complex": ({"dy": X * 1j}, TypeError, "dy has dtype complex64.*float32 or float64"),
    "dy longdouble": ({"dy": X.astype("g")}, TypeError, "dy has dtype.*float32 or float64"),
    "dy object": ({"dy": X.astype(object)}, TypeError, "dy has dtype object"),
    "dy str": ({"dy": X.astype(str)}, TypeError, "dy has dtype"),
    "dy None": ({"dy": None}, TypeError, "dy has dtype object"),
    "dy ragged": ({"dy": [[1, 2], [3]]}, ValueError, "dy cannot be made an array"),
    "dy masked": ({"dy": np.ma.array(X)}, TypeError, "dy is a masked array"),
    "mask str": ({"output_mask": "yes"}, TypeError, "output_mask.*str"),
    "mask bool": ({"output_mask": True}, TypeError, "output_mask.*bool"),
    "mask a set": ({"output_mask": {True, False}}, TypeError, "output_mask.*set"),
    "x longdouble": ({"cache.x": X.astype("g")}, TypeError, "x has dtype"),
    "x masked": ({"cache.x": np.ma.array(X)}, TypeError, "x is a masked array"),
    "x 0-d": ({"cache.x": 1.0}, ValueError, "x is 0-d"),
    "x of another shape": ({"cache.x": X[..., :3]}, ValueError, r"normalized_shape \(4,\)"),
    "shape of x": ({"cache.normalized_shape": (3,)}, ValueError, "3 stands on axis 1"),
    "shape str": ({"cache.normalized_shape": "4"}, TypeError, "normalized_shape"),
    "weight of x": ({"cache.weight": np.ones(3)}, ValueError, r"weight must have shape \(4,\)"),
    "weight complex": ({"cache.weight": ONES * 1j}, TypeError, "weight has dtype complex"),
    "mean None": ({"cache.mean": None}, TypeError, "mean has dtype object"),
    "mean without its axis": (
        {"cache.mean": np.zeros((2, 3))},
        ValueError,
        r"mean must have shape \(2, 3, 1\), not \(2, 3\)",
    ),
    "rstd None": ({"cache.rstd": None}, TypeError, "rstd has dtype object"),
    "rstd complex": ({"cache.rstd": STATISTIC * 1j}, TypeError, "rstd has dtype complex"),
    "rstd flat": ({"cache.rstd": np.ones(6)}, ValueError, r"rstd must have shape \(2, 3, 1\)"),
}


# What is right for one norm and wrong for the other.
THREE, TWO = (True,) * 3, (True,) * 2
OF_LAYER_NORM = {
    "cache a tuple": (
        {"cache": (1, 2, 3, 4, 5)},
        TypeError,
        r"LayerNormCache, not tuple: layer_norm_forward returns one.*weight, mean, rstd\) builds",
    ),
    "cache None": ({"cache": None}, TypeError, "LayerNormCache, not NoneType"),
    "cache of rms_norm": (
        {"cache": lnfast.RMSNormCache(X, (4,), ONES, STATISTIC)},
        TypeError,
        "LayerNormCache, not RMSNormCache: layer_norm_forward returns one",
    ),
    "mask of ints": ({"output_mask": (1, 1, 1)}, TypeError, r"output_mask\[0\].*bool, not int"),
    "mask short": (
        {"output_mask": TWO},
        ValueError,
        "output_mask must be three bools, for dx, dweight and dbias, not 2$",
    ),
    "mask long": ({"output_mask": (*THREE, True)}, ValueError, "output_mask.*three.*not more$"),
}
OF_RMS_NORM = {
    "cache a tuple": (
        {"cache": (1, 2, 3, 4)},
        TypeError,
        r"RMSNormCache, not tuple: rms_norm_forward returns one.*_shape, weight, rstd\) builds",
    ),
    "cache None": ({"cache": None}, TypeError, "RMSNormCache, not NoneType"),
    "cache of layer_norm": (
        {"cache": lnfast.LayerNormCache(X, (4,), ONES, STATISTIC, STATISTIC)},
        TypeError,
        "RMSNormCache, not LayerNormCache: rms_norm_forward returns one",
    ),
    "mask of ints": ({"output_mask": (1, 1)}, TypeError, r"output_mask\[0\].*bool, not int"),
    "mask short": (
        {"output_mask": [True]},
        ValueError,
        "output_mask must be two bools, for dx and dweight, not 1$",
    ),
    "mask long": ({"output_mask": THREE}, ValueError, "output_mask.*two.*not more$"),
}
OF = {"layer_norm": OF_LAYER_NORM, "rms_norm": OF_RMS_NORM}


def arguments_of(norm, backward):
    """Those of a good call. Fields of the cache stand beside the others, as in the tables."""
    parameters = {name: ONES.copy() for name in norm.parameters}
    if not backward:
        return {"x": X, "normalized_shape": (4,), **parameters, "eps": 1e-5}
    mean = X.mean(axis=-1, keepdims=True, dtype=np.float64)
    fields = {"x": X, "normalized_shape": (4,), "weight": ONES, "mean": mean, "rstd": STATISTIC}
    return {"dy": X.copy()} | {f"cache.{name}": fields[name] for name in norm.fields}


def changed(function, change):
    """Those of a good call of one of FUNCTIONS with a change as in the tables."""
    norm = norm_of(function)
    made = arguments_of(norm, function.endswith("backward")) | change
    fields = {key[6:]: made.pop(key) for key in list(made) if key.startswith("cache.")}
    if fields and "cache" not in made:
        made["cache"] = norm.record_of(**fields)
    return made


def call(implementation, function, change, **more):
    """A good call of the function, with this change to it."""
    return getattr(implementation, function)(**changed(function, {**change, **more}))


def bad_rows(function):
    """Of the tables, by name: those about what the function has."""
    norm, backward = norm_of(function), function.endswith("backward")
    table = BACKWARD | OF[norm.name] if backward else FORWARD
    foreign = {"bias", "cache.mean"} - {*arguments_of(norm, backward)}
    return {name: row for name, row in (table | BOTH).items() if not foreign & {*row[0]}}


def bad_calls():
    for function in FUNCTIONS:
        for name, row in bad_rows(function).items():
            yield pytest.param(function, *row, id=f"{function}-{name}")


@pytest.mark.parametrize("function, change, error, message", list(bad_calls()))
def test_error_names_the_argument(implementation, function, change, error, message):
    out = np.full(X.shape, 7, X.dtype)
    with pytest.raises(error, match=message) as raised:
        call(implementation, function, change, out=out)
    assert raised.type is error
    assert (out == 7).all()
    with pytest.raises(error) as defined:
        call(reference, function, change, out=out)
    assert str(raised.value) == str(defined.value)


def test_errors_of_conversion_keep_their_cause(norm):
    with pytest.raises(ValueError) as raised:
        norm.normalize(Unconvertible(), 4)
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_memory_error_passes_through(norm):
    class Huge:
        def __array__(self, dtype=None, copy=None):
            raise MemoryError

    with pytest.raises(MemoryError):
        norm.normalize(Huge(), 4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_check_finite_names_the_first_place(norm, bad):
    good = arguments_of(norm, backward=False)
    for name, place in {"x": (1, 2, 3), "weight": (2,), "bias": (0,)}.items():
        if name not in good:
            continue
        array, out = good[name].copy(), np.full(X.shape, 7, X.dtype)
        array[place] = bad
        for function in (norm.normalize, norm.forward):
            function(**good | {name: array})  # no error, no warning without the check
            with pytest.raises(ValueError) as raised:
                function(**good | {name: array}, check_finite=True, out=out)
            assert str(raised.value) == f"{name}[{', '.join(map(str, place))}] is {bad}"
            assert (out == 7).all()


def test_check_finite_backward(norm):
    good = arguments_of(norm, backward=True)
    # The row's first x is its least, and above 0: below the mean where there is one.
    overflow = f"dx[1, 2, 0] overflows to {'' if norm.centred else '-'}inf"
    for name, value, message in [
        ("dy", np.nan, "dy[1, 2, 0] is nan"),
        ("cache.x", np.inf, "x[1, 2, 0] is inf"),
        ("cache.weight", np.nan, "weight[0] is nan"),
        ("cache.mean", np.nan, "mean[1, 2, 0] is nan"),
        ("cache.rstd", np.inf, "rstd[1, 2, 0] is inf"),
        ("cache.rstd", 0.0, "rstd[1, 2, 0] is 0.0: it must be above 0"),
        ("cache.rstd", -1.0, "rstd[1, 2, 0] is -1.0: it must be above 0"),
        ("cache.rstd", 1e30, overflow),
    ]:
        if name not in good:
            continue
        array, out = good[name].copy(), np.full(X.shape, 7, X.dtype)
        array[(0,) if name == "cache.weight" else (1, 2, 0)] = value
        arguments = changed(f"{norm.name}_backward", {name: array})
        norm.backward(**arguments)
        with pytest.raises(ValueError) as raised:
            norm.backward(**arguments, check_finite=True, out=out)
        assert str(raised.value) == message
        assert (out == 7).all()


def test_check_finite_sees_results(norm):
    weight, out = np.array([1, 1, 1, 3e38], np.float32), np.full(X.shape, 7, X.dtype)
    no_spread = np.full((2, 3), float(norm.centred))
    for function in (norm.normalize, norm.forward):
        with pytest.raises(ValueError, match=r"^y\[0, 0, 3\] overflows to inf$"):
            function(X, 4, weight, out=out, check_finite=True)
        assert (out == 7).all()
        with pytest.raises(ValueError, match=r"^y\[0, 0\] is nan$"):
            function(no_spread, 3, eps=0, check_finite=True)


def test_check_finite_passes_what_is_finite(norm):
    y, cache = norm.forward(X, 4, check_finite=True)
    np.testing.assert_array_equal(y, norm.normalize(X, 4))
    checked = norm.backward(X, cache, check_finite=np.True_)
    for gradient, expected in zip(checked, norm.backward(X, cache), strict=True):
        np.testing.assert_array_equal(gradient, expected)


def test_out_without_dx(norm):
    out, mask = np.zeros_like(X), [name != "dx" for name in norm.gradients]
    with pytest.raises(ValueError, match=r"out is for dx.*output_mask\[0\]"):
        norm.backward(X, norm.forward(X, 4)[1], out=out, output_mask=mask)
