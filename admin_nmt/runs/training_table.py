"""A training run as a table: a row for each log entry and each evaluation, the time that is left, and a bar below."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from ..system.terminal import is_terminal, lines_for, progress_bar

COLUMNS = {
    "update": 7, "epoch": 6, "loss": 6, "NLL": 6, "learning rate": 13, "gradient": 8, "tokens/s": 8, "time left": 11,
}  # fmt: skip
"""Widths of the columns, 79 characters in all."""
LOGGED = {
    "loss": ".3f", "nll": ".3f", "learning_rate": ".2e", "grad_norm": ".3g", "target_tokens_per_second": ",.0f",
}  # fmt: skip
"""Entries of the log in the columns between epoch and time left, and their formats."""
ROWS = 25  # until the heads come again
WARM_UP = 5  # first updates of a process, in which memory is allocated and kernels are chosen
ESTIMATED_AFTER = 20  # updates of a process
INDENT = 6 * " "  # of lines that are no rows
COLLAPSED = 1e-3  # share of the encoder's output that differs between tokens: 0.96 in the model of the phrasebook
COLLAPSE = (
    "the encoder gives all tokens one state, so the source is not read; unless that passes, begin again with a lower "
    "learning_rate, a longer warmup_steps or fewer encoder_layers"
)
UNITS = "NLL: nats a target token; loss: with label smoothing; gradient: its norm"


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

    After 20 updates a line estimates the whole run. Time left is that of an update so far, with the evaluations among
    them, times the updates that are left. Of several processes the first shows.
    """

    def __init__(self) -> None:
        self.lines = lines_for(sys.stdout)
        self.bar: tqdm | None = None  # while a run is shown
        self.rows = 0
        self.updates = 0  # of this process
        self.warm: tuple[int, float] | None = None  # update after the warm-up, and its time in seconds

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.close()
        if not state.is_world_process_zero:
            return
        self.rows, self.updates, self.warm = 0, 0, None
        self.bar = progress_bar(
            desc="training",
            unit="update",
            total=state.max_steps,
            initial=state.global_step,
            shown=not args.disable_tqdm and is_terminal(sys.stdout),
            bar_format="{desc} {percentage:3.0f}% {bar:24} {n_fmt} of {total_fmt} updates{postfix}",
        )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.bar is None:
            return
        self.updates += 1
        if self.updates == WARM_UP:
            self.warm = state.global_step, time.perf_counter()
        left = self.seconds_left(state)
        if self.updates == ESTIMATED_AFTER and state.global_step < state.max_steps and left is not None:
            updates = state.max_steps - state.global_step
            text = f"about {duration(left)} left: {updates:,} updates of {left / updates:.2g} s"
            self.lines.write(INDENT + text, "cyan")
        self.bar.set_postfix_str("" if left is None else f"{duration(left)} left", refresh=False)
        self.bar.update()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.bar is None or logs is None:
            return
        if "loss" in logs:
            left = self.seconds_left(state)
            numbers = [f"{logs[name]:{form}}" if name in logs else "–" for name, form in LOGGED.items()]
            self.row(state, [*numbers, "–" if left is None else duration(left)])
        for name in [key.removesuffix("_loss") for key in logs if key.startswith("eval") and key.endswith("_loss")]:
            dataset = name.removeprefix("eval").replace("_", " ", 1)
            bleu = f" BLEU {logs[f'{name}_bleu']:.2f}," if f"{name}_bleu" in logs else ""
            seconds = duration(logs.get(f"{name}_runtime", 0.0))
            text = f"validation{dataset}: NLL {logs[f'{name}_loss']:.3f},{bleu} in {seconds}"
            best = is_best(args, state, name)
            self.row(state, [f"{text}  * best so far" if best else text], "bold green" if best else "cyan")
            if logs.get(f"{name}_encoder_variance", 1.0) < COLLAPSED:
                self.lines.write(f"{INDENT}warning: {COLLAPSE}", "bold yellow")

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away, also where the run was interrupted."""
        if self.bar is not None:
            self.bar.close()
        self.bar = None

    def row(self, state: TrainerState, cells: Sequence[str], style: str = "") -> None:
        """Write a row of update, epoch and these cells; the heads come first, and again every so often."""
        if self.rows == 0:
            self.lines.write(INDENT + UNITS)
        if self.rows % ROWS == 0:
            self.lines.write("  ".join(f"{name:>{width}}" for name, width in COLUMNS.items()), "bold")
        self.rows += 1
        cells = [f"{state.global_step:,}", f"{state.epoch or 0:.2f}", *cells]
        widths = zip(cells, COLUMNS.values(), strict=False)
        self.lines.write("  ".join(f"{cell:>{width}}" for cell, width in widths), style)

    def seconds_left(self, state: TrainerState) -> float | None:
        """Seconds that the updates take which are left; None before any was measured."""
        if self.warm is None or state.global_step <= self.warm[0]:
            return None
        update, since = self.warm
        return (time.perf_counter() - since) / (state.global_step - update) * (state.max_steps - state.global_step)


def duration(seconds: float) -> str:
    """A time as `45 s`, `12 min`, `3 h 5 min` or `2 d 4 h`; 11 characters at most below 1,000 days."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def show_table(trainer: Trainer) -> TrainingTable:
    """Put a table in the place of the bar and the dictionaries that a Trainer prints."""
    for callback in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
        trainer.remove_callback(callback)
    table = TrainingTable()
    trainer.add_callback(table)
    return table
