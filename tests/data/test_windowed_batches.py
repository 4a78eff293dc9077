"""Plans of corpora too large to be sorted at once: each pair once, the same wherever and whenever it is made."""

import hashlib
from functools import partial

import numpy as np
import pytest
from accelerate import skip_first_batches
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from admin_nmt.data import tokenizing
from admin_nmt.data.batching import Survey, TokenBatchSampler, WindowedBatchSampler, batch_shapes
from admin_nmt.data.tokenizing import batch_sampler, longest_sentence, pair_lengths, survey

length = st.integers(min_value=1, max_value=60)
pairs = st.lists(st.tuples(length, length), min_size=1, max_size=300)


def random_lengths(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(2, 40, n), rng.integers(2, 40, n)


def windowed(source, target, max_tokens=100, *, seed=7, window=64, block=16, **options):
    source, target = np.asarray(source), np.asarray(target)
    read = lambda start, stop: (source[start:stop], target[start:stop])  # noqa: E731
    return WindowedBatchSampler(len(source), read, max_tokens, seed=seed, window=window, block=block, **options)


def dataset_of(source, target):
    return Dataset.from_dict({"source_length": source, "target_length": target})


@given(pairs, st.integers(60, 400), st.integers(1, 4), st.integers(1, 100), st.integers(1, 40), st.integers(0, 3))
def test_every_pair_once_and_never_over_budget(pairs, max_tokens, multiple, window, block, epoch):
    source, target = np.array(pairs).T
    sampler = windowed(source, target, max_tokens, multiple=multiple, window=window, block=block)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) * max(source[batch].max(), target[batch].max()) <= max_tokens


