"""The floating-point mode: the caller's does not show in the bits, and is kept.

Flush-to-zero and denormals-are-zero, another rounding, traps, and the exceptions' sticky flags: of
the caller and of OpenMP's threads, which do not inherit it.
"""

import ctypes
import itertools
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from runs import draw, in_fresh_python, needs_mxcsr, needs_openmp, shared_library

import lnfast

pytestmark = needs_mxcsr

# Bits of MXCSR
FLAGS = 0x3F
INVALID, DIVISION, OVERFLOW, UNDERFLOW = 0x1, 0x4, 0x8, 0x10
DENORMALS_ARE_ZERO, FLUSH_TO_ZERO = 0x40, 0x8000
DOWN, UP, TRUNCATE = 0x2000, 0x4000, 0x6000
MASKS = 0x1F80  # no exception traps: the mode that a process begins with
MODES = {
    "flush": MASKS | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO,
    "flush results": MASKS | FLUSH_TO_ZERO,
    "flush inputs": MASKS | DENORMALS_ARE_ZERO,
    "down": MASKS | DOWN,
    "up": MASKS | UP,
    "truncate": MASKS | TRUNCATE,
    "truncate and flush": MASKS | TRUNCATE | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO,
}
THREADS = 1, 2, 3, 16


class Mode:
    """MXCSR of this thread: the last of the eight words that glibc calls a floating-point mode."""

    def __init__(self):
        self.libm = ctypes.CDLL("libm.so.6")
        self.words = (ctypes.c_uint32 * 8)()

    def read(self):
        assert self.libm.fegetenv(self.words) == 0
        return self.words[7]

    def write(self, mxcsr):
        self.read()
        self.words[7] = mxcsr
        assert self.libm.fesetenv(self.words) == 0

    @contextmanager
    def of(self, mxcsr):
        before = self.read()
        self.write(mxcsr)
        try:
            yield
        finally:
            self.write(before)


@pytest.fixture
def mode():
    return Mode()


def subnormal(shape, dtype):
    """x, dy, weight and bias; rows all of subnormals, some with such results, and ordinary ones."""
    x, dy = draw(1, shape, dtype)
    tiny = np.finfo(dtype).tiny
    x[::4] *= tiny / 8
    dy[1::4] *= tiny / 2
    dy[::4, ::3] *= tiny
    weight = np.linspace(0.5, 2, shape[1], dtype=dtype)
    return x, dy, weight, np.full_like(weight, np.finfo(dtype).smallest_subnormal)


def bits(inputs, eps, num_threads):
    """Of all results. NumPy computes nothing here: it would do so in the caller's mode."""
    x, dy, weight, bias = inputs
    y, cache = lnfast.layer_norm_forward(x, None, weight, bias, eps, num_threads=num_threads)
    gradients = lnfast.layer_norm_backward(dy, cache, num_threads=num_threads)
    return b"".join(a.tobytes() for a in (y, cache.mean, cache.rstd, *gradients))


