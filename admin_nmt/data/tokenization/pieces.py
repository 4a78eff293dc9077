"""Spelling of the pieces of a vocabulary: a space tells where a word begins or, in fairseq's, where it ends."""

import unicodedata
from collections.abc import Sequence

from tokenizers import decoders
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .bpe_codes import CONTINUED
from .fairseq_tokenizer import FairseqTokenizer


def piece_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The text of each id, such that all of them together are the sentence: " Ha", "us" or, of fairseq, "Ha", "us ".

    Special tokens have none. A piece of byte-level BPE that is no whole character is shown as �.
    """
    if not _is_byte_level(tokenizer):
        return spellings(tokenizer, ids)
    special, to_text = set(tokenizer.all_special_ids), decoders.ByteLevel()
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    return ["" if one in special else to_text.decode([piece]) for one, piece in zip(ids, pieces, strict=True)]


def spellings(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Each id in the characters of its piece, which stand for bytes in byte-level BPE; "" for special tokens."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    return ["" if one in special else _spelling(tokenizer, piece) for one, piece in zip(ids, pieces, strict=True)]


def _spelling(tokenizer: PreTrainedTokenizerBase, piece: str) -> str:
    if isinstance(tokenizer, FairseqTokenizer):
        return piece.removesuffix(CONTINUED) if piece.endswith(CONTINUED) else piece + " "
    return piece.replace("Ġ" if _is_byte_level(tokenizer) else "▁", " ")


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    return isinstance(tokenizer, PreTrainedTokenizerFast) and "ByteLevel" in str(tokenizer.backend_tokenizer.decoder)


def spelt_words(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """All spellings of words of the target language: at the beginning of a word, and behind a bracket or quote."""
    ids = tokenizer(text_target=text, add_special_tokens=False)["input_ids"]
    spelt = "".join(spellings(tokenizer, ids))
    return [spelt] if isinstance(tokenizer, FairseqTokenizer) else [spelt, spelt.removeprefix(" ")]


def capitalised_too(text: str) -> list[str]:
    """A text as it is and as it begins a sentence."""
    words = " ".join(text.split())
    return sorted({words, words[:1].upper() + words[1:]})


def words_go_on(tokenizer: PreTrainedTokenizerBase) -> list[bool]:
    """Tell of each id of the vocabulary whether text without a space in front goes on with a word after it."""
    texts = piece_texts(tokenizer, range(len(tokenizer)))
    if isinstance(tokenizer, FairseqTokenizer):
        return [not text.endswith(" ") and text != "" for text in texts]
    return [text != "" and unicodedata.category(text[-1])[0] in "LMN" for text in texts]


def word_numbers(tokens: Sequence[str]) -> list[int | None]:
    """The word of each token, by number, of the text that the tokens are together; None where it is only space."""
    numbers: list[int | None] = []
    word, begins = -1, True
    for token in tokens:
        text = token.strip()
        if not text:
            numbers.append(None)
            begins |= bool(token)
            continue
        word += begins or token[0].isspace()
        numbers.append(word)
        begins = token[-1].isspace()
    return numbers
