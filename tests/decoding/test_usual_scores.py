"""A model with a record of its validation scores says where a sentence scores far below them; others never do."""

import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset
from toy import random_texts, toy_tokenizer
from typer.testing import CliRunner

from admin_nmt.cli.app import app
from admin_nmt.data.cleaning import CleaningOptions
from admin_nmt.data.tokenization.byte_bpe import save_tokenizers
from admin_nmt.decoding.options import Engine, Sampling, SearchOptions
from admin_nmt.decoding.synthesis import write_synthetic_pairs
from admin_nmt.decoding.translator import Translator
from admin_nmt.decoding.usual_scores import (
    DEVIATIONS,
    FEWEST,
    FILE,
    TranslatedLines,
    Unusual,
    UsualScores,
    add_up_unusual,
    with_unusual,
)
from admin_nmt.decoding.worker_processes import one_after_the_other
from admin_nmt.hub.repositories import is_stale
from admin_nmt.runs.finishing import record_usual_scores

SURE = UsualScores(sentences=100, mean=-0.01, deviation=0.0, low=-0.01)  # no toy model is as sure of anything
UNSURE = UsualScores(sentences=100, mean=-50.0, deviation=1.0, low=-50.0)
LOGGER = "admin_nmt.decoding.usual_scores"


@pytest.fixture(scope="module")
def tokenizer():
    return toy_tokenizer()


@pytest.fixture
def folder(tmp_path, tiny_model, tokenizer) -> Path:
    """A model that is sure of all its validation text, it seems."""
    folder = tmp_path / "model"
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(folder)
    save_tokenizers(folder, tokenizer)
    SURE.save(folder)
    return folder


@pytest.fixture
def warnings(caplog) -> Callable[[], list[str]]:
    """The warnings since the last call."""
    caplog.set_level(logging.WARNING, LOGGER)

    def since() -> list[str]:
        messages = [record.getMessage() for record in caplog.records if record.name == LOGGER]
        caplog.clear()
        return messages

    return since


def test_the_record_is_mean_and_deviation():
    scores = [-0.2, -0.4] * FEWEST
    usual = UsualScores.of(scores)
    assert usual.model_dump() == pytest.approx({"sentences": 2 * FEWEST, "mean": -0.3, "deviation": 0.1, "low": -0.4})
    limit = -0.3 - DEVIATIONS * 0.1
    assert not usual.is_unusual(limit + 1e-3, 0) and usual.is_unusual(limit - 1e-3, 0)
    assert UsualScores.of(scores[: FEWEST - 1]) is None
    tailed = UsualScores.of([*scores, -9.0])  # one in a hundred and one is so low
    assert not tailed.is_unusual(-8.9, 0) and tailed.is_unusual(-9.1, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"sentences": 100, "mean": -1, "low": -1}',
        b'{"sentences": 100, "mean": NaN, "deviation": 1, "low": -1}',
        b'{"sentences": 100, "mean": 3, "deviation": 1, "low": -1}',
        b'{"sentences": 1, "mean": -1, "deviation": 1, "low": -1}',
    ],
)
def test_a_file_of_another_origin_is_no_record(tmp_path, content):
    assert UsualScores.load(tmp_path) is None
    (tmp_path / FILE).write_bytes(content)
    assert UsualScores.load(tmp_path) is None
    SURE.save(tmp_path)
    assert UsualScores.load(tmp_path) == SURE


def test_one_warning_a_call(folder, warnings):
    translator, texts = Translator.from_pretrained(folder), random_texts(3)
    expected = translator.translate(texts)
    message = "3 of 3 sentences score far below this model's validation text: they are probably unlike what it was "
    assert warnings() == [f"{message}trained on, and translated wrongly; the first: {texts[0]}"]
    translator.translations(["", *texts])
    assert [text.split(" sentences")[0] for text in warnings()] == ["3 of 3"]  # a blank one is not translated
    translator.translate(["ba " * 60])
    assert warnings()[0].endswith("ba ba…")
    translator.usual = UNSURE
    assert translator.translate(texts) == expected and warnings() == []


def test_models_without_a_record_never_warn(folder, warnings):
    (folder / FILE).unlink()
    Translator.from_pretrained(folder).translate(random_texts(3))
    SURE.save(folder)
    Translator.from_pretrained([folder, folder]).translate(
        random_texts(3)
    )  # the members' records are not the ensemble's
    assert warnings() == []


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
def test_what_is_not_the_likeliest_translation_tells_nothing(folder, options, warnings):
    Translator.from_pretrained(folder).translate(random_texts(1), **options)
    assert warnings() == []


def test_what_processes_send_is_added_up(folder):
    translator, texts, total = Translator.from_pretrained(folder, num_beams=1), random_texts(3), Unusual()
    write = with_unusual(translator, translator.translate)
    sent = pickle.loads(pickle.dumps(write(texts[:1])))
    assert isinstance(sent, TranslatedLines) and sent.unusual == Unusual(1, 1, texts[0])
    parts = add_up_unusual(one_after_the_other(write), total)([texts[:1], [""], texts[1:]])
    assert [list(written) for _, written in parts] == [list(write(texts[:1])), [""], list(write(texts[1:]))]
    assert total == Unusual(3, 3, texts[0])


def test_translate_says_it_in_one_line(folder, tmp_path):
    texts = random_texts(3)
    (tmp_path / "in").write_text("\n".join(texts), encoding="utf-8")
    command = ["translate", str(folder), "--input", str(tmp_path / "in"), "--chunk", "1", "--num-beams", "1"]

    def said(*options: str) -> list[str]:
        result = CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
        assert result.exit_code == 0
        return [line for line in result.stderr.split("\n") if "warning" in line]

    for output in ([], ["--output", str(tmp_path / "out")]):
        (line,) = said(*output)
        assert "warning: 3 of 3 sentences score far below" in line and line.endswith(texts[0])
        assert said(*output, "--quiet") == []


def test_synthesize_says_it_in_one_line(folder, tmp_path, warnings):
    texts = random_texts(3)
    (tmp_path / "in").write_text("\n".join(texts), encoding="utf-8")
    filters = CleaningOptions(drop_held_out=None, max_ratio=None)
    write_synthetic_pairs(
        str(folder),
        [str(tmp_path / "in")],
        str(tmp_path / "out.tsv"),
        "target",
        options=SearchOptions(num_beams=1),
        engine=Engine(),
        filters=filters,
        chunk=1,
    )
    (line,) = warnings()
    assert line.startswith("3 of 3 sentences score far below") and line.endswith(texts[0])


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


def test_a_new_model_on_the_hub_does_not_keep_the_record_of_an_earlier_one():
    assert is_stale(FILE, {})
