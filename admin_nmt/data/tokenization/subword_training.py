"""Vocabularies as fairseq's preparation scripts make them: subword-nmt's merges, and the dictionary of the pieces."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count, islice
from pathlib import Path

from .bpe_codes import BpeCodes
from .fairseq_tokenizer import SPECIAL

FILLER = "madeupword{:04d}"  # fairseq's, for rows of the embedding that no piece has
PADDING_FACTOR = 8
NEEDS_SUBWORD_NMT = "tokenizer.kind: subword_nmt needs its package: pip install 'admin_nmt[subword_nmt]'"


def learn_codes(words: Mapping[str, int], merges: int, path: Path) -> None:
    """Write the codes that `subword-nmt learn-bpe -s merges` learns of a text.

    Args:
        words: how often each word stands in the text.

    Raises:
        ImportError: subword-nmt is not installed.
        ValueError: no word has two characters.
    """
    try:
        from subword_nmt.learn_bpe import learn_bpe
    except ImportError as error:
        raise ImportError(NEEDS_SUBWORD_NMT) from error
    if all(len(word) < 2 for word in words):
        raise ValueError("tokenizer.merges: no word of the training text has two characters, so there is no merge")
    with path.open("w", encoding="utf-8", newline="\n") as file:
        learn_bpe((f"{word} {times}" for word, times in words.items()), file, merges, is_dict=True)


def count_pieces(words: Mapping[str, int], codes: BpeCodes) -> Counter[str]:
    """Count the pieces of a text of these words."""
    pieces: Counter[str] = Counter()
    for word, times in words.items():
        for piece in codes.segment(word):
            pieces[piece] += times
    return pieces


def dictionary(pieces: Mapping[str, int], size: int | None = None, threshold: int | None = None) -> list[str]:
    """The symbols of the dict.txt that fairseq-preprocess makes of a text with these pieces, without special ones.

    The most frequent come first, of equally frequent ones that which sorts first. Made-up words fill the dictionary,
    with its four special symbols, to a multiple of 8.

    Args:
        size: `--nwordssrc`: most symbols, special ones included; None for no limit.
        threshold: `--thresholdsrc`: leave out pieces that are rarer; None for none.
    """
    ranked = sorted(pieces.items(), key=lambda item: (-item[1], item[0]))
    limit = None if size is None else size - len(SPECIAL)
    symbols = [piece for piece, times in ranked[:limit] if times >= (threshold or 0)]
    rows = len(symbols) + len(SPECIAL)
    return filled(symbols, len(symbols) + -rows % PADDING_FACTOR)


def filled(symbols: Sequence[str], number: int) -> list[str]:
    """This number of symbols: these, and made-up words."""
    known = set(symbols)
    names = (name for index in count() if (name := FILLER.format(index)) not in known)
    return [*symbols, *islice(names, number - len(symbols))]


def write_dictionary(path: Path, symbols: Sequence[str], pieces: Mapping[str, int]) -> None:
    """Write a dict.txt: a line `symbol count` each."""
    path.write_text("".join(f"{symbol} {pieces.get(symbol, 0)}\n" for symbol in symbols), encoding="utf-8")


__all__ = ["count_pieces", "dictionary", "filled", "learn_codes", "write_dictionary"]
