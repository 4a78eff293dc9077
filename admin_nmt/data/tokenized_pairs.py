"""Tokenised pairs by their lengths: which of them make a batch, and which no model can read."""

from functools import partial

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset

from ..model.loss import IGNORED
from .batching import WINDOW, IntArray, Survey, TokenBatchSampler, WindowedBatchSampler

WHOLE = 1 << 26  # pairs of the largest corpus whose batches are planned at once


def pair_lengths(dataset: Dataset, start: int = 0, stop: int | None = None) -> tuple[IntArray, IntArray]:
    """Tokens of the sources and of the targets of a tokenised dataset, [pairs] each.

    They stand in the columns `source_length` and `target_length`, or are counted in `input_ids` and `labels`.

    Args:
        dataset: what `tokenize` gives, or a tokenizer without padding.
        start: the first pair that is asked for.
        stop: the first one behind them; None for all to the end.

    Raises:
        ValueError: columns are missing, or there is padding.
    """
    # As an Arrow table: datasets' own NumPy format makes an object of every number on the way.
    table = dataset.with_format("arrow")
    if {"source_length", "target_length"} <= {*dataset.column_names}:
        found = table.select_columns(["source_length", "target_length"])[start:stop]
        return found["source_length"].to_numpy(), found["target_length"].to_numpy()
    for column in ("input_ids", "labels"):
        if column not in dataset.column_names:
            raise ValueError(f"the dataset has no column {column!r}; make it with admin_nmt.data.tokenizing.tokenize")
    columns = [name for name in ("input_ids", "labels", "attention_mask") if name in dataset.column_names]
    found = table.select_columns(columns)[start:stop]
    padded = {"labels": IGNORED, "attention_mask": 0}
    for column in columns[1:]:
        if pc.any(pc.equal(pc.list_flatten(found[column]), padded[column])).as_py():
            raise ValueError(f"the dataset holds padding, by its column {column!r}; tokenise it without padding")
    return tuple(pc.list_value_length(found[column]).to_numpy() for column in columns[:2])


def random_pairs(dataset: Dataset, max_tokens: int, seed: int) -> list[int]:
    """Indices of pairs drawn without replacement that have at most `max_tokens` target tokens in all, at least one."""
    # Every pair has a token or more, so these are enough, and a corpus of millions need not be shuffled.
    drawn = np.random.default_rng(seed).choice(len(dataset), min(max_tokens, len(dataset)), replace=False)
    tokens = pair_lengths(dataset.select(drawn))[1].cumsum()
    return drawn[: max(1, int(tokens.searchsorted(max_tokens, side="right")))].tolist()


def similar_pairs(dataset: Dataset, max_tokens: int, seed: int) -> list[int]:
    """Indices of pairs of similar length: a batch of [`batch_sampler`], or of the longest pair if no other fits."""
    budget = max(max_tokens, longest_sentence(dataset))
    return [*next(iter(batch_sampler(dataset, budget, seed=seed)))]


def batch_sampler(dataset: Dataset, max_tokens: int, *, seed: int) -> TokenBatchSampler | WindowedBatchSampler:
    """The batches of a tokenised dataset: planned at once, or in windows where it has more than [`WHOLE`] pairs.

    Raises:
        ValueError: a pair is empty or alone exceeds the budget.
    """
    if len(dataset) <= WHOLE:
        return TokenBatchSampler(*pair_lengths(dataset), max_tokens, seed=seed)
    return WindowedBatchSampler(len(dataset), partial(pair_lengths, dataset), max_tokens, seed=seed)


def survey(dataset: Dataset, max_tokens: int, *, seed: int) -> Survey:
    """Survey of an epoch of [`batch_sampler`]."""
    plan = batch_sampler(dataset, max_tokens, seed=seed)
    return plan.survey if isinstance(plan, WindowedBatchSampler) else Survey.of(*pair_lengths(dataset), plan.batches)


def longest_sentence(dataset: Dataset) -> int:
    """Tokens of the longest source or target of a tokenised dataset, 0 if it is empty; lengths are read in parts."""
    parts = (pair_lengths(dataset, start, start + WINDOW) for start in range(0, len(dataset), WINDOW))
    return max((int(side.max()) for sides in parts for side in sides), default=0)


def refuse_long(name: str, longest: int, positions: int | None) -> None:
    """Refuse a dataset with a sentence that a model cannot read: training would end where it comes to it.

    Args:
        name: what the message calls the dataset.
        longest: tokens of its longest sentence.
        positions: most tokens of a sentence; None for a model without a limit.
    """
    if positions is not None and longest > positions:
        raise ValueError(
            f"{name}: a sentence has {longest} tokens, more than the model's max_position_embeddings {positions}; "
            f"leave such pairs out: tokenize(..., max_length={positions}), in a recipe data.max_length"
        )
