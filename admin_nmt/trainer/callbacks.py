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
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy
from transformers.utils import logging

from ..data.batching import TokenBatchSampler, WindowedBatchSampler
from ..data.tokenization.tokenizer_folder import save_tokenizers
from ..weights.omega import omega_by_sublayer
from .arguments import AdminTrainingArguments
from .checkpoints import set_aside_later, write_manifest
from .precision import precision
from .process_memory import peak_memory
from .sharding import gather_shards

logger = logging.get_logger(__name__)
Kind = TypeVar("Kind", bound=TrainerCallback)


class SamplerEpoch(TrainerCallback):
    """Tells the batch sampler which epoch begins.

    The Trainer's own call does not reach a sampler that accelerate has wrapped twice, as it does when a run of
    several processes resumes in the middle of an epoch: the rest of the epoch would come in the wrong order.
    """

    def __init__(self) -> None:
        self.sampler: TokenBatchSampler | WindowedBatchSampler | None = None

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.sampler is not None:
            self.sampler.set_epoch(int(state.epoch))


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


def mean_omega(model: Any) -> dict[str, list[float]]:
    """Mean ω of each sublayer of `encoder` and `decoder` in the order in which they run; empty for a model without ω.

    Every process of a sharded model calls it.
    """
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # of one with adapters
    if not getattr(model.config, "has_omega", False):
        return {}
    means: dict[str, list[float]] = {}
    for sublayer, omega in omega_by_sublayer(model).items():
        means.setdefault(sublayer.split()[0], []).append(float(gather_shards(omega).mean()))
    return means


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


class MicroBatch(TrainerCallback, ExportableState):
    """Writes to each checkpoint into how many batches updates are cut, so that a run goes on with the same updates."""

    def __init__(self, max_tokens: int, accumulation: int) -> None:
        self.max_tokens, self.accumulation = max_tokens, accumulation

    def state(self) -> dict[str, Any]:
        return {"args": {"max_tokens": self.max_tokens, "accumulation": self.accumulation}, "attributes": {}}

    @staticmethod
    def of(checkpoint: Path) -> tuple[int, int] | None:
        """`max_tokens` and accumulation of the run that wrote a checkpoint; None if they were those of its recipe."""
        saved = json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8")).get("stateful_callbacks", {})
        chosen = saved.get("MicroBatch")
        return None if chosen is None else (chosen["args"]["max_tokens"], chosen["args"]["accumulation"])


class BestInFolder(TrainerCallback):
    """Looks for the best checkpoint of a run that goes on where the run is now: its folder may have been moved.

    The Trainer would forget a checkpoint that is not where it was.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        best = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        lost = state.best_model_checkpoint is None and state.best_global_step and args.load_best_model_at_end
        if best.is_dir() or lost:
            state.best_model_checkpoint = str(best)


class StaleCheckpoints(TrainerCallback):
    """Sets aside the checkpoints that an earlier training has left and this one will not have written."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.should_save:
            set_aside_later(str(args.output_dir), state.global_step)
        PartialState().wait_for_everyone()


class IntervalsAsSet(TrainerCallback):
    """Logs, evaluates and saves as often as the arguments say, also where a run goes on.

    The Trainer would do so as often as when the run began.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        state.compute_steps(args, state.max_steps)


class PrecisionRecord(TrainerCallback, ExportableState):
    """Keeps in the checkpoints in which precisions a run has computed, and says where one goes on in another.

    Left to choose, a run that was begun on a CPU with fast products of bfloat16 goes on in float32 on one without.

    Args:
        legs: the precisions so far, each once a change.
    """

    def __init__(self, legs: Sequence[str] = ()) -> None:
        self.legs = list(legs)

    def state(self) -> dict:
        return {"args": {"legs": self.legs}, "attributes": {}}

    def on_train_begin(
        self,
        args: AdminTrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        now, attention = precision(args, model.config), model.config._attn_implementation
        if not state.global_step:
            self.legs = []
        logger.info(f"precision of products: {now}; attention: {attention}")
        if self.legs and self.legs[-1] != now:
            logger.warning(
                f"this run computed in {self.legs[-1]} up to update {state.global_step}; it goes on in {now}"
            )
        if self.legs[-1:] != [now]:
            self.legs.append(now)


class PeakMemory(TrainerCallback, ExportableState):
    """Keeps in the checkpoints the most memory that a run has taken so far.

    Args:
        earlier: bytes, of the processes that took the run so far.
    """

    device = torch.device("cpu")

    def __init__(self, earlier: int = 0) -> None:
        self.earlier = earlier

    def bytes(self) -> int:
        """The peak so far: of the GPU's tensors, or of the process on a CPU."""
        return max(self.earlier, peak_memory(self.device))

    def state(self) -> dict:
        return {"args": {"earlier": self.bytes()}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.device = args.device
        if not state.global_step:
            self.earlier = 0


def callback_of(trainer: Trainer, kind: type[Kind]) -> Kind:
    """The callback of this class that the trainer has; a resumed training replaces those that checkpoints keep."""
    return next(callback for callback in trainer.callback_handler.callbacks if isinstance(callback, kind))


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
