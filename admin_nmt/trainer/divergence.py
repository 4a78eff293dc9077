"""Stops a training run before an update that is not finite."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, TrainerState, TrainingArguments

from ..model.loss import IGNORED
from ..system.processes import gather_objects, gather_shards
from .checkpoints import complete_checkpoints
from .optimizers.master_weights import norm_in_float32

# A gradient scaler that starts at 2^16 needs 16 overflows in a row to reach 1.
MAX_OVERFLOWS = 20


class DivergedError(RuntimeError):
    """The gradient of `update` is not finite; the weights are those of the last good update."""

    def __init__(self, message: str, update: int) -> None:
        super().__init__(message)
        self.update = update


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor | None:
    """The norm of all gradients, in float32 and unclipped; None where there are none."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return None
    is_rounded = gradients[0].dtype == torch.bfloat16
    return gather_shards((norm_in_float32 if is_rounded else torch.nn.utils.get_total_norm)(gradients))


class DivergenceGuard:
    """Judges the gradient norm of every update.

    The norm is that of the gradient summed over all processes, so all of them stop at the same update, and a loss
    that is not finite on any of them makes it so. Under fp16 a gradient scaler skips updates that overflow, so only
    many in a row count.

    Args:
        tokenizers: of source and target, in which the pairs of the update are written down.
    """

    def __init__(self, *tokenizers: PreTrainedTokenizerBase | None) -> None:
        self.tokenizers = tokenizers
        self.start_anew()

    def start_anew(self) -> None:
        """Forgets the last training."""
        self.overflows = 0
        self.begin_update([])

    def begin_update(self, batches: Sequence[Mapping[str, Tensor]]) -> None:
        """Takes the batches that the next update is made of."""
        self.batches = batches
        self.loss: Tensor | float = 0.0

    def add_loss(self, loss: Tensor) -> None:
        """Adds the loss of a batch of this update, for the error message."""
        self.loss = self.loss + loss.detach()

    def check(self, norm: float, learning_rate: float, args: TrainingArguments, state: TrainerState) -> None:
        """Stops the run if the gradient that the optimizer is about to use is not finite.

        Args:
            norm: of the gradient of all processes, before any clipping.

        Raises:
            DivergedError: the update must not be made.
        """
        if not self.is_diverged(norm, MAX_OVERFLOWS if args.fp16 else 1):
            return
        losses = gather_objects(float(self.loss))
        update = state.global_step + 1
        # Each process writes its own pairs, while the message is the same on all of them.
        own, all_files = (f"-process{args.process_index}", "-process*") if args.world_size > 1 else ("", "")
        file, files = (Path(str(args.output_dir), f"diverged-update-{update}{which}.tsv") for which in (own, all_files))
        pairs = files if write_pairs(self.batches, file, *self.tokenizers) else None
        raise diverged(update, sum(losses) / len(losses), norm, learning_rate, str(args.output_dir), pairs)

    def is_diverged(self, norm: float, patience: int) -> bool:
        """Counts an update's gradient norm; True if it is the last of `patience` in a row that are not finite."""
        self.overflows = 0 if math.isfinite(norm) else self.overflows + 1
        return self.overflows >= patience


def diverged(
    update: int, loss: float, norm: float, learning_rate: float, output_dir: str, pairs: Path | None = None
) -> DivergedError:
    """The error that tells what happened at an update, what to try, and where its text and the last good weights are.

    Args:
        pairs: the file, or files, of the pairs that the update was made of, if they could be written.
    """
    checkpoints = complete_checkpoints(output_dir)
    return DivergedError(
        f"training diverged at update {update}: loss {loss:.4g}, gradient norm {norm:.4g}, learning rate "
        f"{learning_rate:.3g}. The update was not made. "
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
        True if the file could be written.
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
