"""Runs for the tests of threads and processes: both directions as bytes, and a new interpreter."""

import ctypes.util
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from norms import NORMS, Norm

import lnfast

BIG = 512, 768  # far above the size from which a second thread is woken
# A call of each way that work is split: many blocks of rows; few, each a part of a row block;
# long rows by columns, in one band; and too small for a second thread or for letting others run.
SHAPES = BIG, (2048, 64), (9, 40_000), (5, 100)

OPENMP = lnfast.config()["openmp"]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for it")
needs_openmp = pytest.mark.skipif(not OPENMP, reason="built without OpenMP: there is one thread")
needs_mxcsr = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64" or not ctypes.util.find_library("m"),
    reason="sets MXCSR through glibc",
)


def draw(seed=0, shape=BIG, dtype=np.float32):
    """x and dy."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, *shape)).astype(dtype)


def run(x, dy, **threads):
    """The bits of y, dx, dweight and dbias, of both norms."""
    results = []
    for norm in map(Norm, NORMS):
        y, cache = norm.forward(x, x.shape[1], **threads)
        results += [y, *norm.backward(dy, cache, **threads)]
    return b"".join(a.tobytes() for a in results)


def run_seed(seed):
    """For a pool of workers."""
    return run(*draw(seed))


def in_fresh_python(code, *flags, timeout=60, cwd=None, **environment):
    """What `code` prints in a new interpreter, which must end well and without a word."""
    done = fresh_python(code, *flags, timeout=timeout, cwd=cwd, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def fresh_python(code, *flags, timeout=60, cwd=None, **environment):
    """A new interpreter that has run `code`: how it ended, and what it said."""
    variables = {**os.environ, **environment}  # None: unset
    return subprocess.run(
        [sys.executable, "-P", *flags, "-c", textwrap.dedent(code)],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
    )


def shared_library(source, folder, *flags):
    """`source` compiled by the compiler that lnfast itself is from, as far as it is here."""
    compiler = "clang" if "clang" in lnfast.config()["compiler"].lower() else "gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    library = folder / f"{source.stem}.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", *flags, str(source), "-o", str(library)], check=True
    )
    return library
