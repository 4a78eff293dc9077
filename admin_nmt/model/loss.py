"""Label-smoothed cross entropy of a large vocabulary, without the logits of the whole batch."""

from typing import Any

import torch
from torch import Tensor

IGNORED = -100  # a label at a position that has none
CHUNK_ELEMENTS = 1 << 25  # logits that exist at a time, 128 MiB: fewer would touch the weights' gradient too often


def shift_right(labels: Tensor, start: int, padding: int) -> Tensor:
    """Make the decoder's input of labels [B, T]: id `start` and all labels but the last, `padding` for none."""
    shifted = labels.roll(1, dims=-1)
    shifted[:, 0] = start
    return shifted.masked_fill(shifted == IGNORED, padding)


def without_padding(labels: Tensor, padding: int | None, num_items: Tensor | int | None = None) -> Tensor:
    """Labels of any shape with `IGNORED` for the id `padding`, which no target has.

    Those on a GPU are not looked at, as that would wait for it: counted ones make the loss a little smaller there.

    Raises:
        ValueError: there are such labels, but `num_items`, the target tokens of the update, has counted them.
    """
    if padding is None:
        return labels
    is_padding = labels == padding
    known = type(labels) is Tensor and labels.is_cpu and not torch.compiler.is_compiling()
    if num_items is not None and known and is_padding.any():
        raise ValueError(
            f"labels: hold <pad> (id {padding}), which the Trainer counts as target tokens; put {IGNORED} there, as a "
            "data collator does where the targets are tokenised without padding"
        )
    return labels.masked_fill(is_padding, IGNORED)


def num_target_tokens(labels: Tensor) -> Tensor:
    """Number of labels that are not −100."""
    return (labels != IGNORED).sum()


def per_token(loss: Tensor, labels: Tensor, num_items: Tensor | int | None = None) -> Tensor:
    """A sum over the target tokens divided by `num_items`, those of the whole update; None for those of `labels`."""
    return loss / (num_target_tokens(labels).clamp(min=1) if num_items is None else num_items)


def label_smoothed_nll(logits: Tensor, targets: Tensor, epsilon: float, excluded: int | None) -> tuple[Tensor, Tensor]:
    """Sum over the tokens of (1−ε)·NLL + ε·mean_v(−log p_v), and of NLL, as the equation has it.

    Args:
        logits: float tensor [N, V]. targets: ids [N], `IGNORED` where there is none. epsilon: ε.
        excluded: id of a token that is never scored (`<pad>`), left out of the softmax and of the mean; or None.
    """
    kept = targets != IGNORED
    logits, targets = logits.float(), targets.clamp(min=0)
    if excluded is not None:
        logits = torch.cat([logits[:, :excluded], logits[:, excluded + 1 :]], 1)
        targets = targets - (targets > excluded).long()
    log_p = logits.log_softmax(-1)
    nll = -(log_p.gather(1, targets[:, None])[:, 0] * kept).sum()
    return (1 - epsilon) * nll - epsilon * (log_p.mean(-1) * kept).sum(), nll


