"""Beam search in which all hypotheses of a sentence share one row of keys and values.

`generate` stores the source's keys and values once for every hypothesis, and copies the whole cache at every step to
bring it into the order of the hypotheses. Here a sentence has one row: the keys of every token that any
of its hypotheses ever took are appended to it, and a mask shows each hypothesis those of its own past alone. Sentences
that are finished leave the batch. Shapes: B sentences, K hypotheses of each, V tokens of the target vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...model.attention import softmax_over_keys
from ...model.cache_name import CACHE
from .constraints import force
from .ensemble import Ensemble, combined, members
from .module_copies import with_attention
from .search_settings import SearchSettings

SHARED_ROWS = "shared_rows"
LEAVE = 8  # finished sentences leave the batch when they are one in LEAVE of it: each time, the cache is copied


def shared_rows_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of hypotheses [B·K, heads, 1, w] to the keys of their sentences [B, heads, L, w].

    The mask, [B, 1, 1 or K, L], is added to the scores; the output has shape [B·K, 1, heads, w].
    """
    query = query.squeeze(2).unflatten(0, (len(key), -1)).transpose(1, 2)
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None:
        scores += attention_mask
    return torch.matmul(softmax_over_keys(scores), value).transpose(1, 2).flatten(0, 1).unsqueeze(1), None


ALL_ATTENTION_FUNCTIONS.register(SHARED_ROWS, shared_rows_attention)


class SharedRows(DynamicLayer):
    """Keys and values of all tokens of all hypotheses, [B, heads, positions, w], appended in place."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.used = 0

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append one token of every hypothesis, [B·K, heads, 1, w]; returns those of all tokens so far."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
            self.keys, self.values = (x.new_empty(len(x), x.shape[1], 0, x.shape[3]) for x in (keys, values))
        rows = [x.squeeze(2).unflatten(0, (len(self.keys), -1)).transpose(1, 2) for x in (keys, values)]
        start, self.used, self.steps = self.used, self.used + rows[0].shape[2], self.steps + 1
        if self.used > self.keys.shape[2]:
            self.keys, self.values = (_doubled(x, start, self.used) for x in (self.keys, self.values))
        for buffer, row in zip((self.keys, self.values), rows, strict=True):
            buffer[:, :, start : self.used] = row
        return self.keys[:, :, : self.used], self.values[:, :, : self.used]

    def get_seq_length(self) -> int:
        """Tokens of a hypothesis, from which the model takes the next one's position."""
        return self.steps


def _doubled(buffer: Tensor, used: int, needed: int) -> Tensor:
    larger = buffer.new_empty(*buffer.shape[:2], 2 * needed, buffer.shape[3])
    larger[:, :, :used] = buffer[:, :, :used]
    return larger


@dataclass(frozen=True)
class ScoredIds:
    """A translation as the search found it.

    Attributes:
        ids: target tokens without end of sentence.
        score: log_prob / (tokens + 1)^length_penalty, which the search ranks by; the end of sentence counts as a token.
        log_prob: natural logarithm of its probability, end of sentence included.
    """

    ids: list[int]
    score: float
    log_prob: float


