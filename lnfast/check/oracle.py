"""oracle.py: layer norm in nearly exact arithmetic; how much of the promised error a result uses.

The promise, for finite inputs, once weight, bias and dy are cast to x's dtype (all that follows the
cast is taken as exact; eps_m is the machine epsilon of that dtype, eta its smallest subnormal,
m = max(1, |xhat|), h = dy * weight, sums and means as in the formulas):

    |y - exact|       <= 3 eps_m (|weight| m + |bias|) + eta
    |dx - exact|      <= 4 eps_m rstd (|h| + mean|h| + m mean(|h| m)) + eta (1 + rstd)
    |dweight - exact| <= 4 eps_m sum_rows |dy| m + R eta
    |dbias - exact|   <= 2 eps_m sum_rows |dy| + R eta

Of RMSNorm (centred=False), whose xhat is x * rstd with nothing taken off:

    |y - exact|       <= 3 eps_m |y| + eta (1 + |weight|)
    |dx - exact|      <= 4 eps_m rstd (|h| + m mean(|h| m)) + eta (1 + rstd)
    |dweight - exact| <= 4 eps_m sum_rows |dy| m + R eta

A *share* is the largest |result - exact| / bound over an array: the promise holds where it is <= 1.

The oracle's own error. Let u = 2^-64, half a unit in the last place of a 64-bit longdouble, and
L = log2(D), K = log2(R), both at most 20.
  mean     math.fsum gives the row sum as two float64, the second what the first leaves; beyond the
           two remains only what is below 2^-90 of the row's sigma. The division by D keeps a pair
           (hi, lo) within 2^-126 |mean|. A row that is not constant has
           sigma >= 2^-53.5 max|x| / sqrt(D), so this is at most 2^-72.5 sqrt(D) sigma <= 3 u sigma.
  d        (x - hi) - lo: 2 u |d| on top of that. A constant row gives d = 0 exactly.
  rstd     var is within (4 + 1 + L + 1) u, + eps adds 1, the root halves it, root and 1 / root add
           2: (5.5 + L / 2) u <= 15.5 u.
  xhat     2 + 1 + 15.5 + 3: 22 u m.       y: 24 u (|weight| m + |bias|), 1/170 eps_m of float64.
  dx       h 1, mean(h) 2 + L, xhat mean(h xhat) 22 + 25 + L + 1, two differences 2, rstd 16.5: 87 u
           times what 4 eps_m multiplies above, 1/47 eps_m of float64.
  dweight  23 + K: 43 u sum |dy| m.        dbias: K u sum |dy|.
Y_ERROR, DX_ERROR, DWEIGHT_ERROR and DBIAS_ERROR state them, rounded up, in the same units: at most
1/128 of what float64 is allowed, and nothing beside what float32 is. Without a mean there is less:
of RMSNorm's y 20 u |y|, 1/300 of what float64 is allowed.

Not judged here, the caller's to leave out (else ValueError): rows with NaN or Inf and constant rows
with eps = 0, whose result is NaN; rows without elements. Where longdouble is no wider than float64
every function raises NoOracle.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec

import numpy as np
from numpy.typing import NDArray

Y_ERROR = 2.0**-59
DX_ERROR = 2.0**-57
DWEIGHT_ERROR = 2.0**-58
DBIAS_ERROR = 2.0**-59

Array = NDArray[Any]
P = ParamSpec("P")

_WIDE = np.finfo(np.longdouble)
_SMALLEST_NORMAL_RSTD = np.finfo(np.float64).smallest_normal
_LARGEST_RSTD = np.finfo(np.float64).max


class NoOracle(RuntimeError):
    """Nothing here is exact enough to judge by."""


class Forward(NamedTuple):
    """What the forward pass is, in longdouble; y_scale is |weight| m + |bias|, or RMSNorm's |y|."""

    mean: Array  # (R, 1)
    rstd: Array  # (R, 1)
    xhat: Array  # (R, D)
    y: Array  # (R, D)
    y_scale: Array  # (R, D)
    weight: Array  # (D,)


class Backward(NamedTuple):
    """What the gradients are, in longdouble; a scale is what a multiple of eps_m multiplies."""

    dx: Array  # (R, D)
    dweight: Array  # (D,)
    dbias: Array  # (D,)
    dx_scale: Array  # (R, D)
    dweight_scale: Array  # (D,)
    dbias_scale: Array  # (D,)
    rstd: Array  # (R, 1)


