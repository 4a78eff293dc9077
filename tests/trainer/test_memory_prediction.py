"""Predicted memory against what PyTorch allocates, and what the prediction says of checkpointing, batches and cards."""

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from toy import toy_tokenizer
from typer.testing import CliRunner

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.cli.app import app
from admin_nmt.cli.bundled import find_file
from admin_nmt.data.batching import Seq2SeqCollator
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.runs.memory_table import memory_rows, model_config
from admin_nmt.runs.preparation import prepare
from admin_nmt.runs.recipe import Recipe, load_recipe
from admin_nmt.trainer.memory_prediction import (
    BatchShape,
    LiveStorages,
    fits,
    largest_shapes,
    optimizer_cost,
    planned_shapes,
    predict_memory,
    worst_shape,
)

SHAPE = BatchShape(4, 32, 32)


def arguments(**fields) -> AdminTrainingArguments:
    return AdminTrainingArguments("unused", use_cpu=True, report_to="none", **fields)


SHORT, LONG = BatchShape(64, 16, 16), BatchShape(8, 128, 128)


@dataclass
class Case:
    """A small model and batch on which a prediction is compared with a measurement."""

    name: str
    model: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    shape: BatchShape = field(default_factory=lambda: SHORT)
    attention: str = "sdpa"


def small(encoder_layers: int, decoder_layers: int, vocab_size: int, width: int = 128, **fields: Any) -> dict[str, Any]:
    """Fields of a model whose feed-forward sublayers are four times as wide."""
    sizes = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers, "vocab_size": vocab_size}
    wide = {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}
    return sizes | wide | {"d_model": width, "max_position_embeddings": 256} | fields


CHECKPOINTED = {"activation_checkpointing": True}
EVERY_3RD = CHECKPOINTED | {"activation_checkpointing_kwargs": {"every_n_layers": 3}}
CASES = [
    Case("admin 6-6, V 1,000", small(6, 6, 1000)),
    Case("admin 6-6, V 1,000, eager, long", small(6, 6, 1000), shape=LONG, attention="eager"),
    Case("admin 6-6, V 20,000", small(6, 6, 20_000)),
    Case("admin 12-4, V 1,000, checkpointed", small(12, 4, 1000, variant="admin"), CHECKPOINTED, LONG),
    Case("admin 12-4, V 1,000, every 3rd checkpointed", small(12, 4, 1000), EVERY_3RD, LONG),
    Case("pre_ln 12-3, V 20,000, Adam", small(12, 3, 20_000, variant="pre_ln"), {"optimizer": "adam"}, LONG),
    Case("pre_ln 12-3, V 1,000, bf16 autocast", small(12, 3, 1000, variant="pre_ln"), {"bf16": True}, LONG),
    Case("dlcl_pre_ln 12-3, V 1,000", small(12, 3, 1000, variant="dlcl_pre_ln"), shape=LONG),
    Case("dlcl_post_ln 12-3, V 1,000, checkpointed", small(12, 3, 1000, variant="dlcl_post_ln"), CHECKPOINTED, LONG),
    Case("admin 6-6, V 1,000, two accumulated", small(6, 6, 1000), {"gradient_accumulation_steps": 2}, LONG),
    Case("admin 6-6, V 1,000, bf16 parameters", small(6, 6, 1000, dtype="bfloat16"), shape=LONG),
]


class PaddedCollator(Seq2SeqCollator):
    """Hides the last token of one source: without padding attention gets no mask, which real batches need."""

    def __call__(self, pairs: Any) -> dict[str, Any]:
        batch = super().__call__(pairs)
        batch["attention_mask"][0, -1] = 0
        return batch


