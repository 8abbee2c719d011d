"""Layer norm in pieces, and its derivatives: the same bits on any machine, no stray access."""

import ctypes
import functools
import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from guarded import Guarded
from test_bits import cancel, draw, exchange_mode
from test_threads import lets_others_run

import lnfast

DTYPES = [np.float32, np.float64]


def run(x, weight, bias, dy, **options):
    """What there is of each row, and of each column. The statistics: of the row, and some shift."""
    count, mean, m2 = lnfast.moments(x, **options)
    near = mean / 2
    shifted = lnfast.moments(x, shift=near, **options)
    with np.errstate(all="ignore"):
        rstd = 1 / np.sqrt(m2 / count + 1e-5)
    by_row = [mean, m2, *shifted]
    for row, shift in (((mean, rstd), None), ((shifted[1], rstd), near)):
        y = lnfast.normalize(x, *row, weight, bias, shift=shift, **options)
        h, h_xhat, *by_column = lnfast.backward_sums(dy, x, *row, weight, shift=shift, **options)
        sums = h, h_xhat, count
        dx = lnfast.backward_apply(dy, x, *row, weight, *sums, shift=shift, **options)
        by_row += [y, h, h_xhat, dx, lnfast.normalize(x, *row, **options)]
    record = lnfast.LayerNormCache(x, weight.shape, weight, mean, rstd)
    by_row.append(lnfast.layer_norm_jvp(dy, record, bias, weight, **options))
    for seconds in ((x, weight, bias), (x, None, None)):
        *more, gweight = lnfast.layer_norm_double_backward(*seconds, dy, record, **options)
        by_row += more
        by_column.append(gweight)
    return by_row, by_column


def bits(arrays):
    """A digest, in which every NaN is one NaN."""
    digest = hashlib.sha256()
    for a in arrays:
        digest.update(np.where(np.isnan(a), np.nan, a).tobytes())
    return digest.hexdigest()


def digests(dtype):
    shapes = [(1, 9), (11, 7), (5, 16_400), (33, 768), (70, 33), (257, 96), (3, 5000)]
    for rows, cols in shapes:
        by_row, by_column = run(*draw(rows, cols, dtype))
        yield bits(by_row + by_column)


