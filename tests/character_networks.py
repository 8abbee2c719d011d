"""What is tested of every character network of examples/: gradients, causality, how it runs.

The tests of examples import from here first: examples import each other by name.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.append(str(EXAMPLES))

for package in ("matplotlib", "threadpoolctl", "tqdm"):
    pytest.importorskip(package, reason=f"{package} is missing: pip install 'lnfast[examples]'")

from causality import changed_past  # noqa: E402
from network import cross_entropy  # noqa: E402
from training import train  # noqa: E402

CHARACTERS = 11  # different ones
STEP = 2.0**-12  # of the differences

# How far a quotient of differences may be off. Rounding: a loss, about 3, is a mean of numbers at
# the end of some 100 roundings, and enters 18 / 12 times over STEP. Taylor's rest: STEP^4 / 30
# times the fifth derivative along a unit vector; between steps of 2^-6 and 2^-12 the errors fall as
# STEP^4 and put it at 3e5 where it is largest, in layer norm of a row with little variance.
TOLERANCE = 1.5 * 3 * 100 * np.finfo(float).eps / STEP + STEP**4 / 30 * 1e6


def draw(*shape, seed=1):
    return np.random.default_rng(seed).integers(CHARACTERS, size=shape)


def parameters(network):
    return [values for layer in network.layers for values in layer.parameters()]


def assert_gradients(network, batch, time):
    """Every parameter's gradient along a random direction, against differences of the loss.

    The network is in float64; its parameters are moved to where none of them starts.
    """
    rng = np.random.default_rng(5)
    characters, labels = draw(batch, time), draw(batch, time, seed=2)
    for _, parameter, _ in parameters(network):
        parameter += 0.3 * rng.standard_normal(parameter.shape)
    scores, cache = network.forward(characters)
    network.backward(cross_entropy(scores, labels)[1], cache)

    def loss_at(parameter, kept, shift):
        parameter[...] = kept + shift
        loss, _ = cross_entropy(network.forward(characters)[0], labels)
        parameter[...] = kept
        return loss

    slopes, errors = [], []
    for _, parameter, gradient in parameters(network):
        direction = rng.standard_normal(parameter.shape)
        direction /= np.linalg.norm(direction)
        kept = parameter.copy()
        # f' = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h
        near, far = (
            loss_at(parameter, kept, n * STEP * direction)
            - loss_at(parameter, kept, -n * STEP * direction)
            for n in (1, 2)
        )
        slopes.append((8 * near - far) / (12 * STEP))
        errors.append(abs((gradient * direction).sum() - slopes[-1]))
    assert min(map(abs, slopes)) > 1000 * TOLERANCE  # a gradient of 0 would be noticed
    assert max(errors) <= TOLERANCE, errors


def assert_gradients_add_up(network):
    """backward adds into the gradients: what two calls leave is the sum of what each leaves."""
    passes = []
    for seed in (1, 2):
        scores, cache = network.forward(draw(2, 5, seed=seed))
        passes.append((cross_entropy(scores, draw(2, 5, seed=3))[1], cache))
    each = []
    for dscores, cache in passes:
        for _, _, gradient in parameters(network):
            gradient[...] = 0
        network.backward(dscores, cache)
        each.append([gradient.copy() for _, _, gradient in parameters(network)])
    network.backward(*passes[0])  # a cache serves again
    for (_, _, both), first, second in zip(parameters(network), *each, strict=True):
        np.testing.assert_allclose(both, first + second, rtol=1e-12, atol=1e-15)


def assert_causal(network, batch, time):
    """No bit of a score depends on a later character, wherever the future begins."""
    characters = draw(batch, time)
    scores, _ = network.forward(characters)
    for t in range(1, time):
        others = characters.copy()
        others[:, t:] = (others[:, t:] + 1) % CHARACTERS
        changed, _ = network.forward(others)
        assert changed[:, :t].tobytes() == scores[:, :t].tobytes()
        assert (changed[:, t] != scores[:, t]).any()
    changed, count = changed_past(network, characters, np.random.default_rng(3))
    assert (changed, count) == (0, batch * (time // 2) * CHARACTERS)


def assert_paired(networks):
    """All of {name: network} begin with the same bits, but for what begins as zeros or ones."""
    started = [
        [p for _, p, _ in parameters(network) if not (p == 0).all() and not (p == 1).all()]
        for network in networks.values()
    ]
    for others in started[1:]:
        for one, other in zip(started[0], others, strict=True):
            assert one.tobytes() == other.tobytes()


def assert_repeatable(build, text):
    """Training from the same seed gives the same losses to the bit, and another seed others."""
    losses = []
    for seed in (0, 0, 1):
        curves = train(build(seed), text, 4, 32, seed, 10, 2e-3, 1.0)
        losses.append([(c.train.tobytes(), c.test.tobytes()) for c in curves.values()])
        for curve in curves.values():
            assert curve.steps.tolist() == [5, 10]
            assert curve.train[1] < curve.train[0]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def run_short(program, folder):
    """The lines of `python examples/program --short --plot curves.png`, run in a folder."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / program, "--short", "--plot", "curves.png"],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    picture = (folder / "curves.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) > 10_000
    lines = done.stdout.splitlines()
    assert lines[-1] == "drawn: curves.png"
    return lines


def assert_prints_causality(lines, names):
    """No score changes, but in the last line, where it is normalised over time."""
    changed = [line.split(":")[1].split(" of ") for line in lines[1:]]
    assert [line.split(":")[0].strip() for line in lines[1:]] == [*names, "over time"]
    assert [count.strip() for count, _ in changed[:-1]] == ["0"] * len(names)
    some, of = (int(count.replace(",", "")) for count in changed[-1])
    assert 0.99 * of < some <= of
