"""Text of one's own: what is refused, and what is held out."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from datasets import Dataset

from admin_nmt.data.cleaning import CleaningOptions, clean
from admin_nmt.data.parallel_text import load_parallel
from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.runs.own_text.files import OwnFiles
from admin_nmt.runs.own_text.summary import (
    choose,
    cleaning_options,
    columns_and_languages,
    summarize,
    text_facts,
)


def write(folder, pairs) -> OwnFiles:
    for side, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (folder / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return OwnFiles([str(folder / "train.en")], [str(folder / "train.de")])


def read(folder, files, languages=("en", "de"), **given):
    cleaning = CleaningOptions(**cleaning_options(languages))
    return summarize(files, given, languages, folder / "run" / "data", cleaning, cache_dir=folder / "cache")


@pytest.fixture(scope="module")
def pairs():
    """Pairs of which some share a sentence with others."""
    made = phrasebook(500, 1, 1)["train"]
    return [
        *made,
        *((source, f"Also {target}") for source, target in made[:40]),
        *(("Hello.", t) for _, t in made[40:60]),
    ]


def test_held_out_sentences_are_nowhere_else(tmp_path, pairs):
    """Neither on their own side of the training text that the recipe's cleaning leaves, nor in the other split."""
    files = write(tmp_path, pairs)
    corpus = read(tmp_path, files)
    share = corpus.kept // 20
    assert (corpus.read, corpus.split_off) == (560, {"valid": share, "test": share})
    splits = {split: load_parallel(**files, cache_dir=tmp_path) for split, files in corpus.held_out.items()}
    held_out = Dataset.from_dict(
        {side: [*splits["valid"][side], *splits["test"][side]] for side in ("source", "target")}
    )
    assert {*zip(held_out["source"], held_out["target"], strict=True)} <= {*pairs}
    options = CleaningOptions(**cleaning_options(["en", "de"]))
    training, counts = clean(load_parallel(**files.fields(), cache_dir=tmp_path), options, held_out)
    assert counts["kept"] == corpus.training == corpus.kept - 2 * share
    for side in ("source", "target"):
        sentences = [set(part[side]) for part in (training, splits["valid"], splits["test"])]
        assert sum(map(len, sentences)) == len(set.union(*sentences))
    assert corpus.example in held_out["source"]


def test_the_same_pairs_are_held_out_whatever_their_order(tmp_path, pairs):
    chosen = []
    for order in (pairs, pairs[::-1]):
        data = Dataset.from_dict(dict(zip(("source", "target"), map(list, zip(*order, strict=True)), strict=True)))
        rows = choose(text_facts(data), {"valid": 30, "test": 30})
        chosen.append({split: {order[row] for row in part} for split, part in rows.items()})
    assert chosen[0] == chosen[1]
    assert not chosen[0]["valid"] & chosen[0]["test"]


def test_repeated_sentences_are_held_out_last_and_once():
    """A sentence with many translations would take them all out of the training text."""
    sources = ["a"] * 5 + ["b", "c", "d"]
    data = Dataset.from_dict({"source": sources, "target": [f"t{row}" for row in range(8)]})
    assert choose(text_facts(data), {"test": 3}) == {"test": [5, 6, 7]}
    everything = choose(text_facts(data), {"test": 9})["test"]
    assert [sources[row] for row in everything] == ["a", "b", "c", "d"]


def test_pairs_that_may_be_too_long_for_the_model_are_held_out_last():
    data = Dataset.from_dict({"source": ["a " * 257, "b " * 255, "c"], "target": ["x", "y", "z " * 300]})
    assert choose(text_facts(data), {"test": 1}) == {"test": [1]}
    assert choose(text_facts(data), {"test": 3}) == {"test": [0, 1, 2]}


def test_text_of_several_lines_is_not_held_out():
    data = Dataset.from_dict({"source": ["a\nb", "c d", "e"], "target": ["x", "y", "z\u2028w"]})
    facts = text_facts(data)
    assert facts["source_plain"].tolist() == [False, True, True]
    assert choose(facts, {"test": 3}) == {"test": [1]}
    assert facts["target_bytes"].tolist() == [1, 1, 5]
    assert len(np.unique(facts["source_key"])) == 3


def test_given_sets_are_taken_and_kept_out_of_the_rest(tmp_path, pairs):
    files = write(tmp_path, pairs)
    before = read(tmp_path, files)
    first, second = load_parallel(**before.held_out["test"], cache_dir=tmp_path).select([0, 1])
    (tmp_path / "valid.tsv").write_text(f"{first['source']}\tx\nother\t{second['target']}\n", encoding="utf-8")
    corpus = read(tmp_path, files, valid=OwnFiles([str(tmp_path / "valid.tsv")]))
    assert corpus.held_out["valid"] == {"source": str(tmp_path / "valid.tsv")}
    assert set(corpus.split_off) == {"test"}
    assert corpus.kept == before.kept - 2


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([("a b", "c d")] * 300, r"cleaning leaves 1 \(duplicate 299\)"),
        ([(f"a {i}", f"b {i}") for i in range(199)], "199 pairs are too few"),
        ([(f"a {i}", f"a {i}") for i in range(300)], "the same text on both sides"),
        ([("", "")], r"cleaning leaves 0 \(empty side 1\)"),
        ([(f"a b {i}", f"c {i % 3}") for i in range(400)], "only 3 are left to hold out"),
    ],
)
def test_text_that_cannot_be_learnt_is_refused(tmp_path, made, message):
    with pytest.raises(ValueError, match=rf"train\.en and .*train\.de: .*{message}"):
        read(tmp_path, write(tmp_path, made))
    assert not (tmp_path / "run").exists()


def test_one_language_on_both_sides_has_files_of_its_own(tmp_path, pairs):
    """As for paraphrases; the target would overwrite the source."""
    corpus = read(tmp_path, write(tmp_path, pairs), ("en", "en"))
    held_out = load_parallel(**corpus.held_out["valid"], cache_dir=tmp_path)
    assert {*zip(held_out["source"], held_out["target"], strict=True)} <= {*pairs}


def test_a_language_without_spaces_may_have_one_word_a_line(tmp_path):
    files = write(tmp_path, [(f"some words number {i}", f"词{i}") for i in range(300)])
    assert read(tmp_path, files, ["en", "zh"]).kept == 300
    assert cleaning_options(["en", "zh"]) == {"drop_held_out": "either", "max_ratio": None}


def test_columns_of_json_and_parquet_tell_the_languages(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"translation": {"en": "a", "de": "b"}}) + "\n")
    files = OwnFiles([str(path)])
    assert columns_and_languages(files, None, None) == (["en", "de"], ["en", "de"])
    assert columns_and_languages(files, None, ["de", "en"]) == (["de", "en"], ["de", "en"])
    assert columns_and_languages(files, None, ["fr", "en"]) == (None, ["fr", "en"])
    path.write_text(json.dumps({"source": "a", "target": "b", "en": "c", "de": "d"}) + "\n")
    assert columns_and_languages(files, None, ["en", "de"]) == (None, ["en", "de"])
    assert columns_and_languages(files, ["en", "de"], None) == (["en", "de"], None)
    pa.parquet.write_table(pa.table({"hu": ["a"], "no": ["b"]}), tmp_path / "pairs.parquet")
    parquet = OwnFiles([str(tmp_path / "pairs.parquet")])
    assert columns_and_languages(parquet, None, None) == (["hu", "no"], ["hu", "no"])
    assert columns_and_languages(OwnFiles(["a.en"], ["a.de"]), None, None) == (None, None)
