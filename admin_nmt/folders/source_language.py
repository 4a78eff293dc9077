"""The language that a model reads, as far as its folder tells."""

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
    for code in _told(folder):
        with suppress(ValueError):
            return language_code(code)
    return None


def _told(folder: Path) -> Iterator[str]:
    with suppress(OSError, ValueError, RecursionError):
        settings: Any = json.loads((folder / "tokenizer_config.json").read_bytes())
        for found in (settings.get("source_lang"), (settings.get("moses") or {}).get("source")):
            if isinstance(found, str):
                yield found
    with suppress(OSError, ValueError, RecursionError, YAMLError):
        facts: Any = metadata_load(folder / "README.md") or {}
        languages = facts.get("language")
        if "admin_nmt" in (facts.get("tags") or []) and isinstance(languages, list) and isinstance(languages[0], str):
            yield languages[0]
