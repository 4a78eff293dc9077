"""The Trainer's private methods that a training here cannot do without; the first line of each says why.

No other module overrides or calls one. Where a release of transformers changes a signature, tests/trainer/test_hooks.py
says so.
"""

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import EarlyStoppingCallback, Seq2SeqTrainer
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy

from ..data.batching import TokenBatchSampler, WindowedBatchSampler
from .arguments import AdminTrainingArguments
from .callbacks import StopRequest
from .checkpoints import (
    ON_REQUEST,
    checkpoint_being_written,
    damaged_weights,
    limit_without_requested,
    warn_once,
    whole_checkpoints,
)
from .divergence import DivergenceGuard, gradient_norm
from .optimizers.master_weights import NoMasterWeights
from .sharding import NoSharding, load_weights, read_weights


class TrainerHooks(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that asks the objects of [`AdminTrainer`] at places that have no public method."""

    args: AdminTrainingArguments
    guard: DivergenceGuard
    sampler: TokenBatchSampler | WindowedBatchSampler | None
    sharding: NoSharding
    masters: NoMasterWeights
    stop_request: StopRequest

    def early_stopping(self) -> list[EarlyStoppingCallback]:
        """The callbacks that end a run whose evaluations no longer improve."""
        return [one for one in self.callback_handler.callbacks if isinstance(one, EarlyStoppingCallback)]

    def has_ended(self) -> bool:
        """True also where evaluations had stopped the run: it would train until they do so again."""
        stopped = (one.early_stopping_patience_counter >= one.early_stopping_patience for one in self.early_stopping())
        return self.state.global_step >= self.state.max_steps or any(stopped)

    def saves_on_request(self) -> bool:
        """True if the checkpoint that is about to be written is one that the run would not write by itself."""
        if self.args.save_strategy == SaveStrategy.BEST and self.state.best_global_step == self.state.global_step:
            return False  # the evaluation came after the request
        return self.stop_request.irregular

    def _run_epoch(self, model: nn.Module, epoch: int, *args: Any, **kwargs: Any) -> None:
        """The Trainer looks at `control` after an update only, so a run that resumes at its end would make one more.

        Nor does it reach a sampler that accelerate has wrapped twice, as it does where several processes resume in the
        middle of an epoch: the rest of the epoch would come in the wrong order.
        """
        if self.has_ended():
            self.control.should_training_stop = True
            return
        if self.sampler is not None:
            self.sampler.set_epoch(epoch)
        super()._run_epoch(model, epoch, *args, **kwargs)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Tensor:
        """The callback `on_pre_optimizer_step` is not told the norm: gradients are clipped and unscaled by then.

        Where nothing is clipped, the Trainer would multiply all gradients by 1 to find it.
        """
        if grad_norm is None and not self.args.fp16:
            grad_norm = gradient_norm(model.parameters())
        norm = super()._get_grad_norm(model, grad_norm)
        self.guard.check(float(norm), float(self.optimizer.param_groups[0]["lr"]), self.args, self.state)
        return norm

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """The callback `on_save` comes after the last file, and not at all if one could not be written."""
        folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        best, on_request = self.state.best_model_checkpoint, self.saves_on_request()
        best_passes = not on_request and best is not None and (Path(best) / ON_REQUEST).exists()
        for callback in [*self.callback_handler.callbacks, self.control]:
            if isinstance(callback, ExportableState):  # for which a checkpoint without it has left no place
                self.state.stateful_callbacks.setdefault(type(callback).__name__, {})
        with checkpoint_being_written(folder, on_request, self.args.should_save), limit_without_requested(self.args):
            super()._save_checkpoint(model, trial)
        # Otherwise the Trainer looks for it at the end; `_load_best_model` does without.
        if best_passes and self.state.best_model_checkpoint == best and not self.args.load_best_model_at_end:
            self.state.best_model_checkpoint = None

    def _save_rng_state(self, output_dir: str) -> None:
        """Nothing else waits for the files of all processes before the Trainer's state, which makes them a checkpoint.

        The Trainer writes it next, and deletes earlier checkpoints.
        """
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Only the process that writes asks the optimizer for its state; to gather a sharded one takes all of them."""
        with self.sharding.saved_whole(self.optimizer, keep=self.args.should_save):
            super()._save_optimizer_and_scheduler(output_dir)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """The Trainer calls tied weights missing, which a file holds under one of their names."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        missing = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _load_best_model(self) -> None:
        """The callback `on_train_end` comes too late: the Trainer has loaded damaged weights by then, or has failed."""
        best = Path(self.state.best_model_checkpoint)
        whole, skipped = whole_checkpoints([best], damaged_weights)
        if not whole:
            warn_once([*skipped, f"{best.parent}: the last weights are kept"])
            self.state.best_model_checkpoint = None
            return
        if self.sharding.is_sharded:
            load_weights(self.model, read_weights(best))
        else:
            with self.masters.in_float32():
                super()._load_best_model()
