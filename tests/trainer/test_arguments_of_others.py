"""What a user of `Seq2SeqTrainer` brings along and `AdminTrainer` has no use for is refused at once."""

import pytest
from toy import random_ids
from transformers import Seq2SeqTrainingArguments

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
def test_bleu_of_a_set_without_text(tiny_model, tmp_path, several):
    """Not after the updates before the first evaluation."""
    dataset = random_ids(4)
    args = AdminTrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps", eval_steps=5)
    with pytest.raises(ValueError, match=r"eval_dataset: has no column target.*keep_text=True, or set eval_bleu"):
        AdminTrainer(tiny_model(), args, train_dataset=dataset, eval_dataset={"a": dataset} if several else dataset)
