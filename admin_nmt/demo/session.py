"""The models behind the page: loaded once, shared by everybody who visits it, asked within limits."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from ..decoding.options import Engine, SearchOptions
from ..decoding.search.module_copies import SWITCHABLE_MODELS
from ..decoding.translator import Translation, Translator
from ..decoding.usual_scores import UsualScores
from ..hub.model_folder import local_folder
from .description import describe_model

ENGINES = {
    "PyTorch": Engine(),
    "CTranslate2": Engine(backend="ctranslate2"),
    "CTranslate2, int8": Engine(backend="ctranslate2", compute_type="int8"),
}
MOST_CHARACTERS = 1000
MOST_SENTENCES = 20


@dataclass(eq=False)  # two answers are two, also of the same text: Gradio shows each anew
class Answer:
    """A model's translation of a text.

    Args:
        sources: the sentences of the text; a blank line is an empty one.
        translations: of each sentence, best first; an empty sentence has an empty translation.
        seconds: how long search and attention took, also while other visitors' searches took a part of the machine.
        unusual: numbers, from 1 on, of the sentences that are probably unlike the training text, where the folder
            tells how sure the model is of its validation text.
    """

    sources: Sequence[str]
    translations: list[list[Translation]]
    seconds: float
    unusual: Sequence[int] = ()

    @property
    def text(self) -> str:
        """The best translations, a line each."""
        return "\n".join(found[0].text for found in self.translations)

    @property
    def tokens(self) -> int:
        """Tokens of the best translations, each with its end of sentence."""
        return sum(len(found[0].tokens) + 1 for found in self.translations if found[0].tokens)


class ServedModel:
    """A model that threads share; each engine that runs it is loaded when it is first asked for, once.

    Args:
        path_or_repo: folder or Hub repository.
        device: where to run; by default a GPU if there is one.

    Raises:
        ValueError: it is no complete model.
    """

    def __init__(self, path_or_repo: str | Path, device: str | None = None) -> None:
        self.folder = local_folder(path_or_repo)
        self.name = str(path_or_repo)
        self.device = device
        self.description = describe_model(self.folder)
        self._usual = UsualScores.load(self.folder)
        self._translators: dict[str, Translator] = {}
        self._loading = Lock()
        self.translator("PyTorch")  # a broken model is refused before anybody sees a page

    def translator(self, engine: str) -> Translator:
        """The model as an engine of [`ENGINES`] runs it.

        Raises:
            ValueError: the engine cannot run it.
            ImportError: the engine is not installed.
        """
        if engine not in self._translators:  # one that is there need not wait for another that is loading
            with self._loading:
                if engine not in self._translators:
                    chosen = ENGINES[engine]
                    self._translators[engine] = Translator.from_pretrained(
                        self.folder, device=self.device, backend=chosen.backend, compute_type=chosen.compute_type
                    )
        return self._translators[engine]

    def translate(
        self, sentences: Sequence[str], options: SearchOptions, engine: str = "PyTorch", layer: int | None = None
    ) -> Answer:
        """Translates sentences, each for itself.

        Args:
            options: of the search.
            engine: a name of [`ENGINES`].
            layer: decoder layer whose attention is shown, from 1 on; the last one by default, or if there are fewer.

        Raises:
            ValueError: a sentence has more tokens than the model has positions, or the engine cannot run the model.
            ImportError: the engine is not installed.
        """
        translator = self.translator(engine)
        config = translator.model.config
        longest = config.max_position_embeddings
        for number, ids in enumerate(translator.tokenizer(list(sentences), verbose=False)["input_ids"], 1):
            if len(ids) > longest:
                raise ValueError(
                    f"Sentence {number} has {len(ids):,} tokens, and the model reads {longest:,}: write shorter ones."
                )
        has_attention = engine == "PyTorch" and config.model_type in SWITCHABLE_MODELS
        alignment_layer = min(layer or config.decoder_layers, config.decoder_layers) - 1 if has_attention else None
        start = time.perf_counter()
        found = translator.translations(
            sentences,
            alignment_layer=alignment_layer,
            num_beams=options.num_beams,
            length_penalty=options.length_penalty,
            nbest=options.nbest,
        )
        seconds = time.perf_counter() - start
        unusual = [number for number, (best, *_) in enumerate(found, 1) if self._is_unusual(best)]
        return Answer(sentences, found, seconds, unusual)

    def _is_unusual(self, best: Translation) -> bool:
        """Tell whether a translation scores far below those of the validation text."""
        if self._usual is None or not best.tokens:
            return False
        return self._usual.is_unusual(best.log_prob, len(best.tokens))


def sentences_of(text: str, language: str | None = None) -> list[str]:
    """Split a visitor's text into sentences, "" for a blank line between others.

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
