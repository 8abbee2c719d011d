"""examples/ that learn from images: gradients, runs that are paired and repeat, what is printed."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from differences import assert_gradients, disturb

for package in ("matplotlib", "threadpoolctl", "tqdm"):
    pytest.importorskip(package, reason=f"{package} is missing: pip install 'lnfast[examples]'")

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.append(str(EXAMPLES))

import classifier  # noqa: E402
import experiment  # noqa: E402
import images  # noqa: E402
import network  # noqa: E402
import retrieval  # noqa: E402

PROGRAMS = [classifier, retrieval]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def noise(rng):
    """200 images to train on and 20 to test on, of 4×4: enough to run, and nothing to learn."""
    x, labels = rng.random((220, 4, 4), np.float32), rng.integers(0, 10, 220)
    return images.Images("noise", x[:200], labels[:200], x[200:], labels[200:])


# What they learn from


def write_part(folder, part, pixels, labels):
    header = np.array([2051, *pixels.shape], ">i4").tobytes()
    (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + pixels.tobytes()))
    header = np.array([2049, len(labels)], ">i4").tobytes()
    (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + labels.tobytes()))


@pytest.mark.parametrize("train, test", [(3, 2), (10_000, 5_000)])
def test_fashion_mnist_is_read_from_its_files(tmp_path, monkeypatch, rng, train, test):
    pixels = rng.integers(0, 256, (9, 3, 2), np.uint8)
    labels = rng.integers(0, 10, 9, np.uint8)
    write_part(tmp_path, "train", pixels[:5], labels[:5])
    write_part(tmp_path, "t10k", pixels[5:], labels[5:])
    monkeypatch.setattr(images, "FOLDER", tmp_path)
    data = images.load(train, test)
    assert data.train.dtype == data.test.dtype == np.float32
    np.testing.assert_array_equal(data.train, pixels[:5][:train] / np.float32(255))
    np.testing.assert_array_equal(data.test, pixels[5:][:test] / np.float32(255))
    np.testing.assert_array_equal(data.train_labels, labels[:5][:train])
    np.testing.assert_array_equal(data.test_labels, labels[5:][:test])
    counts = f"{min(train, 5)} images to train on and {min(test, 4)} to test on"
    assert str(data) == f"data: Fashion-MNIST, 3×2, {counts}"


def test_digits_take_its_place(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install scikit-learn")
    monkeypatch.setattr(images, "FOLDER", tmp_path / "missing")
    data = images.load()
    assert str(data) == (
        "data: scikit-learn's digits, 8×8, 1,347 images to train on and 450 to test on"
    )
    for part, labels in ((data.train, data.train_labels), (data.test, data.test_labels)):
        assert part.dtype == np.float32 and part.min() == 0 and part.max() == 1
        assert len(part) == len(labels) and set(labels) == set(range(10))
    whole = {image.tobytes() for image in (*data.train, *data.test)}
    assert len(whole) == 1797  # no image is in both parts


def test_no_images(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "FOLDER", tmp_path / "missing")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit, match="apt install dataset-fashion-mnist, or pip install"):
        images.load()


# What they learn with


@pytest.mark.parametrize("variant", classifier.VARIANTS)
def test_gradients_of_classifier(rng, variant):
    model = classifier.build(variant, 6, 5, rng, hidden=(7, 6), dtype=np.float64)
    disturb(model, rng)
    x, labels = rng.standard_normal((5, 6)), rng.integers(0, 10, 5)
    scores, caches = model.forward(x)
    dx = model.backward(network.cross_entropy(scores, labels)[1], caches)
    assert_gradients(
        lambda: network.cross_entropy(model.forward(x)[0], labels)[0],
        [(x, dx), *((p, g) for _, p, g in model.parameters())],
    )


@pytest.mark.parametrize("variant", retrieval.VARIANTS)
def test_gradients_of_retrieval(rng, variant):
    x = rng.standard_normal((5, 4, 3))
    encoders = retrieval.build(variant, x, rng, hidden=(7, 6), outputs=4, dtype=np.float64)
    for encoder in encoders:
        disturb(encoder, rng)
    retrieval.differentiate(encoders, retrieval.halves(x))
    gradients = [(p, g.copy()) for encoder in encoders for _, p, g in encoder.parameters()]
    assert_gradients(lambda: retrieval.differentiate(encoders, retrieval.halves(x)), gradients)


def test_running_statistics_forget_over_the_same_examples():
    momenta = {
        batch: classifier.build("batch norm", 4, batch, np.random.default_rng()).layers[1].momentum
        for batch in classifier.BATCHES
    }
    assert momenta[128] == pytest.approx(0.1)
    assert (1 - momenta[4]) ** 32 == pytest.approx(1 - momenta[128])


def test_ranking_loss_by_its_definition(rng):
    scores = rng.uniform(-1, 1, (6, 6))
    total = sum(
        max(0, 0.2 - scores[i, i] + scores[i, j]) + max(0, 0.2 - scores[j, j] + scores[i, j])
        for i in range(6)
        for j in range(6)
        if i != j
    )
    assert retrieval.ranking_loss(scores, 0.2)[0] == pytest.approx(total / 30, rel=1e-14)


def test_rank():
    scores = np.array([[3, 1, 2, 0], [3, 1, 2, 0], [2, 2, 2, 2], [np.nan] * 4])
    assert retrieval.rank(scores).tolist() == [1, 3, 4, 4]


def test_halves_are_one_image(rng):
    x = rng.random((3, 5, 2))
    upper, lower = retrieval.halves(x)
    np.testing.assert_array_equal(np.hstack([upper, lower]), x.reshape(3, -1))


# How they are compared


def test_shuffle_shows_all_once_a_round(rng):
    order = experiment.shuffle(11, 7, 4, rng)
    assert order.shape == (7, 4)
    rounds = [set(order[start : start + 2].ravel()) for start in (0, 2, 4)]
    assert [len(seen) for seen in rounds] == [8, 8, 8]
    assert len(set(map(frozenset, rounds))) > 1


@each_program
def test_runs_are_paired(monkeypatch, noise, program):
    seen = []

    def record(model, data, order, *_):
        parts = model if isinstance(model, list) else [model]
        dense = [layer for part in parts for layer in part.layers if hasattr(layer, "forward")]
        weights = [layer.weight for layer in dense if isinstance(layer, network.Dense)]
        seen.append((b"".join(w.tobytes() for w in weights), order.tobytes()))

    monkeypatch.setattr(program, "train", record)
    program.compare(noise, 3, range(5, 7))
    half = len(seen) // 2
    assert half == (6 if program is classifier else 2)
    assert len(set(seen[:half])) == len(set(seen[half:])) == 1
    assert seen[0][0] != seen[half][0] and seen[0][1] != seen[half][1]


def test_small_batches_are_the_large_ones_cut_in_pieces(monkeypatch, noise, rng):
    shapes = []

    def record(scores, labels):
        shapes.append(labels.tolist())
        return network.cross_entropy(scores, labels)

    monkeypatch.setattr(classifier, "cross_entropy", record)
    order = experiment.shuffle(200, 2, 128, rng)
    for batch in (128, 4):
        shapes.clear()
        run = classifier.train(classifier.build("plain", 16, batch, rng), noise, order, batch, 1e-3)
        assert set(map(len, shapes)) == {batch}
        assert sum(shapes, []) == noise.train_labels[order.ravel()].tolist()
        assert run.examples == [128, 256]


@each_program
def test_same_seed_same_bits(noise, program):
    def numbers():
        for each in program.compare(noise, 4, range(1)).values():
            points = each[0] if program is retrieval else [each[0]]
            yield [point._replace(seconds=0) for point in points]

    once, again = list(numbers()), list(numbers())
    assert once == again
    assert np.isfinite([once[0][0].loss]).all()


def test_classifier_learns(rng):
    labels = rng.integers(0, 10, 400)
    x = rng.random((400, 4, 4), np.float32) * 0.2
    x.reshape(400, 16)[np.arange(400), labels] += 0.8  # the class is the brightest pixel
    data = images.Images("bright", x[:300], labels[:300], x[300:], labels[300:])
    for (_, batch), (run,) in classifier.compare(data, 40, range(1), rate=1e-2).items():
        assert run.accuracy[-1] > 90, batch
        assert run.loss[-1] < run.loss[0]


@pytest.mark.parametrize("variant", retrieval.VARIANTS)
def test_retrieval_learns(rng, variant):
    half = rng.random((300, 2, 4), np.float32)
    x, labels = np.concatenate([half, 1 - half], axis=1), np.zeros(300, int)
    data = images.Images("negatives", x[:250], labels[:250], x[250:], labels[250:])
    (points,) = retrieval.compare(data, 100, range(1), rate=1e-2)[variant]
    assert [point.steps for point in points] == list(range(5, 101, 5))
    assert points[-1].loss < 0.1 * points[0].loss
    assert points[-1].recall_1 > 80 and points[-1].mean_rank < 2


def test_retrieval_measures(monkeypatch, noise, rng):
    monkeypatch.setattr(retrieval, "rank", lambda scores: np.array([1, 4, 5, 8, 10, 11, 20, 21]))
    encoders = retrieval.build("plain", noise.train, rng)
    order = experiment.shuffle(200, 1, retrieval.BATCH, rng)
    (point,) = retrieval.train(encoders, noise, order, retrieval.RATE)
    assert point[-4:] == (12.5, 37.5, 62.5, 10.0)


# How they are run


@pytest.fixture
def some_images():
    """Skips where there is nothing to learn from."""
    if not images.FOLDER.is_dir():
        pytest.importorskip("sklearn", reason=images.NO_IMAGES)


@pytest.mark.parametrize(
    "program, rows",
    [
        ("classifier", ["plain          128", "layer norm       4", "batch norm       4"]),
        ("retrieval", ["plain  ", "layer norm  ", "layer norm − plain"]),
    ],
)
def test_short_form(tmp_path, some_images, program, rows):
    result = subprocess.run(
        [sys.executable, EXAMPLES / f"{program}.py", "--short"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("data: ")
    for row in rows:
        assert any(line.startswith(row) for line in lines), row
    assert "2 seeds" in result.stdout


@each_program
def test_plot(tmp_path, monkeypatch, capsys, noise, program):
    monkeypatch.setattr(images, "load", lambda: noise)
    picture = tmp_path / "curves.png"
    program.main(["--steps", "3", "--seeds", "1", "--plot", str(picture)])
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert capsys.readouterr().out.endswith(f"drawn: {picture}\n")
