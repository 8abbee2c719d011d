"""What examples/gru.py and transformer.py share: their characters, and how runs are compared."""

import character_networks  # noqa: F401  before what it makes known
import numpy as np
import pytest

# isort: split
import gru
import text
import training
from network import Adam, Dense, clip_gradients, gradient_norm
from training import Curve


@pytest.fixture(scope="module")
def prose():
    return text.Text(text.read_paragraphs())


def spell(prose, numbers):
    return "".join(prose.characters[n] for n in numbers)


def test_no_paragraph_to_test_with_has_been_learnt(prose):
    learnt, tested = (spell(prose, part).split("\n") for part in (prose.train, prose.test))
    assert len(learnt) > 8 * len(tested) > 1000
    assert len(set(learnt) | set(tested)) == len(learnt) + len(tested)


def test_paragraphs_are_lines_of_the_topics():
    paragraphs = text.read_paragraphs()
    assert len(set(paragraphs)) == len(paragraphs) > 1500
    assert all(paragraph == " ".join(paragraph.split()) for paragraph in paragraphs)
    assert any("is evaluated" in paragraph for paragraph in paragraphs)


def test_rare_characters_share_a_number():
    prose = text.Text(["aab"] * 9 + ["abz"] + ["cc"], least=9)
    assert prose.characters == ["a", "b", "\n", text.RARE]
    assert spell(prose, prose.train) == "\n".join(["aab"] * 9 + [2 * text.RARE])
    assert spell(prose, prose.test) == "ab" + text.RARE


def test_labels_are_the_next_characters(prose):
    batches = prose.batches(0, 5, 40)
    whole = prose.train.tobytes()
    for characters, labels in (next(batches), next(batches), prose.test_windows(7, 40)):
        assert characters.shape == labels.shape
        np.testing.assert_array_equal(characters[:, 1:], labels[:, :-1])
    first, _ = next(batches)
    assert all(row.tobytes() in whole for row in first)
    assert len({row.tobytes() for row in first}) == 5


def test_windows_reach_both_ends():
    prose = text.Text(["ab"] * 9 + ["babba"], least=1)
    characters, labels = prose.test_windows(2, 3)
    assert [spell(prose, row) for row in characters] == ["bab", "abb"]
    assert [spell(prose, row) for row in labels] == ["abb", "bba"]


def test_batches_reach_both_ends():
    prose = text.Text(["ab", "cde"], least=1)
    batches = prose.batches(0, 50, 4)
    assert {spell(prose, row) for row in next(batches)[0]} == {"ab\nc", "b\ncd"}


@pytest.mark.parametrize("largest", [0.5, 100])
def test_gradients_are_clipped_at_their_norm(largest):
    rng = np.random.default_rng(0)
    layers = [Dense(3, 4, rng), Dense(4, 2, rng)]
    gradients = [gradient for layer in layers for _, _, gradient in layer.parameters()]
    for gradient in gradients:
        gradient[...] = rng.standard_normal(gradient.shape)
    before = np.concatenate([gradient.ravel() for gradient in gradients])
    norm = np.linalg.norm(before.astype(float))
    assert gradient_norm(layers) == pytest.approx(norm, rel=1e-6)
    clip_gradients(layers, largest)
    after = np.concatenate([gradient.ravel() for gradient in gradients])
    if norm <= largest:
        assert after.tobytes() == before.tobytes()
    else:
        np.testing.assert_allclose(after, before * (largest / norm), rtol=1e-6)


@pytest.mark.parametrize("largest", [0.25, 100])
def test_step_clips_and_forgets_the_gradients_before(prose, largest):
    characters, labels = next(prose.batches(0, 4, 16))
    network = gru.GRU(len(prose.characters), 8, np.random.default_rng(0), None)
    optimizer = Adam(network.layers, 1e-2)
    norms, losses = [], []
    for _ in range(2):
        losses.append(training.learn(network, optimizer, characters, labels, largest))
        norms.append(gradient_norm(network.layers))
        optimizer.parameters[0][1][...] = 1e30
    assert losses[1] < losses[0]
    assert max(norms) <= largest * (1 + 1e-6)
    assert (norms[0] == pytest.approx(largest, rel=1e-6)) == (largest < 1)


