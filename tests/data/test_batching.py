import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from torch.utils.data import DataLoader

from admin_nmt.data.batching import (
    Seq2SeqCollator,
    TokenBatchSampler,
    batch_by_size,
    generation_batches,
    serpentine_order,
)

lengths = st.integers(min_value=1, max_value=60)
pairs = st.lists(st.tuples(lengths, lengths), min_size=1, max_size=200)


def random_lengths(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(2, 40, n), rng.integers(2, 40, n)


def sampler_of(n: int, max_tokens: int = 100, **options) -> TokenBatchSampler:
    return TokenBatchSampler(*random_lengths(n), max_tokens, seed=7, **options)


def as_lists(batches) -> list[list[int]]:
    return [np.asarray(batch).tolist() for batch in batches]


@pytest.mark.shared
@pytest.mark.parametrize("multiple", [1, 8])
def test_batch_by_size_equals_fairseq(shared: Path, multiple: int) -> None:
    fixture = json.loads((shared / "reference/misc/meta.json").read_text())["batch_by_size"]
    num_tokens = np.maximum(fixture["src"], fixture["tgt"])
    batches = batch_by_size(fixture["ordered"], num_tokens, max_tokens=1500, multiple=multiple)
    assert as_lists(batches) == fixture[f"max_tokens1500_mult{multiple}"]


def greedy_batches(order: list[int], num_tokens: list[int], max_tokens: int) -> list[list[int]]:
    """The plain loop over sentences that `batch_by_size` replaces."""
    batches: list[list[int]] = [[]]
    for index in order:
        candidate = [*batches[-1], index]
        if len(candidate) * max(num_tokens[i] for i in candidate) > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


@given(num_tokens=st.lists(lengths, min_size=1, max_size=100), max_tokens=st.integers(60, 400), data=st.data())
def test_batch_by_size_equals_the_plain_loop(num_tokens: list[int], max_tokens: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(num_tokens))))
    assert as_lists(batch_by_size(order, num_tokens, max_tokens)) == greedy_batches(order, num_tokens, max_tokens)


@given(pairs=pairs, max_tokens=st.integers(60, 1000), multiple=st.integers(1, 8))
def test_every_pair_once_and_never_over_budget(pairs: list[tuple[int, int]], max_tokens: int, multiple: int) -> None:
    source, target = np.array(pairs).T
    sampler = TokenBatchSampler(source, target, max_tokens, seed=1, multiple=multiple)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) * max(source[batch].max(), target[batch].max()) <= max_tokens
    for batch in sampler.batches[:-1]:
        assert len(batch) < multiple or len(batch) % multiple == 0


def test_serpentine_order_turns_at_every_target_length() -> None:
    target = [5, 3, 3, 9, 5, 9, 3, 5]
    source = [1, 8, 2, 4, 6, 7, 5, 3]
    order = serpentine_order(source, target)
    assert [(target[i], source[i]) for i in order] == [
        (3, 2), (3, 5), (3, 8), (5, 6), (5, 3), (5, 1), (9, 4), (9, 7),
    ]  # fmt: skip


def test_serpentine_order_keeps_the_order_of_equal_pairs_at_any_length() -> None:
    assert serpentine_order([4, 4, 4], [6, 6, 6]).tolist() == [0, 1, 2]
    assert serpentine_order([40_000, 3, 40_000], [70_000, 70_000, 1]).tolist() == [2, 0, 1]


@given(st.lists(st.tuples(*[st.integers(1, 9) | st.integers(200, 300) | st.integers(1, 50_000)] * 2)))
def test_serpentine_order_equals_the_plain_sort(pairs: list[tuple[int, int]]) -> None:
    turns = {length: number % 2 for number, length in enumerate(sorted({target for _, target in pairs}))}
    keys = [(target, -source if turns[target] else source) for source, target in pairs]
    source, target = ([pair[side] for pair in pairs] for side in (0, 1))
    assert serpentine_order(source, target).tolist() == sorted(range(len(pairs)), key=keys.__getitem__)


@pytest.mark.shared
@pytest.mark.parametrize(("max_tokens", "limit"), [(2048, 0.03), (4096, 0.05)])
def test_padding_of_multi30k(shared: Path, max_tokens: int, limit: float) -> None:
    texts = []
    for language in ("en", "de"):
        with gzip.open(shared / f"data/multi30k/train.{language}.gz", "rt", encoding="utf-8") as file:
            texts.append(file.read().splitlines())
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts[0] + texts[1], BpeTrainer(vocab_size=8000, show_progress=False))
    source, target = ([len(encoding) + 1 for encoding in tokenizer.encode_batch(text)] for text in texts)
    for multiple in (1, 8):
        sampler = TokenBatchSampler(source, target, max_tokens, seed=1, multiple=multiple)
        sides = [[side[index] for index in batch] for batch in sampler for side in (source, target)]
        positions = sum(len(side) * max(side) for side in sides)
        assert 1 - (sum(source) + sum(target)) / positions < limit


