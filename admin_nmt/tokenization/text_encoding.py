"""Ids of many texts at once, as arrays."""

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .byte_bpe import EOS, pipeline
from .word_cutting import IntArray, cut, parts

KNOWN_WORDS = 500_000  # some 100 MB
_END, _PREFIX = range(2)  # numbers of what is no word


class TextEncoder(Protocol):
    """Maps texts to the ids of all of them, one text after the other, and the number of ids of each."""

    def __call__(self, texts: pa.Array) -> tuple[IntArray, IntArray]: ...


def text_encoder(tokenizer: PreTrainedTokenizerBase, of_target: bool, prefix: list[int]) -> TextEncoder:
    """The fastest way to the ids that a tokenizer gives, with `</s>`, behind those of a prefix.

    Args:
        tokenizer: ends every text with `</s>`.
        of_target: the texts are in the target's language.
    """
    if _is_byte_bpe(tokenizer):
        return WordEncoder(tokenizer, prefix)
    return PlainEncoder(tokenizer, of_target, prefix)


class PlainEncoder:
    """The tokenizer itself, on all texts."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, of_target: bool, prefix: list[int]) -> None:
        self.tokenizer, self.prefix = tokenizer, prefix
        self.side = "text_target" if of_target else "text"

    def __call__(self, texts: pa.Array) -> tuple[IntArray, IntArray]:
        plain = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        # transformers takes no empty list.
        given = self.tokenizer(**{self.side: texts.to_pylist()}, **plain)["input_ids"] if len(texts) else []
        rows = [self.prefix + ids for ids in given]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.int32, lengths.sum()), lengths


class WordEncoder:
    """Byte-level BPE of `byte_bpe`, which runs once for each different word; the words it has met are remembered."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, prefix: list[int]) -> None:
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        self.pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer
        bare = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "added_tokens": []}
        self.bpe = Tokenizer.from_str(json.dumps(state | bare | {"truncation": None, "padding": None}))
        self.not_words = [[tokenizer.eos_token_id], prefix]
        self._forget()

    def __call__(self, texts: pa.Array) -> tuple[IntArray, IntArray]:
        codes, lengths, words = cut(texts)
        if len(self.numbers) > KNOWN_WORDS:
            self._forget()
        self._learn([word for word in words if word not in self.numbers])
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.int64, len(words))[codes]
        ends = lengths.cumsum()
        around = np.stack([ends - lengths, ends], 1).ravel()
        numbers = np.insert(numbers, around, np.tile([_PREFIX, _END], len(lengths)))
        sizes = self.sizes[numbers]
        # Where a text ends, among the ids, is where its last number does.
        tokens = np.diff(sizes.cumsum()[ends + 2 * np.arange(1, len(ends) + 1) - 1], prepend=0)
        return _gather(self.ids, self.starts[numbers], sizes), tokens

    def _forget(self) -> None:
        self.numbers: dict[str, int] = {}
        self.part_ids: dict[str, list[int]] = {}
        self.ids, self.sizes, self.starts = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
        self._append(self.not_words)

    def _learn(self, words: list[str]) -> None:
        split = [parts(word, self.pre_tokenizer) for word in words]
        unknown = list({part for row in split for part in row if part not in self.part_ids})
        encodings = self.bpe.encode_batch_fast(unknown, add_special_tokens=False)
        self.part_ids.update(zip(unknown, (encoding.ids for encoding in encodings), strict=True))
        self.numbers.update(zip(words, range(len(self.sizes), len(self.sizes) + len(words)), strict=True))
        self._append([[one for part in row for one in self.part_ids[part]] for row in split])

    def _append(self, rows: Iterable[list[int]]) -> None:
        rows = list(rows)
        self.ids = np.concatenate([self.ids, np.fromiter(chain.from_iterable(rows), np.int32)])
        self.sizes = np.concatenate([self.sizes, np.fromiter(map(len, rows), np.int64, len(rows))])
        self.starts = self.sizes.cumsum() - self.sizes


def _gather(values: IntArray, starts: IntArray, sizes: IntArray) -> IntArray:
    """`values[start : start + size]` for all of them, one after the other."""
    shifts = starts - (sizes.cumsum() - sizes)
    return values[np.repeat(shifts, sizes) + np.arange(sizes.sum())]


def _is_byte_bpe(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether it is one of `byte_bpe`, each word of which has the same ids in every text."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or not tokenizer.split_special_tokens:
        return False

    def steps(backend: Tokenizer) -> dict[str, Any]:
        state = json.loads(backend.to_str())
        return {name: state[name] for name in ("normalizer", "pre_tokenizer")}

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    ends = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": EOS, "type_id": 0}}]
    return (
        steps(tokenizer.backend_tokenizer) == steps(pipeline(BPE()))
        and state["model"]["type"] == "BPE"
        and not state["model"]["dropout"]
        and (state["post_processor"] or {}).get("single") == ends
        and all(token["special"] for token in state["added_tokens"])
    )


__all__ = ["PlainEncoder", "TextEncoder", "WordEncoder", "text_encoder"]
