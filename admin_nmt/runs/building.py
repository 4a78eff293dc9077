"""From a recipe and its prepared data to a trainer."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, EarlyStoppingCallback, set_seed
from transformers.integrations import get_reporting_integration_callbacks

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments

from ..data.tokenization.byte_bpe import check_tokenizer, load_tokenizers
from ..data.tokenization.pieces import tokenizer_digest
from ..data.tokenizing import longest_sentence
from ..system.errors import refusing_code
from ..trainer.checkpoints import complete_checkpoints, whole_checkpoints
from .preparation import Prepared
from .recipe import Recipe


def build_model(recipe: Recipe, prepared: Prepared) -> AdminForConditionalGeneration:
    """A new model of the recipe's configuration, or the one to start from."""
    settings, start = recipe.model.configuration(), recipe.model.from_pretrained
    attention = recipe.model.attn_implementation
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    if start is not None:
        with refusing_code(start):
            kind = AutoConfig.from_pretrained(start, trust_remote_code=False).model_type
        if kind != AdminConfig.model_type:
            raise ValueError(
                f"model.from_pretrained: {start} holds a {kind} model; start from an unfolded one (final/)"
            )
        with refusing_code(start):
            model = AdminForConditionalGeneration.from_pretrained(start, attn_implementation=attention, **settings)
    else:
        settings.setdefault("share_encoder_decoder_embeddings", source is target)
        config = AdminConfig(vocab_size=len(source), decoder_vocab_size=len(target), **settings)
        model = AdminForConditionalGeneration._from_config(config, attn_implementation=attention)
    check_tokenizer(source, model.config)
    check_tokenizer(target, model.config, target=True)
    if start is not None:
        _check_vocabulary(prepared, Path(start), "remove tokenizer.path, or start from the model of that tokenizer")
    for checkpoint in whole_checkpoints(reversed(complete_checkpoints(recipe.output_dir)))[0]:
        _check_vocabulary(prepared, checkpoint, "restore the training files of that run, or choose another output_dir")
    return model


def _check_vocabulary(prepared: Prepared, folder: Path, remedy: str) -> None:
    """Whether the data has the ids of the tokenizers, if any, that lie beside a model's weights."""
    if (folder / "tokenizer_config.json").exists():
        tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
        for side, own, other in zip(("source", "target"), tokenizers, load_tokenizers(folder), strict=True):
            if tokenizer_digest(own) != tokenizer_digest(other):
                raise ValueError(f"{folder} was trained with another {side} vocabulary than the data has: {remedy}")


def _check_lengths(prepared: Prepared, positions: int, max_tokens: int) -> None:
    for split in ("train", "valid"):
        if split in prepared.data:
            longest = longest_sentence(prepared.data[split])
            if longest > positions:
                raise ValueError(
                    f"data.{split}: a sentence has {longest} tokens, more than model.max_position_embeddings "
                    f"{positions}; raise that, or lower data.max_length for training sentences"
                )
            if split == "train" and longest > max_tokens:
                raise ValueError(
                    f"data.train: a sentence has {longest} tokens, more than training.max_tokens {max_tokens}; raise "
                    "that, or lower data.max_length"
                )


def _check_beams(recipe: Recipe, args: AdminTrainingArguments, vocabulary: int) -> None:
    searches = {"evaluation.num_beams": recipe.evaluation.num_beams}
    if args.eval_strategy != "no" and args.eval_bleu:
        searches["training.generation_num_beams"] = args.generation_num_beams or 1
    for name, beams in searches.items():
        if beams > vocabulary:
            raise ValueError(f"{name} is {beams}, and the vocabulary has {vocabulary} tokens; lower it")


def training_arguments(recipe: Recipe) -> AdminTrainingArguments:
    """The section `training`, on the devices of this machine.

    Raises:
        ValueError: fields of it contradict each other, or what it reports to is not installed.
    """
    settings: dict[str, Any] = {"target_language": recipe.languages[1], "use_cpu": not torch.accelerator.is_available()}
    settings["disable_tqdm"] = False  # which transformers takes from the level of its own messages
    try:
        args = AdminTrainingArguments(output_dir=recipe.output_dir, **settings | recipe.training.arguments())
    except ValueError as error:
        raise ValueError(f"{recipe._called}: training: {error}") from error
    try:
        for callback in get_reporting_integration_callbacks(args.report_to):
            callback()
    except RuntimeError as error:  # what is not installed, told here and not after hours of preparation
        raise ValueError(f"{recipe._called}: training.report_to: {error}") from error
    return args


def build_trainer(recipe: Recipe, prepared: Prepared) -> AdminTrainer:
    """The trainer of a recipe, model included, from its seed."""
    patience = recipe.training.early_stopping_patience
    args = training_arguments(recipe)
    set_seed(args.seed)
    model = build_model(recipe, prepared)
    _check_lengths(prepared, model.config.max_position_embeddings, args.max_tokens)
    _check_beams(recipe, args, len(prepared.target_tokenizer))
    return AdminTrainer(
        model,
        args,
        train_dataset=prepared.data["train"],
        eval_dataset=prepared.data.get("valid"),
        processing_class=prepared.source_tokenizer,
        target_tokenizer=prepared.target_tokenizer,
        callbacks=[] if patience is None else [EarlyStoppingCallback(patience)],
    )
