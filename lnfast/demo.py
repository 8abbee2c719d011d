"""What `lnfast demo` shows: one row worked through, what is normalised with what, and a race."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lnfast
from lnfast import bench, reference
from lnfast.bench.cells import DIRECTIONS, EPS, Operands
from lnfast.bench.peers import PEERS, Peer
from lnfast.bench.table import microseconds
from lnfast.machine import describe, look_around

Array = NDArray[Any]

RACE_SHAPE = (8, 128, 768)  # sentences, tokens, features
RACE_SECONDS = 0.8  # for each direction
RACERS = [PEERS[name] for name in ("lnfast", "numpy", "pytorch")]
OFFSET = 10_000

TOKEN_OR_SENTENCE = (
    "   On the left every token stands by itself: 1 2 3 4 comes out the same in both sentences,",
    "   and the padding (0 0 0 0) harms nobody. This is what transformers do. On the right each",
    "   sentence is one group: its loud token drowns the others, and padding counts.",
)
UNITS_OF_ERRORS = (
    "   Errors of y are in eps · (|weight| · max(1, |xhat|) + |bias|), eps = 1.2e-7; those",
    "   of gradients in the like sums of their terms. lnfast promises 3, 4, 4, 2, for every x.",
)


def run() -> None:
    for section in (one_row, token_or_sentence, race):
        for line in section():
            print(line, flush=True)


def one_row() -> Iterator[str]:
    """A row of three, forward and backward, with everything in between."""
    x, weight, bias = np.array([[1.0, 2, 3], [1, 2, 3], [0, 1, -1]])
    dy, eps = np.array([1.0, -1, 2]), 1 / 3
    y, cache = lnfast.layer_norm_forward(x, 3, weight, bias, eps)
    dx, dweight, dbias = lnfast.layer_norm_backward(dy, cache)
    mean, rstd = cache.mean, cache.rstd
    xhat = (x - mean) * rstd
    h = dy * weight
    yield "1. One row, forward and backward"
    yield ""
    for name, values, formula in (
        ("x", x, ""),
        ("weight", weight, ""),
        ("bias", bias, ""),
        ("eps", eps, ""),
        ("", None, ""),
        ("mean", mean, "Σ x / D"),
        ("var", np.square(x - mean).mean(), "Σ (x - mean)² / D"),
        ("rstd", rstd, "1 / √(var + eps)"),
        ("xhat", xhat, "(x - mean) · rstd"),
        ("y", y, "xhat · weight + bias"),
        ("", None, ""),
        ("dy", dy, "∂loss/∂y, from the layer above"),
        ("h", h, "dy · weight"),
        ("mean(h)", h.mean(), ""),
        ("mean(h·xhat)", (h * xhat).mean(), ""),
        ("dx", dx, "rstd · (h - mean(h) - xhat · mean(h·xhat))"),
        ("dweight", dweight, "Σ dy · xhat, over the rows"),
        ("dbias", dbias, "Σ dy, over the rows"),
    ):
        numbers = "" if values is None else "".join(f"{fraction(v):>8}" for v in np.ravel(values))
        yield f"   {name:12}{numbers:30}{formula}".rstrip()
    yield ""


def token_or_sentence() -> Iterator[str]:
    """The same batch with the statistics of each token, and with those of each sentence."""
    x = np.array(
        [
            [[1.0, 2, 3, 4], [10, 20, 30, 40], [5, 5, 5, 5]],
            [[1.0, 2, 3, 4], [0, 0, 2, 2], [0, 0, 0, 0]],
        ]
    )
    y_token, token = lnfast.layer_norm_forward(x, 4)
    y_sentence, sentence = lnfast.layer_norm_forward(x, (3, 4))
    yield "2. Token or sentence: x has 2 sentences of 3 tokens of 4 features"
    yield ""
    yield f"{'':24}normalized_shape = 4{'':20}normalized_shape = (3, 4)"
    yield (f"   {'x':17}" + f"{'mean':>6}{'var':>8}   {'y':23}" * 2).rstrip()
    for i, j in np.ndindex(2, 3):
        of_sentence = f"{'':14}"
        if j == 0:
            of_sentence = statistics(sentence.mean[i].item(), x[i])
        yield (
            f"   {row(x[i, j], 3, 0):17}{statistics(token.mean[i, j].item(), x[i, j])}"
            f"   {row(y_token[i, j], 5, 1):23}{of_sentence}   {row(y_sentence[i, j], 5, 1)}"
        )
        if (i, j) == (0, 2):
            yield ""
    yield ""
    yield f"   {'shape of mean, rstd':20}{token.mean.shape!s:40}{sentence.mean.shape}"
    yield ""
    yield from TOKEN_OR_SENTENCE
    yield ""


def race() -> Iterator[str]:
    """Times and errors of lnfast and whoever is there, at the size of a transformer's layer."""
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal(RACE_SHAPE, np.float32) for _ in range(2))
    weight, bias = (rng.standard_normal(RACE_SHAPE[-1], np.float32) for _ in range(2))
    operands = Operands(x, dy, weight, bias)
    peers = bench.present(RACERS)
    threads = lnfast.get_num_threads()
    yield f"3. A transformer's layer: {' × '.join(map(str, RACE_SHAPE))}, float32"
    yield ""
    for line in describe(look_around(peers, threads)):
        yield f"   {line}"
    yield ""
    yield f"   {'':10}{'forward':>14}{'backward':>22}{'':10}largest error, in machine epsilons"
    yield (
        f"   {'':8}" + f"{'µs':>9}{'× lnfast':>11}" * 2 + f"{'y':>11}{'dx':>10}{'dweight':>10}"
        f"{'dbias':>10}"
    )
    with ExitStack() as stack:
        for peer in peers:
            stack.enter_context(peer.on_threads(threads))
        times = [timed(peers, direction, operands) for direction in DIRECTIONS]
        errors = largest_errors(peers, operands)
        for peer in peers:
            columns = "".join(
                f"{microseconds(median(t[peer.name])):>9}{beside(peer, t)}" for t in times
            )
            yield f"   {peer.name:8}{columns} {''.join(map(digits, errors[peer.name]))}"
        yield ""
        yield f"   The same with {OFFSET:,} added to x:"
        operands = Operands(x + np.float32(OFFSET), dy, weight, bias)
        errors = largest_errors(peers, operands)
        for peer in peers:
            yield f"   {peer.name:49}{''.join(map(digits, errors[peer.name]))}"
    yield ""
    yield from UNITS_OF_ERRORS
    for peer in RACERS:
        if reason := peer.missing():
            yield f"   {peer.name} would be here too, but {reason}."


