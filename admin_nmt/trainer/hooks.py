"""The Trainer's private methods that a training here cannot do without; the first line of each says why.

No other module overrides or calls one. Where a release of transformers changes a signature, tests/trainer/test_hooks.py
says so.
"""

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import Seq2SeqTrainer
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .arguments import AdminTrainingArguments
from .checkpoints import ON_REQUEST, best_whole_checkpoint, checkpoint_being_written, limit_without_requested
from .divergence import DivergenceGuard, gradient_norm
from .optimizers.master_weights import NoMasterWeights
from .sharding import NoSharding, load_weights, read_weights

# As in transformers 5.23, without annotations.
SIGNATURES = {
    "_run_epoch": "(self, model, epoch, train_dataloader, steps_in_epoch, num_update_steps_per_epoch, trial, "
    "ignore_keys_for_eval, start_time, resume_from_checkpoint, epochs_trained, steps_trained_in_current_epoch)",
    "_get_grad_norm": "(self, model, grad_norm=None)",
    "_save_checkpoint": "(self, model, trial)",
    "_save_rng_state": "(self, output_dir)",
    "_save_optimizer_and_scheduler": "(self, output_dir)",
    "_issue_warnings_after_load": "(self, load_result)",
    "_load_best_model": "(self)",
}


class TrainerHooks(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that asks the objects of [`AdminTrainer`] at places that have no public method."""

    args: AdminTrainingArguments
    guard: DivergenceGuard
    sharding: NoSharding
    masters: NoMasterWeights

    def has_ended(self) -> bool:
        """Says whether the last update of the run has been made."""
        raise NotImplementedError

    def saves_on_request(self) -> bool:
        """Says whether the checkpoint that is about to be written is one that the run would not write by itself."""
        raise NotImplementedError

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """The Trainer looks at `control` after an update only, so a run that resumes at its end would make one more.

        Batches that `get_batch_samples` withholds would prevent it too, but an epoch without them still evaluates and
        saves once more where the run does so at its end.
        """
        if self.has_ended():
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Tensor:
        """The callback `on_pre_optimizer_step` is not told the norm: gradients are clipped and unscaled by then.

        Where nothing is clipped, the Trainer would multiply all gradients by 1 to find it.
        """
        if grad_norm is None and not self.args.fp16:
            grad_norm = gradient_norm(model.parameters())
        norm = super()._get_grad_norm(model, grad_norm)
        self.guard.check(norm, self.optimizer, self.args, self.state)
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
        metric = f"eval_{str(self.args.metric_for_best_model).removeprefix('eval_')}"
        scores = {row["step"]: row[metric] for row in self.state.log_history if metric in row}
        best = best_whole_checkpoint(Path(self.state.best_model_checkpoint), scores, bool(self.args.greater_is_better))
        self.state.best_model_checkpoint = None if best is None else str(best)
        if best is None:
            return
        if self.sharding.is_sharded:
            load_weights(self.model, read_weights(best))
        else:
            with self.masters.in_float32():
                super()._load_best_model()