def test_epochs_begin_with_different_windows():
    sampler, first = windowed(*random_lengths(300), window=100, block=100), set()
    for epoch in range(8):
        sampler.set_epoch(epoch)
        first.add(next(iter(sampler))[0] // 100)
    assert first == {0, 1, 2}


@given(pairs, st.integers(60, 400), st.integers(1, 100), st.integers(1, 40))
def test_the_survey_is_that_of_the_batches(pairs, max_tokens, window, block):
    source, target = np.array(pairs).T
    sampler = windowed(source, target, max_tokens, window=window, block=block)
    shapes = [(len(batch), int(source[batch].max()), int(target[batch].max())) for batch in sampler]
    assert sampler.survey == Survey(
        pairs=len(pairs),
        batches=len(shapes),
        source_tokens=int(source.sum()),
        target_tokens=int(target.sum()),
        positions=sum(n * (s + t) for n, s, t in shapes),
        shapes=frozenset(shapes),
    )
    assert 0 <= sampler.survey.padding < 1


def test_epochs_differ_only_in_the_order_of_the_same_batches():
    sampler = windowed(*random_lengths(1000))
    first = list(sampler)
    assert list(sampler) == first == list(windowed(*random_lengths(1000)))
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    assert sorted(second) == sorted(first)
    assert list(windowed(*random_lengths(1000), seed=8)) != first


def test_an_epoch_shuffles_the_batches_of_each_window_in_its_own_way():
    """Three windows of ten batches of ten pairs, all of one length."""
    orders = []
    for seed, epoch in ((7, 0), (7, 1), (8, 0)):
        sampler = windowed([5] * 300, [5] * 300, 50, seed=seed, window=100, block=100)
        sampler.set_epoch(epoch)
        batches = [batch[0] for batch in sampler]
        orders += [tuple(first % 100 // 10 for first in batches[start : start + 10]) for start in (0, 10, 20)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({*orders, tuple(range(10))}) == 10


def test_a_window_comes_from_all_over_the_corpus():
    sampler = windowed(*random_lengths(1024))
    assert [len(window) for window in sampler.windows] == [4] * 16
    assert sorted(block for window in sampler.windows for block in window) == list(range(64))
    assert sum(np.ptp(window) > 16 for window in sampler.windows) > 8
    first = {index // 16 for batch in list(sampler)[:10] for index in batch}
    assert any(first <= set(window.tolist()) for window in sampler.windows)


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_processes_share_an_epoch(num_processes):
    sampler = windowed(*random_lengths(500))
    shards = [list(BatchSamplerShard(sampler, num_processes, rank)) for rank in range(num_processes)]
    assert {len(shard) for shard in shards} == {-(-len(sampler) // num_processes)}
    dealt = [batch for step in zip(*shards, strict=True) for batch in step]
    assert dealt[: len(sampler)] == list(sampler)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_resume_in_mid_epoch_gives_the_remaining_batches(num_processes):
    def epoch_of(skip):
        sampler = windowed(*random_lengths(500))
        loader = DataLoader(list(range(500)), batch_sampler=sampler, collate_fn=list)
        loader = prepare_data_loader(loader, num_processes=num_processes, process_index=num_processes - 1)
        loader = skip_first_batches(loader, skip) if skip else loader
        loader.set_epoch(2)
        sampler.set_epoch(2)
        return list(loader)

    straight = epoch_of(skip=0)
    assert epoch_of(skip=23) == straight[23:]


@pytest.mark.parametrize(
    ("wrong", "message"), [(101, "sentence 77 has 101 tokens, more than max_tokens=100"), (0, "sentence 77 has no tok")]
)
def test_bad_lengths_are_named_by_their_place_in_the_corpus(wrong, message):
    source, target = random_lengths(100)
    source[77] = target[77] = wrong
    with pytest.raises(ValueError, match=message):
        windowed(source, target)


def test_lengths_in_16_bits_are_enough():
    source, target = random_lengths(500)
    assert list(windowed(source.astype(np.uint16), target.astype(np.uint16))) == list(windowed(source, target))


def test_one_window_has_the_batches_of_a_plan_at_once():
    lengths = random_lengths(500)
    assert sorted(windowed(*lengths, window=10_000)) == sorted(TokenBatchSampler(*lengths, 100, seed=7))


def test_padding_in_windows_is_near_that_of_sorting_all():
    rng = np.random.default_rng(0)
    source = np.clip(rng.lognormal(3, 0.6, 40_000), 2, 250).astype(int)
    target = np.clip(source * rng.normal(1.1, 0.15, 40_000), 2, 250).astype(int)
    at_once = Survey.of(source, target, TokenBatchSampler(source, target, 1000, seed=0).batches)
    shares = [windowed(source, target, 1000, window=size).survey.padding for size in (100, 1000, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert at_once.padding < shares[-1] < at_once.padding + 0.03


def test_a_corpus_that_fits_is_planned_as_ever():
    """The digest is that of the sampler before there were windows: a run of an older release continues."""
    data = dataset_of(*random_lengths(5000))
    sampler = batch_sampler(data, 512, seed=3)
    assert isinstance(sampler, TokenBatchSampler)
    sampler.set_epoch(2)
    digest = hashlib.sha256(repr(list(sampler)).encode()).hexdigest()
    assert digest[:16] == "16fd135e66ca9d39"


def test_a_dataset_beyond_the_limit_is_planned_in_windows(monkeypatch):
    source, target = random_lengths(1000)
    data = dataset_of(source, target)
    whole = survey(data, 100, seed=1)
    assert whole.shapes == set(
        map(tuple, batch_shapes(source, target, batch_sampler(data, 100, seed=1).batches).tolist())
    )
    monkeypatch.setattr(tokenizing, "WHOLE", 999)
    sampler = batch_sampler(data, 100, seed=1)
    assert isinstance(sampler, WindowedBatchSampler)
    assert sampler.survey == survey(data, 100, seed=1)
    assert (
        (sampler.survey.pairs, sampler.survey.target_tokens)
        == (whole.pairs, whole.target_tokens)
        == (1000, target.sum())
    )
    read = partial(pair_lengths, data)
    assert list(sampler) == list(WindowedBatchSampler(1000, read, 100, seed=1))


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_the_longest_sentence_is_found_in_any_part(monkeypatch, window):
    monkeypatch.setattr(tokenizing, "WINDOW", window)
    source, target = random_lengths(50)
    target[41] = 99
    assert longest_sentence(dataset_of(source, target)) == 99
