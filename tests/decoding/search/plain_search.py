"""Beam search as simply as it can be written, for tests to compare with."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from admin_nmt.decoding.search.search_settings import LENGTH_FACTOR, LENGTH_OFFSET

VOCABULARY = 12
PAD, EOS = VOCABULARY - 1, 0


@torch.no_grad()
def plain_beam_search(
    models: Sequence[PreTrainedModel], source: list[int], beams: int, penalty: float, prefix: Sequence[int] = ()
) -> list[tuple[float, list[int]]]:
    """Fairseq's search for one sentence without batches and caches: (log-probability, ids) pairs in plain lists.

    The log-probability of a token is the mean of those of the models. Gives the ended hypotheses, best first.
    """
    pad, eos = models[0].config.pad_token_id, models[0].config.eos_token_id
    limit = LENGTH_FACTOR * len(source) + LENGTH_OFFSET
    alive, finished = [(0.0, [])], []
    while len(finished) < beams:
        candidates = []
        for log_p, ids in alive:
            inputs = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([[pad, *ids]])}
            rows = [model(**inputs).logits[0, -1].log_softmax(-1) for model in models]
            scores = torch.stack(rows).mean(0).tolist()
            allowed = [eos] if len(ids) == limit else [token for token in range(pad) if ids or token != eos]
            if len(ids) < len(prefix):
                allowed = [prefix[len(ids)]]
            candidates += [(log_p + scores[token], [*ids, token]) for token in allowed]
        best = sorted(candidates, reverse=True)[: 2 * beams]
        ended = [(log_p / len(ids) ** penalty, ids[:-1]) for log_p, ids in best[:beams] if ids[-1] == eos]
        finished += ended
        alive = [(log_p, ids) for log_p, ids in best if ids[-1] != eos][:beams]
    return sorted(finished, reverse=True)[:beams]
