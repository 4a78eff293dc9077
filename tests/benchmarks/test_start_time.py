"""The start benchmark makes a model that translates, and counts what each program took."""

import json
from pathlib import Path

import pytest

from admin_nmt import Translator
from admin_nmt.benchmarks import start_time
from admin_nmt.benchmarks.start_time import STEPS, TRANSLATE, StartBenchmark, launch, make_model, start_table

TOY = StartBenchmark(rounds=2, layers=1, d_model=64, vocab_size=400)


def test_the_model_is_a_stock_one_of_the_size_asked_for(tmp_path):
    text = make_model(TOY, tmp_path)
    translator = Translator.from_pretrained(tmp_path)
    assert translator.model.config.model_type == "marian"
    assert translator.model.config.vocab_size == 400
    assert translator.model.config.encoder_layers == translator.model.config.decoder_layers == 1
    (found,) = translator.translations([text])
    assert 0 < len(found[0].tokens) <= STEPS


def test_what_is_measured_is_the_way_to_the_first_line_and_to_the_end(monkeypatch):
    clock = iter([5.0, 6.0, 9.0])
    monkeypatch.setattr(start_time.time, "perf_counter", lambda: next(clock))
    took = launch(["-c", "print(1, flush=True); sum(range(3_000_000)); print(2)"])
    assert (took["answer_seconds"], took["seconds"]) == (1.0, 4.0)
    assert took["cpu_seconds"] > 0


def test_a_program_that_fails_says_what_it_said():
    with pytest.raises(RuntimeError, match="no such thing"):
        launch(["-c", "raise SystemExit('no such thing')"])


def test_every_round_measures_every_program_after_a_first_one(tmp_path, monkeypatch, capsys):
    calls = []

    def fake(arguments):
        calls.append(arguments)
        return {"answer_seconds": 1.0, "seconds": 2.0, "cpu_seconds": float(len(calls))}

    monkeypatch.setattr(start_time, "launch", fake)
    facts = start_time.run_start_benchmark(StartBenchmark(2, 1, 64, 400, str(tmp_path / "new")))
    count = len(start_time.programs("model", "text"))
    assert len(calls) == 3 * count and calls[:count] == calls[count : 2 * count]
    assert [list(one) for one in facts["rounds"]] == [list(start_time.programs("model", "text"))] * 2
    assert facts["rounds"][0]["Python alone"]["cpu_seconds"] == count + 1  # the first round is not counted
    assert json.loads((tmp_path / "new/start.json").read_text()) == facts
    assert (tmp_path / "new/start.md").read_text() == capsys.readouterr().out == start_table(facts["rounds"])
    assert not Path(calls[-1][3]).exists()  # the model's folder is removed


def test_the_table_has_medians_and_shares_of_the_same_round():
    def one(ours, other):
        times = {name: {"answer_seconds": 1.0, "seconds": 3.0} for name in (TRANSLATE, "other")}
        times[TRANSLATE]["cpu_seconds"], times["other"]["cpu_seconds"] = ours, other
        return times

    table = start_table([one(4.0, 1.0), one(10.0, 5.0), one(20.0, 15.0)])
    assert f"| {TRANSLATE} | 1.00 | 10.00 | 1.00 | 3.00 |" in table
    assert "| other | 0.50 | 5.00 | 1.00 | 3.00 |" in table
