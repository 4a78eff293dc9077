"""Recipes to corpora, and the tokenised cache: made once, keyed by its inputs, never half written."""

import os
import subprocess
import sys

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from admin_nmt import data
from admin_nmt.data import TOKENIZED, load_corpora, tokenize

CORPORA = {
    "train": [("one", "eins"), ("two", "zwei"), ("two", "zwei"), ("held", "out"), ("", "leer")],
    "valid": [("held", "zurück"), ("", "blank stays")],
    "test": [("nine", "neun")],
}


def byte_tokenizer(shift: int = 2, eos: bool = True) -> PreTrainedTokenizerFast:
    """One token a byte, numbered from `shift`, then `</s>` = 0."""
    alphabet = {symbol: shift + i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE({"</s>": 0, "<unk>": 1, "<pad>": 300} | alphabet, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if eos:
        backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


def numbers(count: int = 2500) -> Dataset:
    return Dataset.from_dict({"source": [f"n {i}" for i in range(count)], "target": [f"ü{i:06}" for i in range(count)]})


@pytest.fixture
def recipe(tmp_path):
    """The `data` section of a recipe over files of `CORPORA`."""
    for split, pairs in CORPORA.items():
        (tmp_path / f"{split}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    return {split: {"source": str(tmp_path / f"{split}.tsv")} for split in CORPORA}


@pytest.fixture
def no_tokenising(monkeypatch):
    """After the call, any tokenising fails the test."""

    def forbid():
        monkeypatch.setattr(data, "_encode", lambda *_, **__: pytest.fail("tokenised although the cache is there"))

    return forbid


def test_only_training_pairs_are_cleaned(recipe, tmp_path):
    corpora, counts = load_corpora(recipe, cache_dir=tmp_path / "cache")
    assert list(zip(corpora["train"]["source"], corpora["train"]["target"], strict=True)) == CORPORA["train"][:2]
    for split in ("valid", "test"):
        assert list(zip(corpora[split]["source"], corpora[split]["target"], strict=True)) == CORPORA[split]
    assert {name: n for name, n in counts.items() if n} == {
        "total": 5, "empty side": 1, "duplicate": 1, "held out": 1, "kept": 2,
    }  # fmt: skip


def test_evaluation_data_alone(recipe, tmp_path):
    corpora, counts = load_corpora({"test": recipe["test"]}, cache_dir=tmp_path / "cache")
    assert list(corpora) == ["test"]
    assert counts == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dev": {}}, "data has an unknown field 'dev'; known are train, valid, test, cleaning"),
        ({"valid": {"sauce": "x"}}, "data.valid has an unknown field 'sauce'"),
        ({"valid": {"target": "x"}}, "data.valid has no source"),
        ({"valid": "valid.tsv"}, "data.valid is 'valid.tsv'; give a mapping"),
        ({"cleaning": {"max_length": 3}}, "data.cleaning has an unknown field 'max_length'; known are max_words"),
        ({"cleaning": {"max_ratio": 0}}, "max_ratio is 0"),
    ],
)
def test_faulty_recipes_are_refused(recipe, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load_corpora(recipe | change, cache_dir=tmp_path / "cache")


def test_cleaning_that_leaves_nothing_is_refused(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"dropped every pair of data\.train(.|\n)*held out +1"):
        load_corpora({"train": recipe["valid"], "valid": recipe["valid"]}, cache_dir=tmp_path / "cache")


def test_tokenised_columns(tmp_path):
    tokenizers = byte_tokenizer(), byte_tokenizer(shift=10)
    pairs = Dataset.from_dict({"source": ["Grüße", ""], "target": ["hi", "longer than the source"]})
    tokenized = tokenize(pairs, *tokenizers, cache_dir=tmp_path)
    assert tokenized.features == TOKENIZED
    for row, pair in zip(tokenized, pairs, strict=True):
        assert {name: row[name] for name in pair} == pair
        for ids, length, text, tokenizer in (
            ("input_ids", "source_length", pair["source"], tokenizers[0]),
            ("labels", "target_length", pair["target"], tokenizers[1]),
        ):
            assert row[length] == len(row[ids]) == len(text.encode()) + 1
            assert row[ids][-1] == 0
            assert tokenizer.decode(row[ids], skip_special_tokens=True) == text


def test_max_length_drops_whole_pairs_and_counts_eos(tmp_path):
    tokenizer = byte_tokenizer()
    pairs = Dataset.from_dict({"source": ["abc", "abcd", "a", "b"], "target": ["a", "b", "abc", "abcd"]})
    tokenized = tokenize(pairs, tokenizer, tokenizer, max_length=4, cache_dir=tmp_path)
    assert tokenized["source"][:] == ["abc", "a"]
    assert len(tokenize(pairs, tokenizer, tokenizer, cache_dir=tmp_path)) == 4
    with pytest.raises(ValueError, match="none of 4 pairs has at most 1 tokens"):
        tokenize(pairs, tokenizer, tokenizer, max_length=1, cache_dir=tmp_path)


def test_second_call_reads_the_cache(tmp_path, no_tokenising):
    first = tokenize(numbers(), byte_tokenizer(), byte_tokenizer(), cache_dir=tmp_path)
    assert first.cache_files
    no_tokenising()
    padded = byte_tokenizer()
    padded(["a", "bc"], padding=True, truncation=True, max_length=2)
    second = tokenize(numbers(), padded, padded, cache_dir=tmp_path)
    assert second.cache_files == first.cache_files
    assert second[:] == first[:]


def test_cache_of_other_inputs_is_not_read(tmp_path):
    tokenizer = byte_tokenizer()
    tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path)
    tokenize(numbers(2400), tokenizer, tokenizer, cache_dir=tmp_path)
    tokenize(numbers(), tokenizer, byte_tokenizer(shift=3), cache_dir=tmp_path)
    tokenize(numbers(), tokenizer, tokenizer, max_length=9, cache_dir=tmp_path)
    assert len(list(tmp_path.glob("tokenized-*.arrow"))) == 4


def test_workers_change_nothing_and_share_the_cache(tmp_path, no_tokenising):
    tokenizer = byte_tokenizer()
    alone = tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path / "1")
    together = tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path / "2", num_proc=2)
    assert together[:] == alone[:]
    no_tokenising()
    assert tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path / "2")[:] == alone[:]


