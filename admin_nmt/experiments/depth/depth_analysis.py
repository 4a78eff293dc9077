"""Analysis of why depth makes training hard: how much each sublayer depends on its residual branch, and the effect.

Source: Liu, Liu et al. 2020, *Understanding the Difficulty of Training Transformers*, sections 4.1 and 4.2. The output
of sublayer i is x̂_i = Σ_{j≤i} β_ij â_j, where â_j is the output of sublayer j's function scaled to variance 1, â_0 the
embedding, and Σ_j β_ij² = 1. A small change of the weights changes the output by about Σ_i β_ii² times a constant: of
order N sublayers for post-LN, of order log N for ADMIN and pre-LN.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import cast

import torch
from torch import Tensor, nn

from ...model.dlcl import NoHistory
from ...model.layers import AdminLayer
from ...model.loss import IGNORED
from ...model.modeling_admin import AdminForConditionalGeneration, AdminStack
from ...model.residual import AdminPostNorm, PostNorm, Residual
from ...model.rivals import BottomToTop
from ...weights.evaluation_mode import evaluation_mode

Batch = Mapping[str, Tensor]
ADAM_EPS = 1e-8


@torch.no_grad()
def branch_deviations(model: AdminForConditionalGeneration, batch: Batch) -> dict[str, list[float]]:
    """Standard deviation of the embedding and of each sublayer's f_i over the non-padding positions of a batch.

    Args:
        batch: `input_ids` [B, S], `attention_mask` [B, S] and `labels` [B, T], −100 at padding.

    Returns:
        n + 1 numbers of each stack: {"encoder": [...], "decoder": [...]}; in evaluation mode, without dropout.
    """
    deviations: dict[str, list[float]] = {"encoder": [], "decoder": []}
    masks = token_masks(batch)
    with ExitStack() as hooks:
        for name, stack in stacks_of(model).items():
            # What leaves the dropout is what is added to the skip connection.
            for module in (stack.embed_dropout, *(block.dropout for block in stack.residual_blocks())):

                def record(module: nn.Module, args: tuple, output: Tensor, name: str = name) -> None:
                    deviations[name].append(output[masks[name]].double().std(correction=0).item())

                hooks.callback(module.register_forward_hook(record).remove)
        output_states(model, batch)
    return deviations


@torch.no_grad()
def dependencies(model: AdminForConditionalGeneration, batch: Batch) -> dict[str, Tensor]:
    """β_ij of each stack, taking the branches for independent of each other, as the paper does.

    Returns:
        {"encoder": [n, n + 1], "decoder": [n, n + 1]}, float64: row i − 1 is the output of sublayer i, column 0 the
        embedding; the squares of a row sum to 1.
    """
    deviations = branch_deviations(model, batch)
    return {name: _stack_dependencies(stack, deviations[name]) for name, stack in stacks_of(model).items()}


def _stack_dependencies(stack: AdminStack, deviations: list[float]) -> Tensor:
    """Runs the stack on coefficients instead of states: a sum stays a sum, a LayerNorm divides by the norm."""
    branches = torch.diag(torch.tensor(deviations, dtype=torch.float64))
    outputs, index = [], 0
    history = [branches[0]]
    for row, layer in enumerate(stack.layers):
        x = layer_input = _combine(stack, history, row)
        for sublayer in cast(AdminLayer, layer).sublayers():
            block, index = sublayer.block, index + 1
            x = _skip(block, x, layer_input) + branches[index]
            if isinstance(block, PostNorm) and not stack.config.normalizes_before:
                x = _normalize(block.layer_norm, x)
            outputs.append(x / x.norm())
        history.append(x)
    return torch.stack(outputs)


def _skip(block: Residual, x: Tensor, layer_input: Tensor) -> Tensor:
    """The summand of a block beside its sublayer's output."""
    x = skip_factor(block) * x
    return layer_input + x if isinstance(block, BottomToTop) else x


