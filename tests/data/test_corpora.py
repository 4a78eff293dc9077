"""Recipes to corpora, and the tokenised cache: made once, keyed by its inputs, never half written."""

import pytest
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from admin_nmt.data import arrow_cache, tokenizing
from admin_nmt.data.cleaning import CleaningOptions
from admin_nmt.data.corpora import clean_corpora, mix, read_corpora
from admin_nmt.data.tokenization.byte_bpe import SMALLEST_VOCABULARY, train_tokenizer
from admin_nmt.data.tokenizing import TOKENIZED, tokenize

CORPORA = {
    "train": [("one", "eins"), ("two", "zwei"), ("two", "zwei"), ("held", "out"), ("", "leer")],
    "valid": [("held", "zurück"), ("", "blank stays")],
    "test": [("nine", "neun")],
}


def byte_tokenizer(*tags: str) -> PreTrainedTokenizerFast:
    """One token a byte; tags give the bytes other ids."""
    return train_tokenizer([], SMALLEST_VOCABULARY + len(tags), tags=tags)


def numbers(count: int = 2500) -> Dataset:
    return Dataset.from_dict({"source": [f"n {i}" for i in range(count)], "target": [f"ü{i:06}" for i in range(count)]})


def pairs_of(dataset) -> list[tuple[str, str]]:
    return list(zip(dataset["source"], dataset["target"], strict=True))


def load(spec, cache_dir) -> tuple[list[Dataset], DatasetDict, dict[str, int]]:
    """The cleaned pairs of each training corpus, those of `valid` and `test`, and the counts."""
    files = {split: given for split, given in spec.items() if split != "cleaning"}
    cleaning = CleaningOptions(**spec.get("cleaning", {}))
    training, evaluation = read_corpora(files, cache_dir=cache_dir)
    cleaned, counts = clean_corpora(training, evaluation, cleaning, ["en", "de"], cache_dir=cache_dir)
    return [corpus.pairs for corpus in cleaned], evaluation, counts


