"""No access past an array: each argument ends where readable memory ends, at every tail length.

First through the functions, then the kernels themselves, which are told that small arrays lie far
away, and whose sums, constants and results, the library's own memory otherwise, are guarded too.
"""

import ctypes
import itertools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from guarded import Guarded

import lnfast
from lnfast import _api


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
        expected, _ = lnfast.rms_norm_forward(x, cols, weight)
        found_y, found = lnfast.rms_norm_forward(g_x, cols, g_weight, out=out)
        assert found_y.tobytes() == expected.tobytes()
        found = found._replace(weight=g_weight, rstd=guarded.array(found.rstd, first))
        expected = lnfast.rms_norm_backward(dy, found)
        gradients = lnfast.rms_norm_backward(g_dy, found, out=out)
        for a, b in zip(gradients, expected, strict=True):
            assert a.tobytes() == b.tobytes()
        guarded.rooms.clear()


# The kernels: src/kernels.h

POINTER, SIZE, FLAG = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int


class Kernels(ctypes.Structure):
    _fields_ = [
        (name, ctypes.CFUNCTYPE(None, *arguments))
        for name, arguments in {
            "forward": [*[POINTER] * 3, *[SIZE] * 3, ctypes.c_double, FLAG, *[POINTER] * 3],
            "backward": [*[POINTER] * 5, *[SIZE] * 3, FLAG, *[POINTER] * 2],
            "constants": [*[POINTER] * 5, *[SIZE] * 3, FLAG, FLAG, POINTER],
            "columns": [*[POINTER] * 4, *[SIZE] * 4, FLAG, FLAG, *[POINTER] * 4],
            "fold": [POINTER, *[SIZE] * 4, *[POINTER] * 2],
        }.items()
    ] + [("planes", FLAG), ("group", FLAG), ("constants_size", ctypes.c_size_t)]


LAYER_NORM, RMS_NORM = range(2)


def kernels_of(dtype, norm=LAYER_NORM):
    find = ctypes.CDLL(_api.__file__).ln_rows_of
    find.restype = ctypes.POINTER(Kernels)
    return find(norm, int(dtype is np.float64)).contents


NEAR, IN_MEMORY = 0, 2
# Tails of all registers and trees; a tile, a span, a page of columns and what is longer.
COLUMNS = [*range(1, 70), 127, 129, 255, 256, 257, 512, 1001, 1024, 4097]
# Strips in part, a whole one and a part, more than a group and two blocks.
ROWS = (1, 3, 6, 9)
# Which of weight, bias, dx, and the sums of dweight and dbias there are.
PRESENT = ((1, 1, 1, 1), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 1, 0))


