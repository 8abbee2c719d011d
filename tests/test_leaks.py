"""Resident memory is flat over 10⁵ calls, errors included (fewer where a call is long).

Each call has a process of its own, whose heap has no holes that a leak could fill:
`python -P tests/test_leaks.py "layer_norm: plain"` prints how many calls there were, and the bytes
that they added.
"""

import ctypes
import functools
import gc
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lnfast

# The smallest piece of memory, in bytes, that Python's allocator or the C library's hands out: what
# a leak in every call adds for each, at least. Half of it allows for pages that are begun.
SMALLEST = 16
CALLS = 100_000
# Where every call goes through Python and makes errors, or has work to do.
FEWER = 20_000
LONG = 5_000
# Where what may be added is limited: less than that is, by a leak of a kilobyte a call.
FEW = 500

PAGE = mmap.PAGESIZE

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux's /proc")


class Failed(Exception):
    """A call that was to be wrong was not."""


def wrong(function, *arguments, **options):
    """The call's error, dropped."""
    try:
        function(*arguments, **options)
    except (ValueError, TypeError, MemoryError):
        return
    raise Failed


def workload():
    """Calls by name, and how many: of each function the plain way, the slow ones, and errors."""
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    weight = np.ones(8, np.float32)
    bias, out = weight.copy(), np.empty_like(x)
    forward, backward = lnfast.layer_norm_forward, lnfast.layer_norm_backward
    _, cache = forward(x, 8, weight, bias)
    rms_forward, rms_backward = lnfast.rms_norm_forward, lnfast.rms_norm_backward
    _, rms_cache = rms_forward(x, 8, weight)
    layer, rms_layer = lnfast.LayerNorm(8), lnfast.RMSNorm(8)
    _, known = layer.forward(x)
    rows = np.empty((6, 8), np.float32)
    strided, behind, ahead = x[::-1, ::-1], rows[:4], rows[2:]
    behind[...], huge = x, x * np.float32(1e30)
    infinite, wide = np.full_like(x, np.inf), x.astype(np.float64)
    long = np.random.default_rng(0).standard_normal((1, 16_384)).astype(np.float32)
    _, of_long = forward(long, 16_384)
    many = np.resize(x, (512, 8))
    _, of_many = forward(many, 8)
    plain = x, 8, weight, bias

    def step():
        layer.backward(x, layer.forward(x)[1])

    return {
        "layer_norm: plain": (lambda: lnfast.layer_norm(*plain), CALLS),
        "layer_norm: out": (lambda: lnfast.layer_norm(*plain, out=out), CALLS),
        "layer_norm: exact": (lambda: lnfast.layer_norm(huge, 8), CALLS),
        "layer_norm: wrong": (lambda: wrong(lnfast.layer_norm, x, 9), CALLS),
        "layer_norm: list": (lambda: lnfast.layer_norm([[1.0, 2.0]], [2], [1, 1]), FEWER),
        "layer_norm: strided": (lambda: lnfast.layer_norm(strided, 8, wide[0]), FEWER),
        "layer_norm: strided out": (lambda: lnfast.layer_norm(*plain, out=out[::-1]), FEWER),
        "layer_norm: overlap": (lambda: lnfast.layer_norm(behind, 8, out=ahead), FEWER),
        "layer_norm: finite": (lambda: lnfast.layer_norm(*plain, check_finite=True), FEWER),
        "layer_norm: not finite": (
            lambda: wrong(lnfast.layer_norm, infinite, 8, check_finite=True),
            FEWER,
        ),
        "layer_norm: two threads": (lambda: lnfast.layer_norm(many, 8, num_threads=2), LONG),
        "forward: plain": (lambda: forward(*plain), CALLS),
        "forward: shape": (lambda: forward(x, (4, 8)), CALLS),
        "forward: list": (lambda: forward([[1.0, 2.0]], [2], [1, 1]), FEWER),
        "forward: strided": (lambda: forward(strided, 8, wide[0]), FEWER),
        "forward: wrong": (lambda: wrong(forward, *plain, eps=-1.0), CALLS),
        "forward: refused": (lambda: wrong(forward, *plain, out=x), FEWER),
        "backward: plain": (lambda: backward(x, cache), CALLS),
        "backward: out": (lambda: backward(x, cache, out=out), CALLS),
        "backward: masked": (
            lambda: backward(x, cache, output_mask=(False, True, False)),
            CALLS,
        ),
        "backward: wrong": (lambda: wrong(backward, x[:2], cache), FEWER),
        "backward: list": (lambda: backward(x.tolist(), cache), FEWER),
        "backward: strided": (lambda: backward(strided, cache, out=out[::-1]), FEWER),
        "backward: not finite": (
            lambda: wrong(backward, infinite, cache, check_finite=True),
            FEWER,
        ),
        "backward: blocks": (lambda: backward(many, of_many, num_threads=2), LONG),
        "backward: columns": (lambda: backward(long, of_long), LONG),
        "backward: no room, blocks": (without_room(64, 2**17), FEW),
        "backward: no room, columns": (without_room(17, 2**18), FEW),
        "LayerNorm: call": (lambda: layer(x), CALLS),
        "LayerNorm: step": (step, CALLS),
        "LayerNorm: wrong": (lambda: wrong(layer.backward, x[:2], known), FEWER),
        "LayerNorm: state": (lambda: layer.load_state_dict(layer.state_dict()), FEWER),
        "rms_norm: plain": (lambda: lnfast.rms_norm(x, 8, weight), CALLS),
        "rms_norm: exact": (lambda: lnfast.rms_norm(huge, 8), CALLS),
        "rms_norm: strided": (lambda: lnfast.rms_norm(strided, 8, wide[0]), FEWER),
        "rms_norm_forward: plain": (lambda: rms_forward(x, 8, weight), CALLS),
        "rms_norm_forward: wrong": (lambda: wrong(rms_forward, x, 8, weight, -1.0), CALLS),
        "rms_norm_backward: plain": (lambda: rms_backward(x, rms_cache), CALLS),
        "rms_norm_backward: wrong": (lambda: wrong(rms_backward, x, cache), FEWER),
        "rms_norm_backward: strided": (lambda: rms_backward(strided, rms_cache), FEWER),
        "RMSNorm: step": (lambda: rms_layer.backward(x, rms_layer.forward(x)[1]), CALLS),
        "config": (lnfast.config, FEWER),
    }


