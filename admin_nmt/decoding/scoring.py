"""Log-probabilities that a model gives to translations which are already there."""

import math
from collections.abc import Sequence
from itertools import chain

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.batching import Seq2SeqCollator
from .search.batchwise import batchwise
from .search.beam_search import check_finite
from .search.forced_decoding import token_log_probs


@torch.no_grad()
def score_pairs(
    model: PreTrainedModel,
    source_ids: Sequence[Sequence[int]],
    target_ids: Sequence[Sequence[int]],
    *,
    max_tokens: int = 4096,
    progress: bool = False,
) -> list[list[float]]:
    """log p(token | source, tokens before it) of every target token, in nats, without dropout or smoothing.

    The sum of a pair's row is the log-probability of the sentence, which is what beam search maximises with
    `length_penalty=0`. Pairs are scored in batches of similar length, on any number of processes.

    Args:
        model: any translation model with Marian's field names in its configuration.
        source_ids: ids of each source, with end of sentence.
        target_ids: ids of each target, with end of sentence and without decoder start.
        max_tokens: token budget of a batch: pairs times the longest source or target.
        progress: show a progress bar on the first process.

    Returns:
        One row a pair, in the order given, as long as its target.

    Raises:
        ValueError: the two sides differ in number, or a pair has an empty side or more tokens than the model has
            positions; or the model's probabilities are no numbers.
    """
    lengths = _lengths(source_ids, target_ids, model.config.max_position_embeddings)
    collate = Seq2SeqCollator(model.config.pad_token_id, model.config.decoder_start_token_id)

    def score(batch: list[int]) -> list[list[float]]:
        pairs = [{"input_ids": source_ids[index], "labels": target_ids[index]} for index in batch]
        inputs = {name: tensor.to(model.device) for name, tensor in collate(pairs).items()}
        scores = token_log_probs(model, inputs).tolist()
        rows = [row[: len(target_ids[index])] for index, row in zip(batch, scores, strict=True)]
        check_finite(all(map(math.isfinite, chain.from_iterable(rows))), model)
        return rows

    return batchwise(model, lengths, score, max_tokens=max_tokens, progress=progress, desc="scoring", unit="pair")


def encode_pairs(
    pairs: Dataset, source_tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase
) -> tuple[list[list[int]], list[list[int]]]:
    """Ids of the columns `source` and `target`, each sentence with its end, nothing cut off."""
    options = {"truncation": False, "verbose": False}
    sources = source_tokenizer(pairs["source"][:], **options)["input_ids"]
    return sources, target_tokenizer(text_target=pairs["target"][:], **options)["input_ids"]


def _lengths(source_ids: Sequence[Sequence[int]], target_ids: Sequence[Sequence[int]], positions: int) -> list[int]:
    """The longer side of every pair."""
    if len(source_ids) != len(target_ids):
        raise ValueError(f"{len(source_ids)} sources but {len(target_ids)} targets; give one of each a pair")
    lengths = []
    for number, (source, target) in enumerate(zip(source_ids, target_ids, strict=True), 1):
        if not len(source) or not len(target):
            raise ValueError(f"pair {number} has no {'target' if len(source) else 'source'} token")
        longest = max(len(source), len(target))
        if longest > positions:
            raise ValueError(
                f"pair {number} has a side of {longest} tokens, more than the model's {positions} positions; "
                "split it or leave it out"
            )
        lengths.append(longest)
    return lengths