def test_epochs_differ_only_in_the_order_of_the_same_batches() -> None:
    sampler = sampler_of(300)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    assert sorted(second) == sorted(first)
    assert list(TokenBatchSampler(*random_lengths(300), 100, seed=8)) != first


@pytest.mark.parametrize("num_processes", [1, 2, 3])
@pytest.mark.parametrize("pairs", [3, 200, 201, 250])
def test_shards_cover_every_batch(num_processes: int, pairs: int) -> None:
    sampler = sampler_of(pairs)
    batches = list(sampler)
    shards = [list(BatchSamplerShard(sampler, num_processes, rank)) for rank in range(num_processes)]
    assert {len(shard) for shard in shards} == {-(-len(batches) // num_processes)}
    dealt = [batch for step in zip(*shards, strict=True) for batch in step]
    surplus = len(dealt) - len(batches)
    assert dealt[: len(batches)] == batches
    assert dealt[len(batches) :] == (batches * num_processes)[:surplus]


@pytest.mark.parametrize("num_processes", [1, 2])
def test_resume_in_mid_epoch_gives_the_remaining_batches(num_processes: int) -> None:
    def epoch_of(skip: int) -> list[list[int]]:
        sampler = sampler_of(200)
        loader = DataLoader(list(range(200)), batch_sampler=sampler, collate_fn=list)
        loader = prepare_data_loader(loader, num_processes=num_processes, process_index=num_processes - 1)
        loader = skip_first_batches(loader, skip) if skip else loader
        # accelerate's own set_epoch does not reach a sampler inside two wrappers.
        loader.set_epoch(2)
        sampler.set_epoch(2)
        return list(loader)

    straight = epoch_of(skip=0)
    assert epoch_of(skip=5) == straight[5:]


def test_sampler_has_no_batch_size() -> None:
    assert not hasattr(sampler_of(10), "batch_size")


def test_generation_batches_go_from_long_to_short() -> None:
    source = [3, 9, 500, 4, 9, 1]
    batches = as_lists(generation_batches(source, max_tokens=20))
    assert batches == [[2], [1, 4], [3, 0, 5]]
    assert generation_batches([], max_tokens=20) == []


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([5, 30], [5, 101], "sentence 1 has 101 tokens, more than max_tokens=100"),
        ([5, 101], [5, 30], "sentence 1 has 101 tokens, more than max_tokens=100"),
        ([5, 0, 3], [5, 0, 3], "sentence 1 has no tokens"),
        ([5, 6], [5], "2 source lengths but 1 target lengths"),
    ],
)
def test_bad_lengths_are_refused(source: list[int], target: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenBatchSampler(source, target, 100, seed=1)


def test_a_sentence_over_the_budget_is_refused_by_its_index() -> None:
    with pytest.raises(ValueError, match="sentence 7 has 12 tokens, more than max_tokens=10"):
        batch_by_size([3, 7], [1] * 7 + [12], max_tokens=10)


PAIRS = [
    {"input_ids": [5, 6, 0], "labels": [7, 0], "source": "a b", "source_length": 3},
    {"input_ids": [5, 0], "labels": [7, 8, 9, 0], "source": "a", "source_length": 2},
]


def test_collator_pads_ids_and_labels() -> None:
    batch = Seq2SeqCollator(pad_token_id=99)(PAIRS)
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["input_ids"].tolist() == [[5, 6, 0], [5, 0, 99]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [[7, 0, -100, -100], [7, 8, 9, 0]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_collator_moves_labels_right_behind_the_start_token() -> None:
    batch = Seq2SeqCollator(pad_token_id=99, decoder_start_token_id=98)(PAIRS)
    assert batch["decoder_input_ids"].tolist() == [[98, 7, 0, 99], [98, 7, 8, 9]]


def test_collator_takes_padding_in_labels_for_none() -> None:
    padded = [{**pair, "labels": [*pair["labels"], 99, 99]} for pair in PAIRS]
    batch = Seq2SeqCollator(pad_token_id=99, decoder_start_token_id=98)(padded)
    assert batch["labels"].tolist() == [[7, 0, *[-100] * 4], [7, 8, 9, 0, -100, -100]]
    assert batch["decoder_input_ids"].tolist() == [[98, 7, 0, 99, 99, 99], [98, 7, 8, 9, 0, 99]]


def test_collator_does_without_labels() -> None:
    sources = [{"input_ids": pair["input_ids"]} for pair in PAIRS]
    assert set(Seq2SeqCollator(pad_token_id=99)(sources)) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("batch_sampler", [sampler_of(50), generation_batches(random_lengths(50)[0], 100)])
def test_loader_over_a_dataset_gives_padded_batches(batch_sampler) -> None:
    source, target = random_lengths(50)
    rows = [{"input_ids": [1] * n, "labels": [1] * m} for n, m in zip(source, target, strict=True)]
    loader = DataLoader(Dataset.from_list(rows), batch_sampler=batch_sampler, collate_fn=Seq2SeqCollator(2))
    batches = list(loader)
    assert sum(int(batch["attention_mask"].sum()) for batch in batches) == source.sum()
    assert sum(int((batch["labels"] == 1).sum()) for batch in batches) == target.sum()
