"""Translates text with a saved model."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.tokenization.pieces import capitalised_too, piece_texts, spellings, spelt_words, word_numbers, words_go_on
from ..data.tokenization.tokenizer_folder import tokenizer_digest
from ..hub.model_folder import check_tokenizers, load_model, local_folder, read_config
from ..system.devices import checked_device
from .ctranslate2_backend import CTranslate2Model
from .options import Engine, SearchOptions
from .search.beam_search import ScoredIds
from .search.constraints import ForbiddenTexts
from .search.ensemble import Ensemble
from .search.forced_decoding import attention_to_source
from .search.generation import search_ids
from .usual_scores import Unusual, UsualScores

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

    def alignment(self) -> list[tuple[int, int]]:
        """Pairs (source word, target word), counted from 0: where each word of the translation looks most.

        A word is what spaces separate or, where the tokenizer prepares text with Moses, one of Moses' tokens. The
        attention of its tokens is averaged, and that to the tokens of a source word is added up.

        Raises:
            ValueError: the translation came without attention.
        """
        if self.attention is None:
            raise ValueError("this translation has no attention to align by; ask for it with alignment_layer=-2")
        rows, columns = (_membership(tokens) for tokens in (self.tokens, self.source_tokens))
        if not len(columns):
            return []
        best = (rows @ self.attention @ columns.T).argmax(1)
        return sorted((int(source), target) for target, source in enumerate(best))


def _membership(tokens: list[str]) -> np.ndarray:
    """1 where a token is of a word, [words, tokens]."""
    numbers = [-1 if number is None else number for number in word_numbers(tokens)]
    return (np.array(numbers)[None] == np.arange(max(numbers, default=-1) + 1)[:, None]).astype(np.float32)


Detokenised = list[tuple[Translation, list[int]]]  # the translations of a sentence, with the ids of each
CUT = "cut %d of %d sentences to the model's %d tokens; --split-sentences translates paragraphs sentence by sentence"
# Marian's tokenizers and fairseq's read target text in another state than source text: one call at a time. Those of
# the tokenizers library have no such state.
ONE_AT_A_TIME = threading.Lock()
NOTHING = Translation("", 0.0, 0.0, [], [])  # of a blank sentence


class Translator:
    """A model with its tokenizers: text in, text out.

    Threads may share one, also through `asyncio.to_thread`, and may run `generate` or `score_pairs` on its model
    meanwhile; the model must not be trained meanwhile. A tokenizer remembers truncation and padding: code that uses
    `tokenizer` with them at the same time needs a copy of its own. With torch.distributed, only one thread of a process
    may translate. A pickle holds the model; that of CTranslate2 names its folder and loads it again.

    Args:
        model: any translation model with Marian's field names in its configuration, which is put into evaluation mode,
            several of them as an ensemble, or one that CTranslate2 runs.
        tokenizer: of the source, and of the target unless `target_tokenizer` is given.
        options: of the search, where calls give no others.
        changes: fields of [`SearchOptions`] that `options` are changed by.

    Attributes:
        usual: the scores of the validation set, where the model's folder has them; None for no word about low ones.
        report: is told after a search how many sentences score far below `usual`; by default a warning in the log.
        precision: what the model computes in, in words.
    """

    def __init__(
        self,
        model: PreTrainedModel | Ensemble | CTranslate2Model,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        options: SearchOptions | None = None,
        **changes: Any,
    ) -> None:
        self.model = model
        self.search_ids: Callable[..., list[list[ScoredIds]]] = (
            model.search_ids if isinstance(model, CTranslate2Model) else partial(search_ids, model.eval())
        )
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        self.options = replace(options or SearchOptions(), **changes)
        self.precision: str = (
            model.compute_type
            if isinstance(model, CTranslate2Model)
            else str(next(model.parameters()).dtype).removeprefix("torch.")
        )
        self.usual: UsualScores | None = None
        self.report: Callable[[Unusual], None] = Unusual.warn

    @classmethod
    def from_pretrained(
        cls,
        path_or_repo: str | Path | Sequence[str | Path],
        *,
        backend: Literal["torch", "ctranslate2"] = "torch",
        device: str | torch.device | None = None,
        compute_type: str | None = None,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        options: SearchOptions | None = None,
        **changes: Any,
    ) -> Self:
        """Loads a trained model or its standard model from a folder or a Hub repository.

        Args:
            path_or_repo: the model, or several, which translate as an ensemble.
            backend: what runs the model, "torch" or "ctranslate2". For CTranslate2 it is converted at the first call
                (one that was trained here is folded and exported before) and found in the cache from then on.
            device: where to run; by default a GPU if there is one.
            compute_type: the precision of CTranslate2; see [`Engine`].
            dtype: the precision of torch; see [`Engine`].
            revision: branch, tag or commit of a Hub repository.
            options, changes: of the search, as of the constructor.

        Raises:
            ValueError: the folder is no complete model, its tokenizer is another's, or the backend cannot run it; the
                device is not there; or the models of an ensemble have other vocabularies.
            ImportError: the backend is not installed.
        """
        options = replace(options or SearchOptions(), **changes)
        engine = Engine(backend=backend, compute_type=compute_type, dtype=dtype)
        if backend == "ctranslate2" and options.sampling is not None:
            raise ValueError("sampling: CTranslate2 cannot draw reproducibly; leave it out, or use torch")
        several = [path_or_repo] if isinstance(path_or_repo, str | Path) else path_or_repo
        folders = [local_folder(path, revision=revision) for path in several]
        source, target = _common_tokenizers(folders)
        if len(folders) > 1 and backend != "torch":
            raise ValueError(f"backend: {backend!r} cannot run an ensemble; leave it out, or name one model")
        models = [_load(folder, engine, device) for folder in folders]
        translator = cls(models[0] if len(models) == 1 else Ensemble(models), source, target, options)
        logger.info("%s translates in %s", folders[0], translator.precision)
        translator.usual = UsualScores.load(folders[0]) if len(folders) == 1 else None
        return translator

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.model.device

    def translate(
        self,
        sentences: Iterable[str],
        *,
        target_prefixes: Sequence[str] | None = None,
        progress: bool = False,
        **changes: Any,
    ) -> list[str]:
        """Translates sentences; gives one for each, in the same order.

        A blank sentence stays blank without asking the model. One that is longer than the model's positions is cut,
        and a warning says how many were.

        Args:
            target_prefixes: a text for each sentence with which its translation begins, whose last word may go on,
                but not where subword-nmt cut the model's text.
            progress: show a progress bar.
            changes: fields of [`SearchOptions`] for this call.

        Raises:
            TypeError: `sentences` or another list is a single string, or one of them is no string.
            ValueError: one holds half a surrogate pair, or an option does not fit the model.
        """
        found = self._search(checked(sentences), replace(self.options, **changes), target_prefixes, progress)
        best = iter(self.target_tokenizer.batch_decode([rows[0].ids for rows, _ in found if rows], **PLAIN))
        return [next(best) if rows else "" for rows, _ in found]

    def translations(
        self,
        sentences: Iterable[str],
        *,
        alignment_layer: int | None = None,
        target_prefixes: Sequence[str] | None = None,
        progress: bool = False,
        **changes: Any,
    ) -> list[list[Translation]]:
        """The best translations of each sentence with their scores, best first.

        Translations of the same text count once, with the best score, so there may be fewer than `nbest` of a sentence.
        There is always one: a blank sentence has an empty one.

        Args:
            alignment_layer: the decoder layer whose attention they come with, 0 for the first, -1 for the last.
            target_prefixes, progress, changes: as of `translate`.

        Raises:
            TypeError, ValueError: as of `translate`; or there is no such layer.
        """
        if alignment_layer is not None and isinstance(self.model, CTranslate2Model):
            raise ValueError("alignment: CTranslate2 does not give a layer's attention; leave it out, or use torch")
        found = self._search(checked(sentences), replace(self.options, **changes), target_prefixes, progress)
        results = [self._detokenised(rows, source) for rows, source in found]
        if alignment_layer is not None:
            results = self._with_attention(results, [source for _, source in found], alignment_layer, progress)
        return [[translation for translation, _ in rows] for rows in results]

    def _with_attention(
        self, results: list["Detokenised"], sources: list[list[int]], layer: int, progress: bool
    ) -> list["Detokenised"]:
        """Add the attention of a layer to each source, of these ids; a blank sentence's is empty."""
        model: Any = self.model
        pairs = [(source, ids) for rows, source in zip(results, sources, strict=True) for _, ids in rows if source]
        options: dict[str, Any] = {"max_tokens": self.options.batch_tokens, "progress": progress}
        found = attention_to_source(model, [pair[0] for pair in pairs], [pair[1] for pair in pairs], layer, **options)
        weights = iter(found)
        return [
            [(replace(one, attention=next(weights)[:, :-1] if source else np.zeros((0, 0))), ids) for one, ids in rows]
            for rows, source in zip(results, sources, strict=True)
        ]

    def _search(
        self, sentences: list[str], options: SearchOptions, target_prefixes: Sequence[str] | None, progress: bool
    ) -> list[tuple[list[ScoredIds], list[int]]]:
        """Search for each sentence; gives what was found and the sentence's ids, nothing for a blank one."""
        if isinstance(target_prefixes, str):
            raise TypeError("target_prefixes: is a single string; give a list of strings")
        if target_prefixes is not None and len(target_prefixes) != len(sentences):
            raise ValueError(f"{len(target_prefixes)} target prefixes for {len(sentences)} sentences; give one of each")
        found: list[tuple[list[ScoredIds], list[int]]] = [([], []) for _ in sentences]
        indices = [index for index, sentence in enumerate(sentences) if sentence.strip()]
        if not indices:
            return found
        with nullcontext() if self.tokenizer.is_fast else ONE_AT_A_TIME:
            ids = self._encode([sentences[index] for index in indices])
            given: dict[str, Any] = {"prefixes": None, "processors": ()}
            if target_prefixes is not None:
                given["prefixes"] = [self._prefix(target_prefixes[index]) for index in indices]
            if options.forbidden:
                given["processors"] = [self._ban(options.forbidden)]
        outputs = self.search_ids(ids, progress=progress, **given, **options.search_arguments())
        for index, rows, source in zip(indices, outputs, ids, strict=True):
            found[index] = rows, source
        finds_the_likeliest = not (options.sampling or options.generate.get("do_sample") or any(given.values()))
        if self.usual is not None and finds_the_likeliest:
            best = {index: found[index][0][0] for index in indices}
            low = [sentences[i] for i, one in best.items() if self.usual.is_unusual(one.log_prob, len(one.ids))]
            self.report(Unusual(len(indices), len(low), low[0] if low else ""))
        return found

    def _prefix(self, text: str) -> list[int]:
        text = text.strip()
        return self.target_tokenizer(text_target=text, add_special_tokens=False)["input_ids"] if text else []

    def _ban(self, texts: Sequence[str]) -> ForbiddenTexts:
        forms = [form for text in texts for form in capitalised_too(text)]
        spelt = [one for form in forms for one in spelt_words(self.target_tokenizer, form)]
        pieces = spellings(self.target_tokenizer, range(len(self.target_tokenizer)))
        return ForbiddenTexts(spelt, pieces, words_go_on(self.target_tokenizer))

    def _detokenised(self, rows: list[ScoredIds], source: list[int]) -> "Detokenised":
        """Translations of a sentence; of those with the same text, the best one."""
        if not rows:
            return [(NOTHING, [])]
        texts = self.target_tokenizer.batch_decode([row.ids for row in rows], **PLAIN)
        source_tokens = piece_texts(self.tokenizer, source[:-1])
        different: Detokenised = []
        for text, row in zip(texts, rows, strict=True):
            if text not in [one.text for one, _ in different]:
                tokens = piece_texts(self.target_tokenizer, row.ids)
                different.append((Translation(text, row.score, row.log_prob, tokens, source_tokens), row.ids))
        return different

    def _encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence with the end-of-sentence token last, cut to the model's positions."""
        longest = self.model.config.max_position_embeddings
        rows = self.tokenizer(sentences, truncation=False, verbose=False)["input_ids"]
        too_long = sum(len(row) > longest for row in rows)
        if too_long:
            logger.warning(CUT, too_long, len(rows), longest)
        return [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]


def checked(sentences: Iterable[str]) -> list[str]:
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


def _common_tokenizers(folders: Sequence[Path]) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """Tokenizers of the source and the target, which all models share."""
    first, *others = [check_tokenizers(folder, read_config(folder)) for folder in folders]
    for folder, pair in zip(folders[1:], others, strict=True):
        for side, mine, other in zip(("source", "target"), first, pair, strict=True):
            if tokenizer_digest(mine) != tokenizer_digest(other):
                raise ValueError(f"{folders[0]} and {folder} cannot be combined: their {side} vocabularies differ")
    return first


def _load(folder: Path, engine: Engine, device: str | torch.device | None) -> PreTrainedModel | CTranslate2Model:
    if engine.backend == "ctranslate2":
        return CTranslate2Model(folder, compute_type=engine.compute_type or "float32", device=device)
    place = checked_device(device)
    model: Any = load_model(folder, **({} if engine.dtype is None else {"dtype": engine.dtype}))
    return model.to(place)