def inputs(dtype, rows, cols):
    x, dy = np.random.default_rng(cols).standard_normal((2, rows, cols)).astype(dtype)
    x[rows // 2] *= dtype(1e30)  # one row goes the exact way
    return {"x": x, "dy": dy, "weight": dy[0].copy(), "bias": x[0].copy()}


def outputs(kernels, dtype, rows, cols):
    """Poisoned: what is not written shows."""
    shapes = {"y": (rows, cols), "dx": (rows, cols), "dweight": cols, "dbias": cols}
    shapes |= {f"columns_{name}": shapes[name] for name in ("dx", "dweight", "dbias")}
    arrays = {name: np.full(shape, np.nan, dtype) for name, shape in shapes.items()}
    bands = -(-rows // kernels.group) * kernels.constants_size // 8
    shapes = {"mean": rows, "rstd": rows, "constants": bands}
    shapes |= {"sums": (2, kernels.planes, cols), "columns_sums": (kernels.planes, cols)}
    return arrays | {name: np.full(shape, np.nan) for name, shape in shapes.items()}


def run_kernels(kernels, rows, cols, far, a):
    """Every kernel: rows in two blocks, columns in two ranges, with sums and without."""
    p = {name: None if array is None else array.ctypes.data for name, array in a.items()}
    middle = cols // 3
    parameters = p["weight"], p["bias"]
    kernels.forward(p["x"], *parameters, 0, rows, cols, 1e-5, far, p["y"], p["mean"], p["rstd"])
    given = p["x"], p["dy"], p["weight"], p["mean"], p["rstd"]
    blocks = [(0, min(rows, 4)), (4, rows)][: 1 + (rows > 4)]
    for (first, last), sums in zip(blocks, a["sums"] if p["sums"] else (None, None), strict=False):
        sums = None if sums is None else sums.ctypes.data
        kernels.backward(*given, first, last, cols, far, p["dx"], sums)
    kernels.constants(*given, 0, rows, cols, far, p["dx"] is not None, p["constants"])
    for first, last in ((0, middle), (middle, cols)):
        if p["sums"]:
            kernels.fold(p["sums"], len(blocks), first, last, cols, p["dweight"], p["dbias"])
        span = *given[:3], p["constants"], rows, first, last, cols, far
        results = p["columns_dweight"], p["columns_dbias"]
        kernels.columns(*span, 0, p["columns_dx"], None, *(results if p["sums"] else (None, None)))
        if p["sums"]:
            kernels.columns(*span, 1, None, p["columns_sums"], None, None)


def run_kernels_between_guards(dtype, norm):
    kernels, guarded = kernels_of(dtype, norm), Guarded()
    names = "weight", "bias", "dx", "sums"
    for cols, rows in itertools.product(COLUMNS, ROWS):
        if cols > 300 and rows in (3, 6):
            continue
        results = outputs(kernels, dtype, rows, cols)
        whole = inputs(dtype, rows, cols) | results
        for present in PRESENT:
            absent = [name for name, there in zip(names, present, strict=True) if not there]
            absent += ["columns_dx"] if "dx" in absent else []
            absent += ["mean"] if norm == RMS_NORM else []
            source = whole | dict.fromkeys(absent)
            plain = {k: v if v is None else v.copy() for k, v in source.items()}
            run_kernels(kernels, rows, cols, NEAR, plain)
            if "sums" not in absent:
                assert not any(np.isnan(plain[k]).any() for k in ("dweight", "columns_dbias"))
            for first, far in ((False, NEAR), (False, IN_MEMORY), (True, IN_MEMORY)):
                among = {k: v if v is None else guarded.array(v, first) for k, v in source.items()}
                run_kernels(kernels, rows, cols, far, among)
                for name in results.keys() - {*absent, "constants"}:
                    assert among[name].tobytes() == plain[name].tobytes(), (name, cols, rows)
                guarded.rooms.clear()


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages through mprotect")
@pytest.mark.parametrize("isa", lnfast.config()["isa_available"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "calls",
    [
        """
        for rows in (1, 6):
            for first in (False, True):
                test_memory.run_between_guards(numpy.DTYPE, rows, first)
        """,
        "test_memory.run_kernels_between_guards(numpy.DTYPE, test_memory.LAYER_NORM)",
        "test_memory.run_kernels_between_guards(numpy.DTYPE, test_memory.RMS_NORM)",
    ],
    ids=["functions", "kernels", "rms kernels"],
)
def test_guard_pages(isa, dtype, calls):
    """In a process of its own: an access past an array is a crash there, and a failure here."""
    start = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
    start += "import faulthandler, numpy, test_memory; faulthandler.enable()\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", start + textwrap.dedent(calls).replace("DTYPE", dtype)],
        env={**os.environ, "LNFAST_ISA": isa},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


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
        poisoned = np.full_like(x, np.nan)
        y, record = lnfast.rms_norm_forward(x, cols, out=poisoned)
        assert y is poisoned and np.isfinite(y).all()
        poisoned = np.full_like(x, np.nan)
        dx, dweight = lnfast.rms_norm_backward(dy, record, out=poisoned)
        assert dx is poisoned and np.isfinite(dx).all() and np.isfinite(dweight).all()
