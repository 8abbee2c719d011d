"""Arguments: what every entry point does with those that are not already plain.

Checked (_checks), made plain, and given an array to compute into (_out). A plain array is a
C-contiguous, aligned base ndarray in native byte order. Both the compiled functions and
lnfast.reference come through here, so both raise the same errors. Nothing is written to an array of
the caller's before every argument has been checked. What runs code of the caller's (an __array__,
an __index__) comes first, so that it can change no array that has been looked at.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _checks, _finite, _out

Array = NDArray[Any]
Shape = tuple[int, ...]


class LayerNormCache(NamedTuple):
    """What the backward pass needs to know of a forward pass.

    `x` is kept by reference: changing it in place before the backward pass changes the
    gradients. `weight` is a copy. `layer_norm_forward` returns this record; anyone may build
    one from other sources (and pickle it): `layer_norm_backward` checks every field.

    Attributes
    ----------
    x : ndarray of float32 or float64, shape ``lead + normalized_shape``
        The input of the forward pass; a copy only where that was not C-contiguous, aligned
        and in native byte order.
    normalized_shape : tuple of int
        The trailing shape of `x` over which each row is normalised.
    weight : ndarray of x's dtype, shape ``normalized_shape``, or None
        The scale that the forward pass used; None stands for ones.
    mean : ndarray of float64, shape ``lead + (1,) * len(normalized_shape)``
        The mean of each row.
    rstd : ndarray of float64, the same shape
        ``1 / sqrt(var + eps)`` of each row. eps is in here, and so is not kept itself.
    """

    x: Array
    normalized_shape: Shape
    weight: Array | None
    mean: Array
    rstd: Array


class RMSNormCache(NamedTuple):
    """What the backward pass of `rms_norm` needs to know of a forward pass.

    As `LayerNormCache`, without a mean: `x` is kept by reference, `weight` is a copy, anyone may
    build (and pickle) one, and `rms_norm_backward` checks every field.

    Attributes
    ----------
    x : ndarray of float32 or float64, shape ``lead + normalized_shape``
        The input of the forward pass.
    normalized_shape : tuple of int
        The trailing shape of `x` over which each row is normalised.
    weight : ndarray of x's dtype, shape ``normalized_shape``, or None
        The scale that the forward pass used; None stands for ones.
    rstd : ndarray of float64, shape ``lead + (1,) * len(normalized_shape)``
        ``1 / sqrt(mean(x ** 2) + eps)`` of each row.
    """

    x: Array
    normalized_shape: Shape
    weight: Array | None
    rstd: Array


# Their public home, and the name that pickle writes
LayerNormCache.__module__ = RMSNormCache.__module__ = "lnfast"

Record = LayerNormCache | RMSNormCache
# What a backward pass makes of a record, and what makes one.
GRADIENTS = {LayerNormCache: ("dx", "dweight", "dbias"), RMSNormCache: ("dx", "dweight")}
FORWARD = {LayerNormCache: "layer_norm_forward", RMSNormCache: "rms_norm_forward"}


class Forward(NamedTuple):
    """Checked arguments of a forward pass. x, weight, bias, y: plain arrays of one dtype."""

    x: Array
    normalized_shape: Shape
    weight: Array | None
    bias: Array | None
    eps: float
    y: Array  # to compute into: out's own memory where that is safe, else a fresh array
    out: Array | None  # the very object that was given
    num_threads: int
    check_finite: bool


class Backward(NamedTuple):
    """Checked arguments of a backward pass. All arrays plain; mean and rstd are float64.

    mean is None for rms_norm, whose output_mask[2] is False.
    """

    dy: Array
    x: Array
    normalized_shape: Shape
    weight: Array | None
    mean: Array | None
    rstd: Array
    output_mask: tuple[bool, ...]  # dx, dweight, dbias
    dx: Array | None  # to compute into, as Forward.y; None where output_mask[0] is False
    out: Array | None
    num_threads: int
    check_finite: bool


def forward(
    x: ArrayLike,
    normalized_shape: object,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    eps: object,
    out: object,
    num_threads: object,
    check_finite: object,
    *,
    keep_x: bool,
) -> Forward:
    """Check the arguments of a forward pass; keep_x: its cache will hold x and weight."""
    x = _checks.converted("x", x)
    lengths = None if normalized_shape is None else _checks.shape(normalized_shape)
    weight = _checks.optional_converted("weight", weight)
    bias = _checks.optional_converted("bias", bias)
    eps, threads = _checks.epsilon(eps), _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    given, dtype = _checks.input_array(x)
    lengths = _checks.trailing_shape(lengths, weight, given.shape)
    args = Forward(
        x=_checks.plain(given, dtype),
        normalized_shape=lengths,
        weight=_checks.optional("weight", weight, lengths, dtype, given.shape, copy=keep_x),
        bias=_checks.optional("bias", bias, lengths, dtype, given.shape),
        eps=eps,
        y=given,  # until the rest has been checked
        out=_out.output(out, given.shape, dtype),
        num_threads=threads,
        check_finite=_checks.flag("check_finite", check_finite),
    )
    if keep_x and args.out is not None and _out.share_memory(args.out, given):
        raise ValueError(
            "out shares memory with x, which the cache keeps for the backward pass: "
            "give another out, or a copy of x"
        )
    if args.check_finite:
        _finite.require_finite(x=args.x, weight=args.weight, bias=args.bias)
    target = None if args.check_finite else args.out
    y = _out.destination(target, args.x, in_place=[args.x], apart=[args.weight, args.bias])
    return args._replace(y=y)


def backward(
    dy: ArrayLike,
    cache: object,
    output_mask: object,
    out: object,
    num_threads: object,
    check_finite: object,
    record: type[Record] = LayerNormCache,
) -> Backward:
    """Check the arguments of a backward pass, the fields of its cache, a `record`, included."""
    x, normalized_shape, weight, *statistics = fields(cache, record)
    x = _checks.converted("x", x)
    lengths = None if normalized_shape is None else _checks.shape(normalized_shape)
    weight = _checks.optional_converted("weight", weight)
    names = record._fields[3:]  # mean and rstd, or rstd alone
    statistics = [_checks.converted(name, a) for name, a in zip(names, statistics, strict=True)]
    dy = _checks.converted("dy", dy)
    wanted = _checks.mask(output_mask, GRADIENTS[record])
    threads = _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    x, dtype = _checks.input_array(x)
    lengths = _checks.trailing_shape(lengths, weight, x.shape)
    row_shape = x.shape[: x.ndim - len(lengths)] + (1,) * len(lengths)
    *means, rstd = (
        _checks.parameter(name, a, row_shape, np.dtype(np.float64))
        for name, a in zip(names, statistics, strict=True)
    )
    args = Backward(
        dy=_checks.output_gradient(dy, x.shape, dtype),
        x=_checks.plain(x, dtype),
        normalized_shape=lengths,
        weight=_checks.optional("weight", weight, lengths, dtype, x.shape),
        mean=means[0] if means else None,
        rstd=rstd,
        output_mask=(*wanted, False)[:3],
        dx=None,  # until the rest has been checked
        out=_out.output(out, x.shape, dtype),
        num_threads=threads,
        check_finite=_checks.flag("check_finite", check_finite),
    )
    if args.out is not None and not args.output_mask[0]:
        raise ValueError("out is for dx, which output_mask[0] = False does not ask for")
    if args.check_finite:
        _finite.require_finite(dy=args.dy, x=args.x, weight=args.weight)
        if x.size:  # a row of no elements has NaN for statistics, and rightly so
            _finite.require_finite(mean=args.mean, rstd=args.rstd)
            _finite.require_positive(rstd=args.rstd)
    if not args.output_mask[0]:
        return args
    target = None if args.check_finite else args.out
    in_place, apart = [args.dy, args.x], [args.weight, args.mean, args.rstd]
    return args._replace(dx=_out.destination(target, args.x, in_place=in_place, apart=apart))


def fields(cache: Any, record: type[Record]) -> Any:
    """The record itself, whatever a subclass says of it; TypeError or ValueError for none."""
    names = record._fields
    if not issubclass(type(cache), record):
        raise TypeError(
            f"cache must be of type {record.__name__}, not {type(cache).__name__}: "
            f"{FORWARD[record]} returns one beside y, and "
            f"{record.__name__}({', '.join(names)}) builds one"
        )
    values = tuple.__getitem__(cache, slice(None))
    if len(values) != len(names):
        raise ValueError(f"cache must have {len(names)} fields, not {len(values)}")
    return cache if type(cache) is record else record(*values)


def deliver_forward(args: Forward) -> Array:
    """Hand y over, once computed: what the caller gets is out where that was given."""
    if args.check_finite:
        _finite.require_finite(overflow=True, y=args.y)
    return _out.deliver(args.y, args.out)


def deliver_backward(
    args: Backward, dweight: Array | None, dbias: Array | None
) -> tuple[Array | None, Array | None, Array | None]:
    """Hand the gradients over, once computed; those not asked for are None."""
    if args.check_finite:
        _finite.require_finite(overflow=True, dx=args.dx, dweight=dweight, dbias=dbias)
    dx = None if args.dx is None else _out.deliver(args.dx, args.out)
    return dx, dweight, dbias
