"""The scripts of training/benchmarks at toy size, and the committed pages against the files that they were made of."""

import json
import re
import time
from pathlib import Path

import pytest
import torch
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from training.benchmarks import (
    data_preparation,
    generation_speed,
    gpu,
    start_time,
    step_cost,
    training_speed,
    translation_speed,
)
from training.benchmarks.common import Results, Timing, options, spread

CARDS = Path(__file__).parents[2] / "model_cards"
PARTS = {"training": training_speed, "decoding": translation_speed, "loss": step_cost, "start": start_time}
PARTS |= {"data": data_preparation}
MEASURED = [path for name in PARTS for path in sorted((CARDS / "benchmark").glob(f"*/{name}.json"))]


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")]


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_committed_page_shows_what_was_measured(path):
    page = path.with_name("README.md").read_text(encoding="utf-8")
    assert set(rows(PARTS[path.stem].table(Results(path)))) <= set(rows(page))


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_a_script_measures_once(name, tmp_path, capsys):
    for _ in range(2):
        PARTS[name].main(["--toy", "--rounds", "1", "--output", str(tmp_path)])
    results = Results(tmp_path / f"{name}.json")
    said = capsys.readouterr().out
    assert said.count(PARTS[name].table(results)) == 2 and said.count("other work") == len(results.cases)


@pytest.mark.slow
def test_generation_speed_draws_what_it_measured(tmp_path):
    generation_speed.main(["--toy", "--rounds", "1", "--output", f"{tmp_path}/out"])
    assert len(json.loads((tmp_path / "out.json").read_text())["rows"]) == 4 and (tmp_path / "out.png").stat().st_size


def test_results_are_kept_at_once_and_have_one_setting(tmp_path):
    args = options("").parse_args(["--output", str(tmp_path)])
    results = Results.open(args, "part", {"size": 1})
    results.measure("a, round 1", lambda: 3)
    again = Results.open(args, "part", {"size": 1})
    again.measure("a, round 1", pytest.fail)
    again.measure("a, round 2", lambda: 4)
    assert Results(tmp_path / "part.json").rounds() == {"a": [3, 4]}
    with pytest.raises(ValueError, match=r"part\.json"):
        Results.open(args, "part", {"size": 2})


def test_ratios_are_of_the_same_round():
    assert spread([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == "2.00 (1.00–3.00)" and spread([2.0], [4.0]) == "0.50"
    assert spread([2.0, 3.0], [1.0, 0.0]) == "–"


class TimedTrainer(Timing, AdminTrainer):
    seen: list

    def training_step(self, model, inputs, *rest):
        self.seen.append(inputs)
        return super().training_step(model, inputs, *rest)


@pytest.mark.parametrize(("warm_up", "accumulation"), [(0, 1), (3, 2)])
def test_timed_is_what_is_trained_after_the_warm_up(tiny_config, tmp_path, warm_up, accumulation):
    args = AdminTrainingArguments(
        str(tmp_path), max_tokens=40, max_steps=4, use_cpu=True, save_strategy="no", disable_tqdm=True,
        gradient_accumulation_steps=accumulation,
    )  # fmt: skip
    trainer = TimedTrainer(AdminForConditionalGeneration(tiny_config()), args, train_dataset=random_ids(24))
    trainer.seen = []
    trainer.time_training(warm_up)
    measured = trainer.seen[warm_up * accumulation :]
    assert len(trainer.seen) == 4 * accumulation
    assert trainer.shapes == [(*inputs["input_ids"].shape, inputs["labels"].shape[1]) for inputs in measured]
    tokens = sum(int((inputs["labels"] != -100).sum()) for inputs in measured)
    assert trainer.target_tokens_per_second == pytest.approx(tokens / trainer.seconds)


def test_every_step_of_the_gpu_can_be_read():
    assert len(gpu.NAMES) == len(set(gpu.NAMES)) and {name.split("-")[0] for name in gpu.NAMES} == set(gpu.KINDS)
    fields = gpu.fields_of(["60", "12", "16k", "compiled", "master"])
    assert fields["training.compile_layers"] and fields["model.encoder_layers"] == 60
    for name in gpu.NAMES:
        if re.match("updates|profile|predict-|evaluation", name):
            gpu.fields_of(name.split("-")[1:])
    grid = gpu.Setup(Path("unused")).grid()
    assert {name.removeprefix("train-") for name in gpu.NAMES if name.startswith("train-")} <= set(grid.systems)


def test_a_step_that_raises_leaves_its_error_and_the_next_one_runs(tmp_path, monkeypatch):
    def fail(setup, words):
        raise torch.cuda.OutOfMemoryError("too large")

    monkeypatch.setattr(gpu, "KINDS", {"loss": (fail, 1.0), "data": (lambda setup, words: {"x": 1.0}, 1.0)})
    setup = gpu.Setup(tmp_path)
    (tmp_path / "steps").mkdir()
    gpu.run_steps(setup, ["loss-4k", "data"], time.time() + 1000)
    results = setup.results()
    assert "too large" in results["loss-4k"]["error"] and results["data"]["result"] == {"x": 1.0}
    assert "too large" in gpu.page(results, toy=True)


STEPS = """data updates-6-6-4k predict-6-6-4k wmt-128 profile-60-12-4k updates-60-12-16k-compiled-master attention-4k
    train-admin-18-18 evaluation-60-12-4k search-6-6 predictwmt-128 loss-4k tests"""


@pytest.mark.slow
def test_the_gpu_steps_go_on_in_the_next_call(tmp_path):
    """Each kind of step at toy size, in calls too short for all."""
    command, calls = ["--toy", "--output", str(tmp_path), "--only", *STEPS.split()], 0
    while gpu.main([*command, "--minutes", "2" if calls else "0.2"]):
        calls += 1
        assert calls < 12
    failed = {name for name, one in gpu.Setup(tmp_path).results().items() if "error" in one}
    assert failed <= {"search-6-6-CTranslate2-float16"} and calls  # which needs a GPU