@pytest.mark.parametrize("dtype", DTYPES)
def test_instruction_sets(dtype):
    expected = list(digests(dtype))
    start = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
    start += f"import numpy, test_pieces_bits as t; print(*t.digests(numpy.{dtype.__name__}))"
    for isa in lnfast.config()["isa_available"]:
        done = subprocess.run(
            [sys.executable, "-P", "-c", start],
            env={**os.environ, "LNFAST_ISA": isa},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == expected, isa


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 9), (5, 70_000), (33, 768), (1000, 33), (9000, 16)])
def test_threads(dtype, rows, cols):
    x, weight, bias, dy = draw(rows, cols, dtype)
    for gradient in (dy, cancel(dy)):
        one = [bits(a) for a in run(x, weight, bias, gradient, num_threads=1)]
        for n in (2, 3, 5, 16, None):
            found = run(x, weight, bias, gradient, num_threads=n)
            assert [bits(a) for a in found] == one, n


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [1, 7, 16, 33, 768, 4097, 20_000])
def test_batch_and_place(dtype, cols):
    """A row alone, first, last and in the middle of batches."""
    x, weight, bias, dy = draw(45, cols, dtype)
    whole, _ = run(x, weight, bias, dy)
    for first, last in [(0, 1), (3, 4), (44, 45), (1, 10), (15, 23), (20, 45)]:
        part, _ = run(x[first:last], weight, bias, dy[first:last])
        for a, b in zip(whole, part, strict=True):
            assert bits([a[first:last]]) == bits([b])


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="sets MXCSR through glibc"
)
@pytest.mark.parametrize("mode", [0x3F80, 0x5F80, 0x7F80, 0x9FC0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_mode_of_the_caller(dtype, mode):
    """It shows in no piece, on one thread or two, and is kept."""
    x, weight, bias, dy = draw(69, 65, dtype)
    _, mean, m2 = lnfast.moments(x)
    rstd = 1 / np.sqrt(m2 / 65 + 1e-5)
    record = lnfast.LayerNormCache(x, 65, weight, mean, rstd)
    calls = [
        lambda n: lnfast.moments(x, num_threads=n),
        lambda n: [lnfast.normalize(x, mean, rstd, weight, bias, num_threads=n)],
        lambda n: lnfast.backward_sums(dy, x, mean, rstd, weight, num_threads=n),
        lambda n: [lnfast.backward_apply(dy, x, mean, rstd, weight, mean, mean, 7, num_threads=n)],
        lambda n: [lnfast.layer_norm_jvp(dy, record, weight, bias, num_threads=n)],
        lambda n: lnfast.layer_norm_double_backward(x, weight, bias, dy, record, num_threads=n),
    ]
    libm = ctypes.CDLL("libm.so.6")
    for call in calls:
        expected = bits(call(None))
        for n in (1, 2):
            before = exchange_mode(libm, mode)
            try:
                found = call(n)
            finally:
                kept = exchange_mode(libm, before)
            assert kept == mode
            assert bits(found) == expected


@pytest.mark.parametrize("num_threads", [1, 2])
def test_other_threads_run_during_a_call(num_threads):
    x = np.random.default_rng(0).standard_normal((100, 40_000))  # few rows: NumPy lets go of none
    weight, column = x[0], np.ones((100, 1))
    record = lnfast.LayerNormCache(x, 40_000, weight, 0 * column, column)
    for name, *arguments in (
        ("moments", x),
        ("normalize", x, column, column),
        ("backward_sums", x, x, column, column),
        ("backward_apply", x, x, column, column, None, column, column, 7),
        ("layer_norm_jvp", x, record),
        ("layer_norm_double_backward", x, weight, weight, x, record),
    ):
        call = functools.partial(getattr(lnfast, name), *arguments, num_threads=num_threads)
        assert lets_others_run(call), name


def run_between_guards(dtype, first):
    """Every array ends where readable memory ends, or begins where it begins."""
    guarded = Guarded()
    for cols in [*range(1, 70), 127, 129, 255, 257, 1001, 4097]:
        x, weight, bias, dy = draw(6, cols, dtype)
        expected = run(x, weight, bias, dy)
        among = [guarded.array(a, first) for a in (x, weight, bias, dy)]
        found = run(*among)
        assert [bits(a) for a in found] == [bits(a) for a in expected]
        count, mean, m2 = (guarded.array(a, first) for a in lnfast.moments(x))
        with np.errstate(all="ignore"):
            rstd = guarded.array(1 / np.sqrt(m2 / count + 1e-5), first)
        out = guarded.array(np.full_like(x, np.nan), first)
        x, weight, bias, dy = among
        lnfast.moments(x, shift=mean)
        expected = lnfast.normalize(x, mean.copy(), rstd.copy(), weight, bias)
        lnfast.normalize(x, mean, rstd, weight, bias, shift=None, out=out)
        assert bits([out]) == bits([expected])
        h, h_xhat = (
            guarded.array(a, first) for a in lnfast.backward_sums(dy, x, mean, rstd, weight)[:2]
        )
        lnfast.backward_apply(dy, x, mean, rstd, weight, h, h_xhat, count, shift=mean, out=out)
        record = lnfast.LayerNormCache(x, cols, weight, mean, rstd)
        expected = lnfast.layer_norm_jvp(dy, record, weight, bias)
        lnfast.layer_norm_jvp(dy, record, weight, bias, out=out)
        assert bits([out]) == bits([expected])
        lnfast.layer_norm_double_backward(out, weight, bias, dy, record)
        guarded.rooms.clear()


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages through mprotect")
@pytest.mark.parametrize("isa", lnfast.config()["isa_available"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_guard_pages(isa, dtype):
    """In a process of its own: an access past an array is a crash there, and a failure here."""
    start = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
    start += "import faulthandler, numpy, test_pieces_bits as t; faulthandler.enable()\n"
    start += f"for first in (False, True): t.run_between_guards(numpy.{dtype}, first)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", start],
        env={**os.environ, "LNFAST_ISA": isa},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
