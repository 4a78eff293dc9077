"""Settings of a beam search: from `generate`'s names and the model's own defaults to what a search needs."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, NoBadWordsLogitsProcessor, PreTrainedConfig

# A translation has at most LENGTH_FACTOR * source length + LENGTH_OFFSET tokens: far more than one ever needs.
LENGTH_FACTOR = 2
LENGTH_OFFSET = 20

# Fields of GenerationConfig that `SearchSettings` holds or that do not change the result.
KNOWN = {
    "num_beams", "length_penalty", "min_new_tokens", "max_new_tokens", "max_length", "early_stopping",
    "suppress_tokens", "bad_words_ids", "bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id",
    "forced_eos_token_id", "use_cache", "num_return_sequences", "output_attentions", "output_hidden_states",
    "return_dict_in_generate", "_from_model_config", "transformers_version", "length_limit", "renormalize_logits",
}  # fmt: skip
OF_SAMPLING = {"temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"}


@dataclass
class SearchSettings:
    """Settings of fairseq's beam search, all decided: where [`SearchOptions`] has None, the model's own stand here."""

    num_beams: int
    length_penalty: float
    min_new_tokens: int
    start: int
    eos: list[int]
    suppressed: list[int]
    nbest: int = 1
    renormalized: bool = False  # over the tokens that may come next
    processors: LogitsProcessorList = field(default_factory=LogitsProcessorList)

    @property
    def candidates(self) -> int:
        """Continuations of a sentence that are looked at: so many that `num_beams` remain when all that can end do."""
        return max(2, 1 + len(self.eos)) * self.num_beams


def generation_config(
    default: GenerationConfig, pad_token_id: int, options: dict[str, Any], nbest: int = 1
) -> GenerationConfig:
    """The model's `default` with `options`, searching as fairseq does where they do not say otherwise.

    `max_length` and `min_length` count the decoder start, as in `generate`; the model's own `max_length` is of no
    account. Nothing lifts the ban on `<pad>` and on translations without a token.

    Raises:
        ValueError: `generate` has no such setting, more hypotheses are to be returned than a beam has, or they are
            asked for by `num_return_sequences`.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "num_return_sequences" in given:
        raise ValueError("num_return_sequences: is called nbest here; give that")
    config = copy.deepcopy(default)
    # With one beam transformers would warn of what the model has for several; its score is divided all the same.
    length_penalty, config.length_penalty = given.pop("length_penalty", default.length_penalty), None
    config.early_stopping = None
    config.update(use_cache=True, return_dict_in_generate=False)
    config.update(**_without_start({"min_length": default.min_length, "min_new_tokens": default.min_new_tokens}))
    if unknown := config.update(**_without_start(given)):
        raise ValueError(f"{min(unknown)}: is no setting of generate; leave it out")
    config.update(
        min_new_tokens=max(1, config.min_new_tokens or 0),
        suppress_tokens=sorted({pad_token_id, *(default.suppress_tokens or []), *(config.suppress_tokens or [])}),
        max_length=None,
        min_length=GenerationConfig().min_length,
    )
    config.length_penalty = length_penalty
    beams = 1 if config.num_beams is None else config.num_beams
    if nbest > beams:
        raise ValueError(f"nbest is {nbest}, but num_beams is {beams}; give 1 to {beams}, or more beams")
    config.num_return_sequences = nbest
    if beams > 1:
        config.early_stopping = given.get("early_stopping", True)
    return config


def _without_start(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with `max_length` and `min_length` as numbers of new tokens where those are not given as well."""
    counted = {name: value for name, value in settings.items() if name not in ("max_length", "min_length")}
    for length, tokens in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
        if settings.get(length) and not counted.get(tokens):
            counted[tokens] = settings[length] - 1
    return counted


def unknown_setting(config: GenerationConfig) -> str | None:
    """Name of a setting that `SearchSettings` has no room for, if there is one."""
    neutral = GenerationConfig._get_default_generation_params()
    given = {name for name, value in config.to_diff_dict().items() if value != neutral.get(name)}
    others = sorted(given - KNOWN - (set() if config.do_sample else OF_SAMPLING))
    if others:
        return others[0]
    if (config.num_beams or 1) > 1 and config.early_stopping is not True:
        return "early_stopping"
    return None if config.forced_eos_token_id in (None, *end_tokens(config)) else "forced_eos_token_id"


def search_settings(config: GenerationConfig, model_config: PreTrainedConfig) -> SearchSettings:
    """The settings of a search that gives what `generate` gives under a `config` without unknown settings.

    Raises:
        ValueError: there are more beams than tokens to begin them with, or no end of sentence.
    """
    vocabulary = getattr(model_config, "decoder_vocab_size", None) or model_config.vocab_size
    if (config.num_beams or 1) > vocabulary:
        raise ValueError(f"num_beams is {config.num_beams}, but the vocabulary has {vocabulary} tokens; give fewer")
    start, eos = config.decoder_start_token_id, end_tokens(config)
    banned = [words for words in config.bad_words_ids or [] if words not in ([end] for end in eos)]
    phrases = [words for words in banned if len(words) > 1]
    return SearchSettings(
        num_beams=config.num_beams or 1,
        length_penalty=1.0 if config.length_penalty is None else config.length_penalty,
        min_new_tokens=config.min_new_tokens or 0,
        start=model_config.decoder_start_token_id if start is None else start,
        eos=eos,
        suppressed=sorted({*(config.suppress_tokens or []), *(words[0] for words in banned if len(words) == 1)}),
        nbest=config.num_return_sequences or 1,
        renormalized=bool(config.renormalize_logits),
        processors=LogitsProcessorList([NoBadWordsLogitsProcessor(phrases, eos)] if phrases else []),
    )


def end_tokens(config: GenerationConfig) -> list[int]:
    """Ids of the end-of-sentence tokens."""
    if config.eos_token_id is None:
        raise ValueError("eos_token_id: generation_config.json has none, so no translation would end; copy it again")
    return [config.eos_token_id] if isinstance(config.eos_token_id, int) else config.eos_token_id


def length_limits(source_lengths: Tensor, config: GenerationConfig, model_config: PreTrainedConfig) -> Tensor:
    """Most tokens of each translation, without end of sentence, [B], for sources of `source_lengths` tokens, [B]."""
    longest = model_config.max_position_embeddings - 1
    factor, offset = getattr(config, "length_limit", (LENGTH_FACTOR, LENGTH_OFFSET))  # fairseq's models have their own
    limits = factor * source_lengths + offset
    return torch.clamp(limits, max=min(longest, config.max_new_tokens or longest))
