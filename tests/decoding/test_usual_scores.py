"""A model with a record of its validation scores says where a sentence scores far below them; others never do."""

import json
from pathlib import Path

import pytest
from datasets import Dataset
from toy import invoke, random_texts

from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.translator import Translator
from admin_nmt.decoding.usual_scores import DEVIATIONS, FEWEST, FILE, UsualScores
from admin_nmt.runs.finishing import record_usual_scores

SURE = UsualScores(sentences=100, mean=-0.01, deviation=0.0, low=-0.01)  # no toy model is as sure of anything
UNSURE = UsualScores(sentences=100, mean=-50.0, deviation=1.0, low=-50.0)


@pytest.fixture
def folder(model_folder) -> Path:
    """A model that is sure of all its validation text, it seems."""
    SURE.save(model_folder)
    return model_folder


def test_the_record_is_mean_and_deviation():
    scores = [-0.2, -0.4] * FEWEST
    usual = UsualScores.of(scores)
    assert usual.model_dump() == pytest.approx({"sentences": 2 * FEWEST, "mean": -0.3, "deviation": 0.1, "low": -0.4})
    limit = -0.3 - DEVIATIONS * 0.1
    assert not usual.is_unusual(limit + 1e-3, 0) and usual.is_unusual(limit - 1e-3, 0)
    assert UsualScores.of(scores[: FEWEST - 1]) is None
    tailed = UsualScores.of([*scores, -9.0])  # one in a hundred and one is so low
    assert not tailed.is_unusual(-8.9, 0) and tailed.is_unusual(-9.1, 0)


@pytest.mark.parametrize("content", [b"\xff", b'{"sentences": 100, "mean": NaN, "deviation": 1, "low": -1}'])
def test_a_file_of_another_origin_is_no_record(tmp_path, content):
    assert UsualScores.load(tmp_path) is None
    (tmp_path / FILE).write_bytes(content)
    assert UsualScores.load(tmp_path) is None
    SURE.save(tmp_path)
    assert UsualScores.load(tmp_path) == SURE


def test_one_warning_a_call_changes_no_translation(folder, caplog):
    translator, texts = Translator.from_pretrained(folder), random_texts(3)
    expected = translator.translate(["", *texts])  # a blank one is not translated
    (message,) = caplog.messages
    assert "3 of 3 sentences" in message and texts[0] in message
    caplog.clear()
    translator.usual = UNSURE
    assert translator.translate(["", *texts]) == expected and not caplog.messages


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": Sampling(seed=1)},
        {"generate": {"do_sample": True}, "num_beams": 1},
        {"target_prefixes": ["Ba"]},
        {"forbidden": ["ba"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_the_likeliest_translations_of_one_model_alone_are_judged(folder, options, caplog):
    Translator.from_pretrained(folder).translate(random_texts(1), **options)
    Translator.from_pretrained([folder, folder]).translate(random_texts(1))
    assert not caplog.messages


def test_a_run_records_the_scores_of_its_validation_set(folder, tmp_path):
    (folder / FILE).unlink()
    texts = random_texts(FEWEST + 5)
    for name in ("standard", "final"):
        (tmp_path / name).mkdir()
    folders = [tmp_path / "standard", tmp_path / "final"]
    record_usual_scores(folder, None, folders)
    record_usual_scores(folder, Dataset.from_dict({"source": texts[: FEWEST - 1]}), folders)
    assert not any((path / FILE).exists() for path in folders)
    record_usual_scores(folder, Dataset.from_dict({"source": texts}), folders)
    records = [json.loads((path / FILE).read_text()) for path in folders]
    assert records[0] == records[1]
    found = Translator.from_pretrained(folder).translations(texts)
    scores = [best.log_prob / (len(best.tokens) + 1) for (best,) in found]
    assert records[0]["sentences"] == len(texts)
    assert records[0]["mean"] == pytest.approx(sum(scores) / len(scores), rel=1e-4)


def test_translate_says_it_in_one_line(folder, tmp_path):
    texts = random_texts(3)
    (tmp_path / "in").write_text("\n".join(texts), encoding="utf-8")
    command = ["translate", folder, "--input", tmp_path / "in", "--chunk", 1, "--num-beams", 1]
    for options, count in (((), 1), (("--output", tmp_path / "out"), 1), (("--quiet",), 0)):
        assert invoke(*command, *options).stderr.count("3 of 3 sentences") == count
