"""The training loss from logits: of stock models, and of ours under adversarial training, which needs the logits."""

from typing import Any

from torch import Tensor

from ..model.loss import IGNORED, label_smoothed_nll, without_padding


class LabelSmoothedLoss:
    """The label-smoothed loss divided by the tokens of the whole update, by `Trainer`'s interface `compute_loss_func`.

    A stock model's own loss is the mean over a batch: with accumulation or on several processes, batches of few tokens
    would weigh as much as those of many.

    Args:
        epsilon: ε of label smoothing. excluded: id of a token that is never scored, or None.
    """

    def __init__(self, epsilon: float, excluded: int | None) -> None:
        self.epsilon = epsilon
        self.excluded = excluded

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The sum over `labels` [B, T] for `outputs.logits` [B, T, V], divided by the target tokens of the update.

        Raises:
            ValueError: as [`without_padding`].
        """
        labels = without_padding(labels, self.excluded, num_items_in_batch)
        loss, nll = label_smoothed_nll(outputs.logits.flatten(0, 1), labels.flatten(), self.epsilon, self.excluded)
        outputs["nll"] = nll.detach()
        return loss / (labels.ne(IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)
