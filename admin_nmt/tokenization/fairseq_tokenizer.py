"""The tokenizer of a fairseq checkpoint: Moses where it was used, subword-nmt's BPE, and the ids of a dict.txt."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from transformers import PreTrainedTokenizer

from .bpe_codes import CONTINUED, BpeCodes

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIAL = (BOS, PAD, EOS, UNK)
OVERWRITE = " #fairseq:overwrite"


def read_dictionary(path: str | Path) -> list[str]:
    """The symbol of every id of a fairseq dictionary: four special ones, then a line `symbol count` each.

    A symbol that comes again with the flag `#fairseq:overwrite` takes the later id; the earlier one keeps its row.

    Raises:
        ValueError: naming the file and the line that is no entry, or repeats a symbol without the flag.
        OSError: the file cannot be read.
    """
    symbols = list(SPECIAL)
    seen = set(symbols)
    try:
        lines = Path(path).read_bytes().decode().rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text, so it is no dictionary of fairseq") from error
    for number, line in enumerate(lines, 1):
        entry = line.rstrip()
        overwrites = entry.endswith(OVERWRITE)
        symbol, _, count = entry.removesuffix(OVERWRITE).rpartition(" ")
        if not symbol or not count.removeprefix("-").isdecimal():
            raise ValueError(f"{path}, line {number}: {line!r} is no entry, which is a symbol, a space and its count")
        if symbol in seen and (not overwrites or symbol in SPECIAL):
            raise ValueError(f"{path}, line {number}: the symbol {symbol!r} is in the dictionary already")
        seen.add(symbol)
        symbols.append(symbol)
    return symbols


class FairseqTokenizer(PreTrainedTokenizer):
    """Text to the ids that fairseq had and back; a piece that the dictionary lacks is `<unk>`, as it was in training.

    It is not a `tokenizer.json`, whose BPE cannot merge into pieces without an id and make those `<unk>` at the end,
    and which cannot run Moses.

    Args:
        dictionary_file: dict.txt.
        codes_file: the codes of subword-nmt.
        moses: what was done to the text before BPE, nothing if None: `source` and `target` are the two-letter codes of
            the languages of the text that is encoded and decoded; `normalize_punctuation` (default False),
            `aggressive_hyphens` (`-a`, default False) and `escape` (`&apos;`, default True) as in Moses' scripts.
        lowercase: lower-case the text, after Moses.

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
        **kwargs: Any,
    ) -> None:
        self.files = (dictionary_file, codes_file)
        self.symbols = read_dictionary(dictionary_file)
        self.ids = {symbol: index for index, symbol in enumerate(self.symbols)}
        self.codes = BpeCodes(codes_file)
        self.words = Moses(**moses) if moses else None
        self.lowercase = lowercase
        defaults = {
            "bos_token": BOS,
            "pad_token": PAD,
            "eos_token": EOS,
            "unk_token": UNK,
            "padding_side": "right",
            "truncation_side": "right",
            "special_tokens_pattern": "eos",
            "split_special_tokens": True,  # "</s>" inside a text is four characters, not the end of the sentence
            "clean_up_tokenization_spaces": False,
        }
        super().__init__(moses=dict(moses) if moses else None, lowercase=lowercase, **defaults | kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    def get_vocab(self) -> dict[str, int]:
        """The id of each symbol; one that was overwritten goes on as `symbol id`, which no text contains."""
        names = {s if self.ids[s] == i else f"{s} {i}": i for i, s in enumerate(self.symbols)}
        return names | self._added_tokens_encoder

    def state(self) -> dict[str, Any]:
        """All that the ids of a text depend on."""
        codes = {"ranks": self.codes.ranks, "separate_end": self.codes.separate_end}
        return {"symbols": self.symbols, **codes, **{name: self.init_kwargs[name] for name in ("moses", "lowercase")}}

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        if self.words:
            text = self.words.tokenize(text)
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
        """As fairseq prints a translation: an unknown word stays visible as `<unk>`."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        if skip_special_tokens:
            ids = [index for index in ids if index == self.unk_token_id or index not in self.all_special_ids]
        return self.convert_tokens_to_string(self.convert_ids_to_tokens(ids))

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        targets = [Path(save_directory, prefix + name) for name in self.vocab_files_names.values()]
        for source, target in zip(self.files, targets, strict=True):
            if not target.exists() or not target.samefile(source):
                shutil.copyfile(source, target)
        return tuple(map(str, targets))


class Moses:
    """Moses' scripts on one sentence at a time; see [`FairseqTokenizer`] for the settings."""

    def __init__(
        self,
        source: str,
        target: str,
        normalize_punctuation: bool = False,
        aggressive_hyphens: bool = False,
        escape: bool = True,
    ) -> None:
        self.normalizer = MosesPunctNormalizer(lang=source) if normalize_punctuation else None
        self.tokenizer = MosesTokenizer(lang=source)
        self.detokenizer = MosesDetokenizer(lang=target)
        self.aggressive_hyphens = aggressive_hyphens
        self.escape = escape

    def tokenize(self, text: str) -> str:
        """Moses tokens, separated by spaces."""
        if self.normalizer:
            text = self.normalizer.normalize(text)
        return str(
            self.tokenizer.tokenize(
                text, aggressive_dash_splits=self.aggressive_hyphens, return_str=True, escape=self.escape
            )
        )

    def detokenize(self, text: str) -> str:
        """Plain text of Moses tokens."""
        return str(self.detokenizer.detokenize(text.split(), unescape=self.escape))


FairseqTokenizer.register_for_auto_class("AutoTokenizer")

__all__ = ["FairseqTokenizer", "read_dictionary"]
