"""Ids of many texts at once, as arrays."""

import json
from collections.abc import Sequence
from functools import cached_property
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
ENDED = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": EOS, "type_id": 0}}]  # how a text is
_END = 0  # the number of `</s>` among the words


class TextEncoder(Protocol):
    """Maps texts to the ids of all of them, one text after the other, and the number of ids of each.

    A text has the ids that its tokenizer gives it, `</s>` included, behind those of the prefix.
    """

    def __call__(self, texts: pa.Array, prefix: Sequence[int] = ()) -> tuple[IntArray, IntArray]: ...


def text_encoders(source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> tuple[TextEncoder, TextEncoder]:
    """The fastest way to the ids of sources and of targets, of tokenizers that end every text with `</s>`."""
    first: TextEncoder = WordEncoder(source) if _is_byte_bpe(source) else PlainEncoder(source, of_target=False)
    if target is source and isinstance(first, WordEncoder):  # languages share words, numbers above all
        return first, first
    return first, WordEncoder(target) if _is_byte_bpe(target) else PlainEncoder(target, of_target=True)


class PlainEncoder:
    """The tokenizer itself, on all texts."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, of_target: bool) -> None:
        self.tokenizer = tokenizer
        self.side = "text_target" if of_target else "text"

    def __call__(self, texts: pa.Array, prefix: Sequence[int] = ()) -> tuple[IntArray, IntArray]:
        plain = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        # transformers takes no empty list.
        given = self.tokenizer(**{self.side: texts.to_pylist()}, **plain)["input_ids"] if len(texts) else []
        lengths = np.fromiter(map(len, given), np.int64, len(given))
        return _prefixed(np.fromiter(chain.from_iterable(given), np.int32, lengths.sum()), lengths, prefix)


class WordEncoder:
    """Byte-level BPE of `byte_bpe`, which runs once for each different word; the words it has met are remembered."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.backend, self.end = tokenizer.backend_tokenizer, tokenizer.eos_token_id
        self._forget()

    @cached_property
    def bpe(self) -> Tokenizer:
        """BPE alone; made when it is needed, as a cache that is there needs none."""
        state = json.loads(self.backend.to_str())
        others = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding"))
        return Tokenizer.from_str(json.dumps(state | others | {"added_tokens": []}))

    def __call__(self, texts: pa.Array, prefix: Sequence[int] = ()) -> tuple[IntArray, IntArray]:
        codes, lengths, words = cut(texts)
        if len(self.numbers) > KNOWN_WORDS:
            self._forget()
        self._learn([word for word in words if word not in self.numbers])
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.int64, len(words))[codes]
        ends = lengths.cumsum()
        numbers = np.insert(numbers, ends, _END)
        sizes = self.sizes[numbers]
        last = ends + np.arange(len(ends))  # the place of each `</s>`
        tokens = np.diff(sizes.cumsum()[last], prepend=0)
        return _prefixed(_gather(self.ids, self.starts[numbers], sizes), tokens, prefix)

    def _forget(self) -> None:
        self.numbers: dict[str, int] = {}
        self.part_ids: dict[str, list[int]] = {}
        self.ids, self.sizes, self.starts = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
        self._append([[self.end]])

    def _learn(self, words: list[str]) -> None:
        pre_tokenizer = self.backend.pre_tokenizer
        split = [parts(word, pre_tokenizer) for word in words]
        unknown = list({part for row in split for part in row if part not in self.part_ids})
        encodings = self.bpe.encode_batch_fast(unknown, add_special_tokens=False)
        self.part_ids.update(zip(unknown, (encoding.ids for encoding in encodings), strict=True))
        self.numbers.update(zip(words, range(len(self.sizes), len(self.sizes) + len(words)), strict=True))
        self._append([[one for part in row for one in self.part_ids[part]] for row in split])

    def _append(self, rows: list[list[int]]) -> None:
        self.ids = np.concatenate([self.ids, np.fromiter(chain.from_iterable(rows), np.int32)])
        self.sizes = np.concatenate([self.sizes, np.fromiter(map(len, rows), np.int64, len(rows))])
        self.starts = self.sizes.cumsum() - self.sizes


def _prefixed(ids: IntArray, lengths: IntArray, prefix: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Ids and lengths of texts that have these ids behind a prefix."""
    if not prefix:
        return ids, lengths
    places = np.repeat(lengths.cumsum() - lengths, len(prefix))
    return np.insert(ids, places, np.tile(prefix, len(lengths))), lengths + len(prefix)


def _gather(values: IntArray, starts: IntArray, sizes: IntArray) -> IntArray:
    """`values[start : start + size]` for all of them, one after the other."""
    shifts = starts - (sizes.cumsum() - sizes)
    return values[np.repeat(shifts, sizes) + np.arange(sizes.sum())]


def _is_byte_bpe(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether it is one of `byte_bpe`, each word of which has the same ids in every text."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or not tokenizer.split_special_tokens:
        return False
    backend, own = tokenizer.backend_tokenizer, pipeline(BPE())
    added = backend.get_added_tokens_decoder().values()
    return (
        isinstance(backend.model, BPE)
        and not backend.model.dropout
        and _state(backend.normalizer) == _state(own.normalizer)
        and _state(backend.pre_tokenizer) == _state(own.pre_tokenizer)
        and _state(backend.post_processor).get("single") == ENDED
        and all(token.special for token in added)
    )


def _state(step: Any) -> dict[str, Any]:
    """A step of a tokenizer as tokenizer.json has it."""
    return {} if step is None else dict(json.loads(step.__getstate__()))


__all__ = ["PlainEncoder", "TextEncoder", "WordEncoder", "text_encoders"]
