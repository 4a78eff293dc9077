"""Arguments that make no sense, or that `AdminTrainer` has no use for, are refused at once."""

import math

import pytest
import torch
from datasets import IterableDataset
from toy import random_ids, text_pairs
from transformers import Seq2SeqTrainingArguments

from admin_nmt import AdminTrainer, AdminTrainingArguments
from admin_nmt.trainer import arguments as arguments_module
from admin_nmt.trainer.arguments import optimizer_settings
from admin_nmt.trainer.optimizers.fused_radam import FusedRAdam
from admin_nmt.trainer.optimizers.master_weights import MOST_ACCUMULATED
from admin_nmt.trainer.precision_and_attention import precision


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"optimizer": "sgd"}, "optimizer"),
        ({"generation_length_penalty": math.nan}, "generation_length_penalty"),
        ({"activation_checkpointing": "on"}, "activation_checkpointing"),
        ({"compile_layers": True, "torch_compile": True}, "torch_compile"),
        ({"deepspeed": {"zero_optimization": {"stage": 2}}}, "deepspeed"),
        ({"master_weights": True, "fp16": True}, "fp16"),
        ({"master_weights": True, "adversarial_weight": 1.0}, "adversarial_weight"),
        ({"master_weights": True, "gradient_accumulation_steps": MOST_ACCUMULATED + 1}, "gradient_accumulation_steps"),
    ],
    ids=str,
)
def test_values_that_make_no_sense(arguments, fields, word):
    with pytest.raises(ValueError, match=word):
        arguments(**fields)


def test_deepspeed_in_the_environment(arguments, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ValueError, match="deepspeed"):
        arguments()


@pytest.mark.parametrize(
    ("fields", "given", "kind", "word"),
    [
        ({"per_device_train_batch_size": 2}, {}, ValueError, "per_device_train_batch_size"),
        ({"optim": "adafactor"}, {}, ValueError, "optim"),
        ({"include_for_metrics": ["loss"]}, {}, ValueError, "include_for_metrics"),
        ({}, {"compute_metrics": lambda *given: {}}, ValueError, "compute_metrics"),
        ({}, {"train_dataset": [{"input_ids": [5, 0], "labels": [6, 0]}]}, TypeError, "train_dataset"),
        ({}, {"eval_dataset": {"news": [{"input_ids": [5, 0]}]}}, TypeError, "eval_dataset"),
        ({}, {"train_dataset": IterableDataset.from_generator(lambda: iter([]))}, TypeError, "train_dataset.*stream"),
        ({}, {"train_dataset": random_ids(4).select([])}, ValueError, "train_dataset"),
        ({"label_smoothing_factor": 0.1}, {}, ValueError, "label_smoothing"),
    ],
)
def test_what_a_trainer_has_no_use_for(tiny_model, arguments, fields, given, kind, word):
    with pytest.raises(kind, match=word):
        AdminTrainer(tiny_model(), arguments(**fields), **given)


def test_a_trainer_that_cannot_train(tiny_model, arguments, tmp_path):
    with pytest.raises(TypeError, match="Seq2SeqTrainingArguments"):
        AdminTrainer(tiny_model(), Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True))
    with pytest.raises(ValueError, match="train_dataset"):
        AdminTrainer(tiny_model(), arguments()).train()
    args = arguments()
    args._n_gpu = 2
    with pytest.raises(ValueError, match="2 GPUs"):
        AdminTrainer(tiny_model(), args)


def test_bleu_without_text_or_tokenizer(tiny_model, arguments, tokenizer):
    """Before the updates, not at the first evaluation."""
    args = arguments(eval_bleu=True, eval_strategy="steps", eval_steps=5)
    data, text = random_ids(4), text_pairs(tokenizer, 4)
    for evaluated in (data, {"a": data}):
        with pytest.raises(ValueError, match="eval_dataset: has no column target"):
            AdminTrainer(tiny_model(), args, processing_class=tokenizer, train_dataset=data, eval_dataset=evaluated)
    with pytest.raises(ValueError, match="processing_class"):
        AdminTrainer(tiny_model(), args, train_dataset=text, eval_dataset=text)


def test_a_loss_of_ones_own(tiny_model, arguments):
    """The Trainer takes the labels away for it, so that the batches need what the decoder reads."""
    given: list[torch.Tensor] = []

    def loss(outputs, labels, num_items_in_batch=None):
        given.append(outputs.logits)
        return torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())

    AdminTrainer(tiny_model(), arguments(max_steps=2), train_dataset=random_ids(12), compute_loss_func=loss).train()
    assert len(given) == 2


def test_a_lower_perplexity_is_better(arguments):
    for name, better in (("eval_perplexity", False), ("perplexity", False), ("eval_loss", False), ("eval_bleu", True)):
        assert arguments(metric_for_best_model=name).greater_is_better is better
    assert arguments(metric_for_best_model="eval_perplexity", greater_is_better=True).greater_is_better


def test_the_precision_of_accelerates_configuration_is_taken_for_what_it_is(arguments, tiny_config, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert precision(arguments(), tiny_config()) == "bfloat16"
    refused = arguments(bf16=False)
    assert precision(refused, tiny_config()) == "float32" and refused.mixed_precision == "no"


@pytest.mark.parametrize(("fields", "expected"), [({}, True), ({"bf16": True}, None), ({"tf32": False}, False)])
def test_float32_means_tf32_where_there_is_such_a_gpu(arguments, monkeypatch, fields, expected):
    set_to = []
    monkeypatch.setattr(arguments_module, "is_torch_tf32_available", lambda: True)
    monkeypatch.setattr(arguments_module, "enable_tf32", set_to.append)
    assert arguments(**fields).tf32 is expected
    assert set_to == ([True] if expected else [])


@pytest.mark.parametrize(("device", "kind"), [("cpu", FusedRAdam), ("cuda", FusedRAdam), ("mps", torch.optim.RAdam)])
def test_radam_is_fused_where_there_is_a_kernel(arguments, monkeypatch, device, kind):
    args = arguments()
    monkeypatch.setattr(AdminTrainingArguments, "device", torch.device(device))
    assert optimizer_settings(args)[0] is kind


def test_nothing_is_reported_unasked(tmp_path):
    assert AdminTrainingArguments(str(tmp_path)).report_to == []
