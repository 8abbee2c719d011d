"""Small examples, each worked out from the formulas, some of them rows that others go wrong on."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import lnfast

# What is stated has eight digits or more; beyond that a result may be off by a few roundings of
# its largest number: twice the largest bound, in the examples' scales.
STATED = 5e-8
EPSILONS = 16


class Example(NamedTuple):
    name: str
    x: Sequence[float]
    stated: dict[str, Sequence[float]]  # of mean, y, dx, dweight, dbias
    dy: Sequence[float] | None = None
    weight: Sequence[float] | None = None
    bias: Sequence[float] | None = None
    eps: float = 1e-5
    dtypes: Sequence[str] = ("float32", "float64")


STEPS = (-1.3416408, -0.4472136, 0.4472136, 1.3416408)
EXAMPLES = (
    Example(
        "one row by hand",
        x=[1, 2, 3],
        weight=[1, 2, 3],
        bias=[0, 1, -1],
        dy=[1, -1, 2],
        eps=1 / 3,
        stated={
            "mean": [2],
            "y": [-1, 1, 2],
            "dx": [1, -11 / 3, 8 / 3],
            "dweight": [-1, 0, 2],
            "dbias": [1, -1, 2],
        },
    ),
    Example(
        "an eps that shows",
        x=[0, 1, 2, 3, 4, 5],
        eps=1 / 12,
        stated={"y": [v / 3**0.5 for v in (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)]},
    ),
    Example(
        "a gradient of ones",
        x=[1, 2, 3, 4],
        dy=[1, 1, 1, 1],
        eps=0,
        stated={"y": STEPS, "dx": [0, 0, 0, 0], "dweight": STEPS, "dbias": [1, 1, 1, 1]},
    ),
    Example(
        "steps of 1 at 40,000",
        x=[40000, 40001, 40002, 40003],
        stated={"mean": [40001.5], "y": [-1.3416354, -0.4472118, 0.4472118, 1.3416354]},
    ),
    Example(
        "the last integers of float32",
        x=[2**24 + 2 * i for i in range(4)],
        dy=[1, 0, 0, 0],
        stated={
            "mean": [2**24 + 3],
            "y": [-1.3416394, -0.4472131, 0.4472131, 1.3416394],
            "dweight": [-1.3416394, 0, 0, 0],
        },
    ),
    Example("256 times the same", x=[1234.0] * 256, stated={"mean": [1234], "y": [0] * 256}),
    Example("zeros, a tiny eps", x=[0] * 10, eps=1e-12, stated={"mean": [0], "y": [0] * 10}),
    Example(
        "a gradient on a constant row",
        x=[0, 0],
        dy=[1, 0],
        stated={"dx": [158.11388, -158.11388], "dweight": [0, 0], "dbias": [1, 0]},
    ),
    Example("10³⁰", x=[1e30, 2e30, 3e30], eps=0, stated={"y": [-(1.5**0.5), 0, 1.5**0.5]}),
    Example("10⁻⁴⁰", x=[2.0**-140, 3 * 2.0**-140], eps=0, stated={"y": [-1, 1]}),
    Example("10³⁰⁰", x=[1e300, 3e300], eps=0, stated={"y": [-1, 1]}, dtypes=("float64",)),
)


def differences(example: Example) -> Iterator[str]:
    """Where lnfast finds something else than what is stated."""
    for dtype in example.dtypes:
        x = np.array([example.x], dtype)
        y, cache = lnfast.layer_norm_forward(
            x, x.shape[1], example.weight, example.bias, example.eps
        )
        dy = np.zeros_like(x) if example.dy is None else np.array([example.dy], dtype)
        dx, dweight, dbias = lnfast.layer_norm_backward(dy, cache)
        found: dict[str, Any] = dict(mean=cache.mean, y=y, dx=dx, dweight=dweight, dbias=dbias)
        for name, stated in example.stated.items():
            want, got = np.array(stated, np.float64), np.ravel(found[name]).astype(np.float64)
            size = max(1.0, float(np.max(np.abs(want))))
            limit = (STATED + EPSILONS * float(np.finfo(dtype).eps)) * size
            if not np.all(np.abs(got - want) <= limit):
                yield f"{example.name}, {dtype}: {name} is {got.tolist()}, not {want.tolist()}"