def timed(peers: Sequence[Peer], direction: str, operands: Operands) -> dict[str, list[float]]:
    calls = {peer.name: bench.prepare(peer, direction, operands) for peer in peers}
    return bench.take_turns({name: call for name, call in calls.items() if call}, RACE_SECONDS)


def largest_errors(peers: Sequence[Peer], operands: Operands) -> dict[str, list[float]]:
    """Of y, dx, dweight and dbias, in the measure of the bounds that lnfast promises."""
    x, dy, weight, bias = (
        a.astype(np.float64) for a in (operands.x, operands.dy, operands.weight, operands.bias)
    )
    y, cache = reference.layer_norm_forward(x, x.shape[-1], weight, bias, EPS)
    exact = (y, *reference.layer_norm_backward(dy, cache))
    m = np.maximum(1, np.abs((x - cache.mean) * cache.rstd))
    h = np.abs(dy * weight)
    lead = tuple(range(x.ndim - 1))
    mean_h, mean_h_m = (a.mean(axis=-1, keepdims=True) for a in (h, h * m))
    units = (
        np.abs(weight) * m + np.abs(bias),
        cache.rstd * (h + mean_h + m * mean_h_m),
        (np.abs(dy) * m).sum(axis=lead),
        np.abs(dy).sum(axis=lead),
    )
    epsilon = np.finfo(operands.x.dtype).eps
    errors = {}
    for peer in peers:
        results: list[Array] = []
        for direction in DIRECTIONS:
            call = bench.prepare(peer, direction, operands)
            results += peer.arrays(call()) if call else []
        errors[peer.name] = [
            float(np.max(np.abs(got - want) / (epsilon * unit)))
            for got, want, unit in zip(results, exact, units, strict=True)
        ]
    return errors


def beside(peer: Peer, times: dict[str, list[float]]) -> str:
    """The time of a peer over that of lnfast, as a column."""
    if peer.name == "lnfast":
        return f"{'':11}"
    return f"{bench.ratio(times[peer.name], times['lnfast']):11.1f}"


def statistics(mean: float, x: Array) -> str:
    return f"{mean:6.2f}{x.var():8.2f}"


def row(values: Array, width: int, places: int) -> str:
    return "".join(f"{round(v, places) + 0.0:{width}.{places}f}" for v in values.tolist())


def fraction(value: float) -> str:
    """2.6666666666666665 as 8/3."""
    near = Fraction(value).limit_denominator(99)
    return str(near) if abs(near - value) < 1e-12 else f"{value:.6g}"


def digits(value: float) -> str:
    return f"{value:10,.0f}" if value >= 100 else f"{value:10.2f}"
