"""A training run as a table: a row for each log entry and each evaluation, the time that is left, and a bar below."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from ..system.terminal import PlainLines, is_terminal, lines_for, progress_bar
from .pace import Pace, evaluations_left, spoken

COLUMNS = {
    "update": 7, "epoch": 6, "loss": 6, "NLL": 6, "learning rate": 13, "gradient": 8, "tokens/s": 8, "time left": 11,
}  # fmt: skip
"""Widths of the columns, 79 characters in all."""
ROWS = 25  # until the heads come again
ESTIMATED_AFTER = 20  # updates of a process
DAY = 24 * 3600
INDENT = 6 * " "  # of lines that are no rows
COLLAPSED = 1e-3  # share of the encoder's output that differs between tokens: 0.96 in the model of the phrasebook
COLLAPSE = (
    "the encoder gives all tokens one state, so the source is not read; unless that passes, begin again with a lower "
    "learning_rate, a longer warmup_steps or fewer encoder_layers"
)
UNITS = "NLL: nats a target token; loss: with label smoothing; gradient: its norm"


class Rows:
    """Rows that keep their columns; the heads stand above the first and come again every so often."""

    def __init__(self, lines: PlainLines) -> None:
        self.lines, self.rows = lines, 0

    def add(self, cells: Sequence[str], text: str = "", style: str = "") -> None:
        """A row of the first cells, and of a text in place of the others if there is one."""
        if self.rows == 0:
            self.lines.write(INDENT + UNITS)
        if self.rows % ROWS == 0:
            self.lines.write("  ".join(f"{name:>{width}}" for name, width in COLUMNS.items()), "bold")
        self.rows += 1
        filled = [f"{cell:>{width}}" for cell, width in zip(cells, COLUMNS.values(), strict=False)]
        self.lines.write("  ".join([*filled, text] if text else filled), style)


def number(logs: Mapping[str, Any], name: str, form: str) -> str:
    """An entry of the log, a dash where it has none."""
    return f"{logs[name]:{form}}" if name in logs else "–"


def place(state: TrainerState) -> list[str]:
    """The first two cells: update and epoch."""
    return [f"{state.global_step:,}", f"{state.epoch or 0:.2f}"]


def is_best(args: TrainingArguments, state: TrainerState, name: str) -> bool:
    """Tell whether the evaluation that was logged last is the best one so far.

    By `metric_for_best_model`; where that is not set, by BLEU, or by NLL if that was not measured.

    Args:
        name: what the evaluation is called in the log, `eval` or `eval_NAME`.
    """
    metric, greater = args.metric_for_best_model, args.greater_is_better
    if metric is None:
        greater = f"{name}_bleu" in state.log_history[-1]
        metric = f"{name}_{'bleu' if greater else 'loss'}"
    metric = metric if metric.startswith("eval_") else f"eval_{metric}"
    *earlier, last = [row.get(metric) for row in state.log_history]
    before = [score for score in earlier if score is not None]
    return last is not None and all(last > score if greater else last < score for score in before)


class TrainingTable(TrainerCallback):
    """Shows a run on stdout as a table, in colours and above a bar where that is a terminal, else as plain lines.

    After 20 updates a line estimates the whole run, and another one says so where it takes days. Of several processes
    the first shows.
    """

    def __init__(self) -> None:
        self.rows: Rows | None = None
        self.bar: tqdm | None = None
        self.pace = Pace()
        self.due = 0  # evaluations between this update and the next

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.close()
        if not state.is_world_process_zero:
            return
        self.rows, self.pace, self.due = Rows(lines_for(sys.stdout)), Pace(), 0
        self.pace.evaluation = evaluation_seconds(state.log_history)
        self.bar = progress_bar(
            desc="training",
            unit="update",
            total=state.max_steps,
            initial=state.global_step,
            shown=not args.disable_tqdm and is_terminal(sys.stdout),
            bar_format="{desc} {percentage:3.0f}% {bar:24} {n_fmt} of {total_fmt} updates{postfix}",
        )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.rows is None or self.bar is None:
            return
        self.pace.update_ended()
        self.due = int(control.should_evaluate)
        if self.pace.updates == ESTIMATED_AFTER and state.global_step < state.max_steps:
            self.estimate(args, state, self.rows.lines)
        left = self.seconds_left(args, state)
        self.bar.set_postfix_str("" if left is None else f"{spoken(left)} left", refresh=False)
        self.bar.update()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.rows is None or logs is None:
            return
        if "loss" in logs:
            self.training_row(args, state, self.rows, logs)
        for name in [key.removesuffix("_loss") for key in logs if key.startswith("eval") and key.endswith("_loss")]:
            self.evaluation_row(args, state, self.rows, logs, name)

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self.due = 0
        self.pace.resume()

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self.pace.resume()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away, also where the run was interrupted."""
        if self.bar is not None:
            self.bar.close()
        self.rows = self.bar = None

    def training_row(self, args: TrainingArguments, state: TrainerState, rows: Rows, logs: Mapping[str, Any]) -> None:
        left = self.seconds_left(args, state)
        rows.add(
            [
                *place(state),
                number(logs, "loss", ".3f"),
                number(logs, "nll", ".3f"),
                number(logs, "learning_rate", ".2e"),
                number(logs, "grad_norm", ".3g"),
                number(logs, "target_tokens_per_second", ",.0f"),
                "–" if left is None else spoken(left),
            ]
        )

    def evaluation_row(
        self, args: TrainingArguments, state: TrainerState, rows: Rows, logs: Mapping[str, Any], name: str
    ) -> None:
        self.pace.evaluation = evaluation_seconds(state.log_history)
        told = [f"validation{name.removeprefix('eval').replace('_', ' ', 1)}:"]
        told.append(f"NLL {number(logs, f'{name}_loss', '.3f')},")
        if f"{name}_bleu" in logs:
            told.append(f"BLEU {number(logs, f'{name}_bleu', '.2f')},")
        told.append(f"in {spoken(logs.get(f'{name}_runtime', 0.0))}")
        best = is_best(args, state, name)
        text = " ".join([*told, " * best so far"] if best else told)
        rows.add(place(state), text, "bold green" if best else "cyan")
        if logs.get(f"{name}_encoder_variance", 1.0) < COLLAPSED:
            rows.lines.write(f"{INDENT}warning: {COLLAPSE}", "bold yellow")

    def seconds_left(self, args: TrainingArguments, state: TrainerState) -> float | None:
        """Seconds of the updates that are left, and the evaluations if one was measured."""
        return self.pace.left(state.max_steps - state.global_step, self.due + evaluations_to_come(args, state))

    def estimate(self, args: TrainingArguments, state: TrainerState, lines: PlainLines) -> None:
        """Say how long the run takes, and what would shorten it if that is days."""
        updates, evaluations = state.max_steps - state.global_step, self.due + evaluations_to_come(args, state)
        seconds, update = self.seconds_left(args, state), self.pace.update
        if seconds is None or update is None:
            return
        if self.pace.evaluation is None:
            extra = f", evaluations ({evaluations:,}) not counted" if evaluations else ""
        else:
            extra = f" and {evaluations:,} × {spoken(self.pace.evaluation)} of evaluation"
        lines.write(f"{INDENT}about {spoken(seconds)} left: {updates:,} updates of {update:.2g} s{extra}", "cyan")
        if seconds > DAY:
            lines.write(f"{INDENT}warning: that is {seconds / DAY:.1f} days; {shorter(args)}", "bold yellow")


