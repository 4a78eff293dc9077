"""Callbacks and meters of the training loop, and what a model that it pushes to the Hub needs beside its weights."""

import json
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy
from transformers.utils import logging

from ..data.tokenization.tokenizer_folder import save_tokenizers
from ..weights.omega import mean_omega
from .arguments import AdminTrainingArguments
from .checkpoints import set_aside_later, write_manifest
from .precision_and_attention import precision
from .process_memory import peak_memory

logger = logging.get_logger(__name__)


class LogBeforeSaving(TrainerCallback):
    """Has a log entry written before each checkpoint and at the end.

    What the Trainer and the meter have counted since the last entry is in no checkpoint, so a run that goes on would
    miss it.
    """

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        may_save = args.save_strategy == SaveStrategy.BEST and control.should_evaluate
        control.should_log |= control.should_save or control.should_training_stop or may_save

    on_epoch_end = on_step_end


class LogsForTrackers(TrainerCallback):
    """Adds to what trackers such as TensorBoard are given, and not to the run's own log.

    That is the mean ω of each stack, and of an evaluation the NLL under this name, as in the entries about training.
    It comes before the callbacks of the trackers.
    """

    def __init__(self) -> None:
        self.omega: dict[str, float] | None = None

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.omega = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any],
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Changes `logs` itself, which the trackers get next."""
        if not args.report_to:
            return
        for name in [name for name in logs if name.startswith("eval") and name.endswith("_loss")]:
            logs[name.removesuffix("loss") + "nll"] = logs[name]
        if "loss" in logs:
            if self.omega is None or getattr(model.config, "train_omega", False):
                self.omega = {f"omega_{stack}": fmean(means) for stack, means in mean_omega(model).items()}
            logs.update(self.omega)


class StopRequestedError(RuntimeError):
    """Training has stopped because SIGTERM asked for it; its checkpoint is written."""


class StopRequest(TrainerCallback):
    """Takes SIGTERM, by which a scheduler announces that it will take the machine away, as a request to save and stop.

    All processes stop after the same update, whichever of them got the signal. The Trainer's `enable_jit_checkpoint`
    saves in the middle of an update, whose random numbers a resumed run would not draw again, and on each process for
    itself, though saving takes all of them.
    """

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        """Forgets the signal, and where the last run of the trainer stood."""
        self.received = False
        self.processes: Tensor | int = 0  # that had received it when this update began, of several
        self.agreed = False
        self.irregular = False  # the run would not write the checkpoint that comes next by itself
        self._stopping = False
        self._last_regular = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Waits for the signal in this block, unless the program handles it already, or this is not its main thread."""
        free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if not free or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGTERM, self.receive)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def receive(self, *_: Any) -> None:
        self.received = True

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Reads the tensor here, because the gradient's norm has just been waited for."""
        self.agreed = bool(self.processes)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leaves an epoch's last update to `on_epoch_end`: a resumed run would begin the next one without its end."""
        if control.should_save:
            self._last_regular = state.global_step
        if not control.should_training_stop and not float(state.epoch or 0).is_integer():
            self.save_and_stop(args, state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.save_and_stop(args, state, control)

    def save_and_stop(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """Has a checkpoint written if a stop was requested."""
        if self.agreed if args.world_size > 1 else self.received:
            self.irregular = not control.should_save and self._last_regular != state.global_step
            self._stopping = control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ends the run.

        Raises:
            StopRequestedError: on every process, when all have written.
        """
        if self._stopping:
            PartialState().wait_for_everyone()
            raise StopRequestedError(
                f"SIGTERM asked to stop: saved after update {state.global_step} of {state.max_steps} in "
                f"{args.output_dir}/{PREFIX_CHECKPOINT_DIR}-{state.global_step}; the same command goes on from there"
            )


class AsSetNow(TrainerCallback):
    """Takes the intervals and the folder of a run that goes on from its arguments, as they are now.

    The Trainer would log, evaluate and save as often as when the run began, and forget a best checkpoint that is not
    where it was, as in a folder that was moved. Checkpoints that an earlier training has left there, and this one will
    not have written, are set aside.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        state.compute_steps(args, state.max_steps)
        best = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        lost = state.best_model_checkpoint is None and state.best_global_step and args.load_best_model_at_end
        if best.is_dir() or lost:
            state.best_model_checkpoint = str(best)
        if args.should_save:
            set_aside_later(str(args.output_dir), state.global_step)
        PartialState().wait_for_everyone()


class RunRecord(TrainerCallback, ExportableState):
    """Keeps in the checkpoints how a run has computed so far.

    Left to choose, a run that was begun on a CPU with fast products of bfloat16 goes on in float32 on one without,
    which is said then.

    Args:
        precisions: so far, each once a change.
        peak: bytes, the most memory that the processes took which have ended.
        batches: `max_tokens` and accumulation where the memory chose them, so that a run goes on with the same
            updates; None where they are the recipe's.
    """

    device = torch.device("cpu")

    def __init__(self, precisions: Sequence[str] = (), peak: int = 0, batches: Sequence[int] | None = None) -> None:
        self.precisions, self.peak, self.batches = list(precisions), peak, batches

    def state(self) -> dict[str, Any]:
        record = {"precisions": self.precisions, "peak": self.peak_bytes(), "batches": self.batches}
        return {"args": record, "attributes": {}}

    def peak_bytes(self) -> int:
        """The most memory so far: of the GPU's tensors, or of the process on a CPU."""
        return max(self.peak, peak_memory(self.device))

    def on_train_begin(
        self,
        args: AdminTrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        self.device = args.device
        if not state.global_step:
            self.precisions, self.peak = [], 0
        now, attention = precision(args, model.config), model.config._attn_implementation
        logger.info(f"precision of products: {now}; attention: {attention}")
        if self.precisions and self.precisions[-1] != now:
            logger.warning(
                f"this run computed in {self.precisions[-1]} up to update {state.global_step}; it goes on in {now}"
            )
        if self.precisions[-1:] != [now]:
            self.precisions.append(now)


def recorded_batches(checkpoint: Path) -> tuple[int, int] | None:
    """`max_tokens` and accumulation that a checkpoint's [`RunRecord`] holds, None where they are the recipe's."""
    state = json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    batches = state["stateful_callbacks"].get("RunRecord", {}).get("args", {}).get("batches")
    return None if batches is None else (batches[0], batches[1])


def mean_training_loss(history: Iterable[Mapping[str, float]]) -> float | None:
    """Mean loss of all updates of a run, whatever interrupted it, from its log; None if that has no entry."""
    total, updates = 0.0, 0
    for row in history:
        if "loss" in row:
            total += row["loss"] * (row["step"] - updates)
            updates = int(row["step"])
    return total / updates if updates else None


class TokenMeter:
    """Counts target tokens, their NLL and the time they took, from one log entry to the next."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._reset()

    def _reset(self) -> None:
        self.tokens: Tensor | int = 0
        self.nll: Tensor | int = 0

    def add_tokens(self, tokens: Tensor | int) -> None:
        """Adds the target tokens of an update, of all processes; the first call starts the clock."""
        if self._start is None:
            self._start = time.perf_counter()
        self.tokens = self.tokens + tokens

    def add_nll(self, nll: Tensor) -> None:
        """Adds the summed NLL of a batch of this process."""
        self.nll = self.nll + nll.detach().float()  # bfloat16 has eight bits, too few for a sum

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the time of this block out, such as an evaluation's."""
        start = time.perf_counter()
        yield
        if self._start is not None:
            self._start += time.perf_counter() - start

    def read(self, accelerator: Any) -> dict[str, float]:
        """Target tokens, their number a second, their mean NLL in nats if the model gives it; then starts from zero."""
        tokens, now = float(self.tokens), time.perf_counter()
        readings: dict[str, float] = {}
        if tokens and self._start is not None:
            if torch.is_tensor(self.nll):
                readings["nll"] = float(accelerator.reduce(self.nll, "sum")) / tokens
            readings["target_tokens"] = tokens
            readings["target_tokens_per_second"] = tokens / (now - self._start)
        self._start = now
        self._reset()
        return readings


class ModelFiles(TrainerCallback):
    """Adds code, tokenizers and card to weights that are pushed in training, which are no model without them.

    The Trainer itself takes only weights and configurations from a checkpoint.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = weakref.proxy(trainer)  # which holds this callback: the model is to go with the last reference

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        folder, trainer = Path(args.output_dir), self.trainer
        checkpoint = folder / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if not (args.push_to_hub and state.is_world_process_zero and checkpoint.is_dir()):
            return  # of `push_to_hub` by hand, which saves everything itself
        write_manifest(checkpoint)
        for code in checkpoint.glob("*.py"):
            shutil.copy(code, folder)
        if trainer.processing_class is not None:
            positions = getattr(trainer.model.config, "max_position_embeddings", None)
            save_tokenizers(folder, trainer.processing_class, trainer.target_tokenizer, positions=positions)
        trainer.create_model_card()
