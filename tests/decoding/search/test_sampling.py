"""Sampling: the model's distribution, and the same draw for a sentence wherever it stands."""

import numpy as np
import pytest
import torch
from plain_search import EOS, PAD, VOCABULARY

from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.decoding.search.sampling import Samples, uniforms
from admin_nmt.decoding.search.search_settings import LENGTH_FACTOR, LENGTH_OFFSET, SearchSettings


@torch.no_grad()
def plain_sample(model, source: list[int], sampling: Sampling) -> list[int]:
    """One sentence, token by token, without batches and caches."""
    limit = LENGTH_FACTOR * len(source) + LENGTH_OFFSET
    draws, ids = uniforms(sampling, source, limit + 1), []
    while len(ids) < limit:
        logits = model(torch.tensor([source]), decoder_input_ids=torch.tensor([[PAD, *ids]])).logits[0, -1].double()
        allowed = [token for token in range(PAD) if ids or token != EOS]
        best = sorted(allowed, key=lambda token: -logits[token])[: sampling.top_k]
        weights = [float((logits[t] / sampling.temperature).exp()) if t in best else 0.0 for t in range(PAD)]
        token = int(np.searchsorted(np.cumsum(weights), draws[len(ids)] * sum(weights), side="right"))
        if token == EOS:
            break
        ids.append(token)
    return ids


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(7, top_k=3), Sampling(7, 4, 0.5), Sampling(2, None, 2.0)])
def test_agrees_with_a_plain_sampler(model, sources, sampling):
    found = generate_ids(model, sources, sampling=sampling)
    assert found == [plain_sample(model, source, sampling) for source in sources]
    assert len({len(ids) for ids in found}) > 3


def test_does_not_depend_on_batch_and_order(model, sources):
    together = generate_ids(model, sources, sampling=Sampling(3))
    assert generate_ids(model, sources, sampling=Sampling(3), batch_tokens=1) == together
    assert generate_ids(model, sources[::-1], sampling=Sampling(3), batch_tokens=40) == together[::-1]
    assert generate_ids(model, sources, sampling=Sampling(4)) != together


def test_draws_from_the_models_distribution(model, sources):
    """First tokens over many seeds against the probabilities, within four standard errors."""
    source, count = sources[0], 2000
    with torch.no_grad():
        logits = model(torch.tensor([source]), decoder_input_ids=torch.tensor([[PAD]])).logits[0, -1]
    logits[[EOS, PAD]] = -torch.inf
    p = logits.softmax(-1).numpy()
    draws = np.array([uniforms(Sampling(seed), source, 1)[0] for seed in range(count)])
    first = np.searchsorted(np.cumsum(p), draws, side="right")
    seen = np.bincount(first, minlength=VOCABULARY) / count
    assert (np.abs(seen - p) <= 4 * np.sqrt(p * (1 - p) / count) + 1e-9).all()
    drawn = [generate_ids(model, [source], sampling=Sampling(seed), max_new_tokens=1)[0] for seed in range(20)]
    assert drawn == [[int(token)] for token in first[:20]]


def test_a_large_vocabulary_is_drawn_from_in_float64():
    """In float32 the sums of 50,000 probabilities miss the boundaries between tokens."""
    log_probs = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0)).log_softmax(-1).expand(500, -1)
    uniforms = np.random.default_rng(0).random((500, 2))
    options = SearchSettings(num_beams=1, length_penalty=1.0, min_new_tokens=0, start=0, eos=[0], suppressed=[])
    limits = torch.ones(500, dtype=torch.long)
    drawn = Samples(limits, options, None, torch.from_numpy(uniforms), Sampling())._draw(log_probs, 0)
    sums = log_probs[0].double().exp().cumsum(0).numpy()
    assert drawn.tolist() == np.searchsorted(sums, uniforms[:, 0], side="right").tolist()
