"""C: plain loops for the norms on one thread, and copies on all, compiled when first needed."""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lnfast.bench.peers.numpy_formula import rms_statistic, statistics
from lnfast.bench.peers.peer import PARALLEL_ELEMENTS, Array, Call, Peer

FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
REALS = {"float32": "float", "float64": "double"}

POINTER, SIZE = ctypes.c_void_p, ctypes.c_ssize_t
ARGUMENTS = {
    "forward": (*[POINTER] * 3, SIZE, SIZE, ctypes.c_double, POINTER),
    "backward": (*[POINTER] * 5, SIZE, SIZE, *[POINTER] * 3),
    "rms_forward": (*[POINTER] * 2, SIZE, SIZE, ctypes.c_double, POINTER),
    "rms_backward": (*[POINTER] * 4, SIZE, SIZE, *[POINTER] * 2),
    "copy": (POINTER, SIZE, ctypes.c_int, POINTER),
    "copy_streaming": (POINTER, SIZE, ctypes.c_int, POINTER),
    "add": (POINTER, POINTER, SIZE, ctypes.c_int, POINTER),
    "add_streaming": (POINTER, POINTER, SIZE, ctypes.c_int, POINTER),
}


class Compiled(Peer):
    """What is compiled from loops.c."""

    module, package = "ctypes", "cc"

    def missing(self, num_threads: int | None = None) -> str | None:
        name = compiler()[0]
        if shutil.which(name) is None:
            return f"the compiler {name} is not installed"
        return problem_with(name)

    def version(self) -> str:
        answer = subprocess.run([*compiler(), "--version"], capture_output=True, text=True)
        number = re.search(r"\d+\.\d+(\.\d+)?", answer.stdout)
        return f"{compiler()[0]} {number[0] if number else ''}".rstrip()


class CLoops(Compiled):
    """Row by row, element by element, on one thread."""

    name = "C"

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        return prepare_forward("forward", eps, x, weight, bias)

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        return prepare_backward("backward", 2, dy, x, weight, *statistics(x, eps))

    def rms_forward(self, x: Array, weight: Array, eps: float) -> Call:
        return prepare_forward("rms_forward", eps, x, weight)

    def rms_backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        return prepare_backward("rms_backward", 1, dy, x, weight, rms_statistic(x, eps))


class CCopy(Compiled):
    """x copied, or x and dy read and their sum written, on all threads."""

    name = "copy (C)"
    is_copy = True
    functions = ("copy", "add")

    def forward(self, x: Array, weight: Array, bias: Array, eps: float) -> Call:
        return self._call(self.functions[0], x)

    def backward(self, dy: Array, x: Array, weight: Array, eps: float) -> Call:
        return self._call(self.functions[1], x, dy)

    def _call(self, name: str, *inputs: Array) -> Call:
        function = getattr(library(inputs[0].dtype.name), name)
        size = inputs[0].size
        num_threads = self.num_threads if size >= PARALLEL_ELEMENTS else 1
        arguments = (*map(address, inputs), size, num_threads)
        return partial(write_new, inputs[0], function, arguments)


class CStreamingCopy(CCopy):
    """The same with stores past the caches."""

    name = "copy (C, streaming)"
    functions = ("copy_streaming", "add_streaming")


def prepare_forward(name: str, eps: float, x: Array, *parameters: Array) -> Call:
    function = getattr(library(x.dtype.name), name)
    cols = x.shape[-1]
    arguments = (*map(address, (x, *parameters)), x.size // cols, cols, eps)
    return partial(write_new, x, function, arguments)


def prepare_backward(
    name: str, count: int, dy: Array, x: Array, weight: Array, *statistics: Array
) -> Call:
    """A call that returns dx and the gradients of so many parameters."""
    function = getattr(library(x.dtype.name), name)
    cols = x.shape[-1]
    arguments = (*map(address, (dy, x, weight, *statistics)), x.size // cols, cols)

    def call() -> tuple[Array, ...]:
        results = (np.empty_like(x), *(np.zeros_like(weight) for _ in range(count)))
        function(*arguments, *(a.ctypes.data for a in results))
        return results

    return call


def write_new(like: Array, function: Any, arguments: tuple[Any, ...]) -> Array:
    array = np.empty_like(like)
    function(*arguments, array.ctypes.data)
    return array


def address(array: Array) -> ctypes.c_void_p:
    """For C; the array lives as long as its address."""
    return array.ctypes.data_as(ctypes.c_void_p)


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


@cache
def problem_with(name: str) -> str | None:
    """Why this compiler cannot make the loops, or None."""
    try:
        for dtype in REALS:
            library(dtype)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{name} cannot compile its loops ({error})"
    return None


@cache
def library(dtype: str) -> Any:
    """loops.c compiled for a dtype and loaded."""
    source = Path(__file__).with_name("loops.c")
    with TemporaryDirectory() as folder:
        target = Path(folder, f"loops_{dtype}.so")
        command = [*compiler(), *FLAGS, f"-DREAL={REALS[dtype]}", str(source), "-o", str(target)]
        subprocess.run([*command, "-lm"], check=True, capture_output=True)
        loaded = ctypes.CDLL(str(target))  # and stays when the folder goes
    for function, arguments in ARGUMENTS.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = None
    return loaded
