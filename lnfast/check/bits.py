"""The bits of this version: digests of results, the same on every machine, which golden.txt keeps.

The inputs come from a generator's integers by exact steps, so that no library has a say in them.
"""

import hashlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import lnfast
from lnfast.check.families import Array

GOLDEN = Path(__file__).with_name("golden.txt")
DTYPES = ("float32", "float64")
# Every tail of the 32-element tree and of a step of 64, the chunk of 4096 and its neighbours, rows
# so long that backward goes by columns.
COLUMNS = (*range(1, 67), 96, 97, 127, 128, 129, 768, 1001, 4095, 4096, 4097, 4128, 8195, 16389)
# Around strips of 4, groups of 8, blocks of 32 rows; taken in turn.
ROWS = (1, 3, 4, 5, 8, 9, 31, 32, 33, 69)
# Kinds of rows, in turn: ordinary, with a tiny dy, huge, ordinary, subnormal, far off, constant
KINDS = 7
THREADS = (1, 2, 3, 16)


class Operands(NamedTuple):
    x: Array
    weight: Array
    bias: Array
    dy: Array


def shapes() -> Iterator[tuple[int, int]]:
    for i, cols in enumerate(COLUMNS):
        yield ROWS[i % len(ROWS)], cols


def draw(rows: int, cols: int, dtype: str) -> Operands:
    """Rows of every kind that has a way of its own through the kernels, side by side."""
    generator = np.random.PCG64([rows, cols])

    def numbers(*shape: int) -> Array:
        """In [−1, 1), steps of 2⁻⁵²."""
        raw = generator.random_raw(int(np.prod(shape))).reshape(shape)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1

    x, dy = numbers(rows, cols), numbers(rows, cols)
    parameters = numbers(2, cols)
    huge, tiny = (2.0**100, 2.0**-135) if dtype == "float32" else (2.0**1000, 2.0**-1040)
    x[2::KINDS] *= huge
    x[4::KINDS] *= tiny
    x[5::KINDS] += 2.0**17
    x[6::KINDS] = x[6::KINDS, :1]
    dy[1::KINDS] *= tiny
    return Operands(*(a.astype(dtype) for a in (x, *parameters, dy)))


def layer_norm(operands: Operands, num_threads: int | None = None) -> dict[str, Array | None]:
    x, weight, bias, dy = operands
    y, cache = lnfast.layer_norm_forward(x, weight.shape, weight, bias, num_threads=num_threads)
    dx, dweight, dbias = lnfast.layer_norm_backward(dy, cache, num_threads=num_threads)
    return dict(y=y, mean=cache.mean, rstd=cache.rstd, dx=dx, dweight=dweight, dbias=dbias)


def rms_norm(operands: Operands, num_threads: int | None = None) -> dict[str, Array | None]:
    x, weight, _, dy = operands
    y, cache = lnfast.rms_norm_forward(x, weight.shape, weight, num_threads=num_threads)
    dx, dweight = lnfast.rms_norm_backward(dy, cache, num_threads=num_threads)
    return dict(y=y, rstd=cache.rstd, dx=dx, dweight=dweight)


# What a line begins with. What is added comes after what is there.
NORMS = {"": layer_norm, "rms_norm ": rms_norm}


def digest(array: Array | None) -> str:
    """Of all the bits, in which every NaN is one NaN, and the byte order is the little one."""
    assert array is not None  # all were asked for
    plain = np.where(np.isnan(array), np.nan, array).astype(array.dtype.newbyteorder("<"))
    return hashlib.blake2b(plain.tobytes(), digest_size=6).hexdigest()


def lines(num_threads: int | None = None) -> Iterator[str]:
    """A line for each norm, dtype and shape, with a digest for each result."""
    for head, norm in NORMS.items():
        for dtype, (rows, cols) in product(DTYPES, shapes()):
            found = norm(draw(rows, cols, dtype), num_threads)
            digests = " ".join(f"{name}={digest(array)}" for name, array in found.items())
            yield f"{head}{dtype} {rows}x{cols} {digests}"


def golden() -> list[str]:
    return GOLDEN.read_text(encoding="ascii").splitlines()


def differences(found: list[str], expected: list[str]) -> Iterator[str]:
    """Where the bits differ: norm, dtype, shape, and the names of the results."""
    for mine, theirs in zip(found, expected, strict=True):
        if mine != theirs:
            fields = list(zip(mine.split(), theirs.split(), strict=True))
            names = [
                mine_field.split("=")[0] for mine_field, field in fields if mine_field != field
            ]
            yield f"{mine.partition(' y=')[0]}: {', '.join(names)}"


if __name__ == "__main__":
    for threads in THREADS:
        print(*lines(threads), sep="\n")
