"""Arguments: what every entry point does with those that are not already plain.

Checked (_checks, _axes), made plain, and given an array to compute into (_out). A plain array is a
C-contiguous, aligned base ndarray in native byte order. Both the compiled functions and
lnfast.reference come through here, so both raise the same errors. Nothing is written to an array of
the caller's before every argument has been checked. What runs code of the caller's (an __array__,
an __index__) comes first, so that it can change no array that has been looked at.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnfast import _axes, _checks, _finite, _out
from lnfast._records import FORWARD, GRADIENTS, LayerNormCache, Record, RMSNormCache, fields

__all__ = ["FORWARD", "LayerNormCache", "RMSNormCache", "Record", "backward", "fields", "forward"]

Array = NDArray[Any]
Axes = tuple[int, ...]
Shape = tuple[int, ...]


class Forward(NamedTuple):
    """Checked arguments of a forward pass.

    views False: x, weight, bias and y are plain arrays of one dtype, the last axes are normalised,
    and there is nothing else. True: they may have any strides, and what _axes says of shapes holds.
    """

    x: Array
    axes: Axes
    normalized_shape: Shape
    weight: Array | None
    bias: Array | None
    mask: Array | None
    residual: Array | None  # broadcast to x
    eps: float
    y: Array  # to compute into: out's own memory where that is safe, else a fresh array
    out: Array | None  # the very object that was given
    sum: Array | None  # x + residual, likewise
    sum_out: Array | None
    num_threads: int
    check_finite: bool
    views: bool


class Backward(NamedTuple):
    """Checked arguments of a backward pass. views: as of Forward; mean and rstd are float64, plain.

    mean is None for rms_norm, whose output_mask[2] is False.
    """

    dy: Array
    x: Array
    axes: Axes
    normalized_shape: Shape
    weight: Array | None
    mean: Array | None
    rstd: Array
    mask: Array | None
    ds: Array | None
    output_mask: tuple[bool, ...]  # dx, dweight, dbias
    dx: Array | None  # to compute into, as Forward.y; None where output_mask[0] is False
    out: Array | None
    num_threads: int
    check_finite: bool
    views: bool


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
    axis: object = None,
    mask: object = None,
    adds: bool = False,
    residual: ArrayLike | None = None,
    sum_out: object = None,
    keep_x: bool,
) -> Forward:
    """Check the arguments of a forward pass; keep_x: its cache will hold x (or sum) and weight.

    adds: to x goes a residual.
    """
    x = _checks.converted("x", x)
    addend = _checks.converted("residual", residual) if adds else None
    lengths = None if normalized_shape is None else _axes.shape(normalized_shape)
    numbers = None if axis is None else _axes.numbers(axis)
    weight = _checks.optional_converted("weight", weight)
    bias = _checks.optional_converted("bias", bias)
    live = _checks.optional_converted("mask", mask)
    eps, threads = _checks.epsilon(eps), _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    given, dtype = _checks.input_array(x)
    axes, lengths = _axes.normalized(numbers, lengths, weight, given.shape)
    live = _checks.optional_mask(live, given.shape)
    parameters = {
        name: _axes.fitting(name, parameter, axes, given.shape)
        for name, parameter in (("weight", weight), ("bias", bias))
    }
    adaptive = any(a is not None and a.ndim > len(axes) for a in parameters.values())
    if keep_x and adaptive:
        parameters = _axes.alike(parameters)
    views = (
        (adds or adaptive or live is not None)
        or _checks.is_half(dtype)
        or not _axes.are_last(axes, given.shape)
    )
    args = Forward(
        x=_checks.steady(given, dtype) if views else _checks.plain(given, dtype),
        axes=axes,
        normalized_shape=lengths,
        weight=_checks.optional_cast(parameters["weight"], dtype, copy=keep_x),
        bias=_checks.optional_cast(parameters["bias"], dtype),
        mask=None if live is None else _checks.plain(live, live.dtype, copy=keep_x),
        residual=None if addend is None else _checks.addend("residual", addend, dtype, given.shape),
        eps=eps,
        y=given,  # until the rest has been checked
        out=_out.output("out", out, given.shape, dtype),
        sum=None,
        sum_out=_out.output("sum_out", sum_out, given.shape, dtype),
        num_threads=threads,
        check_finite=_checks.flag("check_finite", check_finite),
        views=views,
    )
    if args.out is not None and args.sum_out is not None:
        if _out.share_memory(args.out, args.sum_out):
            raise ValueError("out shares memory with sum_out: each needs its own")
    if keep_x and not adds and args.out is not None and _out.share_memory(args.out, given):
        raise ValueError(
            "out shares memory with x, which the cache keeps for the backward pass: "
            "give another out, or a copy of x"
        )
    if args.check_finite:
        _finite.require_finite(mask=args.mask, x=args.x, residual=args.residual)
        _finite.require_finite(weight=args.weight, bias=args.bias)
    return _with_outputs(args)


def _with_outputs(args: Forward) -> Forward:
    """The arrays to compute into, once all is known to be right."""
    in_place = [a for a in (args.x, args.residual) if a is not None]
    apart = [args.weight, args.bias, args.mask]
    out, sum_out = (None, None) if args.check_finite else (args.out, args.sum_out)
    if args.residual is not None:
        total = _out.destination(sum_out, args.x, in_place, apart, args.views)
        args, apart = args._replace(sum=total), [*apart, total]
    return args._replace(y=_out.destination(out, args.x, in_place, apart, args.views))


def backward(
    dy: ArrayLike,
    cache: object,
    output_mask: object,
    out: object,
    num_threads: object,
    check_finite: object,
    record: type[Record] = LayerNormCache,
    *,
    ds: ArrayLike | None = None,
) -> Backward:
    """Check the arguments of a backward pass, the fields of its cache, a `record`, included."""
    x, normalized_shape, weight, *statistics, axis, mask = fields(cache, record)
    x = _checks.converted("x", x)
    lengths = None if normalized_shape is None else _axes.shape(normalized_shape)
    numbers = None if axis is None else _axes.numbers(axis)
    weight = _checks.optional_converted("weight", weight)
    names = record._fields[3:-2]  # mean and rstd, or rstd alone
    statistics = [_checks.converted(name, a) for name, a in zip(names, statistics, strict=True)]
    mask = _checks.optional_converted("mask", mask)
    dy = _checks.converted("dy", dy)
    ds = _checks.optional_converted("ds", ds)
    wanted = _checks.mask(output_mask, GRADIENTS[record])
    threads = _checks.threads(num_threads)
    # From here on no code of the caller's runs.
    x, dtype = _checks.input_array(x)
    axes, lengths = _axes.kept(numbers, lengths, weight, x.shape)
    row_shape = _axes.row_shape(axes, x.shape)
    *means, rstd = (
        _checks.parameter(name, a, row_shape, np.dtype(np.float64))
        for name, a in zip(names, statistics, strict=True)
    )
    weight = _axes.fitting("weight", weight, axes, x.shape)
    dy = _checks.output_gradient("dy", dy, x.shape)
    ds = None if ds is None else _checks.output_gradient("ds", ds, x.shape)
    mask = _checks.optional_mask(mask, x.shape)
    views = (
        (ds is not None or mask is not None)
        or (weight is not None and weight.ndim > len(axes))
        or _checks.is_half(dtype)
        or not _axes.are_last(axes, x.shape)
    )
    made = _checks.steady if views else _checks.plain
    args = Backward(
        dy=made(dy, dtype),
        x=made(x, dtype),
        axes=axes,
        normalized_shape=lengths,
        weight=_checks.optional_cast(weight, dtype),
        mean=means[0] if means else None,
        rstd=rstd,
        mask=None if mask is None else _checks.plain(mask, mask.dtype),
        ds=None if ds is None else made(ds, dtype),
        output_mask=(*wanted, False)[:3],
        dx=None,  # until the rest has been checked
        out=_out.output("out", out, x.shape, dtype),
        num_threads=threads,
        check_finite=_checks.flag("check_finite", check_finite),
        views=views,
    )
    for name, array in (("out", args.out), ("ds", args.ds)):
        if array is not None and not args.output_mask[0]:
            raise ValueError(f"{name} is for dx, which output_mask[0] = False does not ask for")
    if args.check_finite:
        _finite.require_finite(mask=args.mask, dy=args.dy, x=args.x)
        _finite.require_finite(weight=args.weight, ds=args.ds)
        if x.size:  # a row of no elements has NaN for statistics, and rightly so
            _finite.require_finite(mean=args.mean, rstd=args.rstd)
            _finite.require_positive(rstd=args.rstd)
    if not args.output_mask[0]:
        return args
    target = None if args.check_finite else args.out
    in_place = [a for a in (args.dy, args.x, args.ds) if a is not None]
    apart = [args.weight, args.mean, args.rstd, args.mask]
    dx = _out.destination(target, args.x, in_place, apart, args.views)
    return args._replace(dx=dx)


def deliver_forward(args: Forward) -> Array:
    """Hand y over, once computed: what the caller gets is out where that was given."""
    if args.check_finite:
        _finite.require_finite(overflow=True, sum=args.sum, y=args.y)
    return _out.deliver(args.y, args.out)


def deliver_sum(args: Forward) -> Array:
    """Hand x + residual over, after y."""
    assert args.sum is not None
    return _out.deliver(args.sum, args.sum_out)


def deliver_backward(
    args: Backward, dweight: Array | None, dbias: Array | None
) -> tuple[Array | None, Array | None, Array | None]:
    """Hand the gradients over, once computed; those not asked for are None."""
    if args.check_finite:
        _finite.require_finite(overflow=True, dx=args.dx, dweight=dweight, dbias=dbias)
    dx = None if args.dx is None else _out.deliver(args.dx, args.out)
    return dx, dweight, dbias
