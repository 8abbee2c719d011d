"""Writes docs/accuracy.md: the errors of lnfast and its peers on every family of rows.

    python -P docs/accuracy.py

Needs `pip install '.[peers]' torch==2.13.0`; takes some five minutes, most of them the search.
"""

import argparse
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from tqdm import tqdm

import lnfast
from lnfast.bench.peers import PEERS, Peer
from lnfast.check import bounds, search
from lnfast.check.bounds import BOUNDS, BOUNDS_OF, Case
from lnfast.check.families import FAMILIES, Array

PAGE = Path(__file__).with_name("accuracy.md")
DTYPES = ("float32", "float64")
PEER_NAMES = ("lnfast", "pytorch", "onnxruntime", "numpy")
SHAPES = ((37, 3), (37, 65), (6, 768), (6, 4097))
EPS = 2.0**-17  # ONNX Runtime knows it in float32 only

HEAD = """\
# Accuracy

What stands here is what `python -P docs/accuracy.py` found, with {versions}, at {isa}.
lnfast's numbers are the same on every machine, instruction set and number of threads, as its bits
are; the others' are not.

Errors are in machine epsilons (float32: 1.2e-7, float64: 2.2e-16), in the scales of the promised
bounds, with `m = max(1, |xhat|)` and `h = dy · weight`:

| result | the error, divided by machine epsilon times | lnfast promises at most |
| --- | --- | ---: |
| y | \\|weight\\| · m + \\|bias\\| | 3 |
| dx | rstd · (\\|h\\| + mean\\|h\\| + m · mean(\\|h\\| · m)) | 4 |
| dweight | Σ \\|dy\\| · m, over the rows | 4 |
| dbias | Σ \\|dy\\|, over the rows | 2 |

(plus one subnormal step of the dtype). RMSNorm's xhat is x · rstd; its y is within 3 epsilons of
itself, its dx and dweight are within the same bounds, dx even without mean|h|.
`lnfast/check/oracle.py` judges; what it may be off by itself is derived there, at most 1/128 of
what float64 is allowed, and `tests/test_oracle.py` holds it against 60 digits of mpmath.

## Every family of rows

The largest error over {shapes} (rows × elements), eps 2⁻¹⁷, which float32 can hold, weight and bias
of ordinary size. ∞ is NaN or infinity where there is a finite result. What a family is stands in
`lnfast/check/families.py`; `pytest tests/test_exactness.py` and `lnfast check --full` try them in
22 lengths and with three eps.
"""
SEARCH = """
## The worst that was found

A search (`lnfast/check/search.py`) starts from {starts} families in {sizes} lengths from 2 to 130,
{candidates} candidates each, changes them a little, {rounds} times, and keeps what is worse. Beside
it what all families come to, in 22 lengths and with three eps:

| norm | dtype | result | families | search | promised | used | found from |
| --- | --- | --- | ---: | ---: | ---: | ---: | --- |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300, help="of the search (default: 300)")
    rounds = parser.parse_args().rounds
    peers = [PEERS[name] for name in PEER_NAMES]
    for peer in peers:
        if reason := peer.missing():
            parser.error(reason)
    PAGE.write_text("\n".join(page(peers, rounds)) + "\n", encoding="utf-8")


def page(peers: list[Peer], rounds: int) -> Iterator[str]:
    yield HEAD.format(
        versions=", ".join(f"{peer.name} {peer.version()}" for peer in peers),
        isa=lnfast.config()["isa"],
        shapes=", ".join(f"{rows}×{cols}" for rows, cols in SHAPES),
    )
    for dtype in DTYPES:
        errors = {family: errors_of(peers, family, dtype) for family in tqdm(FAMILIES, desc=dtype)}
        yield from table(peers, dtype, errors, ["y"])
        yield from table(peers, dtype, errors, ["dx", "dweight", "dbias"])
    yield SEARCH.format(
        starts=len(search.STARTS),
        sizes=len(search.SIZES),
        candidates=search.CANDIDATES,
        rounds=f"{rounds:,}",
    ).rstrip("\n")
    for norm, dtype in product(BOUNDS_OF, DTYPES):
        of_families = worst_of_families(norm, dtype)
        for name, bound in BOUNDS_OF[norm].items():
            climbs = search.search(dtype, name, rounds, norm=norm)
            found = max(tqdm(climbs, f"{norm} {dtype} {name}", search.CLIMBS))
            errors_found = of_families[name][0] * bound, found.share * bound
            yield (
                f"| {norm} | {dtype} | {name} | {errors_found[0]:.2f} | {errors_found[1]:.2f} "
                f"| {bound} | {max(errors_found) / bound:.0%} | {found.start}, {found.size} |"
            )


def errors_of(peers: list[Peer], family: str, dtype: str) -> dict[tuple[str, str], float]:
    """The largest errors by peer and result."""
    errors: dict[tuple[str, str], float] = {}
    for rows, cols in SHAPES:
        x, weight, bias, dy = bounds.operands(Case(family, dtype, rows, cols, EPS))
        for peer in peers:
            with peer.on_threads(1), np.errstate(all="ignore"):
                results = compute(peer, x, weight, bias, dy)
            for name, share in bounds.judge(results, x, weight, bias, dy, EPS).items():
                key = peer.name, name
                errors[key] = max(errors.get(key, 0), share * BOUNDS[name])
    return errors


def compute(
    peer: Peer, x: Array, weight: Array, bias: Array, dy: Array
) -> tuple[Array | None, ...]:
    """A peer's y, dx, dweight and dbias; None for what it does not compute."""
    forward = peer.forward(x, weight, bias, EPS)
    backward = peer.backward(dy, x, weight, EPS)
    y = peer.arrays(forward())[0].copy() if forward else None
    gradients = [a.copy() for a in peer.arrays(backward())] if backward else [None] * 3
    return (y, *gradients)


def table(
    peers: list[Peer],
    dtype: str,
    errors: dict[str, dict[tuple[str, str], float]],
    names: list[str],
) -> Iterator[str]:
    columns = [
        (peer.name, name)
        for name in names
        for peer in peers
        if (peer.name, name) in errors["normal"]
    ]
    yield f"\n### {dtype}: {', '.join(names)}\n"
    yield "| family | " + " | ".join(f"{name}: {peer}" for peer, name in columns) + " |"
    yield "| --- |" + " ---: |" * len(columns)
    for family, found in errors.items():
        yield f"| {family} | " + " | ".join(number(found[column]) for column in columns) + " |"


def number(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.2g}" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def worst_of_families(norm: str, dtype: str) -> dict[str, tuple[float, Case]]:
    worst = bounds.Worst(norm)
    for case in tqdm(list(bounds.cases(dtype, norm=norm)), desc=f"{norm} {dtype} families"):
        x, weight, bias, dy = bounds.operands(case)
        if len(x):
            worst.add(case, bounds.shares(x, weight, bias, dy, case.eps, norm))
    return worst.found


if __name__ == "__main__":
    main()