@pytest.fixture
def recipe(tmp_path):
    """The `data` section of a recipe over files of `CORPORA`."""
    for split, pairs in CORPORA.items():
        (tmp_path / f"{split}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    return {split: {"source": str(tmp_path / f"{split}.tsv")} for split in CORPORA}


def test_every_nth_training_pair_is_held_out(tmp_path):
    """Counted over all corpora in a row, as `awk 'NR % n == 0'` does on their concatenation."""
    lines = [f"s{i}\tt{i}\n" for i in range(1, 24)]
    for name, part in (("a", lines[:5]), ("b", lines[5:])):
        (tmp_path / f"{name}.tsv").write_text("".join(part))
    spec = {"train": [{"source": str(tmp_path / f"{name}.tsv")} for name in "ab"]}
    training, evaluation = read_corpora(spec, valid_every=4, cache_dir=tmp_path / "cache")
    cleaned, counts = clean_corpora(training, evaluation, CleaningOptions(), ["en", "de"], cache_dir=tmp_path / "cache")
    assert evaluation["valid"]["source"][:] == [f"s{i}" for i in range(4, 24, 4)]
    rest = [f"s{i}" for i in range(1, 24) if i % 4]
    assert [source for corpus in cleaned for source in corpus.pairs["source"]] == rest and counts["kept"] == len(rest)
    with pytest.raises(ValueError, match="valid_every is 24, and there are 23 training pairs"):
        read_corpora(spec, valid_every=24, cache_dir=tmp_path / "cache")


def test_a_validation_set_that_is_taken_from_segmented_text_is_plain(tmp_path):
    """Detokenised as the training text is; also where a corpus has no pair for it."""
    (tmp_path / "a.tsv").write_text("do n@@ o@@ t\tn@@ ein\n")
    (tmp_path / "b.tsv").write_text("don &apos;t re@@ start 4 @-@ 2 .\tx\nwe don &apos;t .\ty@@ z .\n")
    spec = {"train": [{"source": str(tmp_path / f"{name}.tsv"), "detokenize": True} for name in "ab"]}
    _, evaluation = read_corpora(spec, valid_every=3, languages=["en", "de"], cache_dir=tmp_path / "cache")
    assert pairs_of(evaluation["valid"]) == [("we don't.", "yz.")]


def test_several_corpora(recipe, tmp_path):
    """Each is cleaned by itself, so that one may repeat another; the counts are those of all."""
    spec = recipe | {"train": [recipe["train"], recipe["test"] | {"upsample": 3}], "valid": [recipe["valid"]] * 2}
    parts, evaluation, counts = load(spec | {"test": recipe["valid"]}, tmp_path / "cache")
    assert [pairs_of(part) for part in parts] == [CORPORA["train"][:2], CORPORA["test"]]
    assert pairs_of(evaluation["valid"]) == CORPORA["valid"] * 2
    assert (counts["total"], counts["kept"]) == (6, 3)


def test_normalising_rewrites_the_training_text_alone_in_which_held_out_pairs_are_found(recipe, tmp_path):
    held_out = '“so” it is\t„so“ ist es\n"b"\t"b!"\n'
    (tmp_path / "train.tsv").write_text(held_out + "said “so”, it’s\u200b ok\tsagte „so“, 5\u00a0% – „x“.\n")
    (tmp_path / "valid.tsv").write_text(held_out)
    (train,), evaluation, counts = load(recipe | {"cleaning": {"normalize": True}}, tmp_path / "cache")
    assert pairs_of(train) == [('said "so," it\'s ok', 'sagte "so", 5% - "x".')]
    assert pairs_of(evaluation["valid"]) == [("“so” it is", "„so“ ist es"), ('"b"', '"b!"')]
    assert counts["held out"] == 2


def test_text_that_went_through_bpe_is_refused_or_restored(recipe, tmp_path):
    (tmp_path / "train.tsv").write_text("don &apos;t re@@ start 1 @-@ 2 .\tfang neu an !\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"data\.train: its text went through BPE"):
        load(recipe, tmp_path / "cache")
    train, _, _ = load(recipe | {"train": recipe["train"] | {"detokenize": True}}, tmp_path / "cache")
    assert pairs_of(train[0]) == [("don't restart 1-2.", "fang neu an!")]


def test_only_training_pairs_are_cleaned(recipe, tmp_path):
    (train,), evaluation, counts = load(recipe, tmp_path / "cache")
    assert pairs_of(train) == CORPORA["train"][:2]
    assert {split: pairs_of(pairs) for split, pairs in evaluation.items()} == {s: CORPORA[s] for s in ("valid", "test")}
    assert {name: n for name, n in counts.items() if n} == {
        "total": 5, "empty side": 1, "duplicate": 1, "held out": 1, "kept": 2,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"data\.train(.|\n)*held out +1"):
        load({"train": recipe["valid"], "valid": recipe["valid"]}, tmp_path / "cache")


@pytest.mark.parametrize(
    ("split", "field", "value"),
    [("test", "source", ["x", "y"])]
    + [("train", "tag", tag) for tag in ("bt", "<b t>", "</s>")],  # text could spell these
)
def test_faulty_recipes_are_refused(recipe, tmp_path, split, field, value):
    with pytest.raises(ValueError, match=rf"data\.{split}\.{field} is "):
        read_corpora(recipe | {split: {"source": "x"} | {field: value}}, cache_dir=tmp_path / "cache")


def test_tokenised_columns(tmp_path):
    tokenizers = byte_tokenizer(), byte_tokenizer("<bt>")
    pairs = Dataset.from_dict({"source": ["Grüße", ""], "target": ["hi", "longer than the source"]})
    tokenized = tokenize(pairs, *tokenizers, cache_dir=tmp_path)
    assert tokenized.features == TOKENIZED
    for row, pair in zip(tokenized, pairs, strict=True):
        assert {name: row[name] for name in pair} == pair
        for ids, length, text, tokenizer in (
            ("input_ids", "source_length", pair["source"], tokenizers[0]),
            ("labels", "target_length", pair["target"], tokenizers[1]),
        ):
            assert row[length] == len(row[ids]) and row[ids][-1] == 0
            assert row[ids] == tokenizer(text)["input_ids"]
            assert tokenizer.decode(row[ids], skip_special_tokens=True) == text


def test_max_length_drops_whole_pairs_and_counts_eos(tmp_path):
    tokenizer = byte_tokenizer()
    pairs = Dataset.from_dict({"source": ["abc", "abcd", "a", "b"], "target": ["a", "b", "abc", "abcd"]})
    tokenized = tokenize(pairs, tokenizer, tokenizer, max_length=5, cache_dir=tmp_path)  # with a space before
    assert tokenized["source"][:] == ["abc", "a"]
    assert len(tokenize(pairs, tokenizer, tokenizer, cache_dir=tmp_path)) == 4
    with pytest.raises(ValueError, match="none of 4 pairs has at most 1 tokens"):
        tokenize(pairs, tokenizer, tokenizer, max_length=1, cache_dir=tmp_path)


def test_cache_of_other_inputs_is_not_read(tmp_path):
    one, other, pairs = byte_tokenizer(), byte_tokenizer("<bt>"), numbers(50)
    for given in ((pairs, one, one), (numbers(40), one, one), (pairs, one, other), (pairs, other, one)):
        tokenize(*given, cache_dir=tmp_path)
    for options in ({"max_length": 10}, {"keep_text": False}):
        tokenize(pairs, one, one, cache_dir=tmp_path, **options)
    assert len(list(tmp_path.glob("tokenized-*"))) == 6


def test_workers_change_nothing_and_share_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_cache, "SHARD", 300)
    monkeypatch.setattr(arrow_cache, "BATCH", 100)
    tokenizer = byte_tokenizer()
    alone = tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path / "1", num_proc=1)
    together = tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path / "2", num_proc=2)
    assert together[:] == alone[:]
    assert len(alone.cache_files) == 9
    monkeypatch.setattr(tokenizing, "encode_pairs", lambda *_, **__: pytest.fail("tokenised again"))
    assert tokenize(numbers(), tokenizer, tokenizer, cache_dir=tmp_path / "2", num_proc=1)[:] == alone[:]


