"""Stops a training run before an update that is not finite."""

import math

from .checkpoints import complete_checkpoints

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
    update: int, loss: float, norm: float, learning_rate: float, output_dir: str, *, made: bool = False
) -> DivergedError:
    """The error that tells what happened at an update, what to try, and where the last good weights are.

    Args:
        made: the update was made before its norm was known, as DeepSpeed does in the backward pass.
    """
    checkpoints, done = complete_checkpoints(output_dir), "was made by then" if made else "was not made"
    return DivergedError(
        f"training diverged at update {update}: loss {loss:.4g}, gradient norm {norm:.4g}, learning rate "
        f"{learning_rate:.3g}. The update {done}. Try a lower learning_rate, a longer warmup_steps, bf16 "
        "instead of fp16, or variant 'admin' if the model is a deep post-LN one. "
        + (f"The last good checkpoint is {checkpoints[-1]}." if checkpoints else "No checkpoint had been saved yet."),
        update,
    )
