"""The models behind the page: loaded once, shared by everybody who visits it, asked within limits."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ..decoding.search.attention_switch import SWITCHABLE_MODELS
from ..decoding.translator import Translation, Translator
from ..decoding.usual_scores import UsualScores
from ..hub.model_folder import local_folder
from .model_facts import ModelFacts, model_facts

# What runs a model, by the name that the page gives it.
ENGINES: dict[str, dict[str, Any]] = {
    "PyTorch": {},
    "CTranslate2": {"backend": "ctranslate2"},
    "CTranslate2, int8": {"backend": "ctranslate2", "compute_type": "int8"},
}
MOST_BEAMS = 12
MOST_CHARACTERS = 1000
MOST_SENTENCES = 20


@dataclass(frozen=True)
class Settings:
    """A search, as the page's controls set it.

    Args:
        num_beams: beam size, which is also the number of translations that are shown.
        length_penalty: log-probabilities are divided by length to this power.
        engine: a name of [`ENGINES`].
        layer: the decoder layer whose attention is shown, from 1; the last one if there are not so many, or for None.

    Raises:
        ValueError: one is out of its range; requests need not come from the page.
    """

    num_beams: int = 5
    length_penalty: float = 1.0
    engine: str = "PyTorch"
    layer: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.num_beams <= MOST_BEAMS:
            raise ValueError(f"The beam size is {self.num_beams}; give 1 to {MOST_BEAMS}.")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"The length penalty is {self.length_penalty}; give a finite number.")
        if self.engine not in ENGINES:
            raise ValueError(f"The backend is {self.engine!r}; give one of {', '.join(ENGINES)}.")
        if self.layer is not None and self.layer < 1:
            raise ValueError(f"The attention layer is {self.layer}; give a number from 1 on.")


@dataclass(frozen=True)
class Answer:
    """What a model makes of a text.

    Args:
        sentences: the translations of each sentence, best first; a blank line has one empty translation.
        seconds: how long search and attention took, also while other visitors' searches took a part of the machine.
        unusual: which sentences are probably unlike the training text, where the folder tells how sure the model is of
            its validation text.
    """

    sentences: list[list[Translation]]
    seconds: float
    unusual: Sequence[bool] = ()

    @property
    def text(self) -> str:
        """The best translations, a line each."""
        return "\n".join(found[0].text for found in self.sentences)

    @property
    def tokens(self) -> int:
        """Tokens of the best translations, each with its end of sentence."""
        return sum(len(found[0].tokens) + 1 for found in self.sentences if found[0].tokens)


class ServedModel:
    """A model that threads share; what runs it is loaded when it is first asked for, once.

    Args:
        path_or_repo: folder or Hub repository.
        device: where to run; by default a GPU if there is one.

    Raises:
        ValueError: it is no complete model.
    """

    def __init__(self, path_or_repo: str | Path, device: str | None = None) -> None:
        self.folder: Path = local_folder(path_or_repo)
        self.name = str(path_or_repo)
        self.device = device
        self.facts: ModelFacts = model_facts(self.folder)
        self._usual = UsualScores.load(self.folder)
        self._translators: dict[str, Translator] = {}
        self._loading = Lock()
        self.translator("PyTorch")  # what is wrong with a model is told before anybody sees a page

    def translator(self, engine: str) -> Translator:
        """The model as an engine of [`ENGINES`] runs it.

        Raises:
            ValueError: the engine cannot run it.
            ImportError: the engine is not installed.
        """
        if engine not in self._translators:  # who wants one that is there need not wait for another that is loading
            with self._loading:
                if engine not in self._translators:
                    options = ENGINES[engine]
                    self._translators[engine] = Translator.from_pretrained(self.folder, device=self.device, **options)
        return self._translators[engine]

    def translate(self, sentences: Sequence[str], settings: Settings) -> Answer:
        """Translates sentences, each for itself.

        Raises:
            ValueError: a sentence has more tokens than the model has positions, or the engine cannot run the model.
            ImportError: the engine is not installed.
        """
        translator = self.translator(settings.engine)
        longest = translator.model.config.max_position_embeddings
        for number, ids in enumerate(translator.tokenizer(list(sentences), verbose=False)["input_ids"], 1):
            if len(ids) > longest:
                raise ValueError(
                    f"Sentence {number} has {len(ids):,} tokens, and the model reads {longest:,}: write shorter ones."
                )
        search: dict[str, Any] = {"num_beams": settings.num_beams, "length_penalty": settings.length_penalty}
        if settings.engine == "PyTorch" and translator.model.config.model_type in SWITCHABLE_MODELS:
            layers = translator.model.config.decoder_layers
            search["alignment_layer"] = min(settings.layer or layers, layers) - 1
        start = time.perf_counter()
        translations = translator.translations(sentences, nbest=settings.num_beams, **search)
        seconds = time.perf_counter() - start
        return Answer(translations, seconds, [self._is_unusual(found[0]) for found in translations])

    def _is_unusual(self, best: Translation) -> bool:
        """Whether a translation scores far below those of the validation text."""
        if self._usual is None or not best.tokens:
            return False
        return self._usual.is_unusual(best.log_prob / (len(best.tokens) + 1))


def sentences_of(text: str, language: str | None = None) -> list[str]:
    """The sentences of a text that a visitor wrote, "" for a blank line between others.

    Args:
        language: code of the text's language, by whose rules lines are split; without it each line is a sentence.

    Raises:
        ValueError: there is nothing to translate, or more than one request may hold.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    if not lines:
        raise ValueError("Write a sentence to translate.")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"The text has {len(text):,} characters; {MOST_CHARACTERS:,} at a time are translated.")
    if language is not None:
        from ..decoding.paragraphs import split_sentences

        lines = [one.strip() for line in lines for one in split_sentences(line, language) or [""]]
    if len(lines) > MOST_SENTENCES:
        raise ValueError(f"The text has {len(lines)} sentences; {MOST_SENTENCES} at a time are translated.")
    return lines


def display_names(models: Sequence[str]) -> list[str]:
    """Short names that tell models apart: the folder, or the run that it belongs to, or else all of the path."""

    def short(name: str) -> str:
        parts = (Path(name).resolve() if Path(name).is_dir() else Path(name)).parts
        is_part_of_run = parts[-1] in ("standard", "final") and len(parts) > 1
        return parts[-2] if is_part_of_run else parts[-1]

    names = [short(name) for name in models]
    return [short if names.count(short) == 1 else name for name, short in zip(models, names, strict=True)]