def test_a_tag_stands_before_every_source_and_counts(tmp_path):
    tokenizer = train_tokenizer(numbers(50)["source"], 300, tags=["<bt>"])
    plain, tagged = (tokenize(numbers(3), tokenizer, tokenizer, tag=t, cache_dir=tmp_path) for t in (None, "<bt>"))
    tag = tokenizer.convert_tokens_to_ids("<bt>")
    assert tagged["input_ids"][:] == [[tag, *ids] for ids in plain["input_ids"]]
    assert tagged["source_length"][:] == [length + 1 for length in plain["source_length"]]
    assert tagged["labels"][:] == plain["labels"][:]
    with pytest.raises(ValueError, match="<other>"):
        tokenize(numbers(3), tokenizer, tokenizer, tag="<other>", cache_dir=tmp_path)
    endless = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="</s>")
    with pytest.raises(ValueError, match="target"):
        tokenize(numbers(3), tokenizer, endless, cache_dir=tmp_path)


def test_an_epoch_takes_each_corpus_as_often_as_asked(tmp_path):
    texts, tokenizer = [["one", "two words", "three more words"], ["four", "five fives"]], byte_tokenizer()
    pairs = [Dataset.from_dict({"source": some, "target": some}) for some in texts]
    parts = [tokenize(part, tokenizer, tokenizer, cache_dir=tmp_path) for part in pairs]
    epoch = mix(parts, [3, 1])
    assert epoch["target"][:] == texts[0] * 3 + texts[1]
    assert {file["filename"] for file in epoch.cache_files} == {f["filename"] for p in parts for f in p.cache_files}
