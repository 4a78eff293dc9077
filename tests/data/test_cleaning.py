"""The cleaning filters against a plain sequential reference, and one by one."""

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from admin_nmt.data import arrow_cache
from admin_nmt.data.cleaning import FILTERS, CleaningOptions, clean

SENTENCES = st.sampled_from(["", " ", "a", " a", "b", "a b", "a b c", "a b c d e f g h", "a bcd", "c " * 12, "d " * 30])
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=40)
OPTIONS = st.builds(
    CleaningOptions,
    max_words=st.sampled_from([None, 1, 10]),
    max_ratio=st.sampled_from([None, 1.0, 1.5]),
    longest_word=st.sampled_from([None, 2]),
    ratio_slack=st.sampled_from([0, 5]),
    drop_copies=st.booleans(),
    drop_duplicates=st.booleans(),
    drop_held_out=st.sampled_from([None, "source", "pair", "either"]),
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Keeps the verdicts out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


def dataset(pairs) -> Dataset:
    return Dataset.from_dict({"source": [s for s, _ in pairs], "target": [t for _, t in pairs]})


def pairs_of(cleaned) -> list[tuple[str, str]]:
    return list(zip(cleaned["source"], cleaned["target"], strict=True))


def reference(pairs, options, held_out):
    """The filters as the documentation states them, a pair at a time."""
    kept, seen, counts = [], set(), dict.fromkeys(("total", *FILTERS, "kept"), 0)
    held = {(s.strip(), t.strip()) for s, t in held_out}
    for pair in pairs:
        source, target = pair[0].strip(), pair[1].strip()
        lengths = len(source.split()), len(target.split())
        if not min(lengths):
            verdict = "empty side"
        elif (options.max_words and max(lengths) > options.max_words) or (
            options.longest_word and max(map(len, f"{source} {target}".split())) > options.longest_word
        ):
            verdict = "over-long"
        elif options.max_ratio and max(lengths) > options.max_ratio * min(lengths) + options.ratio_slack:
            verdict = "length ratio"
        elif options.drop_copies and source == target:
            verdict = "copy"
        elif options.drop_duplicates and (source, target) in seen:
            verdict = "duplicate"
        elif {
            "source": source in dict(held),
            "pair": (source, target) in held,
            "either": any(source == s or target == t for s, t in held),
        }.get(options.drop_held_out):
            verdict = "held out"
        else:
            verdict = "kept"
            kept.append(pair)
        if verdict in ("kept", "held out"):
            seen.add((source, target))
        counts[verdict] += 1
        counts["total"] += 1
    return kept, counts


@settings(max_examples=50, deadline=None)
@given(PAIRS, OPTIONS, PAIRS)
def test_filters_equal_the_sequential_reference(pairs, options, held_out):
    cleaned, counts = clean(dataset(pairs), options, dataset(held_out))
    expected, expected_counts = reference(pairs, options, held_out)
    assert pairs_of(cleaned) == expected
    assert counts == expected_counts
    assert list(counts) == ["total", *FILTERS, "kept"]


def test_workers_and_shards_change_nothing(monkeypatch, tmp_path):
    pairs = [(f"a {i % 7}", f"b {i % 5}") for i in range(60)]
    alone = clean(dataset(pairs), CleaningOptions(), cache_dir=tmp_path / "1")
    monkeypatch.setattr(arrow_cache, "SHARD", 9)
    monkeypatch.setattr(arrow_cache, "BATCH", 4)
    together = clean(dataset(pairs), CleaningOptions(), cache_dir=tmp_path / "2", num_proc=2)
    assert len(list((tmp_path / "2").glob("*/0*.arrow"))) == 7
    assert pairs_of(alone[0]) == pairs_of(together[0]) != pairs
    assert alone[1] == together[1]


def test_a_selection_of_rows_is_cleaned_as_such():
    pairs = dataset([(f"s {n}", f"t {n}") for n in range(10)])
    kept, counts = clean(pairs.select([9, 3, 3, 5]), CleaningOptions())
    assert kept["source"][:] == ["s 9", "s 3", "s 5"]
    assert counts["duplicate"] == 1
