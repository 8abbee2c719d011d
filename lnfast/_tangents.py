"""Arguments of the derivatives (derivatives.py): checked, and made rows and columns.

As lnfast._pieces, for what takes the record of a forward pass.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lnfast import _axes, _checks
from lnfast._pieces import (
    DOUBLE_BACKWARD,
    FLOAT64,
    JVP,
    Given,
    Layout,
    Operands,
    Piece,
    input_array,
    with_room,
)
from lnfast._records import LayerNormCache, fields


def jvp(
    dx: ArrayLike | None,
    cache: object,
    dweight: ArrayLike | None,
    dbias: ArrayLike | None,
    out: object,
    num_threads: object,
) -> Piece:
    """Its tangents are the operands ddx, ddweight and ddbias."""
    names = {"ddx": "dx", "ddweight": "dweight", "ddbias": "dbias"}
    given = {"ddx": dx, "ddweight": dweight, "ddbias": dbias}
    layout, operands, threads = _operands(cache, given, names, num_threads)
    return with_room(JVP, layout, operands, ["x", "ddx"], out, threads)


def double_backward(
    ddx: ArrayLike | None,
    ddweight: ArrayLike | None,
    ddbias: ArrayLike | None,
    dy: ArrayLike,
    cache: object,
    num_threads: object,
) -> Piece:
    given = {"ddx": ddx, "ddweight": ddweight, "ddbias": ddbias, "dy": dy}
    if dy is None:
        raise TypeError("dy must be an array, not None")
    layout, operands, threads = _operands(cache, given, {}, num_threads)
    x: Any = operands["x"]
    operands |= {"out": np.empty_like(x), "gx": np.empty_like(x)}
    operands["gweight"] = np.zeros(x.shape[1], x.dtype)
    return Piece(DOUBLE_BACKWARD, layout, operands, None, threads)


def _operands(
    cache: object, given: Given, names: dict[str, str], num_threads: object
) -> tuple[Layout, Operands, int]:
    """The record's fields, and what is given beside it; names: what those are called in errors."""
    x, normalized_shape, weight, mean, rstd, axis, mask = fields(cache, LayerNormCache)
    if mask is not None:
        raise ValueError("cache has a mask: the derivatives are those of layer_norm without one")
    x = _checks.converted("x", x)
    lengths = None if normalized_shape is None else _axes.shape(normalized_shape)
    numbers = None if axis is None else _axes.numbers(axis)
    weight = _checks.optional_converted("weight", weight)
    mean, rstd = _checks.converted("mean", mean), _checks.converted("rstd", rstd)
    arrays = {
        name: _checks.optional_converted(names.get(name, name), array)
        for name, array in given.items()
    }
    threads = _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    x, dtype = input_array(x)
    axes, lengths = _axes.kept(numbers, lengths, weight, x.shape)
    layout = Layout(x.shape, axes)
    operands: Operands = {"x": layout.to_table(_checks.plain(x, dtype))}
    operands["weight"] = None
    if weight is not None:
        operands["weight"] = _checks.parameter("weight", weight, lengths, dtype).reshape(-1)
    for name, statistic in (("mean", mean), ("rstd", rstd)):
        plain = _checks.parameter(name, statistic, layout.statistic, FLOAT64)
        operands[name] = plain.reshape(-1)
    for name, array in arrays.items():
        called = names.get(name, name)
        if array is not None and name in ("ddx", "dy"):
            array = _checks.output_gradient(called, array, x.shape)
            array = layout.to_table(_checks.plain(array, dtype))
        elif array is not None:
            array = _checks.parameter(called, array, lengths, dtype).reshape(-1)
        operands[name] = array
    return layout, operands, threads