# By blocks of rows, by columns, and too little work to let other Python threads run
@pytest.mark.parametrize("shape", [(128, 768), (9, 40_000), (7, 33)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("eps", [1e-5, 1e-300, 0.0])
def test_it_does_not_show_and_is_kept(mode, shape, dtype, eps):
    inputs = subnormal(shape, dtype)
    expected = bits(inputs, eps, 1)
    for (name, wanted), n in itertools.product(MODES.items(), THREADS):
        with mode.of(wanted):
            found = bits(inputs, eps, n)
            left = mode.read()
        assert found == expected, f"{name}, {n} threads"
        assert left & ~FLAGS == wanted, f"{name}, {n} threads"


def bits_of_views(inputs, num_threads):
    """As bits, where rows are gathered: across, masked, added, float16, of a weight each."""
    x, dy, weight, bias = inputs
    half, half_dy = inputs_of_half(x), inputs_of_half(dy)
    n = {"num_threads": num_threads}
    made = [
        lnfast.layer_norm_forward(x, None, None, None, 0.0, axis=0, **n),
        lnfast.layer_norm_forward(x, None, weight, bias, 0.0, mask=MASK[: x.shape[1]], **n),
        lnfast.layer_norm_forward(x, x.shape[1], dy, x, 0.0, **n),
        lnfast.layer_norm_forward(half, None, None, None, 0.0, axis=0, **n),
    ]
    y, s, cache = lnfast.add_layer_norm_forward(x, dy, None, weight, bias, 0.0, **n)
    gradients = [lnfast.layer_norm_backward(dy, cache, ds=dy, **n)]
    gradients += [lnfast.layer_norm_backward(dy, cache, **n) for _, cache in made[:3]]
    gradients += [lnfast.layer_norm_backward(half_dy, made[3][1], **n)]
    results = [y, s, *(y for y, _ in made), *(cache.rstd for _, cache in made)]
    return b"".join(a.tobytes() for a in [*results, *(a for each in gradients for a in each)])


MASK = np.arange(40_000) % 3 > 0


def inputs_of_half(a):
    """The upper bits of a, as subnormal and ordinary float16."""
    return (a.view(f"u{a.itemsize}") >> (8 * a.itemsize - 13)).astype(np.uint16).view(np.float16)


@pytest.mark.parametrize("shape", [(70, 33), (300, 768)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_does_not_show_in_views_and_is_kept(mode, shape, dtype):
    inputs = subnormal(shape, dtype)
    expected = bits_of_views(inputs, 1)
    for (name, wanted), n in itertools.product(MODES.items(), (1, 3)):
        with mode.of(wanted):
            found = bits_of_views(inputs, n)
            left = mode.read()
        assert found == expected, f"{name}, {n} threads"
        assert left & ~FLAGS == wanted, f"{name}, {n} threads"


def test_subnormals_are_there(mode):
    """The inputs of the test before show a mode that flushes: NumPy's own products do."""
    for dtype in (np.float32, np.float64):
        x, dy, _, _ = subnormal((128, 768), dtype)
        y, cache = lnfast.layer_norm_forward(x, 768, eps=1e-5)
        for values in (x, dy, y, lnfast.layer_norm_backward(dy, cache)[0]):
            magnitude = abs(values)
            assert ((magnitude > 0) & (magnitude < np.finfo(dtype).tiny)).any()
        with mode.of(MODES["flush"]):
            assert not (x[0] * dtype(0.5)).any()


SPOILT = np.array(
    [[3e38, -3e38, 3e38], [np.nan, 1, 2], [np.inf, 0, 1], [7, 7, 7], [1e-45, 0, 1e-45]], np.float32
)


ARRAYS = SPOILT, np.tile(SPOILT, (2000, 8)), SPOILT.astype(float), np.tile(SPOILT, (1, 9000))
CALLS = [
    (x, x.shape[1], lnfast.LayerNormCache(x, x.shape[1], None, zeros, zeros + rstd))
    for x in ARRAYS
    for zeros in [np.zeros((len(x), 1))]
    for rstd in (0.0, 1.0, 1e300, np.nan)
]


def spoil(num_threads):
    """Results that are NaN or infinite for every reason there is, of small and of large arrays."""
    for x, cols, cache in CALLS:
        lnfast.layer_norm_forward(x, cols, eps=0.0, num_threads=num_threads)
        lnfast.layer_norm_backward(x, cache, num_threads=num_threads)


def needs_libgomp():
    """LLVM's OpenMP gives its threads the caller's mode, and clears the flags of all, by itself."""
    if "clang" in lnfast.config()["compiler"].lower():
        pytest.skip("clang's OpenMP clears the flags whoever computes")


@pytest.mark.parametrize("n", THREADS)
@pytest.mark.parametrize("flags", [0, DIVISION, INVALID | OVERFLOW, FLAGS])
def test_flags_are_left(mode, flags, n):
    """None is raised, so that nothing after the call warns of what it met; none is cleared."""
    if n > 1:
        needs_libgomp()
    with mode.of(MASKS | flags):
        spoil(n)
        left = mode.read()
    # Python, which runs in between, divides and rounds, but does nothing that is wrong.
    meant = INVALID | DIVISION | OVERFLOW | UNDERFLOW
    assert left & meant == flags & meant


def test_no_warning():
    """Nor from what NumPy does in a call: casts that overflow, and gradients added to others."""
    large = np.full((4, 3), 1e300)
    layer = lnfast.LayerNorm(3)
    with np.errstate(all="raise"):
        spoil(1)
        y, cache = lnfast.layer_norm_forward(SPOILT[:4], 3, large[0], large[0])
        lnfast.layer_norm_backward(large, cache)
        for sign in (1, -1):
            layer.backward(sign * large, layer.forward(SPOILT[:4])[1])
    assert np.isnan(layer.grad_bias).all() and np.isnan(y).any()


def test_a_caller_who_traps():
    """One whose process ends at the first division by zero, overflow or NaN of its own."""
    code = """
        import ctypes, numpy as np, lnfast
        x = np.tile(np.array([[3e38, -3e38, 0], [np.nan, 1, 2], [7, 7, 7]], np.float32), (4000, 8))
        libm = ctypes.CDLL("libm.so.6")
        before = libm.feenableexcept(0x1 | 0x4 | 0x8 | 0x10)
        assert before == 0
        for n in (1, 2, 3, 16):
            y, cache = lnfast.layer_norm_forward(x, 24, eps=0.0, num_threads=n)
            lnfast.layer_norm_backward(x, cache, num_threads=n)
        assert libm.fegetexcept() == 0x1 | 0x4 | 0x8 | 0x10
        libm.fedisableexcept(0x3f)
        print("lives", int(np.isnan(y).sum()))
    """
    assert in_fresh_python(code) == f"lives {2 * 4000 * 24}"


def test_threads_that_were_made_in_another_mode():
    """OpenMP's threads take over the mode of who wakes them first, for good."""
    code = f"""
        import sys, itertools
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_fp_mode import MODES, THREADS, Mode, bits, subnormal
        inputs, mode = subnormal((128, 768), "f4"), Mode()
        expected = bits(inputs, 1e-5, 1)
        with mode.of(MODES["truncate and flush"]):
            assert bits(inputs, 1e-5, 16) == expected
        for n in THREADS:
            assert bits(inputs, 1e-5, n) == expected
        print("same")
    """
    assert in_fresh_python(code) == "same"


@needs_openmp
def test_modes_of_other_threads_are_kept(tmp_path):
    """What another user of the same OpenMP threads has set in them, flags too."""
    needs_libgomp()
    library = shared_library(Path(__file__).with_name("thread_modes.c"), tmp_path, "-fopenmp")
    code = f"""
        import ctypes, os, sys
        import lnfast
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_fp_mode import MODES, bits, subnormal
        modes = ctypes.CDLL({str(library)!r})
        inputs = subnormal((2048, 1024), "f4")  # 16 threads in every step
        expected = bits(inputs, 1e-5, 1)
        tasks = len(os.listdir("/proc/self/task"))
        for n in (2, 3, 16):
            for wanted in [*MODES.values(), 0x1fbf]:
                modes.set_modes(n, wanted)
                assert bits(inputs, 1e-5, n) == expected
                left = (ctypes.c_uint * n)()
                modes.tell_modes(n, left)
                assert set(left[1:]) == {{wanted}}, (n, hex(wanted), [*map(hex, left)])
        assert len(os.listdir("/proc/self/task")) == tasks + 15  # one set of threads, not two
        print("kept")
    """
    assert in_fresh_python(code) == "kept"