def without_room(rows, cols):
    """A backward pass whose sums, of 4 MiB, find no memory where 3 are left."""

    @functools.cache
    def prepared():
        x, rstd = np.ones((rows, cols), np.float32), np.ones((rows, 1))
        cache, out = lnfast.LayerNormCache(x, (cols,), None, rstd, rstd), np.full_like(x, 7)
        address_space = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (address_space + 3 * 2**20, hard))
        return x, cache, out

    def call():
        dy, cache, out = prepared()
        options = {"output_mask": (True, False, True), "out": out, "num_threads": 1}
        wrong(lnfast.layer_norm_backward, dy, cache, **options)
        if out[0, 0] != 7 or out[-1, -1] != 7:
            raise Failed

    return call


@linux
@pytest.mark.parametrize("name", workload())
def test_resident_memory_is_flat(name):
    calls, added = measured(name)
    assert added < calls * SMALLEST / 2


@linux
def test_a_leak_would_show():
    calls, added = measured("a leak")
    assert added >= calls * SMALLEST / 2


def measured(*arguments):
    """How many calls, and the bytes they added, in a new process."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, *arguments],
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},  # no spinning between two calls
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return map(int, done.stdout.split())


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def repeat(call, calls):
    for _ in range(calls):
        call()


def main(name):
    if name == "a leak":
        call, calls = (lambda: ctypes.pythonapi.Py_IncRef(ctypes.py_object(object()))), FEWER
    else:
        call, calls = workload()[name]
    gc.disable()  # what only the collector of cycles would free has stayed behind
    repeat(call, min(calls, FEWER))  # the first calls fill what is kept for reuse
    before = resident()
    repeat(call, calls)
    print(calls, resident() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