class Hypotheses:
    """Hypotheses of the sentences that are still in the batch.

    Attributes:
        tokens: those of every hypothesis so far, [B, K, t]; K is 1 before the first token.
        scores: their log-probabilities, [B, K].
        mask: 0 where a hypothesis sees a position of its sentence's row, else −∞, [B, K, positions].
        prefixes: what each sentence must begin with, [B, P], as `constraints.padded_prefixes` gives it.
        best: scores of the `nbest` best ended hypotheses, best first, −∞ where there are fewer, [B, nbest].
        best_tokens: theirs, with the end of sentence, [B, nbest, the largest limit + 1].
        ended: number of ended hypotheses, [B].
        finite: whether the model's probabilities have been numbers so far.
        lowest_limit: the least limit of a sentence, known without asking a GPU.
    """

    def __init__(self, limits: Tensor, settings: SearchSettings, prefixes: Tensor | None = None) -> None:
        self.settings, self.limits = settings, limits
        count, device = len(limits), limits.device
        self.prefixes = limits.new_empty(count, 0) if prefixes is None else prefixes
        self.sentences = torch.arange(count, device=device)
        self.tokens = torch.empty(count, 1, 0, dtype=torch.long, device=device)
        self.scores = torch.zeros(count, 1, device=device)
        self.mask = torch.zeros(count, 1, 1, device=device)
        self.best = torch.full((count, settings.nbest), -torch.inf, device=device)
        self.ended = torch.zeros(count, dtype=torch.long, device=device)
        self.outputs: list[list[ScoredIds]] = [[] for _ in limits]
        self.best_tokens = torch.full((count, settings.nbest, int(limits.max()) + 1), settings.eos[0], device=device)
        self.eos = torch.tensor(settings.eos, device=device)
        self.suppressed = torch.tensor(settings.suppressed, dtype=torch.long, device=device)
        self.lowest_limit = int(limits.min())
        self.finite = torch.tensor(True, device=device)

    @property
    def done(self) -> Tensor:
        """Sentences that have K ended hypotheses, or went beyond their limit, [B]."""
        return (self.ended >= self.settings.num_beams) | (self.limits < self.tokens.shape[2])

    def advance(self, log_probs: Tensor) -> None:
        """Continue every hypothesis and keep the K best of each sentence.

        Args:
            log_probs: of the next token of every hypothesis, [B·K, V], float32; they are overwritten.
        """
        totals, origin, token = self._candidates(self._restricted(log_probs))
        is_end = torch.isin(token, self.eos)
        beams = self.settings.num_beams
        self._take_ended(totals[:, :beams], origin[:, :beams], is_end[:, :beams])
        self.scores, chosen = totals.masked_fill(is_end, -torch.inf).topk(beams)
        origin, token = origin.gather(1, chosen), token.gather(1, chosen)
        own = torch.full((beams, beams), -torch.inf, device=token.device).fill_diagonal_(0)
        self.tokens = torch.cat([_rows(self.tokens, origin), token[:, :, None]], 2)
        self.mask = torch.cat([_rows(self.mask, origin), own.expand(len(token), -1, -1)], 2)

    def _restricted(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities with −∞ for the tokens that may not come next."""
        length, settings = self.tokens.shape[2], self.settings
        self.finite &= ~log_probs[:, 0].isnan().any()
        beams = self.scores.shape[1]
        ends, forced = log_probs[:, self.eos], None
        if length < self.prefixes.shape[1]:
            prefix = self.prefixes[:, length].repeat_interleave(beams)
            forced = log_probs.gather(1, prefix.clamp(min=0)[:, None])[:, 0]
        log_probs.index_fill_(1, self.suppressed, -torch.inf)
        if length < settings.min_new_tokens:
            log_probs.index_fill_(1, self.eos, -torch.inf)
        if settings.processors:
            start = self.tokens.new_full((len(log_probs), 1), settings.start)
            log_probs = settings.processors(torch.cat([start, self.tokens.flatten(0, 1)], 1), log_probs)
        if length >= self.lowest_limit:
            full = (self.limits <= length).repeat_interleave(beams).nonzero().flatten()
            log_probs[full] = -torch.inf
            log_probs[full[:, None], self.eos] = ends[full]
        if forced is not None:
            force(log_probs, prefix, forced)
        return log_probs.log_softmax(-1) if settings.renormalized else log_probs

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities, hypotheses and tokens of the best continuations of each sentence, best first, [B, C]."""
        width = min(self.settings.candidates, log_probs.shape[1])
        values, tokens = log_probs.topk(width)
        totals = (values + self.scores.view(-1, 1)).view(len(self.scores), -1)
        totals, chosen = totals.topk(min(self.settings.candidates, totals.shape[1]))
        return totals, chosen // width, tokens.view(len(totals), -1).gather(1, chosen)

    def _take_ended(self, totals: Tensor, origin: Tensor, is_end: Tensor) -> None:
        """Count the hypotheses among the K best candidates that end here, [B, K], and remember the best."""
        length = self.tokens.shape[2]
        scores = totals.masked_fill(~is_end, -torch.inf) / (length + 1) ** self.settings.length_penalty
        done, self.ended = self.done, self.ended + (scores > -torch.inf).sum(1)
        scores = scores.masked_fill(done[:, None], -torch.inf)
        tokens = self.best_tokens.new_full((*scores.shape, self.best_tokens.shape[2]), self.settings.eos[0])
        tokens[:, :, :length] = _rows(self.tokens, origin)
        ranked, order = torch.cat([self.best, scores], 1).sort(dim=1, descending=True, stable=True)
        self.best, order = ranked[:, : self.settings.nbest], order[:, : self.settings.nbest]
        self.best_tokens = _rows(torch.cat([self.best_tokens, tokens], 1), order)

    def leave(self, done: Tensor) -> Tensor:
        """Write down the outputs of the sentences that are `done`, [B], and go on without them; returns the others."""
        rows = zip(
            self.sentences[done].tolist(), self.best[done].tolist(), self.best_tokens[done].tolist(), strict=True
        )
        for sentence, scores, tokens in rows:
            found = [self._output(score, ids) for score, ids in zip(scores, tokens, strict=True)]
            self.outputs[sentence] = [found[0], *(other for other in found[1:] if other.score > -torch.inf)]
        kept = (~done).nonzero().flatten()
        for name in ("sentences", "limits", "prefixes", "tokens", "scores", "mask", "best", "ended", "best_tokens"):
            setattr(self, name, getattr(self, name)[kept])
        return kept

    def _output(self, score: float, tokens: list[int]) -> ScoredIds:
        ids = tokens[: tokens.index(self.settings.eos[0])]
        return ScoredIds(ids, score, score * (len(ids) + 1) ** self.settings.length_penalty)


def _rows(x: Tensor, origin: Tensor) -> Tensor:
    """x [B, K, n] in the order of origin [B, K']."""
    return x.gather(1, origin[:, :, None].expand(-1, -1, x.shape[2]))


@torch.no_grad()
def beam_search(
    model: PreTrainedModel | Ensemble, inputs: dict[str, Tensor], search: Hypotheses
) -> list[list[ScoredIds]]:
    """Translates a batch with exactly the result of `generate` under `early_stopping=True`.

    Args:
        model: of a class whose attention goes through the attention interface and `EncoderDecoderCache`, or several.
        inputs: `input_ids` and `attention_mask`, [B, S], on the model's device.
        search: the empty hypotheses, which know the settings; others than `Hypotheses` search in another way.

    Returns:
        The `settings.nbest` best hypotheses of each sentence that ended, best first: at least one, and fewer where
        the vocabulary has no more.

    Raises:
        ValueError: the model's probabilities are no numbers.
    """
    _search(model, [Decoding(one, inputs) for one in members(model)], search)
    return search.outputs


class Decoding:
    """One model's part in the search: the encoded sources, and the keys and values of all hypotheses.

    Args:
        inputs: `input_ids` and `attention_mask`, [B, S].
    """

    def __init__(self, model: PreTrainedModel, inputs: dict[str, Tensor]) -> None:
        encoder: Any = model.get_encoder()
        self.decoder: Any = with_attention(model.get_decoder(), SHARED_ROWS)
        self.output = output_layer(model)
        self.states: Tensor = encoder(**inputs).last_hidden_state
        self.cache = EncoderDecoderCache(Cache(layer_class_to_replicate=SharedRows), DynamicCache())
        # With four dimensions a mask goes to the attention as it is, whichever function the configuration names.
        self.hidden = torch.zeros_like(inputs["attention_mask"], dtype=self.states.dtype).masked_fill(
            inputs["attention_mask"] == 0, torch.finfo(self.states.dtype).min
        )[:, None, None]

    def logits(self, last: Tensor, mask: Tensor) -> Tensor:
        """Logits of the tokens behind the `last` ones, [B·K, 1], which see what `mask` [B, K, positions] lets them."""
        states = self.decoder(
            input_ids=last,
            attention_mask=mask[:, None].to(self.states.dtype),
            encoder_hidden_states=self.states,
            encoder_attention_mask=self.hidden,
            use_cache=True,
            **{CACHE: self.cache},
        ).last_hidden_state
        return self.output(states[:, -1])

    def keep(self, kept: Tensor) -> None:
        """Go on with these sentences alone."""
        self.states, self.hidden = self.states[kept], self.hidden[kept]
        for layer in (*self.cache.self_attention_cache.layers, *self.cache.cross_attention_cache.layers):
            layer.keys, layer.values = layer.keys[kept], layer.values[kept]


def output_layer(model: Any) -> Callable[[Tensor], Tensor]:
    """A function that maps the decoder's states [N, d] to logits [N, V]."""
    if hasattr(model, "compute_logits"):
        return model.compute_logits
    return lambda states: model.get_output_embeddings()(states) + model.final_logits_bias


def _search(model: PreTrainedModel | Ensemble, decodings: Sequence[Decoding], search: Hypotheses) -> None:
    """Continues the hypotheses until none is left."""
    last = torch.full_like(search.limits, search.settings.start)
    while len(search.sentences):
        search.advance(combined([decoding.logits(last.view(-1, 1), search.mask) for decoding in decodings]))
        done = search.done
        if int(done.sum()) * LEAVE >= len(done):
            check_finite(bool(search.finite), model)
            kept = search.leave(done)
            for decoding in decodings:
                decoding.keep(kept)
        last = search.tokens[:, :, -1]


def check_finite(finite: bool, model: Any) -> None:
    """Refuse scores that are not finite, whose translations would be empty or nonsense; the model is named.

    Raises:
        ValueError: `finite` is False.
    """
    if not finite:
        raise ValueError(
            f"{getattr(model, 'name_or_path', '') or 'the model'}: its scores are not finite (NaN or infinite), so its "
            "weights are damaged or its training diverged; copy or train it again"
        )
