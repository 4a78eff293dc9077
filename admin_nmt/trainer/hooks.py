"""The Trainer's private methods that a training here cannot do without, and why.

No other module overrides or calls one: the other classes override the methods without an underscore to which these
forward. Where a release of transformers changes a signature, tests/trainer/test_hooks.py says so.
"""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Seq2SeqTrainer, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .checkpoints import (
    MANIFEST,
    ON_REQUEST,
    best_whole_checkpoint,
    checkpoint_being_written,
    clear_checkpoint,
    requested_checkpoints,
    write_manifest,
)

# As in transformers 5.23, without annotations.
SIGNATURES = {
    "_prepare_for_training": "(self, max_steps, train_dataloader, resume_from_checkpoint)",
    "_run_epoch": "(self, model, epoch, train_dataloader, steps_in_epoch, num_update_steps_per_epoch, trial, "
    "ignore_keys_for_eval, start_time, resume_from_checkpoint, epochs_trained, steps_trained_in_current_epoch)",
    "_get_grad_norm": "(self, model, grad_norm=None)",
    "_save_checkpoint": "(self, model, trial)",
    "_save_rng_state": "(self, output_dir)",
    "_push_from_checkpoint": "(self, checkpoint_folder)",
    "_save_optimizer_and_scheduler": "(self, output_dir)",
    "_load_optimizer_and_scheduler": "(self, checkpoint)",
    "_load_from_checkpoint": "(self, resume_from_checkpoint, model=None)",
    "_issue_warnings_after_load": "(self, load_result)",
    "_load_best_model": "(self)",
}


