"""What an evaluation reports: likelihood of the references, BLEU and chrF of the translations."""

from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .batching import IntArray, Seq2SeqCollator, generation_batches
from .distributed import gather_objects, rank_and_size
from .generation import generate_ids
from .metrics import score


def pair_lengths(dataset: Dataset) -> tuple[IntArray, IntArray]:
    """The columns `source_length` and `target_length` of a tokenised dataset, [pairs] each.

    Raises:
        ValueError: a column is missing.
    """
    for column in ("source_length", "target_length"):
        if column not in dataset.column_names:
            raise ValueError(f"the dataset has no column {column!r}; tokenise it with admin_nmt.data")
    columns = dataset.with_format("numpy", columns=["source_length", "target_length"])[:]
    return columns["source_length"], columns["target_length"]


@torch.no_grad()
def mean_nll(model: PreTrainedModel, dataset: Dataset, *, max_tokens: int = 4096, progress: bool = False) -> float:
    """Negative log-likelihood of the references, in nats per target token of the whole dataset.

    Every pair counts once, on any number of processes; nothing is smoothed.

    Args:
        max_tokens: token budget of a batch: pairs times the longest source or target.
        progress: show a progress bar on the first process.
    """
    rank, size = rank_and_size()
    batches = generation_batches(np.maximum(*pair_lengths(dataset)), max_tokens)[rank::size]
    pairs = dataset.with_format("numpy", columns=["input_ids", "labels"])
    collate = Seq2SeqCollator(model.config.pad_token_id)
    nll, tokens = 0.0, 0
    was_training = model.training
    model.eval()
    for batch in tqdm(batches, desc="evaluating", unit="batch", leave=False, disable=not progress or rank > 0):
        inputs = {name: x.to(model.device) for name, x in collate(pairs.__getitems__(batch.tolist())).items()}
        count = int((inputs["labels"] >= 0).sum())
        nll += float(model(**inputs).loss) * count
        tokens += count
    model.train(was_training)
    nlls, counts = zip(*gather_objects((nll, tokens)), strict=True)
    return sum(nlls) / sum(counts)


def translation_scores(
    model: PreTrainedModel,
    target_tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    language: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Scores beam search's translations as plain text against the untouched column `target`.

    Args:
        language: two-letter code of the target language, for BLEU's tokeniser.
        options: passed to `generate_ids`.

    Returns:
        What `admin_nmt.metrics.score` gives, the same on every process.
    """
    ids = generate_ids(model, dataset["input_ids"][:], **options)
    return score(target_tokenizer.batch_decode(ids, skip_special_tokens=True), dataset["target"][:], language)
