"""Numba: hand-written fast-math kernels, parallel over rows, as one writes them to beat NumPy."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np

from lnfast.bench.peers.numpy_formula import rms_statistic, statistics
from lnfast.bench.peers.peer import PARALLEL_ELEMENTS, Array, Call, Peer


class Numba(Peer):
    """Two passes over a row, forward and backward, all in x's own dtype."""

    name, module, package = "Numba", "numba", "numba"

    @contextmanager
    def on_threads(self, num_threads: int) -> Iterator[None]:
        import numba

        config: Any = numba.config
        # Else it takes the TBB that OpenVINO brings along, and is half as fast.
        config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]
        before = numba.get_num_threads()
        numba.set_num_threads(min(num_threads, config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            numba.set_num_threads(before)

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        normalize, _ = compiled(x.size >= PARALLEL_ELEMENTS)
        cols = x.shape[-1]
        return partial(normalize, x.reshape(-1, cols), weight, bias, x.dtype.type(eps))

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        import numba

        _, differentiate = compiled(x.size >= PARALLEL_ELEMENTS)
        cols = x.shape[-1]
        mean, rstd = (a.ravel() for a in statistics(x, eps))
        rows = (dy.reshape(-1, cols), x.reshape(-1, cols))
        return partial(differentiate, *rows, weight, mean, rstd, numba.get_num_threads())

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call:
        scale, _ = compiled_rms(x.size >= PARALLEL_ELEMENTS)
        return partial(scale, x.reshape(-1, x.shape[-1]), weight, x.dtype.type(eps))

    def rms_backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        import numba

        _, differentiate = compiled_rms(x.size >= PARALLEL_ELEMENTS)
        cols = x.shape[-1]
        rows = (dy.reshape(-1, cols), x.reshape(-1, cols))
        rstd = rms_statistic(x, eps).ravel()
        return partial(differentiate, *rows, weight, rstd, numba.get_num_threads())


@cache
def compiled(parallel: bool) -> tuple[Any, Any]:
    """The two kernels for Numba, which makes a version for each dtype when it is first called."""
    from numba import njit, prange

    # A Python int in the arithmetic would make it float64.
    def normalize(x, weight, bias, eps):  # type: ignore[no-untyped-def]
        rows, cols = x.shape
        zero, one, n = x.dtype.type(0), x.dtype.type(1), x.dtype.type(cols)
        y = np.empty_like(x)
        for i in prange(rows):
            pivot = x[i, 0]
            total = squares = zero
            for j in range(cols):
                shifted = x[i, j] - pivot
                total += shifted
                squares += shifted * shifted
            shift = total / n
            rstd = one / np.sqrt(squares / n - shift * shift + eps)
            mean = pivot + shift
            for j in range(cols):
                y[i, j] = (x[i, j] - mean) * rstd * weight[j] + bias[j]
        return y

    def differentiate(dy, x, weight, mean, rstd, num_threads):  # type: ignore[no-untyped-def]
        rows, cols = x.shape
        zero, n = x.dtype.type(0), x.dtype.type(cols)
        blocks = min(num_threads, rows)
        dx = np.empty_like(x)
        dweight = np.zeros((blocks, cols), x.dtype)
        dbias = np.zeros((blocks, cols), x.dtype)
        for block in prange(blocks):
            for i in range(block * rows // blocks, (block + 1) * rows // blocks):
                m, r = mean[i], rstd[i]
                total_h = total_h_xhat = zero
                for j in range(cols):
                    h = dy[i, j] * weight[j]
                    total_h += h
                    total_h_xhat += h * (x[i, j] - m)
                mean_h, mean_h_xhat = total_h / n, total_h_xhat * r / n
                for j in range(cols):
                    xhat = (x[i, j] - m) * r
                    dx[i, j] = r * (dy[i, j] * weight[j] - mean_h - xhat * mean_h_xhat)
                    dweight[block, j] += dy[i, j] * xhat
                    dbias[block, j] += dy[i, j]
        return dx, dweight.sum(axis=0), dbias.sum(axis=0)

    make = njit(parallel=parallel, fastmath=True)
    return make(normalize), make(differentiate)


@cache
def compiled_rms(parallel: bool) -> tuple[Any, Any]:
    """The same two without centring."""
    from numba import njit, prange

    def scale(x, weight, eps):  # type: ignore[no-untyped-def]
        rows, cols = x.shape
        zero, one, n = x.dtype.type(0), x.dtype.type(1), x.dtype.type(cols)
        y = np.empty_like(x)
        for i in prange(rows):
            squares = zero
            for j in range(cols):
                squares += x[i, j] * x[i, j]
            rstd = one / np.sqrt(squares / n + eps)
            for j in range(cols):
                y[i, j] = x[i, j] * rstd * weight[j]
        return y

    def differentiate(dy, x, weight, rstd, num_threads):  # type: ignore[no-untyped-def]
        rows, cols = x.shape
        zero, n = x.dtype.type(0), x.dtype.type(cols)
        blocks = min(num_threads, rows)
        dx = np.empty_like(x)
        dweight = np.zeros((blocks, cols), x.dtype)
        for block in prange(blocks):
            for i in range(block * rows // blocks, (block + 1) * rows // blocks):
                r = rstd[i]
                total_h_x = zero
                for j in range(cols):
                    total_h_x += dy[i, j] * weight[j] * x[i, j]
                mean_h_xhat = total_h_x * r / n
                for j in range(cols):
                    xhat = x[i, j] * r
                    dx[i, j] = r * (dy[i, j] * weight[j] - xhat * mean_h_xhat)
                    dweight[block, j] += dy[i, j] * xhat
        return dx, dweight.sum(axis=0)

    make = njit(parallel=parallel, fastmath=True)
    return make(scale), make(differentiate)
