"""JAX: its own standardisation or the formula, jitted, and the gradients it derives from them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lnfast.bench.peers.peer import Array, Call, Peer


class Jax(Peer):
    """On as many threads as the process may use: no fewer."""

    name, module, package = "JAX", "jax", "jax"
    is_library = True

    def missing(self, num_threads: int | None = None) -> str | None:
        if reason := super().missing(num_threads):
            return reason
        if num_threads is not None and num_threads != (processors := usable_processors()):
            return f"it always takes all processors, {processors} here, not {num_threads}"
        return None

    @contextmanager
    def on_threads(self, num_threads: int) -> Iterator[None]:
        import jax

        with (
            super().on_threads(num_threads),
            jax.enable_x64(True),  # else float64 becomes float32
            jax.default_device(jax.devices("cpu")[0]),
        ):
            yield

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        return jitted(layer_norm(eps), x, weight, bias)

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        # The bias is not used: only its shape is.
        return gradients(layer_norm(eps), dy, x, weight, weight)

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call:
        return jitted(rms_norm(eps), x, weight)

    def rms_backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        return gradients(rms_norm(eps), dy, x, weight)

    def arrays(self, result: Any) -> tuple[Array, ...]:
        results = result if isinstance(result, tuple) else (result,)
        return tuple(np.asarray(a) for a in results)


def layer_norm(eps: float) -> Any:
    """x, weight, bias → y, in JAX's operations."""
    import jax

    return lambda x, weight, bias: jax.nn.standardize(x, axis=-1, epsilon=eps) * weight + bias


def rms_norm(eps: float) -> Any:
    """x, weight → y, likewise."""
    import jax

    def formula(x: Any, weight: Any) -> Any:
        mean_square = jax.numpy.square(x).mean(axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(mean_square + eps) * weight

    return formula


def jitted(formula: Any, *operands: Array) -> Call:
    import jax

    function = jax.jit(formula)
    arrays = [jax.numpy.asarray(a) for a in operands]
    return lambda: function(*arrays).block_until_ready()


def gradients(formula: Any, dy: Array, *operands: Array) -> Call:
    """A call that returns the gradient of each operand."""
    import jax

    arrays = [jax.numpy.asarray(a) for a in operands]
    # The residuals, rstd among them, are arrays inside `transposed`.
    _, transposed = jax.vjp(jax.jit(formula), *arrays)
    function = jax.jit(lambda transposed, dy: transposed(dy))
    given = jax.numpy.asarray(dy)
    return lambda: tuple(a.block_until_ready() for a in function(transposed, given))


def usable_processors() -> int:
    """What JAX counts when it starts its threads."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
