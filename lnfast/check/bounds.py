"""The promised bounds: what of each a result uses, on the families of rows."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import lnfast
from lnfast.check import oracle
from lnfast.check.families import FAMILIES, Array, draw

# The machine epsilons that a result may be off by, in the scales of `oracle`.
BOUNDS_OF = {
    "layer_norm": {"y": 3, "dx": 4, "dweight": 4, "dbias": 2},
    "rms_norm": {"y": 3, "dx": 4, "dweight": 4},
}
BOUNDS = BOUNDS_OF["layer_norm"]
# From the code: 8 and 16 lanes, trees of 32, steps of 64, chunks of 4096; strips of 4 rows, groups
# of 8, blocks of 32.
LENGTHS = (
    *(1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65),
    *(100, 768, 1001, 4095, 4096, 4097, 8193),
)
SHORT_LENGTHS = (1, 3, 16, 33, 65, 768, 4097)
EPS = (1e-5, 1e-12, 0.0)


class Case(NamedTuple):
    family: str
    dtype: str
    rows: int
    cols: int
    eps: float
    norm: str = "layer_norm"

    def __str__(self) -> str:
        return f"{self.family}, {self.dtype}, {self.rows}×{self.cols}, eps {self.eps:g}"


def cases(
    dtype: str, lengths: tuple[int, ...] = LENGTHS, norm: str = "layer_norm"
) -> Iterator[Case]:
    """Every family, length and eps."""
    for family in FAMILIES:
        for eps in EPS:
            for cols in lengths:
                yield Case(family, dtype, 37 if cols <= 100 else 6, cols, eps, norm)


def operands(case: Case) -> tuple[Array, Array, Array, Array]:
    """x, weight, bias, dy of a case, without the rows that have no result.

    With eps = 0 these are the constant ones, and of rms_norm those of zeros.
    """
    x, weight, bias, dy = draw(case.family, case.rows, case.cols, np.dtype(case.dtype).type)
    if case.eps == 0:
        centred = case.norm == "layer_norm"
        there = np.ptp(x.astype(np.longdouble), axis=1) > 0 if centred else x.any(axis=1)
        x, dy = x[there], dy[there]
    return x, weight, bias, dy


def shares(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    dy: Array,
    eps: float,
    norm: str = "layer_norm",
) -> dict[str, float]:
    """What of each bound lnfast uses: the promise is 1 at most. rms_norm has no use for bias."""
    found = results(x, weight, bias, dy, eps, norm)
    if norm == "rms_norm":
        return judge(found, x, weight, None, dy, eps, centred=False)
    return judge(found, x, weight, bias, dy, eps)


def results(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    dy: Array | None,
    eps: float,
    norm: str = "layer_norm",
    wanted: tuple[bool, ...] = (True, True, True),
) -> tuple[Array | None, ...]:
    """What lnfast computes: y, and for a dy the wanted of dx, dweight and dbias, or None."""
    y: Array
    gradients: tuple[Array | None, ...] = (None, None, None)
    if norm == "rms_norm":
        y, record = lnfast.rms_norm_forward(x, x.shape[1], weight, eps)
        if dy is not None:
            gradients = (*lnfast.rms_norm_backward(dy, record, output_mask=wanted[:2]), None)
    else:
        y, cache = lnfast.layer_norm_forward(x, x.shape[1], weight, bias, eps)
        if dy is not None:
            gradients = lnfast.layer_norm_backward(dy, cache, output_mask=wanted)
    return (y, *gradients)


def judge(
    results: tuple[Array | None, ...],
    x: Array,
    weight: Array | None,
    bias: Array | None,
    dy: Array,
    eps: float,
    centred: bool = True,
) -> dict[str, float]:
    """What of each bound somebody's y, dx, dweight and dbias use; of those that are not None."""
    y, dx, dweight, dbias = results
    found = {} if y is None else {"y": oracle.forward_share(y, x, weight, bias, eps, centred)}
    of_gradients = oracle.backward_shares(dx, dweight, dbias, dy, x, weight, eps, centred)
    found |= {
        name: share
        for name, share in zip(("dx", "dweight", "dbias"), of_gradients, strict=True)
        if share is not None
    }
    return found


class Worst:
    """The largest share of each bound, and where it was."""

    def __init__(self, norm: str = "layer_norm") -> None:
        self.bounds = BOUNDS_OF[norm]
        self.found: dict[str, tuple[float, Case]] = {}

    def add(self, case: Case, shares: dict[str, float]) -> None:
        for name, share in shares.items():
            if name not in self.found or not share <= self.found[name][0]:
                self.found[name] = share, case

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {share * self.bounds[name]:.2f} of {self.bounds[name]}"
            for name, (share, _) in self.found.items()
        )
