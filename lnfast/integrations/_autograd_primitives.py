"""What autograd differentiates: the primitives of lnfast.integrations.autograd, and their rules.

The record of the forward pass is handed on, as a constant, to every derivative, which takes its
numbers from it; x and weight stand beside it for autograd alone, which sees there what a result
depends on. With P(v) the derivative of xhat along v, as in lnfast/derivatives.py:

    forward             y = xhat * weight + bias
    jvp                 dx, dweight, dbias  ->  P(dx) * weight + xhat * dweight + dbias
    backward            dy  ->  P(dy * weight), sum(dy * xhat), sum(dy)
    double_backward     the gradients of backward for dy, x and weight
    double_jvp          the derivative of jvp along x and weight

jvp and backward are linear in what stands before the arrow, and each is the other transposed:
each is in the other's derivatives. How they change with x and weight is the second derivative
of sum(dy * y), which is symmetric, so that double_backward gives it to forward mode as well.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from autograd.builtins import tuple as tuple_of_boxes
from autograd.core import sum_outgrads
from autograd.extend import defjvp_argnums, defvjp_argnums
from autograd.extend import primitive as untyped_primitive
from numpy.typing import NDArray

import lnfast
from lnfast._records import GRADIENTS, LayerNormCache, Record, RMSNormCache
from lnfast.integrations import _rms_derivatives

Array = NDArray[Any]
Numbers = tuple[int, ...]

primitive: Callable[[Callable[..., Any]], Callable[..., Any]] = untyped_primitive


class Derivatives(NamedTuple):
    """The functions that compute them, for one norm."""

    backward: Callable[..., Any]
    jvp: Callable[..., Any]
    double_backward: Callable[..., Any]


DERIVATIVES = {
    LayerNormCache: Derivatives(
        lnfast.layer_norm_backward, lnfast.layer_norm_jvp, lnfast.layer_norm_double_backward
    ),
    RMSNormCache: Derivatives(
        lnfast.rms_norm_backward, _rms_derivatives.jvp, _rms_derivatives.double_backward
    ),
}


# Values. An argument that is None has no tangent, or gradient, or is no parameter of the norm.


@primitive
def forward(x: Any, weight: Any, bias: Any, y: Array, cache: Record) -> Array:
    """y, of which autograd learns here that it depends on x, weight and bias."""
    return y


@primitive
def jvp(dx: Any, dweight: Any, dbias: Any, x: Any, weight: Any, cache: Record) -> Any:
    return DERIVATIVES[type(cache)].jvp(dx, cache, dweight, dbias)


@primitive
def backward(dy: Any, x: Any, weight: Any, cache: Record, wanted: Numbers) -> Any:
    """Those of (dx, dweight, dbias) whose numbers are wanted."""
    mask = [n in wanted for n in range(len(GRADIENTS[type(cache)]))]
    gradients = DERIVATIVES[type(cache)].backward(dy, cache, output_mask=mask)
    return tuple(gradients[n] for n in wanted)


@primitive
def double_backward(
    ddx: Any, ddweight: Any, ddbias: Any, dy: Any, x: Any, weight: Any, cache: Record
) -> Any:
    """Gradients of sum(dx * ddx) + sum(dweight * ddweight) + sum(dbias * ddbias)."""
    return DERIVATIVES[type(cache)].double_backward(ddx, ddweight, ddbias, dy, cache)


@primitive
def double_jvp(
    dx: Any, dweight: Any, ddx: Any, ddweight: Any, x: Any, weight: Any, cache: Record
) -> Array:
    """The second derivative of y, along (dx, dweight) and (ddx, ddweight).

        ddy = Q(dx, ddx) * weight + P(dx) * ddweight + P(ddx) * dweight

    Q(u, v) is the derivative of P(v) along u: what double_backward finds for x where dy is v and
    there is no weight.
    """
    derivatives, ddy = DERIVATIVES[type(cache)], np.zeros_like(cache.x)
    if dx is not None and ddx is not None:
        unweighted = cache._replace(weight=None)
        _, q, _ = derivatives.double_backward(dx, None, None, ddx, unweighted)
        ddy += q if cache.weight is None else q * cache.weight
    for along, other in ((dx, ddweight), (ddx, dweight)):
        if along is not None and other is not None:
            ddy += derivatives.jvp(along, cache._replace(weight=other), None, None)
    return ddy


# Rules. argnums are the numbers of the arguments that autograd traces.


def spread(values: Iterable[Any], argnums: Numbers, count: int) -> list[Any]:
    """A value for each of `count` arguments: None where argnums does not have its number."""
    given = dict(zip(argnums, values, strict=True))
    return [given.get(n) for n in range(count)]


def jvp_of_forward(argnums: Numbers, tangents: Any, y: Any, args: Any, kwargs: Any) -> Any:
    x, weight, _, _, cache = args
    return jvp(*spread(tangents, argnums, 3), x, weight, cache)


def vjp_of_forward(argnums: Numbers, y: Any, args: Any, kwargs: Any) -> Any:
    x, weight, _, _, cache = args
    return lambda dy: backward(dy, x, weight, cache, argnums)


def jvp_of_jvp(argnums: Numbers, tangents: Any, dy: Any, args: Any, kwargs: Any) -> Any:
    dx, dweight, _, x, weight, cache = args
    *linear, along_x, along_weight = spread(tangents, argnums, 5)
    terms = []
    if any(tangent is not None for tangent in linear):
        terms.append(jvp(*linear, x, weight, cache))
    if along_x is not None or along_weight is not None:
        terms.append(double_jvp(along_x, along_weight, dx, dweight, x, weight, cache))
    return sum_outgrads(terms)


def vjp_of_jvp(argnums: Numbers, dy: Any, args: Any, kwargs: Any) -> Any:
    dx, dweight, _, x, weight, cache = args
    linear = tuple(n for n in argnums if n < 3)

    def vjp(ddy: Any) -> Any:
        found = {}
        if linear:
            found = dict(zip(linear, backward(ddy, x, weight, cache, linear), strict=True))
        if linear != argnums:
            _, found[3], found[4] = double_backward(dx, dweight, None, ddy, x, weight, cache)
        return [found[n] for n in argnums]

    return vjp


def jvp_of_backward(argnums: Numbers, tangents: Any, gradients: Any, args: Any, kwargs: Any) -> Any:
    dy, x, weight, cache, wanted = args
    along_dy, along_x, along_weight = spread(tangents, argnums, 3)
    terms = []
    if along_dy is not None:
        terms.append(backward(along_dy, x, weight, cache, wanted))
    if along_x is not None or along_weight is not None:
        _, *moved = double_backward(along_x, along_weight, None, dy, x, weight, cache)
        moved.append(np.zeros(cache.normalized_shape, cache.x.dtype))  # dbias depends on dy alone
        terms.append(tuple_of_boxes(moved[n] for n in wanted))
    return sum_outgrads(terms)


def vjp_of_backward(argnums: Numbers, gradients: Any, args: Any, kwargs: Any) -> Any:
    *operands, wanted = args

    def vjp(seconds: Any) -> Any:
        found = double_backward(*spread(seconds, wanted, 3), *operands)
        return [found[n] for n in argnums]

    return vjp


def refuse(*_: Any) -> Any:
    raise NotImplementedError(
        "layer_norm and rms_norm of lnfast.integrations.autograd have derivatives of the first "
        "and second order, not of the third"
    )


for rules in (
    (forward, jvp_of_forward, vjp_of_forward),
    (jvp, jvp_of_jvp, vjp_of_jvp),
    (backward, jvp_of_backward, vjp_of_backward),
    (double_backward, refuse, refuse),
    (double_jvp, refuse, refuse),
):
    defjvp_argnums(rules[0], rules[1])
    defvjp_argnums(rules[0], rules[2])
