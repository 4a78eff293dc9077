"""Gradients of the loss by sublayer, and what the equations say of them.

Source: Wang et al. 2019, section 2.2; x_l is the input of sublayer l + 1, x_L the stack's output. Post-LN (eq. 5):
∂E/∂x_l = ∂E/∂x_L × Π_k ∂LN(y_k)/∂y_k × Π_k (1 + ∂f_k/∂x_k), a product with a factor a sublayer. Pre-LN (eq. 6):
∂E/∂x_l = ∂E/∂x_L × (1 + Σ_k ∂f_k/∂x_l), which holds ∂E/∂x_L as it is, at any depth.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import PrinterCallback

from ...data.batching import Seq2SeqCollator
from ...data.phrasebook import phrasebook
from ...data.tokenization.byte_bpe import train_tokenizer
from ...data.tokenizing import tokenize
from ...model.modeling_admin import AdminForConditionalGeneration, AdminStack
from ...model.residual import PostNorm
from ...trainer.admin_trainer import AdminTrainer
from ...trainer.arguments import AdminTrainingArguments
from ...trainer.divergence import DivergedError
from ...weights.evaluation_mode import evaluation_mode
from .depth_analysis import Batch, skip_factor, stacks_of, token_masks

PAIRS = 4000  # of the phrasebook, to train on
TOKENS, RATE = 1024, 7e-4  # of a batch; peak learning rate, after half of the updates


def gradient_norms(model: AdminForConditionalGeneration, batch: Batch) -> dict[str, dict[str, list[float]]]:
    """Norms of the gradient of the mean loss of a target token, by stack.

    In evaluation mode E is the NLL; in training mode it is the smoothed loss, with dropout. Gradients that the
    parameters hold are lost.

    Args:
        batch: `input_ids` [B, S], `attention_mask` [B, S] and `labels` [B, T], −100 at padding.

    Returns:
        Of each stack of n sublayers `states`, n + 1 norms of ∂E/∂x_l over all sentences, positions and features, the
        last that of the stack's output before the final LayerNorm of pre-LN; and `matrices`, n norms of the gradient of
        all weight matrices of a sublayer. LayerNorms, ω and biases do not count, which not all variants have.
    """
    stacks = stacks_of(model)
    inputs: dict[str, list[Tensor]] = {name: [] for name in stacks}

    def keep(module: nn.Module, args: tuple, name: str) -> None:
        args[0].retain_grad()
        inputs[name].append(args[0])

    model.zero_grad()
    with ExitStack() as hooks:
        for name, stack in stacks.items():
            for module in (*stack.residual_blocks(), stack.layer_norm):  # whose first arguments are x_0, …, x_n
                hooks.callback(module.register_forward_pre_hook(partial(keep, name=name)).remove)
        model(**batch).loss.backward()
    norms = {
        name: {"states": [_norm([x]) for x in inputs[name]], "matrices": [*map(_norm, _matrices(stack))]}
        for name, stack in stacks.items()
    }
    model.zero_grad()
    return norms


def _matrices(stack: AdminStack) -> Iterator[list[Tensor]]:
    """The weight matrices of each sublayer; those of attention lie in a module of its name."""
    for layer in stack.layers:
        for sublayer in layer.sublayers():  # type: ignore[operator]
            modules = getattr(layer, sublayer.name, nn.ModuleList([*sublayer.readers, sublayer.output])).modules()
            yield [module.weight for module in modules if isinstance(module, nn.Linear)]


def _norm(weights: list[Tensor]) -> float:
    return math.sqrt(sum(w.grad.double().square().sum().item() for w in weights if w.grad is not None))


@torch.no_grad()
def skip_path(model: AdminForConditionalGeneration, batch: Batch) -> dict[str, float]:
    """Share that eq. 5 leaves of ‖∂E/∂x_0‖ / ‖∂E/∂x_L‖ in a chain if no gradient went through the branches.

    The product of ω_i / σ(y_i) over the LayerNorms after a sum y_i = ω_i x_{i−1} + f_i, σ that of a token's features;
    1 where there are none. With branches of the variance of their input it is (1/√2)^n (Xiong et al. 2020).
    """
    logs, masks = {"encoder": 0.0, "decoder": 0.0}, token_masks(batch)
    with ExitStack() as hooks, evaluation_mode(model):
        for name, stack in stacks_of(model).items():
            for block in stack.residual_blocks():
                if stack.config.normalizes_before or not isinstance(block, PostNorm):
                    continue
                omega = skip_factor(block)

                def add(module: nn.Module, args: tuple, name: str = name, omega: float = omega) -> None:
                    deviation = args[0][masks[name]].double().std(-1, correction=0)
                    logs[name] += math.log(omega) - deviation.log().mean().item()

                hooks.callback(block.layer_norm.register_forward_pre_hook(add).remove)
        model(**batch)
    return {name: math.exp(value) for name, value in logs.items()}


def phrasebook_text(sentences: int, vocabulary: int, cache: Path) -> tuple[Dataset, dict[str, Tensor]]:
    """Tokenised training pairs of the built-in phrasebook, and one held-out batch of it."""
    splits = phrasebook(PAIRS, valid=sentences, test=0)
    tokenizer = train_tokenizer([text for pair in splits["train"] for text in pair], vocabulary)
    data = {}
    for split in ("train", "valid"):
        source, target = map(list, zip(*splits[split], strict=True))
        pairs = Dataset.from_dict({"source": source, "target": target})
        data[split] = tokenize(pairs, tokenizer, tokenizer, keep_text=False, cache_dir=cache, num_proc=1)
    return data["train"], Seq2SeqCollator(tokenizer.pad_token_id)([*data["valid"]])


def train_briefly(
    model: AdminForConditionalGeneration, data: Dataset, updates: int, seed: int, folder: Path
) -> str | None:
    """Train a model as a run does, with RAdam and half of the updates as warm-up; says so if it diverged."""
    args = AdminTrainingArguments(
        output_dir=str(folder), max_steps=updates, max_tokens=TOKENS, learning_rate=RATE, warmup_steps=updates // 2,
        seed=seed, save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
        use_cpu=model.device.type == "cpu",
    )  # fmt: skip
    try:
        trainer = AdminTrainer(model, args, train_dataset=data)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    except DivergedError as error:
        return f"diverged at update {error.update}"
    finally:
        model.eval()
    return None


def study_gradients(
    new_model: Callable[[dict[str, Tensor]], AdminForConditionalGeneration],
    data: Dataset,
    batch: dict[str, Tensor],
    *,
    updates: int,
    seed: int,
    folder: Path,
) -> Iterator[dict]:
    """Gradients of a new model by sublayer on a batch, and once more after `updates`, if there are any."""
    torch.manual_seed(seed)
    model = new_model(batch)
    yield {"updates": 0} | _measured(model, batch)
    if updates:
        fault = train_briefly(model, data, updates, seed, folder)
        yield {"updates": updates} | ({"fault": fault} if fault else _measured(model, batch))


def _measured(model: AdminForConditionalGeneration, batch: dict[str, Tensor]) -> dict:
    with torch.no_grad():
        loss = model(**batch).loss.item()
    return {"nll": loss, "skip_path": skip_path(model, batch)} | gradient_norms(model, batch)
