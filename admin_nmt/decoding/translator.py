"""Translates text with a saved model."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..folders.model_folder import check_tokenizers, load_model, local_folder, read_config
from ..search.beam_search import ScoredIds
from ..search.generation import search_ids
from ..tokenization.pieces import piece_texts
from .ctranslate2_backend import CTranslate2Model
from .usual_scores import UsualScores, log_unusual, score_per_token

logger = logging.getLogger(__name__)

PLAIN: dict[str, Any] = {"skip_special_tokens": True}  # how ids become text


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence.

    Attributes:
        text: detokenised.
        score: log_prob / (tokens + 1)^length_penalty, which the search ranks by; the end of sentence counts as a token.
        log_prob: natural logarithm of its probability, end of sentence included.
        tokens: those of the target, without end of sentence, as the text they stand for: " Haus" begins a word.
        source_tokens: likewise those of the source.
        attention: [tokens, source_tokens], the mean of the heads of the chosen layer's attention to the source.
    """

    text: str
    score: float
    log_prob: float
    tokens: list[str]
    source_tokens: list[str]
    attention: np.ndarray | None = None


NOTHING = Translation("", 0.0, 0.0, [], [])  # of a blank sentence


class Translator:
    """A model with its tokenizers: text in, text out.

    Threads may share one, also through `asyncio.to_thread`, and may run `generate` or `score_pairs` on its model
    meanwhile. Their searches run side by side, which pays where each takes few cores (`torch.set_num_threads`);
    CTranslate2 runs one batch after the other. Nobody may train the model meanwhile, and who has `tokenizer` cut or pad
    at the same time takes a copy of it, for it keeps such settings. With torch.distributed, only one thread of a
    process may translate. A pickle holds the model; that of CTranslate2 names its folder and loads it again.

    Args:
        model: any translation model with Marian's field names in its configuration, which is put into evaluation mode,
            or one that CTranslate2 runs.
        tokenizer: of the source, and of the target unless `target_tokenizer` is given.
        max_tokens: source positions of a batch, padding included.
        options: settings of `generate` (`num_beams`, `length_penalty`, ...) instead of the model's own.

    Attributes:
        usual: the scores of the validation set, where the model's folder has them; None for no word about low ones.
        report: is told after a search which sentences score far below `usual`, and how many were searched; by default a
            warning in the log.
    """

    def __init__(
        self,
        model: PreTrainedModel | CTranslate2Model,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        max_tokens: int = 4096,
        **options: Any,
    ) -> None:
        self.model = model
        self.search_ids: Callable[..., list[list[ScoredIds]]] = (
            model.search_ids if isinstance(model, CTranslate2Model) else partial(search_ids, model.eval())
        )
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        self.max_tokens = max_tokens
        self.options = options
        self.usual: UsualScores | None = None
        self.report: Callable[[Sequence[str], int], None] = log_unusual

    @classmethod
    def from_pretrained(
        cls,
        path_or_repo: str | Path,
        *,
        backend: str = "torch",
        device: str | torch.device | None = None,
        compute_type: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Loads a model trained here, or its stock export, from a folder or a Hub repository.

        Args:
            backend: what runs the model, "torch" or "ctranslate2". For CTranslate2 it is converted at the first call
                (one that was trained here is folded and exported before) and found in the cache from then on.
            device: where to run; by default a GPU if there is one.
            compute_type: of CTranslate2: "float32" (the default, same translations as torch), "int8", "auto", ...
            kwargs: arguments of the constructor.

        Raises:
            ValueError: the folder is no complete model, its tokenizer is another's, or the backend cannot run it.
            ImportError: the backend is not installed.
        """
        folder = local_folder(path_or_repo)
        source, target = check_tokenizers(folder, read_config(folder))
        model = _load(folder, backend, device, compute_type)
        translator = cls(model, source, target, **kwargs)
        translator.usual = UsualScores.load(folder)
        return translator

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self.model.device

    def translate(self, sentences: Iterable[str], *, progress: bool = False, **options: Any) -> list[str]:
        """Translates sentences; gives one for each, in the same order.

        A blank sentence stays blank without asking the model. One that is longer than the model's positions is cut,
        and a warning says how many were.

        Args:
            progress: show a progress bar.
            options: settings of `generate` for this call.

        Raises:
            TypeError: `sentences` is a single string, or one of them is no string.
            ValueError: one holds half a surrogate pair.
        """
        found = self._search(_checked(sentences), progress=progress, **options)
        best = iter(self.target_tokenizer.batch_decode([rows[0].ids for rows, _ in found if rows], **PLAIN))
        return [next(best) if rows else "" for rows, _ in found]

    def translations(
        self, sentences: Iterable[str], *, nbest: int = 1, progress: bool = False, **options: Any
    ) -> list[list[Translation]]:
        """The best translations of each sentence with their scores, best first.

        Translations of the same text count once, with the best score, so there may be fewer than `nbest` of a sentence.
        There is always one: a blank sentence has an empty one.

        Args:
            nbest: most translations of a sentence, at most `num_beams`.
            progress: show a progress bar.
            options: settings of `generate` for this call.

        Raises:
            TypeError: `sentences` is a single string, or one of them is no string.
            ValueError: one holds half a surrogate pair, or `nbest` is more than `num_beams`.
        """
        found = self._search(_checked(sentences), nbest=nbest, progress=progress, **options)
        return [self._detokenised(rows, source) if rows else [NOTHING] for rows, source in found]

    def _search(self, sentences: list[str], progress: bool, **options: Any) -> list[tuple[list[ScoredIds], list[int]]]:
        """What the search finds for each sentence, and the sentence's ids; nothing for a blank one."""
        found: list[tuple[list[ScoredIds], list[int]]] = [([], []) for _ in sentences]
        indices = [index for index, sentence in enumerate(sentences) if sentence.strip()]
        if indices:
            ids = self._encode([sentences[index] for index in indices])
            outputs = self.search_ids(ids, max_tokens=self.max_tokens, progress=progress, **self.options | options)
            for index, rows, source in zip(indices, outputs, ids, strict=True):
                found[index] = rows, source
            if self.usual is not None and options.get("sampling") is None and not options.get("do_sample"):
                usual = self.usual
                low = [sentences[i] for i in indices if usual.is_unusual(score_per_token(found[i][0][0]))]
                self.report(low, len(indices))
        return found

    def _detokenised(self, rows: list[ScoredIds], source: list[int]) -> list[Translation]:
        texts = self.target_tokenizer.batch_decode([row.ids for row in rows], **PLAIN)
        source_tokens = piece_texts(self.tokenizer, source[:-1])
        different: dict[str, Translation] = {}
        for text, row in zip(texts, rows, strict=True):
            tokens = piece_texts(self.target_tokenizer, row.ids)
            different.setdefault(text, Translation(text, row.score, row.log_prob, tokens, source_tokens))
        return list(different.values())

    def _encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence with the end-of-sentence token last, cut to the model's positions."""
        longest = self.model.config.max_position_embeddings
        rows = self.tokenizer(sentences, truncation=False, verbose=False)["input_ids"]
        too_long = sum(len(row) > longest for row in rows)
        if too_long:
            hint = "; a line of several sentences is translated whole with --split-sentences"
            logger.warning("cut %d of %d sentences to the model's %d tokens" + hint, too_long, len(rows), longest)
        return [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]


def _checked(sentences: Iterable[str]) -> list[str]:
    """Sentences that a tokenizer can read; those of a generator, too."""
    if isinstance(sentences, str):
        raise TypeError("sentences is a single string; give a list of sentences")
    sentences = list(sentences)
    for number, sentence in enumerate(sentences, 1):
        if not isinstance(sentence, str):
            raise TypeError(f"sentence {number} is {sentence!r}; give a string")
        try:
            sentence.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"sentence {number}, {sentence!a}, holds half a surrogate pair") from error
    return sentences


def _load(
    folder: Path, backend: str, device: str | torch.device | None, compute_type: str | None
) -> PreTrainedModel | CTranslate2Model:
    if backend == "ctranslate2":
        return CTranslate2Model(folder, compute_type=compute_type or "float32", device=device)
    if backend != "torch":
        raise ValueError(f"backend: {backend!r} is neither 'torch' nor 'ctranslate2'")
    if compute_type is not None:
        raise ValueError(
            "compute_type: belongs to the backend 'ctranslate2'; torch computes in the type of the weights"
        )
    model = load_model(folder)
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
