"""examples/invariance.py: the table is the paper's, and what is not clear is no entry."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for package in ("matplotlib", "threadpoolctl", "tqdm"):
    pytest.importorskip(package, reason=f"{package} is missing: pip install 'lnfast[examples]'")

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.append(str(EXAMPLES))

import invariance  # noqa: E402

import lnfast  # noqa: E402

CHANGES = [
    "weight matrix re-scaled",
    "weight matrix re-centred",
    "weight vector re-scaled",
    "data set re-scaled",
    "data set re-centred",
    "one case re-scaled",
]
# Ba, Kiros, Hinton 2016, table 1
PAPER = {
    "batch norm": [True, False, True, True, True, False],
    "weight norm": [True, False, True, False, False, False],
    "layer norm": [True, True, False, True, False, True],
}


@pytest.fixture(scope="module")
def entries():
    return invariance.decide_all(range(20))


@pytest.mark.parametrize("norm", PAPER)
@pytest.mark.parametrize("number, change", list(enumerate(CHANGES)), ids=CHANGES)
def test_entry(entries, norm, number, change):
    assert len(entries) == 18
    entry = entries[norm, change]
    assert entry.invariant is PAPER[norm][number]
    assert entry.rounding < 1e-9
    if entry.invariant:
        assert entry.difference <= entry.rounding
    else:
        assert entry.difference >= 0.1


def layer_norm_with(eps):
    def normalize(layer):
        summed = layer.x @ layer.weight
        y = lnfast.layer_norm(summed, weight=layer.gain, bias=layer.bias, eps=eps)
        return y, summed.std(axis=1)

    return normalize


@pytest.mark.parametrize("eps", [1e-8, 1e-5, 1e-3])
def test_neither_rounding_nor_clear(eps):
    # eps is what is not scaled along
    with pytest.raises(ArithmeticError, match="neither rounding .* nor clear"):
        invariance.decide(layer_norm_with(eps), invariance.scale_matrix, range(1))


def test_draws_that_disagree():
    def change(layer, rng):
        return layer if rng.integers(2) else invariance.centre_data(layer, rng)

    with pytest.raises(ArithmeticError, match="stays in 1[0-9] draws, moves in"):
        invariance.decide(layer_norm_with(0), change, range(30))


def test_changes_leave_the_first_layer_alone(entries):
    for change in invariance.CHANGES.values():
        rng = np.random.default_rng(0)
        layer = invariance.draw_layer(rng)
        copies = [array.copy() for array in layer]
        changed = change(layer, rng)
        assert all(map(np.array_equal, layer, copies))
        assert sum(not np.array_equal(a, b) for a, b in zip(layer, changed, strict=True)) == 1


def test_short_form(tmp_path):
    result = subprocess.run(
        [sys.executable, EXAMPLES / "invariance.py", "--short", "--plot", "table.png"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    rows = [line for line in result.stdout.splitlines() if line[:12].strip() in PAPER]
    table = {row[:12].strip(): [word == "yes" for word in row[12:].split()[::2]] for row in rows}
    assert table == PAPER
    assert "2 draws" in result.stdout
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
