"""Text cut into words, each of which byte-level BPE treats by itself: what is known of one need not be found again.

A million pairs have 32 million words and 0.8 million different ones, so that what is done once a word costs little.
"""

import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers.pre_tokenizers import PreTokenizer

IntArray = np.ndarray[Any, np.dtype[np.integer[Any]]]

# Printable ASCII, and what `WORDS` of byte_bpe is for it: Python splits that in a sixth of the time.
PLAIN = re.compile(r"[!-~]+")
PLAIN_PARTS = re.compile(r" ?[A-Za-z]+| ?[0-9]| ?[^A-Za-z0-9 ]+")
SPACE = "Ġ"  # as byte-level BPE writes it; it writes printable ASCII as it is


class Cut(NamedTuple):
    """The words of texts, one after the other: text i has the next `lengths[i]` of the `codes`, which number `words`.

    A word stands for its letters and the space before them, also at the start of a text. An empty text has no word.
    """

    codes: IntArray
    lengths: IntArray
    words: list[str]


def cut(texts: pa.Array) -> Cut:
    """Cut texts at every space that follows something else than white space.

    Byte-level BPE never has a piece across such a space, and finds the same pieces on both sides without the other:
    its pattern has a space only in front of a piece or among white space, and looks ahead only behind white space.
    """
    split = pc.split_pattern(texts, " ")
    encoded = split.flatten().dictionary_encode()
    words: list[str] = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy().astype(np.int64)
    lengths = np.diff(split.offsets.to_numpy())
    starts = lengths.cumsum() - lengths
    goes_on = np.fromiter((not word or word[-1].isspace() for word in words), bool, len(words))[codes]
    goes_on[starts[1:] - 1] = goes_on[-1:] = False
    if goes_on.any():
        codes, lengths = _joined(codes, starts, words, goes_on)
    return _without_empty(codes, lengths, words)


def _joined(codes: IntArray, starts: IntArray, words: list[str], goes_on: np.ndarray) -> tuple[IntArray, IntArray]:
    """Codes and lengths after words that `goes_on` marks are one with the next; new ones are added to `words`."""
    begins = np.append(True, ~goes_on[:-1])
    first = np.flatnonzero(begins)
    sizes = np.diff(first, append=len(codes))
    joined, numbers = codes[first], dict[str, int]()
    for place in np.flatnonzero(sizes > 1).tolist():
        parts = codes[first[place] : first[place] + sizes[place]].tolist()
        joined[place] = numbers.setdefault(" ".join(map(words.__getitem__, parts)), len(words) + len(numbers))
    words.extend(numbers)
    return joined, np.add.reduceat(begins, starts, dtype=np.int64)


def _without_empty(codes: IntArray, lengths: IntArray, words: list[str]) -> Cut:
    """Empty texts, which so far are a word without letters, have none; behind others it stands for a space."""
    if "" in words:
        starts = lengths.cumsum() - lengths
        empty = (lengths == 1) & (codes[starts] == words.index(""))
        codes, lengths = np.delete(codes, starts[empty]), lengths - empty
    return Cut(codes, lengths, words)


def parts(word: str, pre_tokenizer: PreTokenizer) -> list[str]:
    """The stretches of a word within which byte-level BPE merges, in its letters for bytes."""
    if PLAIN.fullmatch(word):
        first, *others = PLAIN_PARTS.findall(" " + word)
        return [SPACE + first[1:], *others]
    return [part for part, _ in pre_tokenizer.pre_tokenize_str(" " + word)]


__all__ = ["Cut", "IntArray", "cut", "parts"]
