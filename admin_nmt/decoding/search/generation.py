"""Beam search over many sentences: the one code path of every translation, in training, scripts and `Translator`."""

import copy
from collections.abc import Sequence
from functools import partial
from itertools import chain, takewhile
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from ...data.batching import Seq2SeqCollator
from ..options import Sampling
from .batchwise import batchwise
from .beam_search import Hypotheses, ScoredIds, beam_search, check_finite
from .constraints import ForcedPrefixes, padded_prefixes
from .ensemble import Ensemble, members
from .forced_decoding import target_log_probs
from .module_copies import is_switchable
from .sampling import samples
from .search_settings import end_tokens, generation_config, length_limits, search_settings, unknown_setting


def generate_ids(
    model: PreTrainedModel | Ensemble, sequences: Sequence[Sequence[int]], **options: Any
) -> list[list[int]]:
    """Target ids of the best translation of each sequence; arguments are those of [`search_ids`]."""
    return [found[0].ids for found in search_ids(model, sequences, **options)]


def search_ids(
    model: PreTrainedModel | Ensemble,
    sequences: Sequence[Sequence[int]],
    *,
    nbest: int = 1,
    batch_tokens: int = 4096,
    progress: bool = False,
    sampling: Sampling | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    processors: Sequence[LogitsProcessor] = (),
    **options: Any,
) -> list[list[ScoredIds]]:
    """Translates token ids, in batches of similar length, as fairseq's beam search does.

    A hypothesis is scored by its log-probability over length^length_penalty, and a sentence is finished as soon as it
    has `num_beams` hypotheses. No hypothesis is empty or holds `<pad>`. The limit of a translation's length follows
    from its own source alone, and from `max_new_tokens` if that is less, so the result does not depend on which
    sentences share a batch. Under several processes every rank translates a share and receives all results.

    Args:
        sequences: source ids, each with its end-of-sentence token.
        nbest: most translations of each sequence, at most `num_beams`; so many draws with `sampling`.
        batch_tokens: source positions of a batch, padding included; memory grows with this times `num_beams`.
        progress: show a progress bar on the first process.
        sampling: draw the translations, reproducibly, instead of searching for the best.
        prefixes: ids that the translations of each sequence must begin with; they count in length and score, as in
            fairseq.
        processors: change the log-probabilities [rows, V] of the next tokens, given all before, [rows, t], with the
            decoder start.
        options: settings of `generate` (`num_beams`, `length_penalty`, ...) that override the model's
            `generation_config`; None leaves one as it is.

    Returns:
        The translations of every sequence in the order given, best first, without decoder start, end-of-sentence and
        padding. Those of `generate`, to which a setting goes that the search here lacks, are in the order in which it
        ranks them, and scored by the model's own probabilities.

    Raises:
        ValueError: `sampling` or an ensemble comes with a model or a setting that it does not know, or a prefix is
            longer than its translation may be.
    """
    if sampling is not None:
        options = options | {"num_beams": 1}
    returned = 1 if sampling is not None else nbest
    config = generation_config(model.generation_config, model.config.pad_token_id, options, returned)
    lengths = [len(sequence) for sequence in sequences]
    if prefixes is not None:
        _check_prefixes(prefixes, length_limits(torch.tensor(lengths), config, model.config))
    collate = Seq2SeqCollator(model.config.pad_token_id)

    def translate(draw: int, batch: list[int]) -> list[list[ScoredIds]]:
        inputs = collate([{"input_ids": sequences[index]} for index in batch])
        inputs = {name: x.to(model.device) for name, x in inputs.items()}
        limits = length_limits(inputs["attention_mask"].sum(1), config, model.config)
        forced = None if prefixes is None else padded_prefixes([prefixes[index] for index in batch], model.device)
        return _search_batch(model, inputs, limits, config, forced, processors, sampling, draw)

    budget: dict[str, Any] = {"max_tokens": batch_tokens, "progress": progress}
    found = [
        batchwise(model, lengths, partial(translate, draw), desc="translating", unit="sentence", **budget)
        for draw in range(1 if sampling is None else nbest)
    ]
    if len(found) == 1:
        return found[0]
    return [sorted(chain(*draws), key=lambda one: -one.score) for draws in zip(*found, strict=True)]


