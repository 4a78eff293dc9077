"""Folders of tokenizers, one for both languages or one each: saved, loaded, and checked against a model."""

import copy
import json
import os
import re
import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...system.errors import refusing_code
from .fairseq_tokenizer import FairseqTokenizer

TARGET_FOLDER = "target_tokenizer"


def save_tokenizers(
    folder: str | Path,
    source: PreTrainedTokenizerBase,
    target: PreTrainedTokenizerBase | None = None,
    *,
    positions: int | None = None,
) -> None:
    """Saves a joint tokenizer in the folder, or the source's there and the target's in `target_tokenizer` below it.

    Args:
        positions: those of the model, to which the saved tokenizers cut with `truncation=True`; None for their own.
    """
    target_folder = Path(folder) / TARGET_FOLDER
    _save(source, Path(folder), positions)
    if target is None or target is source:
        shutil.rmtree(target_folder, ignore_errors=True)  # of an earlier model, which load_tokenizers would take
    else:
        _save(target, target_folder, positions)


def _save(tokenizer: PreTrainedTokenizerBase, folder: Path, positions: int | None) -> None:
    """Save with a configuration that transformers 4 reads as well: 5 has a new name for the class, and a list here."""
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:  # tokenizers has no class of its own for what the system reports
        if (number := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder)) from error
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["tokenizer_class"] == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if not config.get("extra_special_tokens"):
        config.pop("extra_special_tokens", None)
    if positions is not None:
        config["model_max_length"] = positions
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_tokenizers(folder: str | Path) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """Returns (source, target) as saved in a folder; a joint tokenizer comes twice, as one object.

    Raises:
        ForeignCodeError: one needs code that comes with it.
    """
    source = _load(folder)
    target_folder = Path(folder) / TARGET_FOLDER
    if target_folder.is_dir():
        return source, _load(target_folder)
    return _reading_source(source) if getattr(source, "separate_vocabs", False) else source, source


def _reading_source(marian: Any) -> Any:
    """A copy of a stock Marian tokenizer of two vocabularies that spells ids of the source; as it is, the target's."""
    source = copy.copy(marian)
    source.decoder = {token: piece for piece, token in source.encoder.items()}
    return source


def _load(folder: str | Path) -> PreTrainedTokenizerBase:
    with refusing_code(folder):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def check_tokenizer(tokenizer: Any, config: Any, target: bool = False) -> None:
    """Checks that a tokenizer and a model's config agree on the size of the vocabulary and on `<pad>` and `</s>`.

    Args:
        config: a config with MarianConfig's fields.
        target: compare with decoder_vocab_size, which one config may leave empty, instead of vocab_size.

    Raises:
        ValueError: names the first field that differs.
    """
    own_size = getattr(config, "decoder_vocab_size", None) is not None  # a stock Pegasus has no such field
    size_field = "decoder_vocab_size" if target and own_size else "vocab_size"
    own_pieces = getattr(tokenizer, "separate_vocabs", False) and target  # beside those of the source, which len counts
    expected = {
        size_field: len(tokenizer.target_encoder if own_pieces else tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    for field, value in expected.items():
        if getattr(config, field) != value:
            raise ValueError(
                f"The model's {field} is {getattr(config, field)}, but its {'target' if target else 'source'} tokenizer"
                f" has {value}: build the config from this tokenizer, or load the one the model was trained with."
            )


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of all that the ids of a text depend on: tokenizers with equal digests give every text the same ids.

    That is tokenizer.json without padding and truncation, which earlier calls of the tokenizer leave behind, or, where
    there is none, as with the Hub's Marians, the files of the vocabulary.
    """
    state: dict[str, Any]
    if isinstance(tokenizer, FairseqTokenizer):
        state = tokenizer.state()
    elif isinstance(tokenizer, PreTrainedTokenizerFast):
        state = json.loads(tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}
    else:
        with TemporaryDirectory() as folder:
            tokenizer.save_vocabulary(folder)
            state = {file.name: sha256(file.read_bytes()).hexdigest() for file in Path(folder).iterdir()}
        state["added"] = tokenizer.get_added_vocab()
    return sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