def exact_forward(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    centred: bool = True,
) -> Forward:
    """Normalise x (R, D), float32 or float64, exactly; weight and bias are (D,) or None."""
    x, dtype = _checked_x(x)
    weight = _widen("weight", weight, dtype, x.shape[1:], 1)
    bias = _widen("bias", bias, dtype, x.shape[1:], 0)
    mean, rstd, xhat = _normalize(x, eps, centred)
    m = np.maximum(1, np.abs(xhat)) if centred else np.abs(xhat)
    scale = np.abs(weight) * m + np.abs(bias)
    return Forward(mean, rstd, xhat, xhat * weight + bias, scale, weight)


def exact_backward(
    dy: Array, x: Array, weight: Array | None = None, eps: float = 1e-5, centred: bool = True
) -> Backward:
    """The gradients of sum(dy * y) for dy and x (R, D) and weight (D,) or None, exactly."""
    x, dtype = _checked_x(x)
    weight = _widen("weight", weight, dtype, x.shape[1:], 1)
    dy = _widen("dy", dy, dtype, x.shape, 0)
    _, rstd, xhat = _normalize(x, eps, centred)
    m = np.maximum(1, np.abs(xhat))
    h = dy * weight
    mean_h, mean_size = (_mean(h), _mean(np.abs(h))) if centred else (0, 0)
    dx = rstd * (h - mean_h - xhat * _mean(h * xhat))
    dx_scale = rstd * (np.abs(h) + mean_size + m * _mean(np.abs(h) * m))
    return Backward(
        dx,
        _sum(dy * xhat, 0)[0],
        _sum(dy, 0)[0],
        dx_scale,
        _sum(np.abs(dy) * m, 0)[0],
        _sum(np.abs(dy), 0)[0],
        rstd,
    )


def y_shares(
    y: Array,
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    centred: bool = True,
) -> Array:
    """The share of the promised error that each element of y uses.

    Where bound / eps_m is not below a quarter of the largest finite number, y may be Inf (an
    overflow on the way), but no wrong finite number. A true result beyond the largest finite number
    must be Inf of its sign. NaN anywhere is a share of inf.
    """
    exact = exact_forward(x, weight, bias, eps, centred)
    excused = np.isinf(np.asarray(y))
    etas = 1 if centred else 1 + np.abs(exact.weight)
    return _shares("y", y, exact.y, 3 * exact.y_scale, etas, np.asarray(x).dtype, excused)


def gradient_shares(
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
    dy: Array,
    x: Array,
    weight: Array | None = None,
    eps: float = 1e-5,
    centred: bool = True,
) -> tuple[Array | None, ...]:
    """The share of the promised error that each element of dx, dweight and dbias uses.

    None in place of a gradient gives None. Where bound / eps_m is not below a quarter of the
    largest finite number, anything but NaN will do, unless the true result is beyond the largest
    finite number: that must be Inf of its sign. NaN anywhere is a share of inf.
    A row whose rstd is no normal float64 is left out of dx, and dweight altogether (its share is 0)
    if there is one.
    """
    exact = exact_backward(dy, x, weight, eps, centred)
    dtype, rows = np.asarray(x).dtype, len(exact.rstd)
    normal = (exact.rstd >= _SMALLEST_NORMAL_RSTD) & (exact.rstd <= _LARGEST_RSTD)
    shares: list[Array | None] = []
    for name, result, true, scale, etas, judged in (
        ("dx", dx, exact.dx, 4 * exact.dx_scale, 1 + exact.rstd, normal),
        ("dweight", dweight, exact.dweight, 4 * exact.dweight_scale, max(1, rows), normal.all()),
        ("dbias", dbias, exact.dbias, 2 * exact.dbias_scale, max(1, rows), True),
    ):
        if result is None:
            shares.append(None)
            continue
        excused = ~np.isnan(np.asarray(result))
        shares.append(_shares(name, result, true, scale, etas, dtype, excused, judged))
    return tuple(shares)


def _worst(shares: Array) -> float:
    worst = np.max(shares, initial=0)
    return float(worst) if worst < np.finfo(np.float64).max else math.inf


def _worst_of(shares: Callable[P, Array]) -> Callable[P, float]:
    """The same function of the same arguments, but for the worst of the elements."""
    return lambda *args, **options: _worst(shares(*args, **options))


def _worst_of_each(
    shares: Callable[P, tuple[Array | None, ...]],
) -> Callable[P, tuple[float | None, ...]]:
    return lambda *args, **options: tuple(
        None if share is None else _worst(share) for share in shares(*args, **options)
    )


forward_share = _worst_of(y_shares)
backward_shares = _worst_of_each(gradient_shares)