class _ChunkedLoss(torch.autograd.Function):
    """`label_smoothed_nll(hidden @ weight.T, …)` by chunks of tokens, which makes its gradients in the forward pass.

    With e = exp(logits − max) and s = Σ_v e_v, the gradient of a token's logits is e/s − ε/V − (1−ε)·onehot(target).
    Only the first term is dense, and 1/s is folded into the rows of the products, so that a chunk of logits is written
    twice and never copied. The terms of ε/V are rank one, that of the target is a gather.

    `kept` [N] tells which tokens count; the rows of `hidden` of the others are zero.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        kept: Tensor,
        epsilon: float,
        excluded: int | None,
    ) -> tuple:
        scored = len(weight) - (excluded is not None)
        mean_row = weight.float().sum(0)
        if excluded is not None:
            mean_row -= weight[excluded].float()
        mean_row /= scored
        matrix = weight.to(hidden.dtype)
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        loss, nll_sum = torch.zeros(2, dtype=torch.float64, device=hidden.device).unbind()
        rows = max(16, CHUNK_ELEMENTS // len(weight))
        for start in range(0, len(hidden), rows):
            h, target = hidden[start : start + rows], targets[start : start + rows]
            counts = kept[start : start + rows, None]
            logits = torch.mm(h, matrix.t()).float()
            maximum = logits.amax(-1, keepdim=True)
            target_logit = logits.gather(1, target[:, None])
            e = logits.sub_(maximum).exp_()
            if excluded is not None:
                e[:, excluded] = 0
            s = e.sum(-1, keepdim=True)
            log_z = maximum + s.log()
            nll = ((log_z - target_logit) * counts).sum()
            smooth = ((log_z - (h.float() @ mean_row)[:, None]) * counts).sum()
            nll_sum += nll
            loss += (1 - epsilon) * nll + epsilon * smooth
            e = e.to(hidden.dtype)
            if grad_hidden is not None:
                grad = torch.mm(e, matrix).float().div_(s).sub_(weight[target].float(), alpha=1 - epsilon)
                grad_hidden[start : start + rows] = grad.sub_(mean_row, alpha=epsilon)
            if grad_weight is not None:
                _accumulate(grad_weight, e, (h.float() / s).to(hidden.dtype))
                grad_weight.index_add_(0, target, h.float(), alpha=epsilon - 1)
        if grad_weight is not None and epsilon:
            grad_weight -= hidden.float().sum(0) * (epsilon / scored)
            if excluded is not None:
                grad_weight[excluded] = 0
        ctx.gradients = grad_hidden, grad_weight, weight.dtype
        ctx.mark_non_differentiable(nll_sum)
        return loss.float(), nll_sum.float()

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple:
        if torch.is_grad_enabled():  # create_graph: the gradients are constants here, second ones would be wrong
            raise RuntimeError("in training mode the loss has no second derivatives; compute it in evaluation mode")
        if ctx.gradients is None:
            raise RuntimeError("the loss was differentiated before; run the forward pass again")
        grad_hidden, grad_weight, dtype = ctx.gradients
        ctx.gradients = None
        if grad_hidden is not None:
            grad_hidden = grad_hidden.mul_(grad_loss)
        if grad_weight is not None:
            grad_weight = grad_weight.mul_(grad_loss).to(dtype)
        return grad_hidden, grad_weight, None, None, None, None


def _accumulate(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += leftᵀ right, in place where the types allow it."""
    if left.dtype == total.dtype:
        total.addmm_(left.t(), right)
    else:
        total += torch.mm(left.t(), right)


def kept_rows(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of `hidden` [N, d] and `targets` [N] that have a target, and a mask which keeps all of them."""
    kept = targets != IGNORED
    rows = kept.nonzero()[:, 0]
    return hidden[rows], targets[rows], kept[rows]


def masked_rows(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All rows, zeros where there is no target, and the mask [N] of those that have one.

    For a GPU, which would have to be waited for to know how many there are.
    """
    kept = targets != IGNORED
    return hidden.masked_fill(~kept[:, None], 0), targets.clamp(min=0), kept


def chunked_label_smoothed_nll(
    hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float, excluded: int | None
) -> tuple[Tensor, Tensor]:
    """The sums of [`label_smoothed_nll`] for logits = hidden · weightᵀ, in a fraction of its memory and time.

    Args:
        hidden: states that the output layer reads, [..., d]. weight: its matrix, [V, d]. targets: ids [...], `IGNORED`
            where there is none. epsilon: ε of label smoothing. excluded: id of a token that is never scored, or None.

    Returns:
        Two float32 scalars: the loss, which has gradients, and the sum of NLL, which has none.
    """
    if torch.compiler.is_compiling():
        return label_smoothed_nll(torch.matmul(hidden, weight.t()).flatten(0, -2), targets.flatten(), epsilon, excluded)
    device, targets = hidden.device.type, targets.flatten()
    hidden, targets, kept = (kept_rows if hidden.is_cpu else masked_rows)(hidden.flatten(0, -2), targets)
    if torch.is_autocast_enabled(device):
        hidden = hidden.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):
        return _ChunkedLoss.apply(hidden, weight, targets, kept, epsilon, excluded)
