"""The pieces that layer norm splits into: for features or rows that lie on several machines.

Each takes the statistics of its rows, or their sums, as numbers to be added or merged between the
pieces. The arithmetic is compiled (src/rows/split.h, moments.h).
"""

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _pieces
from lnfast._api import _run_piece

Array = NDArray[Any]
Axis = SupportsIndex | Sequence[SupportsIndex]


def moments(
    x: ArrayLike,
    axis: Axis = -1,
    *,
    shift: ArrayLike | None = None,
    num_threads: SupportsIndex | None = None,
) -> tuple[Array, Array, Array]:
    """How many elements, their mean and their squared distances from it, to be merged.

    ::

        mean = sum(x) / count - shift,    m2 = sum((x - sum(x) / count) ** 2)

    of each group along `axis`. `merge_moments` makes the moments of a whole of those of its parts.

    Parameters
    ----------
    x : array_like
        float32 and float64 are kept, integers and bools become float64. Any strides, byte order
        and alignment; never written to. Where `axis` is not x's last axes in C order, it is copied.
    axis : int or sequence of int, default -1
        What is one group.
    shift : array_like, x's shape with 1 for each of `axis`, optional
        Something near the mean, such as a mean merged earlier, that `mean` is told from: how to
        know it better than float64 can. It does not show in m2. The pieces that are given this
        mean are given the same shift.
    num_threads : int, optional
        As in `layer_norm`. The result has the same bits for every number.

    Returns
    -------
    count, mean, m2 : ndarray of float64, x's shape with 1 for each of `axis`
        Fresh arrays, all of one shape, so that they can be stacked and sent. Of a group without
        elements all are 0: merged with any other it changes nothing.

    Raises
    ------
    TypeError
        For half-precision, complex, object, string and extended-precision arrays, masked arrays,
        and arguments of the wrong kind.
    ValueError
        For an axis that x does not have, or names twice, and for shapes that do not fit.

    Notes
    -----
    With u = 2**-53 and sigma = sqrt(m2 / count), mean is within u * (abs(mean) + 1.25 * sigma) of
    the exact one, and m2 within 6 * u * m2, for every finite x. Of float64, though, m2 may leave
    the range: it is infinite where it would be above 1.8e308, and has few digits, or is 0, below
    2.2e-308 (scale such x by a power of two). NaN and infinity make the mean and m2 of their own
    group NaN and no other.

    What normalises x is ``rstd = 1 / numpy.sqrt(m2 / count + eps)``. Chan, Golub, LeVeque,
    "Algorithms for Computing the Sample Variance", The American Statistician 37, 1983.

    Examples
    --------
    Two halves of the features of two rows, as if on two machines:

    >>> import numpy as np, lnfast
    >>> x = np.array([[1.0, 2.0, 3.0, 6.0], [0.0, 0.0, 4.0, 4.0]])
    >>> left, right = x[:, :2], x[:, 2:]
    >>> count, mean, m2 = lnfast.merge_moments(lnfast.moments(left), lnfast.moments(right))
    >>> rstd = 1 / np.sqrt(m2 / count + 0.5)
    >>> lnfast.normalize(left, mean, rstd)
    array([[-1.        , -0.5       ],
           [-0.94280904, -0.94280904]])
    """
    piece = _pieces.moments(x, axis, shift, num_threads)
    _run(piece)
    count, mean, m2 = piece.statistics("count", "mean", "m2")
    return count, mean, m2