def evaluation_seconds(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds that the evaluation of the last update took that had one, on all of its datasets."""
    seconds = [
        (row["step"], value)
        for row in history
        for name, value in row.items()
        if name.startswith("eval") and name.endswith("_runtime")
    ]
    return sum(value for step, value in seconds if step == seconds[-1][0]) if seconds else None


def evaluations_to_come(args: TrainingArguments, state: TrainerState) -> int:
    """Evaluations that a run has behind the updates to come."""
    if args.eval_strategy == "steps":
        return evaluations_left(state.global_step, state.max_steps, int(state.eval_steps), args.eval_delay)
    return max(state.num_train_epochs - int(state.epoch or 0), 0) if args.eval_strategy == "epoch" else 0


def shorter(args: TrainingArguments) -> str:
    """Advice on how to shorten a run."""
    faster = "a GPU" if args.device.type == "cpu" else "several GPUs"
    if args.device.type != "cpu" and not (args.bf16 or args.fp16):
        faster = f"bf16, {faster}"
    return f"{faster}, fewer updates (max_steps) or a smaller model (d_model, encoder_layers) would shorten it"


def show_table(trainer: Trainer) -> TrainingTable:
    """Put a table in the place of the bar and the dictionaries that a Trainer prints."""
    for callback in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
        trainer.remove_callback(callback)
    table = TrainingTable()
    trainer.add_callback(table)
    return table
