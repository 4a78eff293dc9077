"""What the pieces of a vocabulary stand for: text in which a space tells where a word begins, or where it ends."""

from collections.abc import Sequence

from tokenizers import decoders
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .bpe_codes import CONTINUED
from .fairseq_tokenizer import FairseqTokenizer


def piece_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The text of each id, such that all of them together are the sentence: " Ha", "us" or, of fairseq, "Ha", "us ".

    A piece of byte-level BPE that is no whole character is shown as �.
    """
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    if isinstance(tokenizer, FairseqTokenizer):
        return [piece.removesuffix(CONTINUED) if piece.endswith(CONTINUED) else piece + " " for piece in pieces]
    if isinstance(tokenizer, PreTrainedTokenizerFast) and "ByteLevel" in str(tokenizer.backend_tokenizer.decoder):
        to_text = decoders.ByteLevel()
        return [to_text.decode([piece]) for piece in pieces]
    return [piece.replace("▁", " ") for piece in pieces]
