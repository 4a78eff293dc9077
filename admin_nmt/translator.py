"""Translates text with a saved model."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from huggingface_hub import snapshot_download
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from .generation import generate_ids
from .tokenization import check_tokenizer, load_tokenizers

logger = logging.getLogger(__name__)


class Translator:
    """A model with its tokenizers: text in, text out.

    Args:
        model: any translation model with Marian's field names in its configuration.
        tokenizer: of the source, and of the target unless `target_tokenizer` is given.
        max_tokens: source positions of a batch, padding included.
        options: settings of `generate` (`num_beams`, `length_penalty`, ...) instead of the model's own.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        max_tokens: int = 4096,
        **options: Any,
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        self.max_tokens = max_tokens
        self.options = options

    @classmethod
    def from_pretrained(
        cls, path_or_repo: str | Path, *, device: str | torch.device | None = None, **kwargs: Any
    ) -> Self:
        """Loads a model trained here, or its stock export, from a folder or a Hub repository.

        Args:
            device: where to run; by default a GPU if there is one.
            kwargs: arguments of the constructor.

        Raises:
            ValueError: a tokenizer does not belong to the model.
        """
        folder = path_or_repo if Path(path_or_repo).is_dir() else snapshot_download(str(path_or_repo))
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        model = AutoModelForSeq2SeqLM.from_pretrained(folder).to(device)
        source, target = load_tokenizers(folder)
        check_tokenizer(source, model.config)
        check_tokenizer(target, model.config, target=True)
        return cls(model, source, target, **kwargs)

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self.model.device

    def translate(self, sentences: Sequence[str], *, progress: bool = False, **options: Any) -> list[str]:
        """Translates sentences; gives one for each, in the same order.

        A blank sentence stays blank without asking the model. One that is longer than the model's positions is cut,
        and a warning says how many were.

        Args:
            progress: show a progress bar.
            options: settings of `generate` for this call.

        Raises:
            TypeError: `sentences` is a single string.
        """
        if isinstance(sentences, str):
            raise TypeError("sentences is a single string; give a list of sentences")
        indices = [index for index, sentence in enumerate(sentences) if sentence.strip()]
        translations = [""] * len(sentences)
        if not indices:
            return translations
        ids = self._encode([sentences[index] for index in indices])
        outputs = generate_ids(self.model, ids, max_tokens=self.max_tokens, progress=progress, **self.options | options)
        texts = self.target_tokenizer.batch_decode(outputs, skip_special_tokens=True)
        for index, text in zip(indices, texts, strict=True):
            translations[index] = text
        return translations

    def _encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence with the end-of-sentence token last, cut to the model's positions."""
        longest = self.model.config.max_position_embeddings
        rows = self.tokenizer(sentences, truncation=False, verbose=False)["input_ids"]
        too_long = sum(len(row) > longest for row in rows)
        if too_long:
            logger.warning("cut %d of %d sentences to the model's %d tokens", too_long, len(rows), longest)
        return [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]
