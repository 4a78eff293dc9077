"""The plan on paper: each number is a measured rate times the number of pairs."""

import json

import pytest

from admin_nmt.benchmarks.billion_pairs import Machines, gather_rates, page, write_plan

STEPS = [
    {"step": "reading", "pairs": 1000, "cpu_seconds": 0.5, "peak_memory_gb": 0.1, "seconds": 9},
    {"step": "cleaning", "pairs": 1000, "cpu_seconds": 3.6, "peak_memory_gb": 0.2},
    {"step": "vocabulary", "pairs": 1000, "cpu_seconds": 7.2, "peak_memory_gb": 0.75},
    {"step": "tokenising", "pairs": 1000, "cpu_seconds": 36, "peak_memory_gb": 0.4},
]
PLANS = [
    {"pairs": pairs, "window": 0, "seconds": 1, "cpu_seconds": pairs / 1000, "peak_mb": 5, "batches": pairs // 10}
    | {"padding": 0.03, "tokens": 50 * pairs}
    for pairs in (100, 2000)
]


@pytest.fixture
def results(tmp_path):
    """What the benchmarks leave in a folder."""
    data = {"pairs": 1000, "num_proc": 2, "text_gb": 0.0003, "cache_gb": 0.0006, "steps": STEPS}
    duplicates = {"pairs": 1000, "cpu_seconds": 1.8, "peak_mb": 0.05}
    planning = {"max_tokens": 4096, "growth": PLANS, "duplicates": duplicates}
    planning["checksum"] = {"gb": 0.5, "cpu_seconds": 0.25}
    for name, content in (("data", data), ("planning", planning)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def cells(text, step):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {step}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_step_is_its_rate_times_the_pairs(results):
    text = page(gather_rates(results), 1_000_000, Machines(4, 10))
    # a million pairs at 3.6 CPU seconds a thousand are an hour
    assert cells(text, "cleaning")[1:] == ["1,000 in 3.60 CPU s", "278", "1.00", "all machines", "0.03"]
    assert cells(text, "vocabulary")[3:] == ["2.00", "one machine", "0.20"]
    assert cells(text, "finding duplicates")[3:] == ["0.50", "one core", "0.50"]
    assert cells(text, "planning batches")[1:4] == ["2,000 in 2.00 CPU s", "1,000", "0.28"]
    assert "300 GB of text, 300 bytes a pair" in page(gather_rates(results), 10**9, Machines(4, 10))
    assert "at most 0.75 GB" in text
    assert "5.00e+07 tokens" in text and "3.00% padding" in text


def test_the_plan_in_windows_is_the_one_that_counts(results):
    planning = json.loads((results / "planning.json").read_text())
    planning["windows"] = [PLANS[0] | {"window": window, "peak_mb": window / 1e6} for window in (1 << 20, 1 << 22)]
    (results / "planning.json").write_text(json.dumps(planning))
    text = page(gather_rates(results), 10**9, Machines(4, 10))
    assert cells(text, "planning batches")[1] == "100 in 0.10 CPU s"
    assert "The plan of the batches of 100 pairs took 4 MB, in windows of 4,194,304" in text


def test_more_machines_help_what_they_share_alone(results):
    rates = gather_rates(results)
    few, many = (page(rates, 10**9, Machines(number, 10)) for number in (1, 10))
    hours = {
        step: [float(cells(text, step)[-1].replace(",", "")) for text in (few, many)] for step in ("tok", "voc", "find")
    }
    assert hours["tok"][0] == pytest.approx(10 * hours["tok"][1], rel=1e-3)
    assert hours["voc"][0] == hours["voc"][1] and hours["find"][0] == hours["find"][1]


def test_translation_is_planned_where_it_was_measured(results):
    assert "synthesis" not in gather_rates(results)
    runs = {"4-4": {"ours": [{"cpu_seconds": 14.4}, {"cpu_seconds": 20}], "stock": [{"cpu_seconds": 99}]}}
    translation = {"arguments": {"sentences": 1000, "num_beams": 5}, "runs": runs}
    (results / "translation.json").write_text(json.dumps(translation))
    text = page(gather_rates(results), 1_000_000, Machines(4, 10))
    assert cells(text, "synthetic pairs, beam 5: 4-4, ours")[3:] == ["4.00", "all machines", "0.10"]


def test_the_page_lies_beside_its_rates(results, tmp_path):
    text = write_plan(gather_rates(results), 10**9, Machines(8, 32), tmp_path / "plan")
    assert (tmp_path / "plan/README.md").read_text() == text
    assert json.loads((tmp_path / "plan/rates.json").read_text()) == gather_rates(results)
    assert len(text.splitlines()) < 60


def test_what_was_not_measured_is_named(results):
    (results / "planning.json").unlink()
    with pytest.raises(ValueError, match="has no results of planning; measure them with: admin-nmt benchmark growth"):
        gather_rates(results)
