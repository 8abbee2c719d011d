"""No access past an array: each argument ends where readable memory ends, at every tail length."""

import ctypes
import mmap
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import lnfast

PAGE = mmap.PAGESIZE
PROT_NONE = 0


class Guarded:
    """Arrays each of which a page without access follows at once (or precedes, for `first`)."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.rooms = []

    def array(self, source, first=False):
        """A copy of source beside a page that may not be touched."""
        pages = -(-source.nbytes // PAGE) + 1
        room = mmap.mmap(-1, pages * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(room))
        guard = start if first else start + (pages - 1) * PAGE
        offset = PAGE if first else (pages - 1) * PAGE - source.nbytes
        array = np.frombuffer(room, source.dtype, source.size, offset).reshape(source.shape)
        array[...] = source
        assert self.libc.mprotect(ctypes.c_void_p(guard), PAGE, PROT_NONE) == 0
        self.rooms.append(room)
        return array


def run_between_guards(dtype, rows, first):
    guarded = Guarded()
    rng = np.random.default_rng(0)
    for cols in [*range(1, 70), 127, 129, 255, 257, 1001, 4097, 16_411]:
        x, dy = rng.standard_normal((2, rows, cols)).astype(dtype)
        x[rows // 2] *= dtype(1e30)  # one row goes the exact way
        weight, bias = rng.standard_normal((2, cols)).astype(dtype)
        y, cache = lnfast.layer_norm_forward(x, cols, weight, bias)
        expected = y, *lnfast.layer_norm_backward(dy, cache)
        g_x, g_dy, g_weight, g_bias = (guarded.array(a, first) for a in (x, dy, weight, bias))
        out = guarded.array(x, first)
        found_y, found = lnfast.layer_norm_forward(g_x, cols, g_weight, g_bias, out=out)
        found = found._replace(
            weight=g_weight,
            mean=guarded.array(found.mean, first),
            rstd=guarded.array(found.rstd, first),
        )
        assert found_y.tobytes() == expected[0].tobytes()
        gradients = lnfast.layer_norm_backward(g_dy, found, out=out)
        for a, b in zip(gradients, expected[1:], strict=True):
            assert a.tobytes() == b.tobytes()
        guarded.rooms.clear()


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages through mprotect")
@pytest.mark.parametrize("isa", lnfast.config()["isa_available"])
def test_guard_pages(isa):
    """In a process of its own: an access past an array is a crash there, and a failure here."""
    code = f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import numpy as np, test_memory
        for dtype in (np.float32, np.float64):
            for rows in (1, 6):
                for first in (False, True):
                    test_memory.run_between_guards(dtype, rows, first)
        print("untouched")
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(code)],
        env={**os.environ, "LNFAST_ISA": isa},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "untouched\n", done.stderr


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_element_is_written(dtype):
    """An output full of NaN beforehand has none afterwards."""
    rng = np.random.default_rng(0)
    for rows, cols in [(1, 1), (3, 7), (5, 64), (9, 1001), (33, 31), (2, 4097)]:
        x, dy = rng.standard_normal((2, rows, cols)).astype(dtype)
        poisoned = np.full_like(x, np.nan)
        y, cache = lnfast.layer_norm_forward(x, cols, out=poisoned)
        assert y is poisoned and np.isfinite(y).all()
        poisoned = np.full_like(x, np.nan)
        dx, dweight, dbias = lnfast.layer_norm_backward(dy, cache, out=poisoned)
        assert dx is poisoned
        assert all(np.isfinite(a).all() for a in (dx, dweight, dbias))


def test_references_do_not_leak():
    """Errors and calls leave every argument's reference count where it was."""
    x = np.ones((4, 8), np.float32)
    weight = np.ones(8, np.float32)
    _, cache = lnfast.layer_norm_forward(x, 8, weight)
    before = sys.getrefcount(x), sys.getrefcount(weight), sys.getrefcount(cache)
    for _ in range(1000):
        lnfast.layer_norm(x, 8, weight)
        lnfast.layer_norm_forward(x, 8, weight)
        lnfast.layer_norm_backward(x, cache)
        with pytest.raises(ValueError, match="normalized_shape"):
            lnfast.layer_norm(x, 9)
        with pytest.raises(ValueError, match="dy"):
            lnfast.layer_norm_backward(x[:2], cache)
    assert (sys.getrefcount(x), sys.getrefcount(weight), sys.getrefcount(cache)) == before
