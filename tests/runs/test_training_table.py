"""The table of a run, of what a Trainer tells its callbacks."""

from types import SimpleNamespace

import pytest
from toy import random_ids
from transformers import PrinterCallback, ProgressCallback, TrainerControl, TrainerState

from admin_nmt.runs import training_table
from admin_nmt.runs.training_table import ESTIMATED_AFTER, WARM_UP, TrainingTable, show_table
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments


class Run:
    """A Trainer's calls to a table, at a clock that only `update` moves."""

    def __init__(self, monkeypatch, *, last=100, **args) -> None:
        self.time, self.table = 0.0, TrainingTable()
        monkeypatch.setattr(training_table, "time", SimpleNamespace(perf_counter=lambda: self.time))
        self.args = SimpleNamespace(**{"metric_for_best_model": None, "greater_is_better": None} | args)
        self.args.disable_tqdm = False
        self.state = TrainerState(max_steps=last, epoch=0.0, is_world_process_zero=True)

    def begin(self) -> None:
        self.table.on_train_begin(self.args, self.state, TrainerControl())

    def update(self, seconds: float, count: int = 1) -> None:
        for _ in range(count):
            self.time += seconds
            self.state.global_step += 1
            self.table.on_step_end(self.args, self.state, TrainerControl())

    def log(self, **logs: float) -> None:
        self.state.log_history.append(logs | {"step": self.state.global_step})
        self.table.on_log(self.args, self.state, TrainerControl(), logs)


FULL = {"loss": 7.5, "nll": 7.25, "learning_rate": 4e-5, "grad_norm": 12345.6, "target_tokens_per_second": 98765.4}


def test_every_row_keeps_its_columns(monkeypatch, capsys):
    run = Run(monkeypatch, last=1_000_000)
    run.state.global_step, run.state.epoch = 999_998, 123.456
    run.begin()
    run.log(**FULL)
    run.log(loss=float("nan"), learning_rate=1.0)
    heads, *rows = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("     ")]
    assert {len(row) for row in (heads, *rows)} == {79}
    assert rows[0].split()[2:7] == ["7.500", "7.250", "4.00e-05", "1.23e+04", "98,765"]
    assert rows[1].split()[2:4] == ["nan", "–"]


@pytest.mark.parametrize(
    ("metric", "scores", "best"),
    [
        (None, [(3.0, 10.0), (2.0, 9.0), (1.0, 10.0), (4.0, 11.0)], [True, False, False, True]),  # by BLEU
        (None, [(3.0,), (2.0,), (float("nan"),), (2.5,)], [True, True, False, False]),
        ("loss", [(3.0, 10.0), (2.0, 9.0), (2.5, 11.0)], [True, True, False]),
    ],
)
def test_the_best_evaluation_so_far_is_marked(monkeypatch, capsys, metric, scores, best):
    """By what the run takes for it."""
    run = Run(monkeypatch, metric_for_best_model=metric, greater_is_better=False if metric else None)
    run.begin()
    for values in scores:
        run.log(**dict(zip(("eval_loss", "eval_bleu"), values, strict=False)), eval_runtime=61.0)
    lines = [line for line in capsys.readouterr().out.splitlines() if "validation" in line]
    assert ["best" in line for line in lines] == best


def test_a_collapsed_encoder_is_reported(monkeypatch, capsys):
    run = Run(monkeypatch)
    run.begin()
    for variance in (0.9, 1e-5, float("nan")):
        run.log(eval_loss=3.0, eval_encoder_variance=variance, eval_runtime=1.0)
    warned = ["warning: the encoder gives" in line for line in capsys.readouterr().out.splitlines()]
    assert warned[-4:] == [False, False, True, False]


def test_the_time_left_is_that_of_the_updates_behind_the_warm_up(monkeypatch, capsys):
    run = Run(monkeypatch)
    run.begin()
    run.update(60.0, WARM_UP)  # left out
    run.update(2.0, ESTIMATED_AFTER - WARM_UP)
    assert capsys.readouterr().out == "      about 3 min left: 80 updates of 2 s\n"
    run.time += 110.0  # an evaluation
    run.update(2.0, 5)
    run.log(**FULL)
    assert capsys.readouterr().out.splitlines()[-1].endswith("  9 min")  # 75 × (20 × 2 s + 110 s) / 20
    assert run.table.seconds_left(run.state) == pytest.approx(562.5)


def test_it_takes_the_place_of_the_trainers_own(tiny_model, tmp_path, capsys):
    data = random_ids(24)
    quiet = {"use_cpu": True, "save_strategy": "no", "eval_bleu": False, "eval_strategy": "steps", "eval_steps": 3}
    args = AdminTrainingArguments(str(tmp_path), max_tokens=40, max_steps=6, logging_steps=2, **quiet)
    trainer = AdminTrainer(tiny_model(), args, train_dataset=data, eval_dataset=data)
    show_table(trainer)
    trainer.train()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["NLL:", "update", "2", "3", "4", "6", "6"]
    callbacks = {type(callback) for callback in trainer.callback_handler.callbacks}
    assert TrainingTable in callbacks and not callbacks & {PrinterCallback, ProgressCallback}
