"""What the page says of a model before it translates: its languages, its size, and sentences that it can be asked."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import metadata_load
from yaml import YAMLError

from ..hub.model_folder import generation_defaults, read_config
from ..hub.model_info import count_parameters
from ..hub.source_language import source_language
from ..metrics.languages import language_name

# The line of a card's Python snippet that holds its example sentences.
SENTENCES = re.compile(r"^sentences = (\[.*\])$", re.MULTILINE)
PLACEHOLDER = re.compile(r"A sentence in .+\.")  # where the recipe gives no example, and in English for any language


@dataclass(frozen=True)
class ModelFacts:
    """A model in a few words.

    Args:
        size: a phrase such as "12-2 layers, 2.1M parameters".
        decoder_layers: how many there are.
        source_language: its code, as far as the folder tells it.
        languages: codes of source and target, or nothing where the card does not tell which is which.
        examples: sentences that the model's card translates.
        length_penalty: that of its own settings.
        license: as the card states it, for whoever shows the model.
    """

    size: str
    decoder_layers: int
    source_language: str | None = None
    languages: tuple[str, str] | None = None
    examples: tuple[str, ...] = ()
    length_penalty: float = 1.0
    license: str | None = None

    @property
    def title(self) -> str | None:
        """The names of its languages, as "English to German"."""
        return " to ".join(map(language_name, self.languages)) if self.languages else None


def model_facts(folder: Path) -> ModelFacts:
    """The facts of a model folder: from its configuration, and from its card if one of this package's is there.

    Raises:
        ValueError: the folder is no model, or its card's header cannot be read.
    """
    config = read_config(folder)
    parameters = count_parameters(config)
    count = f"{parameters / 1e6:,.1f}M" if parameters >= 1e5 else f"{parameters:,}"
    size = f"{config.encoder_layers}-{config.decoder_layers} layers, {count} parameters"
    length_penalty = generation_defaults(folder, config).length_penalty
    length_penalty = 1.0 if length_penalty is None else length_penalty
    facts = ModelFacts(size, config.decoder_layers, source_language(folder), length_penalty=length_penalty)
    path = folder / "README.md"
    if not path.is_file():
        return facts
    try:
        card = metadata_load(path) or {}
    except (ValueError, YAMLError) as error:
        raise ValueError(f"{path}: its header is no valid YAML; render the card again, or remove it") from error
    return _with_card(facts, card, path.read_text(encoding="utf-8"))


def _with_card(facts: ModelFacts, card: Mapping[str, Any], text: str) -> ModelFacts:
    """Facts of a card's header and text; only those of this package name the source language first."""
    if "admin_nmt" not in (card.get("tags") or []):
        return facts
    languages = card.get("language") or []
    found = SENTENCES.search(text)
    return replace(
        facts,
        languages=(languages[0], languages[1]) if isinstance(languages, list) and len(languages) == 2 else None,
        examples=tuple(one for one in json.loads(found[1]) if not PLACEHOLDER.fullmatch(one)) if found else (),
        license=None if card.get("license") == "unknown" else card.get("license"),
    )
