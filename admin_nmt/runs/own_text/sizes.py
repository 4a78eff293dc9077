"""Sizes of vocabulary and model by the number of training pairs and by device, each with where it is from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A model, and how it is trained.

    Args:
        layers: of encoder and decoder.
        width: d_model.
        ffn: width of the feed-forward sublayers.
        heads: of each attention.
        dropout: of the residual branches.
        learning_rate: at its peak.
        warmup: updates until then, at most.
        batch: tokens an update, over all processes.
        max_tokens: tokens of a batch on one device; the memory may ask for fewer.
        why: where sizes and settings are from.
    """

    layers: tuple[int, int]
    width: int
    ffn: int
    heads: int
    dropout: float
    learning_rate: float
    warmup: int
    batch: int
    max_tokens: int
    why: str


TINY = Shape(
    layers=(4, 4), width=128, ffn=256, heads=4, dropout=0.3, learning_rate=2e-3, warmup=400, batch=1024,
    max_tokens=1024, why="Transformer-Tiny of Wu et al. 2021, the smallest (model_cards/multi30k-transformer-tiny)",
)  # fmt: skip
SMALL = Shape(
    layers=(6, 6), width=128, ffn=256, heads=4, dropout=0.1, learning_rate=2e-3, warmup=400, batch=2048,
    max_tokens=2048, why="on Multi30k's 29,000 pairs 18-6 was no better (model_cards/multi30k-default-rule)",
)  # fmt: skip
BASE = Shape(
    layers=(6, 6), width=512, ffn=1024, heads=4, dropout=0.3, learning_rate=5e-4, warmup=4000, batch=4096,
    max_tokens=4096, why="fairseq's transformer_iwslt_de_en and its settings, for 160,000 pairs; not measured here",
)  # fmt: skip
DEEP = Shape(
    layers=(18, 6), width=512, ffn=2048, heads=8, dropout=0.1, learning_rate=7e-4, warmup=4000, batch=32768,
    max_tokens=8192, why="both papers gain by depth on millions of pairs, up to 60-12 and 30-6; not measured here",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Sizes that suit corpora from a number of pairs on.

    Args:
        pairs: of training.
        vocabulary: tokens, for both languages.
        vocabulary_why: where that is from.
        bytes_a_token: of that vocabulary, about, to estimate epochs before there is one.
        cpu: the model where there is no GPU: one that trains in hours.
        gpu: the model where there is one.
        epochs: how often each pair is seen.
        fewest: updates, however few make these epochs.
    """

    pairs: int
    vocabulary: int
    vocabulary_why: str
    bytes_a_token: float
    cpu: Shape
    gpu: Shape
    epochs: int
    fewest: int = 3000


# Bytes a token: measured on 5,000 pairs of Tatoeba and on Multi30k, German; of the larger vocabularies assumed.
ROWS = (
    Row(0, 2000, "below 10,000 pairs rarer pieces are hardly seen (Sennrich and Zhang 2019)", 3.4, TINY, TINY, 60, 500),
    Row(10_000, 8000, "as for Multi30k, 29,000 pairs", 4.75, SMALL, SMALL, 12),
    Row(100_000, 16_000, "as for msdocs-en-de, 374,000 pairs", 5.0, SMALL, BASE, 12),
    Row(1_000_000, 32_000, "as for WMT'14, 4.5 million pairs (Liu, Duh et al. 2020)", 5.0, SMALL, DEEP, 12),
)
MOST_UPDATES = {"cpu": 10_000, "gpu": 100_000}
"""A CPU makes so many in hours; more are for those who ask for them."""


def row_for(pairs: int) -> Row:
    """The row of a corpus of so many training pairs."""
    return max((row for row in ROWS if row.pairs <= pairs), key=lambda row: row.pairs)
