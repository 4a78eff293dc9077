"""Virtual adversarial training: the prediction should not change where the source embeddings change a little.

The equations are those of SMART (Jiang et al. 2020, section 3.1) with one step, a form of VAT (Miyato et al. 2018). The
release of *Very Deep Transformers* (future work a) has the same projection (∞-norm of each position) and the same
defaults of its three numbers, but leaves out the step between them ("disable adv training in the release").
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..data.batching import Seq2SeqCollator
from ..model.loss import IGNORED, LabelSmoothedLoss
from .admin_trainer import AdminTrainer
from .arguments import AdminTrainingArguments

PROJECTION_EPSILON = 1e-6


def kl_divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p ‖ q), summed over the tokens, of the distributions of two tensors of logits [N, V]."""
    return F.kl_div(others.log_softmax(-1), logits.log_softmax(-1), reduction="sum", log_target=True)


def project(gradient: Tensor) -> Tensor:
    """Gradient [B, S, d] scaled to a largest entry of 1 at each position."""
    return gradient / (gradient.abs().amax(-1, keepdim=True) + PROJECTION_EPSILON)


class AdversarialTrainer(AdminTrainer):
    """Adds α·(KL(p ‖ q) + KL(q ‖ p)) to the loss, per target token, for p = p(·|x) and q = p(·|x + δ).

    x are the source's embeddings before their scaling, and δ = δ_0 + η·project(∇ KL(p ‖ p(·|x + δ_0))) with δ_0 drawn
    from N(0, σ²): the direction in which the prediction changes fastest. α, η and σ are the arguments
    `adversarial_weight`, `adversarial_step` and `adversarial_noise`. All passes of a batch drop the same units, so that
    p and q differ by δ alone. Each batch needs two more passes, and its logits exist as a whole: on a 4-4 model with a
    vocabulary of 8,000 an update took 3.5 times as long.

    Raises:
        ValueError: the model is a stock one, trains in half precision, in which δ_0 is lost, or is sharded.
    """

    def __init__(
        self, model: PreTrainedModel | None = None, args: AdminTrainingArguments | None = None, **kwargs: Any
    ) -> None:
        super().__init__(model, args, **kwargs)
        if self.args.bf16 or self.args.fp16:  # left to choose, it is float32
            raise ValueError("adversarial_weight: needs float32; leave out bf16 and fp16")
        zero = self.accelerator.state.deepspeed_plugin.zero_stage if self.is_deepspeed_enabled else 0
        if self.is_fsdp_enabled or zero == 3:  # whose weights are whole in the passes of the wrapped model alone
            raise ValueError("adversarial_weight: cannot train a model that FSDP or ZeRO-3 shards; start with DDP")

    def loss_and_collator(self) -> tuple[Any, Seq2SeqCollator]:
        """The smoothed loss of the model's logits, and batches with the decoder's input."""
        super().loss_and_collator()  # which refuses a smoothing beside the model's
        config: Any = self.model.config
        if not hasattr(config, "label_smoothing"):
            raise ValueError("adversarial_weight: is for models of this package; train an unfolded one (final/)")
        loss = LabelSmoothedLoss(config.label_smoothing, self.model.excluded_token)
        return loss, Seq2SeqCollator(config.pad_token_id, config.decoder_start_token_id)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        """The loss of the trainer plus, in training, that of the perturbed source."""
        if not model.training:  # `predict`, without gradients
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        kept = inputs["labels"] != IGNORED
        others = {name: x for name, x in inputs.items() if name not in ("labels", "input_ids")}
        unwrapped = self.accelerator.unwrap_model(model)
        embeddings = unwrapped.get_input_embeddings()(inputs["input_ids"])
        noise = self.args.adversarial_noise * torch.randn_like(embeddings)

        def logits_at(perturbed: Tensor) -> Tensor:
            return unwrapped(inputs_embeds=perturbed, **others).logits[kept].float()

        with same_dropout(noise.device):
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        logits = outputs.logits[kept].float()
        with same_dropout(noise.device):
            probe = noise.requires_grad_()
            change = kl_divergence(logits.detach(), logits_at(embeddings.detach() + probe))
            (gradient,) = torch.autograd.grad(change, probe)
        delta = noise.detach() + self.args.adversarial_step * project(gradient)
        perturbed = logits_at(embeddings + delta)
        penalty = kl_divergence(logits, perturbed) + kl_divergence(perturbed, logits)
        items = kept.sum() if num_items_in_batch is None else num_items_in_batch / self._loss_scale()
        loss = loss + self.args.adversarial_weight * penalty / items
        return (loss, outputs) if return_outputs else loss

    def _loss_scale(self) -> int:
        """By which the Trainer multiplies its loss, for DDP averages what is divided by the tokens of all processes."""
        return self.accelerator.num_processes if self.args.average_tokens_across_devices else 1


def same_dropout(device: torch.device) -> AbstractContextManager[None]:
    """Takes random numbers that are given again afterwards."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])