class Listener:
    """A network that keeps the characters it is shown, and gets worse: log(100 + 10 n) after n."""

    def __init__(self):
        self.layers, self.heard, self.learnt = [], [], 0

    def forward(self, characters):
        self.heard.append(characters.tobytes())
        return np.zeros((*characters.shape, 100 + 10 * self.learnt), np.float32), None

    def backward(self, dscores, cache):
        self.learnt += 1


def test_variants_see_the_same_batches(prose):
    def listen(seed):
        networks = {"one": Listener(), "other": Listener()}
        curves = training.train(networks, prose, 2, 8, seed, 12, 1e-3, 1.0)
        return networks, curves

    networks, curves = listen(3)
    assert networks["one"].heard == networks["other"].heard
    assert len(networks["one"].heard) == 12 + 2  # steps and tests
    assert networks["one"].learnt == 12  # nothing is learnt from tests
    alone, _ = listen(3)
    assert alone["one"].heard == networks["one"].heard
    another, _ = listen(4)
    assert not set(another["one"].heard[:6]) & set(networks["one"].heard[:6])
    for curve in curves.values():
        assert curve.steps.tolist() == [6, 12]
        losses = np.log(np.arange(100, 230, 10))
        means = losses[:6].mean(), losses[6:12].mean()
        np.testing.assert_allclose(curve.train, means, rtol=1e-6)
        np.testing.assert_allclose(curve.test, losses[[6, 12]], rtol=1e-6)
        assert 0 < curve.seconds[0] < curve.seconds[1]


@pytest.fixture
def runs():
    """Two seeds, on the second of which all is slower; a step of `other` takes twice as long."""
    steps = np.array([10.0, 20.0, 30.0])
    runs = {"first": [], "other": []}
    for seed in (0, 1):
        test = np.array([3.0, 2.0, 1.0]) + 0.25 * seed
        runs["first"].append(Curve(steps, steps * (1 + seed), test + 1, test))
        runs["other"].append(Curve(steps, 2 * steps * (1 + seed), test, test - 0.5))
    return runs


def test_equal_steps_are_not_equal_seconds(runs, capsys):
    assert training.equal_seconds(runs) == [30, 60]
    training.print_losses(runs)
    header, first, other, *_, of_first, of_other = capsys.readouterr().out.splitlines()[3:]
    assert header.split()[:4] == ["in", "30", "steps", "minus"]
    assert "in 45.0 ± 21.2 s" in header
    assert of_first.split() == ["first", "1.000", "1.250"]
    assert of_other.split() == ["other", "0.500", "0.750"]
    assert first.split()[1:7] == ["1.125", "±", "0.177", "1.125", "±", "0.177"]
    # after 30 s the other is halfway between its tests at 10 and 20 steps, which gave 2.5 and 1.5
    assert other.split()[1:] == (
        "0.625 ± 0.177 -0.500 ± 0.000 2.125 ± 0.177 +1.000 ± 0.000 3000.0 ± 1414.2".split()
    )


def test_curves_against_steps_and_against_seconds(runs, monkeypatch):
    drawn = {}
    monkeypatch.setattr(training, "draw", lambda path, panels, **options: drawn.update(panels))
    training.draw_losses("curves.png", runs, {"more": "panels"})
    assert list(drawn) == [
        "Training loss against steps",
        "Training loss against time",
        "Test loss against steps",
        "Test loss against time",
        "more",
    ]
    label, _, curves = drawn["Training loss against steps"]
    assert label == "steps"
    x, losses = curves["other"]
    np.testing.assert_array_equal(x, [10, 20, 30])
    np.testing.assert_array_equal(losses, [[3, 2, 1], [3.25, 2.25, 1.25]])
    label, _, curves = drawn["Test loss against time"]
    assert label == "seconds of training"
    x, losses = curves["other"]
    # from where both seeds have been tested to where one of them ends
    assert (x[0], x[-1]) == (40, 60)
    np.testing.assert_allclose([losses[0][0], losses[0][-1]], [1.5, 0.5])
    np.testing.assert_allclose([losses[1][0], losses[1][-1]], [2.75, 2.25])