def merge_moments(a: Sequence[ArrayLike], b: Sequence[ArrayLike]) -> tuple[Array, Array, Array]:
    """The moments of all elements, from those of two parts (Chan's formula).

    ::

        count = count_a + count_b,    delta = mean_b - mean_a
        mean = mean_a + delta * count_b / count
        m2 = m2_a + m2_b + delta ** 2 * count_a * count_b / count

    Parameters
    ----------
    a, b : sequence of three array_like: count, mean, m2
        From `moments`, with the same shift, or built otherwise; real numbers, cast to float64, of
        shapes that broadcast. A count may be a number.

    Returns
    -------
    count, mean, m2 : ndarray of float64
        Fresh arrays. ``merge_moments(b, a)`` has the same bits; in which order three and more are
        merged does show in the last ones. A part with a count of 0 changes nothing.

    Raises
    ------
    TypeError, ValueError
        For what are no three arrays of real numbers, shapes that do not broadcast and a count
        below 0.

    Notes
    -----
    Of numbers taken as exact, one merge is off by 2**-53 * (abs(mean) + 3 * sigma) in the mean at
    most, and by 7 * 2**-53 * m2 in m2. That the means given are rounded adds to m2 up to
    2 * 2**-53 * m2 * abs(mean) / sigma, which is why parts of float64 rows that lie far off want a
    common shift. Chan, Golub, LeVeque 1983.

    Examples
    --------
    >>> import lnfast
    >>> [float(a) for a in lnfast.merge_moments((2, 1.5, 0.5), (2, 4.5, 4.5))]
    [4.0, 3.0, 14.0]
    """
    (count_a, mean_a, m2_a), (count_b, mean_b, m2_b) = _pieces.merge_moments(a, b)
    with np.errstate(all="ignore"):
        count = np.asarray(count_a + count_b)
        delta = mean_b - mean_a
        # From the mean of the larger part, so that what is added is below sigma; between equal
        # ones their middle. Neither depends on which is called a.
        near, step = np.where(count_a > count_b, (mean_a, delta), (mean_b, -delta))
        mean = near + step * (np.minimum(count_a, count_b) / count)
        mean = np.where(count_a == count_b, mean_a / 2 + mean_b / 2, mean)
        m2 = (m2_a + m2_b) + delta * delta * (count_a * count_b / count)
    empty = [count_a == 0, count_b == 0]
    return count, np.select(empty, [mean_b, mean_a], mean), np.select(empty, [m2_b, m2_a], m2)


def normalize(
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: Axis = -1,
    shift: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
) -> Array:
    """Layer normalisation by statistics that are given.

    ::

        y = xhat * weight + bias,    xhat = ((x - shift) - mean) * rstd

    Parameters
    ----------
    x : array_like
        As in `moments`; never written to unless it is `out`.
    mean, rstd : array_like, x's shape with 1 for each of `axis`
        Of the whole of which x is a part: `merge_moments`, and ``1 / sqrt(m2 / count + eps)``.
        Cast to float64.
    weight, bias : array_like, the lengths of `axis` in x, optional
        Those of x's part of the columns, cast once to x's dtype; None for ones and for zeros.
    axis : int or sequence of int, default -1
        What is one group.
    shift : array_like, the shape of mean, optional
        What `moments` was given; None for 0.
    out : ndarray, optional
        Where the result goes, as in `layer_norm`. It may be x, and may overlap any input.
    num_threads : int, optional
        As in `layer_norm`.

    Returns
    -------
    y : ndarray, x's shape and dtype
        A fresh C-contiguous array, or `out`.

    Raises
    ------
    TypeError, ValueError
        As `moments`, and for an `out` that does not fit. No argument has been changed.

    Notes
    -----
    Computed in float64 and rounded once: with mean and rstd as given, y is within 1 machine
    epsilon of float32, 2 of float64 (3 with a shift, within sigma of the mean), relative to
    ``abs(weight) * max(1, abs(xhat)) + abs(bias)``, where nothing leaves the range of float64.
    What a float64 mean lacks adds 2**-53 * abs(mean) * rstd * abs(weight), each time that it is
    rounded: nothing that counts in float32 (unless abs(mean) * rstd is above 2**28: long rows in
    which hardly an element differs, by a last bit, from the rest), and in float64, far from 0,
    what a shift is for.
    Ba, Kiros, Hinton, "Layer Normalization", 2016, arXiv 1607.06450.
    """
    statistics: dict[str, ArrayLike | None] = {"mean": mean, "rstd": rstd, "shift": shift}
    parameters: dict[str, ArrayLike | None] = {"weight": weight, "bias": bias}
    piece = _pieces.normalize(x, statistics, parameters, axis, out, num_threads)
    _run(piece)
    return piece.deliver()


