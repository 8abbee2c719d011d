"""JAX: its own standardisation, jitted, and the gradient that it derives from it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lnfast.bench.peers.peer import Array, Call, Peer


class Jax(Peer):
    """jax.nn.standardize, weight and bias, on as many threads as the process may use: no fewer."""

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
        import jax

        layer_norm = jax.jit(formula(eps))
        arrays = [jax.numpy.asarray(a) for a in (x, weight, bias)]
        return lambda: layer_norm(*arrays).block_until_ready()

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        import jax

        # The bias is not used: only its shape is.
        arrays = [jax.numpy.asarray(a) for a in (x, weight, weight)]
        # The residuals, mean and rstd among them, are arrays inside `transposed`.
        _, transposed = jax.vjp(jax.jit(formula(eps)), *arrays)
        gradients = jax.jit(lambda transposed, dy: transposed(dy))
        given = jax.numpy.asarray(dy)
        return lambda: tuple(a.block_until_ready() for a in gradients(transposed, given))

    def arrays(self, result: Any) -> tuple[Array, ...]:
        results = result if isinstance(result, tuple) else (result,)
        return tuple(np.asarray(a) for a in results)


def formula(eps: float) -> Any:
    """x, weight, bias → y, in JAX's operations."""
    import jax

    return lambda x, weight, bias: jax.nn.standardize(x, axis=-1, epsilon=eps) * weight + bias


def usable_processors() -> int:
    """What JAX counts when it starts its threads."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
