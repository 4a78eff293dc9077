"""Stops a training run before an update that is not finite."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..model.loss import IGNORED
from .checkpoints import complete_checkpoints
from .fsdp import ShardingTrainer
from .hooks import without_module_walks
from .optimizers.fused_radam import FusedRAdam
from .optimizers.master_weights import norm_in_float32

# A gradient scaler that starts at 2^16 needs 16 overflows in a row to reach 1.
MAX_OVERFLOWS = 20


class DivergedError(RuntimeError):
    """The gradient of `update` is not finite; the weights are those of the last good update."""

    def __init__(self, message: str, update: int) -> None:
        super().__init__(message)
        self.update = update


class DivergenceGuard:
    """Judges the gradient norm of every update.

    The norm is that of the gradient summed over all processes, so all of them stop at the same update, and a loss
    that is not finite on any of them makes it so.

    Args:
        scaled: a gradient scaler (fp16) is at work. It skips updates that overflow, so only many in a row count.
    """

    def __init__(self, scaled: bool) -> None:
        self.patience = MAX_OVERFLOWS if scaled else 1
        self.overflows = 0

    def is_diverged(self, norm: float) -> bool:
        """Takes note of an update's gradient norm; True if this update must not be made."""
        self.overflows = 0 if math.isfinite(norm) else self.overflows + 1
        return self.overflows >= self.patience


def diverged(
    update: int,
    loss: float,
    norm: float,
    learning_rate: float,
    output_dir: str,
    *,
    made: bool = False,
    pairs: Path | None = None,
) -> DivergedError:
    """The error that tells what happened at an update, what to try, and where its text and the last good weights are.

    Args:
        made: the update was made before its norm was known, as DeepSpeed does in the backward pass.
        pairs: the file, or files, of the pairs that the update was made of, if they could be written.
    """
    checkpoints, done = complete_checkpoints(output_dir), "was made by then" if made else "was not made"
    return DivergedError(
        f"training diverged at update {update}: loss {loss:.4g}, gradient norm {norm:.4g}, learning rate "
        f"{learning_rate:.3g}. The update {done}. "
        + (f"Its pairs are in {pairs}. " if pairs else "")
        + "Try a lower learning_rate, a longer warmup_steps, bf16 "
        "instead of fp16, or variant 'admin' if the model is a deep post-LN one. "
        + (f"The last good checkpoint is {checkpoints[-1]}." if checkpoints else "No checkpoint had been saved yet."),
        update,
    )


def write_pairs(
    batches: Sequence[Mapping[str, Tensor]], path: Path, *tokenizers: PreTrainedTokenizerBase | None
) -> bool:
    """Leaves the pairs of some batches in a file, source, tab, target; as token ids where there are no tokenizers.

    Args:
        tokenizers: of the source and of the target.

    Returns:
        Whether the file could be written.
    """
    sides = ("input_ids", "attention_mask"), ("labels", None)
    columns: list[list[str]] = [[], []]
    for batch in batches:
        for column, tokenizer, (name, mask) in zip(columns, tokenizers, sides, strict=True):
            kept = batch[name] != IGNORED if mask is None else batch[mask].bool()
            for row, real in zip(batch[name], kept, strict=True):
                ids = row[real].tolist()
                text = tokenizer.decode(ids, skip_special_tokens=True) if tokenizer else " ".join(map(str, ids))
                column.append(" ".join(text.split()))
    try:
        path.write_text("".join(f"{pair[0]}\t{pair[1]}\n" for pair in zip(*columns, strict=True)), encoding="utf-8")
    except OSError:  # a full disk: the error that this is for says more
        return False
    return True


class GuardedTrainer(ShardingTrainer):
    """Makes no update that is not finite, at little cost to the host."""

    divergence_guard: DivergenceGuard
    update_loss: Tensor | float
    update_batches: list[dict[str, Tensor]]
    target_tokenizer: PreTrainedTokenizerBase | None
    parameters: list[nn.Parameter]
    pending_norm: Tensor | None

    @contextmanager
    def epoch_of(self, model: nn.Module) -> Iterator[None]:
        """Spares the Trainer's walks through a deep model, some 1,400 modules, in every update."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:  # which exchange the parameters
            yield
            return
        self.parameters = list(model.parameters())
        with without_module_walks(model, self.model, self.parameters):
            yield

    def gradient_norm(self) -> Tensor | None:
        """Without the Trainer's multiplication of all gradients by 1."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not gradients or self.accelerator.scaler is not None:
            return None
        is_rounded = gradients[0].dtype == torch.bfloat16
        return (norm_in_float32 if is_rounded else torch.nn.utils.get_total_norm)(gradients)

    def refuses_by_itself(self) -> bool:
        """Whether the optimizer can be told on the device not to make an update, as fused ones can."""
        if self.args.device.type != "cuda" or not self.parameters or self.accelerator.scaler is not None:
            return False
        optimizer: Any = self.optimizer.optimizer
        return isinstance(optimizer, FusedRAdam) or bool(optimizer.defaults.get("fused"))

    def check_gradient(self, norm: Tensor) -> None:
        """Stops the run if the gradient that the optimizer is about to use is not finite.

        A GPU is asked when it has the update as well, which it then leaves out by itself: to wait for the norm before
        would leave it without work.
        """
        if not self.refuses_by_itself():
            self.judge(norm)
            return
        self.pending_norm = norm
        optimizer: Any = self.optimizer.optimizer  # accelerate's wrapper has nothing of the kind
        optimizer.found_inf = norm.isfinite().logical_not().float()

    def check_pending_norm(self) -> None:
        """Judges the update that was just handed to the optimizer, if nobody has."""
        norm, self.pending_norm = self.pending_norm, None
        if norm is not None:
            self.judge(norm)

    def judge(self, norm: Tensor) -> None:
        """Raises `DivergedError` if the norm of an update's gradient says so."""
        if self.divergence_guard.is_diverged(float(norm)):
            loss = self.accelerator.reduce(torch.as_tensor(self.update_loss), "mean")
            update, learning_rate = self.state.global_step + 1, float(self.optimizer.param_groups[0]["lr"])
            folder, made = Path(str(self.args.output_dir)), self.is_deepspeed_enabled
            # Each process writes its own pairs, while the message is the same on all of them.
            rank, ranks = (f"-process{self.args.process_index}", "-process*") if self.args.world_size > 1 else ("", "")
            file, files = (folder / f"diverged-update-{update}{which}.tsv" for which in (rank, ranks))
            tokenizers: Any = (self.processing_class, self.target_tokenizer)
            pairs = files if write_pairs(self.update_batches, file, *tokenizers) else None
            raise diverged(update, float(loss), float(norm), learning_rate, str(folder), made=made, pairs=pairs)
        self.update_loss = 0.0
