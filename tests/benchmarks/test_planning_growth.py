"""The measurement of planning: what it plans, not how fast."""

import gzip
import json

import numpy as np
import pytest
from toy import random_texts

from admin_nmt.benchmarks import planning_growth
from admin_nmt.benchmarks.planning_growth import (
    PlanningBenchmark,
    corpus_lengths,
    plan,
    run_planning_benchmark,
    write_lengths,
)


@pytest.fixture
def corpus(tmp_path):
    for side in ("en", "de"):
        with gzip.open(tmp_path / f"train.{side}.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in random_texts(300, seed=len(side + side[0])))
    return PlanningBenchmark(str(tmp_path), pairs=[50, 400], windows=[0, 200], max_tokens=256, vocab_size=300)


def test_lengths_are_drawn_from_the_corpus(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(planning_growth, "PART", 128)
    lengths = corpus_lengths(corpus)
    assert lengths.shape == (300, 2) and lengths.min() >= 2
    write_lengths(tmp_path / "lengths", lengths, 1000)
    drawn = np.fromfile(tmp_path / "lengths", dtype=np.uint16).reshape(2, 1000)
    assert set(map(tuple, drawn.T.tolist())) <= set(map(tuple, lengths.tolist()))
    write_lengths(tmp_path / "again", lengths, 1000)
    assert (tmp_path / "lengths").read_bytes() == (tmp_path / "again").read_bytes()
    at_once, windowed = (plan(str(tmp_path / "lengths"), 1000, 256, window) for window in (0, 100))
    assert at_once["tokens"] == windowed["tokens"] == drawn.sum()
    assert 0 < at_once["padding"] < 1 and at_once["batches"] > 0


def test_each_size_has_its_numbers(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(planning_growth, "MEASURED", 400)
    monkeypatch.setattr(planning_growth, "_apart", here)
    run_planning_benchmark(corpus, tmp_path / "results")
    results = json.loads((tmp_path / "results/planning.json").read_text())
    assert [row["pairs"] for row in results["growth"]] == [50, 400]
    assert [(row["pairs"], row["window"]) for row in results["windows"]] == [(400, 0), (400, 200)]
    assert all({"seconds", "cpu_seconds", "peak_mb", "padding"} <= row.keys() for row in results["growth"])
    assert results["duplicates"]["pairs"] == 400


def here(path=None, *numbers):
    """In this process."""
    return plan(str(path), *numbers) if path else planning_growth.find_duplicates(planning_growth.MEASURED)
