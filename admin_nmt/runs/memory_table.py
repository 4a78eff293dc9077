"""A table of the peak memory that training recipes is predicted to take."""

import copy
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from ..data.tokenization.tokenizer_folder import load_tokenizers
from ..data.tokenized_pairs import survey
from ..model.configuration_admin import AdminConfig
from ..system.errors import refusing_code
from ..trainer.arguments import AdminTrainingArguments
from ..trainer.memory_prediction import (
    CONTEXT_BYTES,
    FRAGMENTATION,
    BatchShape,
    fits,
    largest_shapes,
    planned_shapes,
    predict_memory,
    worst_shape,
)
from .preparation import Prepared, model_folder
from .recipe import Recipe
from .training_run import training_arguments

NOTE = (
    "Predicted, not measured, in GB of 10⁹ bytes. A card is large enough if it holds the peak under DDP times "
    f"{FRAGMENTATION:.1f}, for fragmentation, and {CONTEXT_BYTES / 1e9:.1f} GB for the driver: both are assumed. "
    "V is the size of the vocabulary; of one that is yet to be made it is what the recipe says, or assumed."
)
CARDS = (16, 24, 40, 80)


def model_config(recipe: Recipe, prepared: Prepared | None = None) -> AdminConfig:
    """The configuration of a recipe's model, with the vocabulary that its tokenizers have or are to have."""
    fields, start, path = recipe.model.configuration(), recipe.model.from_pretrained, recipe.tokenizer.path
    if start is not None:
        with refusing_code(start):
            folder = model_folder(start, "model.from_pretrained")
            return AutoConfig.from_pretrained(folder, trust_remote_code=False, **fields)
    sizes: dict[str, Any] = {"vocab_size": recipe.tokenizer.expected}
    joint = recipe.tokenizer.joint
    if prepared is not None or (path is not None and Path(path).is_dir()):
        existing = (prepared.source_tokenizer, prepared.target_tokenizer) if prepared else load_tokenizers(str(path))
        sizes = {"vocab_size": len(existing[0]), "decoder_vocab_size": len(existing[1])}
        joint = existing[0] is existing[1]
    return AdminConfig(**sizes, **{"share_encoder_decoder_embeddings": joint} | fields)


def worst_batch(
    recipe: Recipe, config: AdminConfig, args: AdminTrainingArguments, prepared: Prepared | None
) -> BatchShape:
    """The batch of a recipe that needs most memory: of its prepared data, or of sentences as long as it allows."""
    if prepared is not None:
        shapes = planned_shapes(survey(prepared.data["train"], args.max_tokens, seed=0).shapes)
    else:
        longest = min(recipe.data.max_length or config.max_position_embeddings, config.max_position_embeddings)
        shapes = largest_shapes(args.max_tokens, longest)
    return worst_shape(config, args, shapes, recipe.model.attn_implementation)


def memory_rows(recipe: Recipe, prepared: Prepared | None = None) -> Iterator[dict[str, Any]]:
    """The row of a recipe, or two where activation checkpointing is chosen by the card; in GB of 10⁹ bytes.

    Args:
        prepared: data that tell the lengths of sentences and the vocabulary; default: the recipe's limits.
    """
    args, config = training_arguments(recipe), model_config(recipe, prepared)
    args.bf16 = bool(args.bf16)  # as on a GPU, though this machine may have none
    shape = worst_batch(recipe, config, args, prepared)
    half = next((f"{kind} autocast" for kind in ("bf16", "fp16") if getattr(args, kind)), None)
    sizes = dict.fromkeys([config.vocab_size, config.decoder_vocab_size or config.vocab_size])
    vocabulary = "/".join(f"{size:,}" for size in sizes)
    for checkpointed in (False, True) if args.activation_checkpointing == "auto" else (args.activation_checkpointing,):
        args = copy.copy(args)
        args.activation_checkpointing = checkpointed
        memory = predict_memory(config, args, shape, recipe.model.attn_implementation)
        every = (args.activation_checkpointing_kwargs or {}).get("every_n_layers", 1)
        layers = "every layer" if every == 1 else f"every {every} layers"
        peaks = {"peak": memory.peak, "peak, DDP": memory.peak_of(2)}
        yield (
            {"recipe": Path(recipe._called).stem, "precision": half or recipe.model.dtype or "float32"}
            | {"checkpointing": layers if checkpointed else "none", "batch": str(shape)}
            | {"V": vocabulary}
            | {name: f"{size / 1e9:.2f}" for name, size in (asdict(memory) | peaks).items()}
            | {f"{card} GB": "yes" if fits(memory.peak_of(2), card) else "no" for card in CARDS}
        )
