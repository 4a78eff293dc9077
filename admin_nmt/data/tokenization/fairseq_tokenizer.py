"""The tokenizer of fairseq's preparation: Moses where it was used, subword-nmt's BPE, and the ids of a dict.txt.

Imported checkpoints have it, and models that are trained on text prepared so.
"""

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from transformers import PreTrainedTokenizer

from .bpe_codes import CONTINUED, BpeCodes

if TYPE_CHECKING:
    from .moses import Moses

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIAL = (BOS, PAD, EOS, UNK)


def read_dictionary(path: str | Path) -> list[str]:
    """The symbol of every id of a fairseq dictionary: four special ones, then a line `symbol count` each.

    Raises:
        ValueError: naming the file and the line that is no entry, or repeats a symbol.
        OSError: the file cannot be read.
    """
    symbols = dict.fromkeys(SPECIAL)
    try:
        lines = Path(path).read_bytes().decode().rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text, so it is no dictionary of fairseq") from error
    for number, line in enumerate(lines, 1):
        symbol, _, count = line.rstrip().rpartition(" ")
        if not symbol or not count.removeprefix("-").isdecimal():
            raise ValueError(f"{path}, line {number}: {line!r} is no entry, which is a symbol, a space and its count")
        if symbol in symbols:
            raise ValueError(f"{path}, line {number}: the symbol {symbol!r} is in the dictionary already")
        symbols[symbol] = None
    return list(symbols)


def _moses(settings: Mapping[str, Any]) -> "Moses":
    from .moses import Moses  # sacremoses takes longer to load than the tokenizers that never need it

    return Moses(**settings)


class FairseqTokenizer(PreTrainedTokenizer):
    """Text to the ids that fairseq had and back; a piece that the dictionary lacks is `<unk>`, as it was in training.

    It is not a `tokenizer.json`, whose BPE cannot merge into pieces without an id and make those `<unk>` at the end,
    and which cannot run Moses.

    Args:
        dictionary_file: dict.txt.
        codes_file: the codes of subword-nmt.
        moses: what was done to the text before BPE, nothing if None: the arguments of [`Moses`]. `source` and `target`
            are the two-letter codes of the languages of the text that is encoded and decoded; what is given as
            `text_target` is in the target's.
        lowercase: lower-case the text, after Moses.
        marian_ids: `</s>` 0, `<unk>` 1, the symbols of dict.txt, and `<pad>` last, as our models and stock Marian have
            them; else `<s>`, `<pad>`, `</s>`, `<unk>` and the symbols, as fairseq does.

    Raises:
        ValueError: a file is damaged, or `moses` has an unknown language or key.
    """

    vocab_files_names = {"dictionary_file": "dict.txt", "codes_file": "bpe_codes.txt"}  # noqa: RUF012
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self,
        dictionary_file: str,
        codes_file: str,
        *,
        moses: Mapping[str, Any] | None = None,
        lowercase: bool = False,
        marian_ids: bool = False,
        **kwargs: Any,
    ) -> None:
        self.files = (dictionary_file, codes_file)
        self.contents = [Path(file).read_bytes() for file in self.files]  # to save, when the files may be gone
        self.symbols = read_dictionary(dictionary_file)
        if marian_ids:
            self.symbols = [EOS, UNK, *self.symbols[len(SPECIAL) :], PAD]
        self.ids = {symbol: index for index, symbol in enumerate(self.symbols)}
        self.codes = BpeCodes(codes_file)
        self.words = _moses(moses) if moses else None
        self.lowercase = lowercase
        self.of_target = False
        defaults = {
            "bos_token": None if marian_ids else BOS,
            "pad_token": PAD,
            "eos_token": EOS,
            "unk_token": UNK,
            "padding_side": "right",
            "truncation_side": "right",
            "special_tokens_pattern": "eos",
            "split_special_tokens": True,  # "</s>" inside a text is four characters, not the end of the sentence
            "clean_up_tokenization_spaces": False,
        }
        settings = {"moses": dict(moses) if moses else None, "lowercase": lowercase, "marian_ids": marian_ids}
        super().__init__(**settings, **defaults | kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    def get_vocab(self) -> dict[str, int]:
        return self.ids | self._added_tokens_encoder

    def state(self) -> dict[str, Any]:
        """All that the ids of a text depend on."""
        codes = {"merges": list(self.codes.ranks), "separate_end": self.codes.separate_end}
        return {"symbols": self.symbols, **codes, **{name: self.init_kwargs[name] for name in ("moses", "lowercase")}}

    def of_words(self) -> Self:
        """Tokenizer for text that is Moses' tokens already."""
        other = copy(self)
        other.words, other.init_kwargs = None, self.init_kwargs | {"moses": None}
        return other

    def _switch_to_input_mode(self) -> None:
        self.of_target = False

    def _switch_to_target_mode(self) -> None:
        self.of_target = True

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        if self.words:
            text = self.words.tokenize(text, self.of_target)
        if self.lowercase:
            text = text.lower()
        # BPE splits at spaces only, fairseq at whatever is white: a tab is a letter to one, a separator to the other.
        return " ".join(self.codes.segment(text)).split()

    def _convert_token_to_id(self, token: str) -> int:
        return self.ids.get(token, self.ids[UNK])

    def _convert_id_to_token(self, index: int) -> str:
        return self.symbols[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Pieces joined to words; with Moses, words to text."""
        text = (" ".join(tokens) + " ").replace(f"{CONTINUED} ", "").rstrip()
        return self.words.detokenize(text) if self.words else text

    def _decode(self, token_ids: int | list[int], skip_special_tokens: bool = False, **kwargs: Any) -> str:
        """Text as fairseq prints a translation: an unknown word stays visible as `<unk>`."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        if skip_special_tokens:
            ids = [index for index in ids if index == self.unk_token_id or index not in self.all_special_ids]
        return self.convert_tokens_to_string(self.convert_ids_to_tokens(ids))

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        targets = [Path(save_directory, prefix + name) for name in self.vocab_files_names.values()]
        for target, content in zip(targets, self.contents, strict=True):
            target.write_bytes(content)
        return tuple(map(str, targets))


FairseqTokenizer.register_for_auto_class("AutoTokenizer")

__all__ = ["FairseqTokenizer", "read_dictionary"]
