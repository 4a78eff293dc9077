"""What a user of `Seq2SeqTrainer` brings along and `AdminTrainer` has no use for is refused at once."""

import math

import pytest
import torch
from toy import random_ids, text_pairs
from transformers import GenerationConfig, Seq2SeqTrainingArguments

from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments


def test_arguments_of_another_trainer(tiny_model, tmp_path):
    with pytest.raises(TypeError, match=r"args: is a Seq2SeqTrainingArguments; give AdminTrainingArguments"):
        AdminTrainer(tiny_model(), Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True))


@pytest.mark.parametrize("name", ["compute_metrics", "preprocess_logits_for_metrics"])
def test_a_function_that_nothing_would_call(tiny_model, tmp_path, name):
    with pytest.raises(ValueError, match=f"{name}: would not be called"):
        AdminTrainer(tiny_model(), AdminTrainingArguments(str(tmp_path), use_cpu=True), **{name: lambda *given: {}})


@pytest.mark.parametrize("several", [False, True])
def test_bleu_of_a_set_without_text(tiny_model, tmp_path, tokenizer, several):
    """Not after the updates before the first evaluation."""
    dataset = random_ids(4)
    args = AdminTrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps", eval_steps=5)
    given = {"train_dataset": dataset, "eval_dataset": {"a": dataset} if several else dataset}
    with pytest.raises(ValueError, match=r"eval_dataset: has no column target.*keep_text=True, or set eval_bleu"):
        AdminTrainer(tiny_model(), args, processing_class=tokenizer, **given)


def test_bleu_without_a_tokenizer(tiny_model, tmp_path, tokenizer):
    data = text_pairs(tokenizer, 4)
    args = AdminTrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps", eval_steps=5)
    with pytest.raises(ValueError, match="processing_class: is missing; BLEU needs a tokenizer"):
        AdminTrainer(tiny_model(), args, train_dataset=data, eval_dataset=data)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("per_device_train_batch_size", 2),
        ("auto_find_batch_size", True),
        ("optim", "adafactor"),
        ("optim_args", "a=1"),
        ("train_sampling_strategy", "group_by_length"),
        ("generation_max_length", 3),
        ("generation_config", GenerationConfig(max_length=3)),
        ("predict_with_generate", True),
        ("include_for_metrics", ["loss"]),
    ],
)
def test_an_argument_that_nothing_looks_at(tiny_model, tmp_path, name, value):
    args = AdminTrainingArguments(str(tmp_path), use_cpu=True, **{name: value})
    with pytest.raises(ValueError, match=f"{name} has no effect; "):
        AdminTrainer(tiny_model(), args)


@pytest.mark.parametrize("side", ["train_dataset", "eval_dataset"])
def test_data_of_another_kind(tiny_model, tmp_path, side):
    args = AdminTrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(TypeError, match=f"{side}: is a list; give a datasets.Dataset, as `tokenize`"):
        AdminTrainer(tiny_model(), args, **{side: [{"input_ids": [5, 0], "labels": [6, 0]}]})


def test_no_data(tiny_model, tmp_path):
    args = AdminTrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match="train_dataset: holds no pair"):
        AdminTrainer(tiny_model(), args, train_dataset=random_ids(4).select([]))


def test_a_loss_of_ones_own(tiny_model, tmp_path):
    """The Trainer takes the labels away for it, so that the batches need what the decoder reads."""
    given: list[torch.Tensor] = []

    def loss(outputs, labels, num_items_in_batch=None):
        given.append(outputs.logits)
        return torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())

    args = AdminTrainingArguments(str(tmp_path), use_cpu=True, max_tokens=40, max_steps=2, save_strategy="no")
    AdminTrainer(tiny_model(), args, train_dataset=random_ids(12), compute_loss_func=loss).train()
    assert len(given) == 2


def test_deepspeed(tmp_path, monkeypatch):
    """However it is asked for."""
    with pytest.raises(ValueError, match=r"deepspeed: .*ddp\.yaml"):
        AdminTrainingArguments(str(tmp_path), use_cpu=True, deepspeed={"zero_optimization": {"stage": 2}})
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ValueError, match=r"deepspeed: .*ddp\.yaml"):
        AdminTrainingArguments(str(tmp_path), use_cpu=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", "sgd"),
        ("max_tokens", 0),
        ("generation_num_beams", 0),
        ("generation_length_penalty", math.nan),
        ("adversarial_noise", -1.0),
        ("activation_checkpointing", "on"),
    ],
)
def test_a_value_that_makes_no_sense(tmp_path, name, value):
    with pytest.raises(ValueError, match=name):
        AdminTrainingArguments(str(tmp_path), use_cpu=True, **{name: value})


def test_two_ways_to_compile(tmp_path):
    with pytest.raises(ValueError, match="torch_compile"):
        AdminTrainingArguments(str(tmp_path), use_cpu=True, compile_layers=True, torch_compile=True)
