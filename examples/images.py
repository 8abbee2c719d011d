"""The images that the training programs learn from: Fashion-MNIST, or handwritten digits.

Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv 1708.07747: clothes, 28×28, 10 classes) is what
Debian's package `dataset-fashion-mnist` installs. Where it is not there, the 1,797 digits of 8×8
that come with scikit-learn take its place. Nothing is downloaded.
"""

import gzip
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path("/usr/share/datasets/fashion-mnist")
NO_IMAGES = "no images here: apt install dataset-fashion-mnist, or pip install scikit-learn"


class Images(NamedTuple):
    """Images are float32 in [0, 1], (count, height, width); labels are ints from 0 to 9."""

    name: str
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    def __str__(self):
        _, height, width = self.train.shape
        return (
            f"data: {self.name}, {height}×{width}, {len(self.train):,} images to train on"
            f" and {len(self.test):,} to test on"
        )


def load(train=10_000, test=5_000):
    """The first images of Fashion-MNIST's two parts, or all digits, a quarter of them to test."""
    if FOLDER.is_dir():
        return Images("Fashion-MNIST", *read_part("train", train), *read_part("t10k", test))
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ModuleNotFoundError:
        sys.exit(NO_IMAGES)
    digits = load_digits()
    images = (digits.images / digits.images.max()).astype(np.float32)
    # The split is the same for every seed. By class, so that both parts have as much of each.
    train, test, train_labels, test_labels = train_test_split(
        images, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    return Images("scikit-learn's digits", train, train_labels, test, test_labels)


def read_part(part, count):
    """The first images and labels of a part, from its two files in IDX format."""
    # IDX: big-endian 32-bit integers (magic number, count, and for images height, width), bytes.
    with gzip.open(FOLDER / f"{part}-images-idx3-ubyte.gz") as file:
        _, there, height, width = np.frombuffer(file.read(16), ">i4")
        count = min(count, there)
        pixels = np.frombuffer(file.read(count * height * width), np.uint8)
    with gzip.open(FOLDER / f"{part}-labels-idx1-ubyte.gz") as file:
        file.read(8)
        labels = np.frombuffer(file.read(count), np.uint8)
    images = pixels.reshape(count, height, width).astype(np.float32) / 255
    return images, labels.astype(np.intp)
