"""Batches under a token budget: each pair once, the same wherever and whenever they are planned."""

import gzip
import hashlib
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import prepare_data_loader
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from admin_nmt.data import tokenized_pairs
from admin_nmt.data.batching import (
    Seq2SeqCollator,
    Survey,
    TokenBatchSampler,
    WindowedBatchSampler,
    batch_by_size,
    generation_batches,
    serpentine_order,
)
from admin_nmt.data.tokenized_pairs import batch_sampler, longest_sentence, pair_lengths, survey

lengths = st.integers(min_value=1, max_value=60)
pairs = st.lists(st.tuples(lengths, lengths), min_size=1, max_size=200)


def random_lengths(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(2, 40, n), rng.integers(2, 40, n)


def windowed(source, target, max_tokens=100, *, seed=7, window=64, block=16, **options) -> WindowedBatchSampler:
    source, target = np.asarray(source), np.asarray(target)
    read = lambda start, stop: (source[start:stop], target[start:stop])  # noqa: E731
    return WindowedBatchSampler(len(source), read, max_tokens, seed=seed, window=window, block=block, **options)


def at_once(source, target, max_tokens=100, *, seed=7, **options) -> TokenBatchSampler:
    return TokenBatchSampler(source, target, max_tokens, seed=seed, **options)


both = pytest.mark.parametrize("make", [at_once, windowed])


def as_lists(batches) -> list[list[int]]:
    return [np.asarray(batch).tolist() for batch in batches]


@pytest.mark.shared
def test_batch_by_size_equals_fairseq(shared: Path) -> None:
    fixture = json.loads((shared / "reference/misc/meta.json").read_text())["batch_by_size"]
    num_tokens = np.maximum(fixture["src"], fixture["tgt"])
    batches = batch_by_size(fixture["ordered"], num_tokens, max_tokens=1500)
    assert as_lists(batches) == fixture["max_tokens1500_mult1"]


def greedy_batches(order: list[int], num_tokens: list[int], max_tokens: int) -> list[list[int]]:
    """The plain loop over sentences that `batch_by_size` replaces."""
    batches: list[list[int]] = [[]]
    for index in order:
        candidate = [*batches[-1], index]
        if len(candidate) * max(num_tokens[i] for i in candidate) > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


budgets = st.integers(60, 400) | st.just(2**40)  # without a limit, which must take no memory


@given(num_tokens=st.lists(lengths, min_size=1, max_size=100), max_tokens=budgets, data=st.data())
def test_batch_by_size_equals_the_plain_loop(num_tokens: list[int], max_tokens: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(num_tokens))))
    assert as_lists(batch_by_size(order, num_tokens, max_tokens)) == greedy_batches(order, num_tokens, max_tokens)


@both
@given(pairs=pairs, max_tokens=st.integers(60, 1000), epoch=st.integers(0, 3), data=st.data())
def test_every_pair_once_and_never_over_budget(make, pairs, max_tokens, epoch, data) -> None:
    source, target = np.array(pairs).T
    sizes = {"window": data.draw(st.integers(1, 100)), "block": data.draw(st.integers(1, 40))}
    options = sizes if make is windowed else {}
    sampler = make(source, target, max_tokens, **options)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) * max(source[batch].max(), target[batch].max()) <= max_tokens


@given(st.lists(st.tuples(*[st.integers(1, 9) | st.integers(200, 300) | st.integers(1, 50_000)] * 2)))
def test_serpentine_order_equals_the_plain_sort(pairs: list[tuple[int, int]]) -> None:
    turns = {length: number % 2 for number, length in enumerate(sorted({target for _, target in pairs}))}
    keys = [(target, -source if turns[target] else source) for source, target in pairs]
    source, target = ([pair[side] for pair in pairs] for side in (0, 1))
    assert serpentine_order(source, target).tolist() == sorted(range(len(pairs)), key=keys.__getitem__)


