"""The built-in phrasebook, and the grammar in training/ that its sentences were drawn from."""

import bz2
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admin_nmt.data.phrasebook import EXAMPLES, FILE, SIZES, phrasebook, write_phrasebook

sys.path.append(str(Path(__file__).parents[2] / "training"))
import phrasebook_grammar as grammar


@pytest.fixture(scope="module")
def pairs() -> list[grammar.Pair]:
    splits = phrasebook()
    return [pair for split in SIZES for pair in splits[split]]


def test_the_file_holds_what_the_grammar_draws(pairs):
    drawn = grammar.drawn_pairs(sum(SIZES.values()))
    assert pairs == drawn
    assert bz2.decompress(FILE.read_bytes()).decode() == "".join(f"{english}\t{german}\n" for english, german in drawn)


def test_splits_follow_one_another_and_have_the_sizes_asked_for(pairs):
    assert {split: len(rows) for split, rows in phrasebook().items()} == SIZES
    assert phrasebook(30, 20, 10) == {"test": pairs[:10], "valid": pairs[10:30], "train": pairs[30:60]}
    with pytest.raises(ValueError, match="41,000"):
        phrasebook(40_001)


def test_no_sentence_occurs_twice_in_either_language_and_none_is_an_example(pairs):
    """So the splits are disjoint on both sides, and no source has two translations."""
    for sentences, examples in zip(zip(*pairs, strict=True), zip(*EXAMPLES.items(), strict=True), strict=True):
        assert len({*sentences, *examples}) == len(pairs) + len(examples)


def test_written_files_hold_the_corpus(pairs, tmp_path):
    (tmp_path / "train.en").write_text("an earlier corpus")
    paths = write_phrasebook(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{split}.{code}" for split in SIZES for code in ("de", "en")}
    columns = [path.read_bytes().decode("utf-8").split("\n") for path in paths["train"]]
    assert [column.pop() for column in columns] == ["", ""]
    assert list(zip(*columns, strict=True)) == pairs[-SIZES["train"] :]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sentences_are_clean_lines_for_every_seed(seed):
    for pair in grammar.drawn_pairs(30, seed):
        for sentence in pair:
            assert sentence.isprintable() and sentence == " ".join(sentence.split())
            assert sentence[0].isupper() or sentence[0].isdigit()
            assert sentence[-1] in ".?"
            assert 2 <= len(sentence.split()) <= 30