def backward_sums(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    axis: Axis = -1,
    shift: ArrayLike | None = None,
    num_threads: SupportsIndex | None = None,
) -> tuple[Array, Array, Array, Array]:
    """What dx needs of all parts of a row, and the parameters' gradients of this part.

    ::

        sum_h = sum(h),    sum_h_xhat = sum(h * xhat),    h = dy * weight      along each group
        dweight = sum(dy * xhat),    dbias = sum(dy)                        over the groups

    Parameters
    ----------
    dy : array_like, x's shape
        Gradient of the loss with respect to y, cast to x's dtype.
    x, mean, rstd, weight, axis, shift, num_threads
        As in `normalize`.

    Returns
    -------
    sum_h, sum_h_xhat : ndarray of float64, the shape of mean
        To be added to those of the other parts of these rows, for `backward_apply`.
    dweight, dbias : ndarray, the lengths of `axis` in x, x's dtype
        Complete for these rows; to be added to those of other rows. Defined without a weight or
        bias as well.

    Raises
    ------
    TypeError, ValueError
        As `normalize`.
    MemoryError
        Where there is no room for the sums of the blocks of rows.

    Notes
    -----
    With mean and rstd as given, the sums are within 8 * 2**-53 of ``sum(abs(h))`` and
    ``sum(abs(h * xhat))`` (float32: (6 + count / 8) * 2**-53), dweight and dbias within the
    bounds of `layer_norm_backward`. Ba, Kiros, Hinton 2016, arXiv 1607.06450.
    """
    statistics: dict[str, ArrayLike | None] = {"mean": mean, "rstd": rstd, "shift": shift}
    piece = _pieces.backward_sums(dy, x, statistics, weight, axis, num_threads)
    _run(piece)
    sum_h, sum_h_xhat = piece.statistics("sum_h", "sum_h_xhat")
    return (sum_h, sum_h_xhat, *piece.parameters("dweight", "dbias"))  # type: ignore[return-value]


def backward_apply(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None,
    sum_h: ArrayLike,
    sum_h_xhat: ArrayLike,
    count: ArrayLike,
    *,
    axis: Axis = -1,
    shift: ArrayLike | None = None,
    out: Array | None = None,
    num_threads: SupportsIndex | None = None,
) -> Array:
    """The gradient of x, from sums over whole rows.

    ::

        dx = rstd * (h - sum_h / count - xhat * sum_h_xhat / count),    h = dy * weight

    Parameters
    ----------
    dy, x, mean, rstd, weight, axis, shift, num_threads
        As in `backward_sums`.
    sum_h, sum_h_xhat : array_like, the shape of mean
        From `backward_sums`, added over all parts of the rows.
    count : array_like, a number or the shape of mean
        Elements of a whole row.
    out : ndarray, optional
        Receives dx, as in `layer_norm_backward`. It may be dy or x, and may overlap any input.

    Returns
    -------
    dx : ndarray, x's shape and dtype
        A fresh C-contiguous array, or `out`.

    Raises
    ------
    TypeError, ValueError
        As `normalize`. No argument has been changed.

    Notes
    -----
    With mean and rstd as given, and sums from `backward_sums`, dx is within 1 machine epsilon of
    float32, 6 of float64 (7 with a shift), and half a one for each addition of sums, relative to
    ``rstd * (abs(h) + mean(abs(h)) + m * mean(abs(h) * m))`` with ``m = max(1, abs(xhat))``, where
    nothing leaves the range of float64; `layer_norm_backward`, which sees whole rows, is within 4.
    Ba, Kiros, Hinton 2016, arXiv 1607.06450.
    """
    statistics: dict[str, ArrayLike | None] = {"mean": mean, "rstd": rstd, "shift": shift}
    statistics |= {"sum_h": sum_h, "sum_h_xhat": sum_h_xhat, "count": count}
    piece = _pieces.backward_apply(dy, x, statistics, weight, axis, out, num_threads)
    _run(piece)
    return piece.deliver()


def _run(piece: _pieces.Piece) -> None:
    _run_piece(piece.number, piece.num_threads, piece.operands)


# Their public home
for _function in (moments, merge_moments, normalize, backward_sums, backward_apply):
    _function.__module__ = "lnfast"
