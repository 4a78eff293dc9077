"""Predicted memory against what PyTorch allocates, and what the prediction decides: checkpointing and batches."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from toy import StopAfter, random_ids

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.data.batching import Seq2SeqCollator
from admin_nmt.trainer import memory_prediction
from admin_nmt.trainer.memory_prediction import (
    CONTEXT_BYTES,
    FRAGMENTATION,
    BatchShape,
    RunMemory,
    fits,
    largest_shapes,
    planned_shapes,
    predict_memory,
    worst_shape,
)

SHAPE = BatchShape(4, 32, 32)
DATA = random_ids(48)
MUCH = 1e12  # bytes


def args_of(**fields) -> AdminTrainingArguments:
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
        Case("checkpointed", small(3, 1, 300, 32), {"activation_checkpointing": True}, SHAPE),
        Case("DLCL", small(2, 1, 300, 32, variant="dlcl_pre_ln"), {"optimizer": "adam"}, SHAPE, "eager"),
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
    memory = predict_memory(config, args_of(max_tokens=3584, activation_checkpointing=True), BatchShape(14, 256, 256))
    assert fits(memory.peak_of(2), 16) and not fits(15e9, 16)


def test_precision_accumulation_and_shared_parameters():
    config = AdminConfig(**small(1, 1, 5000, 32))
    full, autocast = (predict_memory(config, args_of(bf16=bf16), SHAPE) for bf16 in (False, True))
    assert 5000 * 32 * 4 < full.gradients < 2 * 5000 * 32 * 4  # parameters count once though they are shared
    assert autocast.activations < full.activations
    assert (autocast.parameters, autocast.optimizer) == (full.parameters, full.optimizer)
    assert full.optimizer == pytest.approx(2 * full.gradients, rel=0.01)  # two moments
    accumulated = predict_memory(config, args_of(bf16=False, gradient_accumulation_steps=2), SHAPE)
    assert full.step < accumulated.step <= full.step + full.gradients
    assert full.peak_of(2) == full.peak + full.gradients


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"activation_checkpointing": True, "activation_checkpointing_kwargs": {"offload": True}}, "offload"),
        ({"adversarial_weight": 0.5}, "adversarial_weight"),
        ({"master_weights": True}, "master_weights"),
    ],
    ids=str,
)
def test_what_is_not_predicted(fields, word):
    with pytest.raises(ValueError, match=word):
        predict_memory(AdminConfig(**small(1, 1, 300, 32)), args_of(**fields), SHAPE)


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
    assert worst_shape(config, args_of(), [few, many], "eager") == few


# What the prediction decides


def set_free(monkeypatch, free: float, peak: float = 1e9) -> None:
    monkeypatch.setattr(memory_prediction, "free_memory", lambda device: free)
    monkeypatch.setattr(memory_prediction, "predicted_peak", lambda *given: peak)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_checkpoints_where_the_memory_is_too_small_without(new_model, arguments, monkeypatch, device):
    args = arguments(activation_checkpointing="auto", max_tokens=16_000)
    monkeypatch.setattr(type(args), "device", torch.device(device))
    memory = RunMemory(new_model(), args, DATA)
    for free, expected in ((MUCH, False), (0.0, True)):
        set_free(monkeypatch, free)
        assert memory.needs_checkpointing() is expected
    assert args.activation_checkpointing == "auto"
    args.adversarial_weight = 1.0  # whose memory nobody knows
    set_free(monkeypatch, MUCH)
    assert memory.needs_checkpointing()


def test_a_run_on_a_cpu_does_without_checkpointing_where_it_has_the_memory(new_model, arguments, monkeypatch):
    set_free(monkeypatch, MUCH)
    args = arguments(activation_checkpointing="auto", auto_micro_batch=True, max_steps=1)
    run = AdminTrainer(new_model(), args, train_dataset=DATA)
    run.train()
    assert args.activation_checkpointing is False
    assert not run.model.model.encoder.layers[0].gradient_checkpointing
    assert (args.max_tokens, args.gradient_accumulation_steps) == (40, 1)


@pytest.mark.parametrize(
    ("held", "expected"),
    [(120, (120, 1)), (60, (60, 2)), (15, (15, 8)), (1, (30, 4))],
    ids=["all", "half", "less", "no"],
)
def test_the_largest_batch_that_fits(new_model, arguments, monkeypatch, held, expected):
    """As given where nothing fits; without the checkpointing that is left to choose."""
    seen = []

    def peak(config, args, *others):
        seen.append(args.activation_checkpointing)
        return args.max_tokens

    set_free(monkeypatch, held * FRAGMENTATION + CONTEXT_BYTES + 0.01)
    monkeypatch.setattr(memory_prediction, "predicted_peak", peak)
    args = arguments(max_tokens=30, gradient_accumulation_steps=4, activation_checkpointing="auto")
    monkeypatch.setattr(type(args), "device", torch.device("cuda"))
    memory = RunMemory(new_model(), args, DATA)
    assert memory.micro_batch() == expected
    assert not any(seen) and (args.max_tokens, args.gradient_accumulation_steps) == (30, 4)
    monkeypatch.setattr(memory_prediction, "gather_objects", lambda mine: [mine, (10, 12)])
    assert memory.micro_batch() == (10, 12)  # every GPU takes those of the smallest


def test_a_run_goes_on_with_its_batches_on_another_card(new_model, arguments, monkeypatch):
    def run(*callbacks, resume: bool = False, **fields) -> AdminTrainer:
        args = arguments(auto_micro_batch=True, max_tokens=30, gradient_accumulation_steps=4, **fields)
        trainer = AdminTrainer(new_model(omega_rule="log_n"), args, train_dataset=DATA, callbacks=list(callbacks))
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    saving = {"save_strategy": "steps", "save_steps": 3}
    monkeypatch.setattr(RunMemory, "micro_batch", lambda memory: (120, 1))
    whole = run()
    run(StopAfter(3), **saving)
    monkeypatch.setattr(RunMemory, "micro_batch", lambda memory: (30, 4))
    resumed = run(resume=True, **saving)
    assert resumed.args.max_tokens == whole.args.max_tokens == 120
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
