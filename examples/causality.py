"""Whether what a network says about the past depends on characters that come later.

Layer norm takes its mean and variance over the features of one position, so that each position
is normalised by itself. Statistics over time would tell every position about its future.
"""

import numpy as np

import lnfast


class OverTime:
    """What a causal network must not do: mean and variance of each feature over axis 1, time."""

    def forward(self, x):
        return lnfast.layer_norm_forward(x, axis=1)


def changed_past(network, characters, rng):
    """How many scores of the first half change with the second half's characters, and of how many.

    characters : (batch, time). Every one of the second half is replaced by another, drawn by
    rng. A score has changed if a bit of it has.
    """
    half = characters.shape[1] // 2
    before, _ = network.forward(characters)
    others = characters.copy()
    steps = rng.integers(1, before.shape[-1], characters[:, half:].shape)
    others[:, half:] = (characters[:, half:] + steps) % before.shape[-1]
    after, _ = network.forward(others)
    changed = bits(before[:, :half]) != bits(after[:, :half])
    return int(changed.sum()), changed.size


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def print_causality(networks, characters, rng):
    """A line for each of {name: network}."""
    print("Scores of the past that change when the characters to come are changed:")
    for name, network in networks.items():
        changed, count = changed_past(network, characters, rng)
        print(f"  {name}: {changed:,} of {count:,}")
