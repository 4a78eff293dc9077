"""Several training corpora in one epoch: some more than once, some behind a tag that tells the model their origin."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, concatenate_datasets

from .tokenization.byte_bpe import PAD, UNK

TAG = re.compile(r"<[^\W_]+>")


@dataclass(frozen=True)
class Treatment:
    """Treatment of a training corpus, and how often an epoch takes it.

    Back-translated text is marked by a tag (Caswell et al. 2019, *Tagged Back-Translation*) and balanced by taking the
    original text `upsample` times.

    Attributes:
        where: what errors call the corpus.
        upsample: how many times an epoch takes each pair; 3 here and 2 there make weights of 1.5 to 1.
        tag: a token in front of every source, such as `<bt>`.
        detokenize: its files went through Moses' tokenizer or BPE, and their plain text is wanted.
    """

    where: str
    upsample: int = 1
    tag: str | None = None
    detokenize: bool = False

    def __post_init__(self) -> None:
        if type(self.upsample) is not int or self.upsample < 1:  # a bool would pass as a number
            raise ValueError(f"{self.where}.upsample is {self.upsample!r}; give how often an epoch takes it: 1, 2, ...")
        if self.tag is not None:
            check_tag(self.tag, f"{self.where}.tag")
        if not isinstance(self.detokenize, bool):
            raise ValueError(f"{self.where}.detokenize is {self.detokenize!r}; give true or false")


@dataclass(frozen=True)
class Corpus:
    """Training pairs, columns `source` and `target`, and how they are treated."""

    treatment: Treatment
    pairs: Dataset


def check_tag(tag: Any, where: str = "tag") -> None:
    """Refuse a tag that is not letters and digits in angle brackets, which no piece of a vocabulary mixes.

    Raises:
        ValueError: naming `where` the tag comes from.
    """
    if not isinstance(tag, str) or not TAG.fullmatch(tag) or tag in (UNK, PAD):
        raise ValueError(f"{where} is {tag!r}; give letters or digits in angle brackets, such as <bt>, not {UNK}")


def mix(parts: Sequence[Dataset], upsample: Sequence[int]) -> Dataset:
    """An epoch of these datasets, each taken as often as `upsample` says.

    It refers to their memory-mapped files, a repeated one again and again: nothing is copied.
    """
    chosen = [part for part, times in zip(parts, upsample, strict=True) for _ in range(times)]
    return chosen[0] if len(chosen) == 1 else concatenate_datasets(chosen)