def skip_factor(block: Residual) -> float:
    """The number that stands for ω of a block, its root mean square over features; 1 without ω."""
    return block.omega.double().square().mean().sqrt().item() if isinstance(block, AdminPostNorm) else 1.0


def _normalize(layer_norm: nn.Module, x: Tensor) -> Tensor:
    """LayerNorm on coefficients; where it is switched off, nothing."""
    if not isinstance(layer_norm, nn.LayerNorm):
        return x
    return x / x.norm() * layer_norm.weight.double().square().mean().sqrt()


def _combine(stack: AdminStack, history: list[Tensor], row: int) -> Tensor:
    """The input of layer `row` from the outputs of all earlier ones."""
    if isinstance(stack.history, NoHistory):
        return history[-1]
    norms = stack.history.layer_norms
    if stack.config.normalizes_before:
        history = history[:1] + [_normalize(norm, y) for norm, y in zip(norms, history[1:], strict=False)]
    x = stack.history.current_weight()[row, : row + 1].double() @ torch.stack(history)
    return x if stack.config.normalizes_before or row == 0 else _normalize(norms[row - 1], x)


@torch.no_grad()
def output_change(
    model: AdminForConditionalGeneration, changed: AdminForConditionalGeneration, batch: Batch
) -> dict[str, float]:
    """Mean squared difference, over elements at non-padding positions, of what the stacks of two models put out."""
    before, after = output_states(model, batch), output_states(changed, batch)
    return {name: (after[name] - before[name]).double().square().mean().item() for name in before}


@torch.no_grad()
def perturbed(model: AdminForConditionalGeneration, scale: float, seed: int) -> AdminForConditionalGeneration:
    """A copy whose sublayer matrices have Gaussian noise of `scale` times their own standard deviation added."""
    changed = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for weight in _matrices(changed):
        weight.add_(torch.randn(weight.shape, generator=generator), alpha=scale * weight.std().item())
    return changed


def updated(model: AdminForConditionalGeneration, batch: Batch, learning_rate: float) -> AdminForConditionalGeneration:
    """A copy whose sublayer matrices have taken Adam's first update on a batch: `learning_rate` · g / (|g| + 1e-8)."""
    changed = copy.deepcopy(model)
    changed.zero_grad()
    with evaluation_mode(changed):
        changed(**batch).loss.backward()
    with torch.no_grad():
        for weight in _matrices(changed):
            if (gradient := weight.grad) is not None:
                weight.sub_(gradient / (gradient.abs() + ADAM_EPS), alpha=learning_rate)
    changed.zero_grad()
    return changed


def _matrices(model: AdminForConditionalGeneration) -> Iterator[Tensor]:
    """The weight matrices of all sublayers."""
    for stack in stacks_of(model).values():
        for module in stack.layers.modules():
            if isinstance(module, nn.Linear):
                yield module.weight


def stacks_of(model: AdminForConditionalGeneration) -> dict[str, AdminStack]:
    """The two stacks by their names."""
    return {"encoder": model.model.encoder, "decoder": model.model.decoder}


def token_masks(batch: Batch) -> dict[str, Tensor]:
    """True at the non-padding positions of each stack: [B, S] and [B, T]."""
    return {"encoder": batch["attention_mask"].bool(), "decoder": batch["labels"] != IGNORED}


def output_states(model: AdminForConditionalGeneration, batch: Batch) -> dict[str, Tensor]:
    """Outputs of the two stacks at the non-padding positions, [tokens, d], in evaluation mode."""
    ids, masks = model.prepare_decoder_input_ids_from_labels(batch["labels"]), token_masks(batch)
    with evaluation_mode(model):
        outputs = model.model(batch["input_ids"], batch["attention_mask"], ids, use_cache=False)
    return {
        "encoder": outputs.encoder_last_hidden_state[masks["encoder"]],
        "decoder": outputs.last_hidden_state[masks["decoder"]],
    }
