"""Characters to learn from: the prose that every Python brings along, its language reference.

`pydoc_data.topics` is what `help("topics")` shows. Some sections stand in several topics, so
each paragraph is kept once: otherwise the test text would have been learnt by heart. The text
differs a little from one version of Python to the next, and so do the losses.
"""

from collections import Counter
from pydoc_data.topics import topics

import numpy as np

RARE = "\N{REPLACEMENT CHARACTER}"
TEST_EVERY = 10  # this paragraph of so many is for testing


def read_paragraphs():
    """The paragraphs of all topics, each once and on one line."""
    paragraphs = "\n\n".join(topics.values()).split("\n\n")
    lines = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return [line for line in dict.fromkeys(lines) if line]


class Text:
    """Paragraphs as numbers, split into `train` and `test`.

    `characters` has those that occur at least `least` times among the paragraphs for training,
    the most frequent first; RARE, the last of them, stands for all others.
    """

    def __init__(self, paragraphs, least=20):
        tested = paragraphs[TEST_EVERY - 1 :: TEST_EVERY]
        trained = [p for i, p in enumerate(paragraphs, 1) if i % TEST_EVERY]
        train, test = "\n".join(trained), "\n".join(tested)
        counts = Counter(train).most_common()
        self.characters = [c for c, count in counts if count >= least and c != RARE] + [RARE]
        number = {c: i for i, c in enumerate(self.characters)}
        rare = number[RARE]
        self.train, self.test = (
            np.array([number.get(c, rare) for c in part], np.int64) for part in (train, test)
        )

    def __str__(self):
        train, test, different = len(self.train), len(self.test), len(self.characters)
        return f"{train:,} characters to learn from, {test:,} to test with, {different} different"

    def batches(self, seed, size, length):
        """Endless (characters, labels), each (size, length): windows of `train`, drawn at random.

        A label is the character after.
        """
        rng = np.random.default_rng([seed, 1])  # the weights' is default_rng(seed)
        starts = len(self.train) - length
        while True:
            first = rng.integers(starts, size=(size, 1))
            window = self.train[first + np.arange(length + 1)]
            yield window[:, :-1], window[:, 1:]

    def test_windows(self, count, length):
        """(characters, labels) from all over `test`, each (count, length): the same every time."""
        first = np.linspace(0, len(self.test) - length - 1, count).astype(int)
        window = self.test[first[:, None] + np.arange(length + 1)]
        return window[:, :-1], window[:, 1:]
