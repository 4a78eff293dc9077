"""Training losses that the model does not compute itself: of stock models, and virtual adversarial training."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from ..model.loss import IGNORED, label_smoothed_nll, per_token, without_padding
from .arguments import AdminTrainingArguments

PROJECTION_EPSILON = 1e-6


class LabelSmoothedLoss:
    """The label-smoothed loss divided by the tokens of the whole update, by `Trainer`'s interface `compute_loss_func`.

    A stock model's own loss is the mean over a batch: with accumulation or on several processes, batches of few tokens
    would weigh as much as those of many.

    Args:
        epsilon: ε of label smoothing.
        padding: id that no target has, or None.
        excluded: id of a token that is never scored, or None.
    """

    def __init__(self, epsilon: float, padding: int | None, excluded: int | None) -> None:
        self.epsilon, self.padding, self.excluded = epsilon, padding, excluded

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The sum over `labels` [B, T] for `outputs.logits` [B, T, V], divided by the target tokens of the update.

        Raises:
            ValueError: as [`without_padding`].
        """
        labels = without_padding(labels, self.padding, num_items_in_batch)
        loss, nll = label_smoothed_nll(outputs.logits.flatten(0, 1), labels.flatten(), self.epsilon, self.excluded)
        outputs["nll"] = nll.detach()
        return per_token(loss, labels, num_items_in_batch)


def kl_divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p ‖ q), summed over the tokens, of the distributions of two tensors of logits [N, V]."""
    return F.kl_div(others.log_softmax(-1), logits.log_softmax(-1), reduction="sum", log_target=True)


def project(gradient: Tensor) -> Tensor:
    """Gradient [B, S, d] scaled to a largest entry of 1 at each position."""
    return gradient / (gradient.abs().amax(-1, keepdim=True) + PROJECTION_EPSILON)


class AdversarialLoss:
    """Adds α·(KL(p ‖ q) + KL(q ‖ p)) to the loss, per target token, for p = p(·|x) and q = p(·|x + δ).

    The equations are those of SMART (Jiang et al. 2020, section 3.1) with one step, a form of VAT (Miyato et al. 2018):
    the prediction should not change where the source embeddings change a little. The release of *Very Deep
    Transformers* (future work a) has the same projection (∞-norm of each position) and the same defaults of its three
    numbers, but leaves out the step between them ("disable adv training in the release").

    x are the source's embeddings before their scaling, and δ = δ_0 + η·project(∇ KL(p ‖ p(·|x + δ_0))) with δ_0 drawn
    from N(0, σ²): the direction in which the prediction changes fastest. α, η and σ are the arguments
    `adversarial_weight`, `adversarial_step` and `adversarial_noise`. All passes of a batch drop the same units, so that
    p and q differ by δ alone. Each batch needs two more passes, and its logits exist as a whole: on a 4-4 model with a
    vocabulary of 8,000 an update took 3.5 times as long.

    Raises:
        ValueError: the model is a stock one, trains in half precision, in which δ_0 is lost, or is sharded.
    """

    def __init__(self, args: AdminTrainingArguments, model: PreTrainedModel, is_sharded: bool) -> None:
        if args.bf16 or args.fp16:  # left to choose, it is float32
            raise ValueError("adversarial_weight: needs float32; leave out bf16 and fp16")
        if is_sharded:  # weights are whole in the passes of the wrapped model alone
            raise ValueError("adversarial_weight: cannot train a model that FSDP shards; start with DDP")
        if not hasattr(model.config, "label_smoothing"):
            raise ValueError("adversarial_weight: is for models of this package; train an unfolded one (final/)")
        self.weight, self.step, self.noise = args.adversarial_weight, args.adversarial_step, args.adversarial_noise

    def __call__(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Any],
        plain_loss: Callable[[], tuple[Tensor, Any]],
        tokens: Tensor | float | None,
    ) -> tuple[Tensor, Any]:
        """The loss of the source plus that of the perturbed one, and the outputs for the former.

        Args:
            model: as it is without DDP.
            inputs: a batch.
            plain_loss: computes loss and outputs of the batch as it is.
            tokens: that the loss is divided by; None for those of the batch.
        """
        kept = inputs["labels"] != IGNORED
        others = {name: x for name, x in inputs.items() if name not in ("labels", "input_ids")}
        embeddings = model.get_input_embeddings()(inputs["input_ids"])
        noise = self.noise * torch.randn_like(embeddings)

        def logits_at(perturbed: Tensor) -> Tensor:
            return model(inputs_embeds=perturbed, **others).logits[kept].float()

        with same_dropout(noise.device):
            loss, outputs = plain_loss()
        logits = outputs.logits[kept].float()
        with same_dropout(noise.device):
            probe = noise.requires_grad_()
            change = kl_divergence(logits.detach(), logits_at(embeddings.detach() + probe))
            (gradient,) = torch.autograd.grad(change, probe)
        delta = noise.detach() + self.step * project(gradient)
        perturbed = logits_at(embeddings + delta)
        penalty = kl_divergence(logits, perturbed) + kl_divergence(perturbed, logits)
        return loss + self.weight * penalty / (kept.sum() if tokens is None else tokens), outputs


def same_dropout(device: torch.device) -> AbstractContextManager[None]:
    """Takes random numbers that are given again afterwards."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])