@pytest.mark.shared
def test_padding_of_multi30k(shared: Path) -> None:
    """Counts a token for each word and punctuation mark."""
    sides = []
    for language in ("en", "de"):
        with gzip.open(shared / f"data/multi30k/train.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append(np.array([len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in file]))
    for max_tokens, limit in ((2048, 0.03), (4096, 0.05)):
        assert Survey.of(*sides, TokenBatchSampler(*sides, max_tokens, seed=1).batches).padding < limit


@both
def test_epochs_differ_only_in_the_order_of_the_same_batches(make) -> None:
    sampler = make(*random_lengths(1000))
    first = list(sampler)
    assert list(sampler) == first == list(make(*random_lengths(1000)))
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    assert sorted(second) == sorted(first)
    assert list(make(*random_lengths(1000), seed=8)) != first


@both
@pytest.mark.parametrize("num_processes", [1, 2])
def test_resume_in_mid_epoch_gives_the_remaining_batches(make, num_processes: int) -> None:
    def epoch_of(skip: int) -> list[list[int]]:
        sampler = make(*random_lengths(500))
        loader = DataLoader(list(range(500)), batch_sampler=sampler, collate_fn=list)
        loader = prepare_data_loader(loader, num_processes=num_processes, process_index=num_processes - 1)
        loader = skip_first_batches(loader, skip) if skip else loader
        # accelerate's own set_epoch does not reach a sampler inside two wrappers.
        loader.set_epoch(2)
        sampler.set_epoch(2)
        return list(loader)

    straight = epoch_of(skip=0)
    assert epoch_of(skip=23) == straight[23:]


def test_generation_batches_go_from_long_to_short() -> None:
    source = [3, 9, 500, 4, 9, 1]
    batches = as_lists(generation_batches(source, max_tokens=20))
    assert batches == [[2], [1, 4], [3, 0, 5]]
    assert generation_batches([], max_tokens=20) == []


@both
@pytest.mark.parametrize(
    ("sides", "wrong", "named"), [([0], 101, "max_tokens"), ([1], 101, "max_tokens"), ([0, 1], 0, "no tokens")]
)
def test_bad_lengths_are_named_by_their_place_in_the_corpus(make, sides, wrong: int, named: str) -> None:
    both_lengths = random_lengths(100)
    for side in sides:
        both_lengths[side][77] = wrong
    with pytest.raises(ValueError, match=f"sentence 77 .*{named}"):
        make(*both_lengths)


PAIRS = [
    {"input_ids": [5, 6, 0], "labels": [7, 0], "source": "a b", "source_length": 3},
    {"input_ids": [5, 0], "labels": [7, 8, 9, 0], "source": "a", "source_length": 2},
]


@pytest.mark.parametrize("padding", [[], [99, 99]])  # in the labels, where it counts for none
def test_collator_pads_and_moves_labels_right(padding) -> None:
    batch = Seq2SeqCollator(99, decoder_start_token_id=98)([{**p, "labels": p["labels"] + padding} for p in PAIRS])
    n = len(padding)
    assert batch["input_ids"].tolist() == [[5, 6, 0], [5, 0, 99]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [[7, 0, -100, -100] + n * [-100], [7, 8, 9, 0] + n * [-100]]
    assert batch["decoder_input_ids"].tolist() == [[98, 7, 0, 99, 99, 99][: 4 + n], [98, 7, 8, 9, 0, 99][: 4 + n]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    assert set(Seq2SeqCollator(99)(PAIRS)) == {"input_ids", "attention_mask", "labels"}


# Plans of corpora too large to be sorted at once


def dataset_of(source, target) -> Dataset:
    return Dataset.from_dict({"source_length": source, "target_length": target})


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


def test_a_window_comes_from_all_over_the_corpus():
    sampler = windowed(*random_lengths(1024))
    first = {index // 16 for batch in list(sampler)[:10] for index in batch}
    assert any(first <= set(window.tolist()) for window in sampler.windows)
    assert sum(np.ptp(window) > 16 for window in sampler.windows) > 8


def test_one_window_has_the_batches_of_a_plan_at_once():
    lengths = random_lengths(500)
    assert sorted(windowed(*lengths, window=10_000)) == sorted(TokenBatchSampler(*lengths, 100, seed=7))


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
    monkeypatch.setattr(tokenized_pairs, "WHOLE", 999)
    sampler = batch_sampler(data, 100, seed=1)
    assert isinstance(sampler, WindowedBatchSampler)
    assert sampler.survey == survey(data, 100, seed=1)
    for planned in (whole, sampler.survey):
        assert (planned.pairs, planned.target_tokens) == (1000, target.sum())
    read = partial(pair_lengths, data)
    assert list(sampler) == list(WindowedBatchSampler(1000, read, 100, seed=1))


@pytest.mark.parametrize("window", [7, 1000])
def test_the_longest_sentence_is_found_in_any_part(monkeypatch, window):
    monkeypatch.setattr(tokenized_pairs, "WINDOW", window)
    source, target = random_lengths(50)
    target[41] = 99
    assert longest_sentence(dataset_of(source, target)) == 99


def test_padding_in_windows_is_near_that_of_sorting_all():
    rng = np.random.default_rng(0)
    source = np.clip(rng.lognormal(3, 0.6, 40_000), 2, 250).astype(int)
    target = np.clip(source * rng.normal(1.1, 0.15, 40_000), 2, 250).astype(int)
    at_once = Survey.of(source, target, TokenBatchSampler(source, target, 1000, seed=0).batches)
    shares = [windowed(source, target, 1000, window=size).survey.padding for size in (100, 1000, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert at_once.padding < shares[-1] < at_once.padding + 0.03
