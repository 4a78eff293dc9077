"""The languages that a model reads and writes, as far as its folder tells."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import metadata_load
from yaml import YAMLError

from ..metrics.languages import language_code


def source_language(folder: Path) -> str | None:
    """Its code, such as "en", or None where nothing tells.

    Looked up in the tokenizer's configuration, where Marian's and those of imported fairseq models have it, and in the
    card, if this package wrote it: such a card names the source first.
    """
    return _told(folder, 0)


def target_language(folder: Path) -> str | None:
    """The same of the language that it writes."""
    return _told(folder, 1)


def _told(folder: Path, side: int) -> str | None:
    for code in (*_of_the_tokenizer(folder, ("source", "target")[side]), *_of_the_card(folder)[side : side + 1]):
        if isinstance(code, str):
            with suppress(ValueError):
                return language_code(code)
    return None


def _of_the_tokenizer(folder: Path, side: str) -> Iterator[Any]:
    with suppress(OSError, ValueError, RecursionError):
        settings = json.loads((folder / "tokenizer_config.json").read_bytes())
        for facts, name in ((settings, f"{side}_lang"), (_of(settings, "moses"), side)):
            if (code := _of(facts, name)) is not None:
                yield code


def _of_the_card(folder: Path) -> list[Any]:
    with suppress(OSError, ValueError, RecursionError, YAMLError):
        facts = metadata_load(folder / "README.md")
        tags, languages = _of(facts, "tags"), _of(facts, "language")
        if isinstance(tags, list) and "admin_nmt" in tags and isinstance(languages, list):
            return languages
    return []


def _of(facts: Any, name: str) -> Any:
    """A value of what may be no mapping: files from elsewhere hold anything."""
    return facts.get(name) if isinstance(facts, dict) else None