def _shares(
    name: str,
    result: Array,
    exact: Array,
    scale: Array,
    etas: Any,
    dtype: np.dtype[Any],
    excused: Array,
    judged: Any = True,
) -> Array:
    """|result - exact| / (eps_m scale + etas eta); excused counts out of range only."""
    result = np.asarray(result)
    if result.shape != exact.shape or result.dtype != dtype:
        raise ValueError(
            f"{name} must be {dtype} of shape {exact.shape}, not {result.dtype} of {result.shape}"
        )
    info = np.finfo(dtype)
    eps_m, largest = np.longdouble(info.eps), np.longdouble(info.max)
    bound = eps_m * scale + etas * np.longdouble(info.smallest_subnormal)
    same_sign = np.signbit(result) == np.signbit(exact)
    overflows = np.isinf(result) & same_sign & (np.abs(exact) + bound > largest)
    needs_inf = np.abs(exact) - bound > largest
    out_of_range = bound >= eps_m * (largest / 4)
    share: Array = np.abs(result.astype(np.longdouble) - exact) / bound
    share[overflows | (out_of_range & excused & ~needs_inf)] = 0
    share[np.isnan(result)] = np.inf
    share[~np.broadcast_to(judged, share.shape)] = 0
    return share


def _checked_x(x: Array) -> tuple[Array, np.dtype[Any]]:
    if _WIDE.nmant < 63 or _WIDE.maxexp < 16384:
        raise NoOracle("the oracle needs a longdouble wider than float64")
    x = np.asarray(x)
    if x.dtype.type not in (np.float32, np.float64):
        raise TypeError(f"x must be float32 or float64, not {x.dtype}")
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"x must have shape (R, D) with D > 0, not {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError("x has rows with NaN or Inf: leave them out")
    return x, x.dtype


def _widen(
    name: str,
    values: Array | None,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    missing: float,
) -> Array:
    """Cast once to the dtype of x, then to longdouble; None stands for an array of `missing`."""
    if values is None:
        return np.full(shape, missing, np.longdouble)
    values = np.asarray(values).astype(dtype)
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, not {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    return values.astype(np.longdouble)


def _normalize(x: Array, eps: float, centred: bool) -> tuple[Array, Array, Array]:
    """Return mean (R, 1), rstd (R, 1) and xhat (R, D); where not centred, the mean is 0."""
    hi, lo = _row_means(x) if centred else np.zeros((2, len(x), 1), np.longdouble)
    d = (x.astype(np.longdouble) - hi) - lo
    var = _mean(d * d)
    if eps == 0 and (var == 0).any():
        kind = "constant" if centred else "0"
        raise ValueError(f"row {np.argmin(var)} is {kind} and eps is 0: NaN, leave it out")
    rstd = 1 / np.sqrt(var + np.longdouble(float(eps)))
    return hi, rstd, d * rstd


def _row_means(x: Array) -> tuple[Array, Array]:
    """The row means as pairs of longdoubles (hi, lo), each (R, 1), |lo| below 2^-62 |hi|."""
    sums = np.empty((2, len(x), 1), np.longdouble)
    # math.fsum overflows beyond float64; what the scaling drops is below 2^-1000 of sigma.
    shifts = np.where(np.abs(x).max(axis=1).astype(np.float64) > 2.0**900, 64, 0).tolist()
    for i, (row, shift) in enumerate(zip(x, shifts, strict=True)):
        values = np.ldexp(row, -shift).tolist() if shift else row.tolist()
        first = math.fsum(values)
        second = math.fsum(itertools.chain(values, (-first,)))
        sums[:, i, 0] = np.ldexp(np.array([first, second], np.longdouble), shift)
    total = sums[0] + sums[1]
    rest = sums[1] - (total - sums[0])

    # total = hi * D + remainder exactly: the halves of hi, times D < 2^31, are exact.
    count = np.longdouble(x.shape[1])
    hi = total / count
    split = hi * np.longdouble(2**32 + 1)
    upper = split - (split - hi)
    remainder = (total - upper * count) - (hi - upper) * count
    return hi, (remainder + rest) / count


def _mean(terms: Array) -> Array:
    return _sum(terms, 1) / np.longdouble(terms.shape[1])


def _sum(terms: Array, axis: int) -> Array:
    """Sum along an axis, which is kept, as a balanced tree: ceil(log2(n)) roundings a term."""
    while (n := terms.shape[axis]) > 1:
        left, right, odd = np.split(terms, [n // 2, n // 2 * 2], axis)
        terms = left + right
        if n % 2:
            terms = np.concatenate([terms, odd], axis)
    return terms if n else np.zeros((1, *terms.shape[1:]), terms.dtype)