def _check_prefixes(prefixes: Sequence[Sequence[int]], limits: Tensor) -> None:
    for prefix, limit in zip(prefixes, limits.tolist(), strict=True):
        if len(prefix) > limit:
            raise ValueError(
                f"a target prefix has {len(prefix)} tokens, but its translation may have {limit}; give a shorter one"
            )


def _search_batch(
    model: PreTrainedModel | Ensemble,
    inputs: dict[str, Tensor],
    limits: Tensor,
    config: GenerationConfig,
    prefixes: Tensor | None,
    processors: Sequence[LogitsProcessor],
    sampling: Sampling | None,
    draw: int,
) -> list[list[ScoredIds]]:
    others = [one.config.model_type for one in members(model) if not is_switchable(one)]
    unknown = f"the model type {others[0]}" if others else unknown_setting(config)
    if unknown is None:
        settings = search_settings(config, model.config)
        settings.processors.extend(processors)
        if sampling is not None:
            return beam_search(model, inputs, samples(inputs, limits, settings, prefixes, sampling, draw))
        return beam_search(model, inputs, Hypotheses(limits, settings, prefixes))
    if sampling is not None:
        raise ValueError(f"sampling: does not work with {unknown}; leave that out, or sample with do_sample=True")
    if isinstance(model, Ensemble):
        raise ValueError(f"an ensemble does not work with {unknown}; leave that out, or translate with one model")
    own: list[LogitsProcessor] = [*processors, SentenceLengthLimit(limits, end_tokens(config))]
    if prefixes is not None:
        own.append(ForcedPrefixes(prefixes))
    return _by_generate(model, inputs, limits, config, LogitsProcessorList(own))


def _by_generate(
    model: PreTrainedModel,
    inputs: dict[str, Tensor],
    limits: Tensor,
    config: GenerationConfig,
    processors: LogitsProcessorList,
) -> list[list[ScoredIds]]:
    """Search a batch by `generate`, and score what it finds by a pass over it."""
    eos, config = end_tokens(config), copy.copy(config)
    longest = int(limits.max()) + 1
    if model.generation_config.max_new_tokens is None:
        config.max_length, config.max_new_tokens = longest + 1, None  # with the start
    else:  # `generate` fills in what is None from the model's own, and complains where both limits are set
        config.max_new_tokens = longest
    generate: Any = model.generate
    output = generate(**inputs, generation_config=config, logits_processor=processors)
    check_finite(not any(bool(one.nan) for one in processors if isinstance(one, SentenceLengthLimit)), model)
    ends = {*eos, model.config.pad_token_id}
    rows = [list(takewhile(lambda token: token not in ends, row)) for row in output[:, 1:].tolist()]
    return _scored(model, inputs, rows, config)


def _scored(
    model: PreTrainedModel, inputs: dict[str, Tensor], rows: list[list[int]], config: GenerationConfig
) -> list[list[ScoredIds]]:
    """The translations of a batch, n consecutive `rows` for each sentence, with the model's own probabilities."""
    count = len(rows) // len(inputs["input_ids"])
    penalty = 1.0 if config.length_penalty is None else config.length_penalty
    found: list[list[ScoredIds]] = []
    for number in range(count):  # one of each sentence at a time, so that memory stays that of a batch
        chosen = [[*row, end_tokens(config)[0]] for row in rows[number::count]]
        totals = target_log_probs(model, inputs, chosen).tolist()
        scored = [
            ScoredIds(ids[:-1], total / len(ids) ** penalty, total) for ids, total in zip(chosen, totals, strict=True)
        ]
        found = [[*others, one] for others, one in zip(found or [[] for _ in scored], scored, strict=True)]
    return found


class SentenceLengthLimit(LogitsProcessor):
    """Lets a hypothesis only end once it has as many tokens as its own sentence allows.

    Args:
        limits: most tokens of each sentence's translation, without end of sentence, [batch].
        eos: ids of the end-of-sentence tokens.

    Attributes:
        nan: whether a score was NaN.
    """

    def __init__(self, limits: Tensor, eos: list[int]) -> None:
        self.nan = torch.tensor(False, device=limits.device)
        self.limits = limits
        self.eos = eos

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.nan |= scores.isnan().any()
        beams = len(scores) // len(self.limits)
        full = self.limits.repeat_interleave(beams) < input_ids.shape[1]
        closed = torch.full_like(scores, -torch.inf)
        closed[:, self.eos] = scores[:, self.eos]
        return torch.where(full[:, None], closed, scores)