class TrainerHooks(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` with named places where a subclass may step in."""

    is_fsdp_enabled: bool

    def _prepare_for_training(
        self, max_steps: int, train_dataloader: DataLoader, resume_from_checkpoint: str | None
    ) -> tuple[nn.Module, DataLoader]:
        """Public `create_optimizer` comes right before the model is wrapped, but nothing public right after it.

        Nor is there anything public between `call_model_init` and the start that knows the arguments of a trial.
        """
        self.before_wrapping()
        with self.wrapping():
            return super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)

    def before_wrapping(self) -> None:
        """Is called when the model and the arguments are those of this training, before anything is made of them."""

    def wrapping(self) -> AbstractContextManager[None]:
        """Open while the model is wrapped for several processes."""
        return nullcontext()

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Makes no update beyond the last, which a run that resumes from there would make.

        The Trainer looks at `control` only after an update. Batches that `get_batch_samples` withholds would prevent
        it too, but an epoch without them still evaluates and saves once more where the run does so at its end.
        """
        if self.has_ended():
            self.control.should_training_stop = True
            return
        with self.epoch_of(args[0] if args else kwargs["model"]):
            super()._run_epoch(*args, **kwargs)

    def has_ended(self) -> bool:
        """Whether the last update of the run has been made."""
        return self.state.global_step >= self.state.max_steps

    def epoch_of(self, model: nn.Module) -> AbstractContextManager[None]:
        """Open during an epoch of a model that is wrapped for several processes."""
        return nullcontext()

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Tensor:
        """The callback `on_pre_optimizer_step` is not told the norm and cannot find it out.

        The gradients are clipped by then, a gradient scaler refuses to unscale them twice, and DeepSpeed hides them.
        """
        norm = super()._get_grad_norm(model, self.gradient_norm() if grad_norm is None else grad_norm)
        self.check_gradient(norm)
        return norm

    def gradient_norm(self) -> Tensor | None:
        """The norm of gradients that are not clipped; None to have the Trainer find it."""
        return None

    def check_gradient(self, norm: Tensor) -> None:
        """Is told, before every update, the norm of the gradient of all processes as it was before any clipping.

        Raises:
            Exception: the update must not be made.
        """

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """The callback `on_save` comes after the last file, and not at all if one could not be written."""
        folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        on_request, best = self.saves_on_request(), self.state.best_model_checkpoint
        best_passes = not on_request and best is not None and (Path(best) / ON_REQUEST).exists()
        self.note_callbacks()
        if self.args.should_save:
            clear_checkpoint(folder)
            if on_request:
                folder.mkdir(parents=True)
                (folder / ON_REQUEST).touch()
        self.accelerator.wait_for_everyone()
        with checkpoint_being_written(folder), requested_ones_besides(self.args):
            super()._save_checkpoint(model, trial)
            if self.args.should_save and not (folder / MANIFEST).exists():
                write_manifest(folder)
        if self.args.should_save and not on_request:
            for passed in requested_checkpoints(folder.parent):
                shutil.rmtree(passed, ignore_errors=True)
        # Otherwise the Trainer looks for it at the end; `_load_best_model` does without.
        if best_passes and self.state.best_model_checkpoint == best and not self.args.load_best_model_at_end:
            self.state.best_model_checkpoint = None

    def note_callbacks(self) -> None:
        """Makes a place for each callback with a state, which the Trainer misses where a checkpoint was without it."""
        for callback in [*self.callback_handler.callbacks, self.control]:
            if isinstance(callback, ExportableState):
                self.state.stateful_callbacks.setdefault(type(callback).__name__, {})

    def saves_on_request(self) -> bool:
        """Whether the checkpoint that is about to be written is one that the run would not write by itself."""
        return False

    def _save_rng_state(self, output_dir: str) -> None:
        """Holds back the state of the Trainer, which is written next, until all processes have written their files.

        So a checkpoint that has this state is complete, and the ones before it may be deleted.
        """
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """A checkpoint that goes to the Hub takes its manifest with it."""
        if self.args.should_save:
            write_manifest(Path(checkpoint_folder))
        super()._push_from_checkpoint(checkpoint_folder)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Under FSDP the Trainer writes a format that only FSDP reads; no callback and no argument changes that."""
        if self.is_fsdp_enabled:
            self.save_sharded_state(output_dir)
        else:
            super()._save_optimizer_and_scheduler(output_dir)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Under FSDP the Trainer reads that format alone, and before `on_train_begin`."""
        if self.is_fsdp_enabled and checkpoint is not None:
            self.load_sharded_state(checkpoint)
        else:
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Under FSDP the Trainer looks for weights in FSDP's format, not for those that `from_pretrained` reads."""
        if self.is_fsdp_enabled:
            self.load_sharded_weights(resume_from_checkpoint)
        else:
            with self.float32_weights():
                super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """The Trainer calls tied weights missing, which a file holds under one of their names."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        missing = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _load_best_model(self) -> None:
        """The callback `on_train_end` comes too late: the Trainer has loaded damaged weights by then, or has failed.

        Under FSDP it looks for FSDP's format, as in `_load_from_checkpoint`.
        """
        metric = f"eval_{str(self.args.metric_for_best_model).removeprefix('eval_')}"
        scores = {row["step"]: row[metric] for row in self.state.log_history if metric in row}
        best = best_whole_checkpoint(Path(self.state.best_model_checkpoint), scores, bool(self.args.greater_is_better))
        self.state.best_model_checkpoint = None if best is None else str(best)
        if best is None:
            return
        if self.is_fsdp_enabled:
            self.load_sharded_weights(str(best))
        else:
            with self.float32_weights():
                super()._load_best_model()

    def float32_weights(self) -> AbstractContextManager[None]:
        """Open while a file's weights take the place of the model's, or the model's are written to one."""
        return nullcontext()

    def save_sharded_state(self, folder: str) -> None:
        """Writes the state of optimizer and schedule to a checkpoint; called by every process under FSDP."""
        raise NotImplementedError

    def load_sharded_state(self, folder: str) -> None:
        """Reads what `save_sharded_state` wrote."""
        raise NotImplementedError

    def load_sharded_weights(self, folder: str) -> None:
        """Gives the model that FSDP has wrapped the weights of a checkpoint."""
        raise NotImplementedError


@contextmanager
def without_module_walks(model: nn.Module, inner: nn.Module, parameters: list[nn.Parameter]) -> Iterator[None]:
    """`zero_grad` and `train` of a model do not walk through its modules in this block.

    The Trainer calls them in every update; on a deep model that takes milliseconds, in which a GPU may have no work.

    Args:
        model: as it is wrapped for several processes.
        inner: the same without.
        parameters: of both.
    """
    own = {"zero_grad": partial(forget_gradients, parameters), "train": partial(set_mode, model, inner)}
    model.__dict__.update(own)
    try:
        yield
    finally:
        for name in own:
            model.__dict__.pop(name, None)


def forget_gradients(parameters: list[nn.Parameter], set_to_none: bool = True) -> None:
    """As `nn.Module.zero_grad`."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = None if set_to_none else torch.zeros_like(parameter.grad)


def set_mode(model: nn.Module, inner: nn.Module, mode: bool = True) -> nn.Module:
    """As `nn.Module.train`, which has nothing to do for a model that is being trained.

    A callback that translates something leaves the inner model alone in evaluation mode.
    """
    return model if mode and model.training and inner.training else type(model).train(model, mode)


@contextmanager
def requested_ones_besides(args: TrainingArguments) -> Iterator[None]:
    """Lets `save_total_limit` count the other checkpoints alone, so that those stay which an average needs."""
    limit = args.save_total_limit
    if limit:
        args.save_total_limit = limit + len(requested_checkpoints(str(args.output_dir)))
    try:
        yield
    finally:
        args.save_total_limit = limit