def assert_predicted(case: Case, folder: Path) -> None:
    """Three updates, after which the optimizer has all that it keeps, under PyTorch's profiler."""
    shape, quiet = case.shape, {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
    tokens = shape.sentences * max(shape.source, shape.target)
    fields = quiet | {"max_tokens": tokens, "profile_tokens": tokens, "max_steps": 3, "bf16": False} | case.training
    args = AdminTrainingArguments(str(folder), use_cpu=True, report_to="none", **fields)
    config = AdminConfig(**case.model)
    predicted = predict_memory(config, args, shape, case.attention).peak
    model = AdminForConditionalGeneration._from_config(config, attn_implementation=case.attention)
    live = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    row = {"input_ids": [5] * shape.source, "labels": [5] * shape.target}
    row |= {"source_length": shape.source, "target_length": shape.target}
    rows = [row] * (shape.sentences * args.max_steps * args.gradient_accumulation_steps)
    collator = PaddedCollator(config.pad_token_id)
    trainer = AdminTrainer(model, args, train_dataset=Dataset.from_list(rows), data_collator=collator)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        trainer.train()
    peak = live
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    assert predicted == pytest.approx(peak, rel=0.05)


@pytest.mark.parametrize(
    "case",
    [
        Case("plain", small(2, 1, 300, width=32), shape=SHAPE),
        Case("checkpointed", small(3, 1, 300, 32), {"activation_checkpointing": True}, SHAPE),
        Case("DLCL", small(2, 1, 300, 32, variant="dlcl_pre_ln"), {"optimizer": "adam"}, SHAPE, "eager"),
        Case("ReZero", small(2, 1, 300, 32, variant="rezero"), {"optimizer": "adam"}, SHAPE, "eager"),
        Case("transparent", small(3, 2, 300, 32, variant="transparent_post_ln"), shape=SHAPE),
    ],
    ids=lambda case: case.name,
)
def test_predicts_what_training_allocates(case, tmp_path):
    assert_predicted(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_predicts_what_larger_models_allocate(case, tmp_path):
    assert_predicted(case, tmp_path)


@pytest.mark.slow
def test_60_12_fits_16_gb_where_the_papers_trained_it():
    config = AdminConfig(variant="admin", encoder_layers=60, decoder_layers=12, vocab_size=44_512)
    memory = predict_memory(config, arguments(max_tokens=3584, activation_checkpointing=True), BatchShape(14, 256, 256))
    assert fits(memory.distributed_peak, 16)


def test_storages_count_once_and_while_they_live():
    with LiveStorages() as memory:
        kept = torch.zeros(100)
        view = kept.view(10, 10)[2:]
        dropped = torch.ones(50, dtype=torch.float64)
        assert memory.live == 800
        del dropped
        view += 1
        assert (memory.live, memory.peak) == (400, 800)
        del kept
        assert memory.live == 400
        del view
        assert memory.live == 0
        memory.restart()
        assert memory.peak == 0


def test_checkpointing_leaves_fewer_activations():
    def activations(every: int | None) -> int:
        kwargs = {"every_n_layers": every}
        args = arguments(activation_checkpointing=every is not None, activation_checkpointing_kwargs=every and kwargs)
        return predict_memory(AdminConfig(**small(4, 2, 300, 32)), args, SHAPE).activations

    found = [activations(every) for every in (None, 3, 2, 1)]
    assert all(more > less for more, less in pairwise(found))


def test_accumulation_keeps_gradients_through_the_forward_pass():
    config = AdminConfig(**small(1, 1, 300, 32))
    memory = predict_memory(config, arguments(), SHAPE)
    accumulated = predict_memory(config, arguments(gradient_accumulation_steps=2), SHAPE)
    assert memory.step < accumulated.step <= memory.step + memory.gradients
    assert memory.distributed_peak == memory.peak + memory.gradients


def test_precision():
    config = AdminConfig(**small(2, 1, 300, 32))
    full, autocast = (predict_memory(config, arguments(bf16=bf16), SHAPE) for bf16 in (False, True))
    assert autocast.activations < full.activations
    assert (autocast.parameters, autocast.optimizer) == (full.parameters, full.optimizer)
    half = predict_memory(AdminConfig(**small(2, 1, 300, 32, dtype="bfloat16")), arguments(), SHAPE)
    assert half.optimizer == pytest.approx(full.optimizer / 2, rel=1e-3)


def test_parameters_count_once_though_they_are_shared():
    config = AdminConfig(**small(1, 1, 5000, 32))
    memory = predict_memory(config, arguments(), SHAPE)
    assert 5000 * 32 * 4 < memory.gradients < 2 * 5000 * 32 * 4


def test_optimizers_keep_two_moments():
    for optimizer in ("radam", "adam"):
        states, temporaries = optimizer_cost(arguments(optimizer=optimizer), torch.float32)
        assert states == pytest.approx(2, abs=0.01)
        assert 0 <= temporaries <= 2


def test_offloading_is_not_predicted():
    with pytest.raises(ValueError, match="activation_checkpointing_kwargs has offload"):
        args = arguments(activation_checkpointing=True, activation_checkpointing_kwargs={"offload": True})
        predict_memory(AdminConfig(**small(1, 1, 300, 32)), args, SHAPE)


def test_adversarial_training_is_not_predicted():
    """Two more passes, and logits as a whole."""
    with pytest.raises(ValueError, match=r"adversarial_weight is 0.5; the memory of its passes is not predicted"):
        predict_memory(AdminConfig(**small(1, 1, 300, 32)), arguments(adversarial_weight=0.5), SHAPE)


# Batches


@given(max_tokens=st.integers(1, 10_000), longest=st.integers(1, 1000))
def test_largest_batches_keep_to_the_budget(max_tokens, longest):
    shapes = largest_shapes(max_tokens, longest)
    assert any(shape.source == min(longest, max_tokens) for shape in shapes)
    for shape in shapes:
        assert shape.sentences >= 1
        assert shape.source == shape.target <= longest
        assert max_tokens - shape.source < shape.sentences * shape.source <= max_tokens


def test_planned_batches_that_cost_most():
    assert planned_shapes({(3, 2, 2), (1, 9, 9), (1, 2, 2)}) == [BatchShape(1, 9, 9)]
    assert set(planned_shapes({(9, 2, 2), (1, 9, 9)})) == {BatchShape(9, 2, 2), BatchShape(1, 9, 9)}


def test_long_sentences_are_worse_for_eager_attention():
    config = AdminConfig(**small(1, 1, 300, 32, encoder_attention_heads=8))
    few, many = BatchShape(2, 240, 240), BatchShape(60, 8, 8)
    assert worst_shape(config, arguments(), [few, many], "eager") == few
    steps = [predict_memory(config, arguments(), few, name).step for name in ("eager", "sdpa")]
    assert steps[0] > 1.5 * steps[1]


# Cards and the command


def test_cards_keep_a_margin():
    assert fits(13e9, 16)
    assert not fits(15e9, 16)


RECIPE = """
output_dir: runs/small
data: {builtin: phrasebook, max_length: 32}
tokenizer: {vocab_size: 300}
model: {encoder_layers: 1, decoder_layers: 1, d_model: 32, encoder_ffn_dim: 64, decoder_ffn_dim: 64}
training: {max_tokens: 128}
"""


def test_command(tmp_path):
    recipe = tmp_path / "small.yaml"
    recipe.write_text(RECIPE)
    command = ["memory", str(recipe), "--training.max_tokens", "64"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "| small | float32 | none | 2 × 32/32 | 300 |" in result.stdout
    assert result.stdout.splitlines()[-1].endswith(" yes |") and "not measured" in result.stderr


def recipe_of(tmp_path, tokenizer: dict, *overrides: str) -> Recipe:
    (tmp_path / "small.yaml").write_text(RECIPE)
    places = ["--tokenizer", json.dumps(tokenizer), "--data.cache_dir", str(tmp_path / "cache")]
    return load_recipe(tmp_path / "small.yaml", [*places, *overrides])


def test_the_vocabulary_is_that_of_the_tokenizers_in_a_folder(tmp_path):
    save_tokenizers(tmp_path / "joint", toy_tokenizer(vocab_size=290))
    save_tokenizers(tmp_path / "two", toy_tokenizer(vocab_size=280), toy_tokenizer(1, vocab_size=270))
    joint, two = (recipe_of(tmp_path, {"path": str(tmp_path / name)}) for name in ("joint", "two"))
    assert [row["V"] for recipe in (joint, two) for row in memory_rows(recipe)] == ["290", "280/270"]
    config = model_config(two)
    assert (config.vocab_size, config.decoder_vocab_size) == (280, 270)
    assert [model_config(recipe).share_encoder_decoder_embeddings for recipe in (joint, two)] == [True, False]


def test_the_vocabulary_is_that_of_the_model_to_start_from(tmp_path):
    AdminConfig(**small(1, 1, 285, 32)).save_pretrained(tmp_path / "final")
    overrides = ["--model", f"{{from_pretrained: {tmp_path / 'final'}}}"]
    start = recipe_of(tmp_path, {"path": str(tmp_path / "absent")}, *overrides)
    assert model_config(start).vocab_size == 285


def test_prepared_data_tells_the_size_that_the_vocabulary_reached(tmp_path):
    """The words of the phrasebook are too few for the size asked for."""
    recipe = recipe_of(tmp_path, {"vocab_size": 20_000})
    prepared = prepare(recipe, num_proc=1)
    size = len(prepared.source_tokenizer)
    assert size < 20_000
    assert model_config(recipe, prepared).vocab_size == size


def test_a_model_to_start_from_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"^model\.from_pretrained: .*nowhere"):
        model_config(load_recipe(find_file("phrasebook", "recipes"), ["--model", "{from_pretrained: /nowhere}"]))