def test_an_interrupted_call_leaves_no_cache(tmp_path, monkeypatch):
    tokenizer, encode = byte_tokenizer(), data._encode

    def interrupted(batch, **options):
        if "n 2000" in batch["source"]:
            raise KeyboardInterrupt
        return encode(batch, **options)

    monkeypatch.setattr(data, "_encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(data, "_encode", encode)
    assert len(tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path)) == 2500


def test_tokenizers_must_end_sentences(tmp_path):
    with pytest.raises(ValueError, match="the target tokenizer does not end a sentence"):
        tokenize(numbers(5), byte_tokenizer(), byte_tokenizer(eos=False), cache_dir=tmp_path)


def test_another_process_finds_every_cache(recipe, tmp_path, no_tokenising):
    script = (
        "import json, sys; from transformers import AutoTokenizer; from admin_nmt.data import load_corpora, tokenize\n"
        "folder, recipe = sys.argv[1], json.loads(sys.argv[2])\n"
        "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
        "corpora, _ = load_corpora(recipe, cache_dir=folder + '/cache')\n"
        "tokenize(corpora['train'], tokenizer, tokenizer, max_length=9, cache_dir=folder + '/cache')\n"
    )
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    command = [sys.executable, "-c", script, str(tmp_path), str(recipe).replace("'", '"')]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": "7"})
    files = set((tmp_path / "cache").rglob("*.arrow"))
    no_tokenising()
    corpora, _ = load_corpora(recipe, cache_dir=tmp_path / "cache")
    tokenized = tokenize(corpora["train"], tokenizer, tokenizer, max_length=9, cache_dir=tmp_path / "cache")
    assert tokenized["source"][:] == ["one", "two"]
    assert set((tmp_path / "cache").rglob("*.arrow")) == files
