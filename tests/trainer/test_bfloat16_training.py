"""Trainings in bfloat16 with float32 master weights: precision, checkpoints, evaluations, refusals."""

import json
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file
from toy import StopAfter, random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.divergence import DivergedError
from admin_nmt.trainer.memory_prediction import BatchShape, predict_memory
from admin_nmt.trainer.optimizers.master_weights import MOST_ACCUMULATED

DATA = random_ids(60)


@pytest.fixture
def arguments(tmp_path) -> Callable[..., AdminTrainingArguments]:
    def build(folder: str = "run", **fields) -> AdminTrainingArguments:
        small = {"output_dir": str(tmp_path / folder), "max_tokens": 60, "profile_tokens": 60, "max_steps": 6}
        quiet = {"eval_bleu": False, "disable_tqdm": True, "use_cpu": True, "report_to": "none"}
        usual = {"warmup_steps": 2, "save_strategy": "no", "master_weights": True}
        return AdminTrainingArguments(**small | quiet | usual | fields)

    return build


@pytest.fixture
def trainer(tiny_config, arguments) -> Callable[..., AdminTrainer]:
    def build(*callbacks, folder: str = "run", **fields) -> AdminTrainer:
        torch.manual_seed(1)
        model = AdminForConditionalGeneration(tiny_config(dropout=0.1))
        given = {"train_dataset": DATA, "eval_dataset": DATA.select(range(9)), "callbacks": list(callbacks)}
        return AdminTrainer(model, arguments(folder, **fields), **given)

    return build


def seen_types(trainer: AdminTrainer) -> dict[bool, set[torch.dtype]]:
    """The types of the residual stream, in training and not, while a trainer is at work."""
    found: dict[bool, set[torch.dtype]] = {True: set(), False: set()}
    for block in trainer.model.model.encoder.residual_blocks():
        block.register_forward_hook(lambda module, args, output: found[module.training].add(output.dtype))
    return found


def test_trains_in_bfloat16_and_evaluates_in_float32(trainer):
    run = trainer(eval_strategy="steps", eval_steps=3)
    run.train()  # which measures ω
    found = seen_types(run)
    run.train()
    assert found == {True: {torch.bfloat16}, False: {torch.float32}}
    assert run.precisions == ["bfloat16 with float32 master weights"]
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("optimizer", ["radam", "adam"])
def test_goes_on_bit_for_bit_from_float32_weights(trainer, tmp_path, optimizer):
    fields = {"save_strategy": "steps", "save_steps": 3, "optimizer": optimizer}
    whole = trainer(folder="whole", **fields)
    whole.train()
    trainer(StopAfter(3), folder="part", **fields).train()
    part = trainer(folder="part", **fields)
    part.train(resume_from_checkpoint=True)
    expected, found = whole.model.state_dict(), part.model.state_dict()
    assert all(found[name].equal(tensor) for name, tensor in expected.items())
    checkpoint = tmp_path / "whole" / "checkpoint-6"
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        assert tensor.equal(expected[name])
        assert tensor.dtype == torch.float32
    assert json.loads((checkpoint / "config.json").read_text())["dtype"] == "float32"


def test_ends_with_the_best_weights(trainer):
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}
    run = trainer(eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, max_steps=3, **best)
    run.train()
    saved = load_file(f"{run.state.best_model_checkpoint}/model.safetensors")
    weights = run.model.state_dict()
    assert run.state.best_global_step < 3
    assert all(weights[name].equal(tensor) for name, tensor in saved.items())


def test_stops_before_an_update_that_is_not_finite(trainer):
    run = trainer()

    def spoil(module, inputs, output):
        return output * float("nan") if run.state.global_step == 3 and module.training else output

    run.model.model.encoder.layers[0].fc1.register_forward_hook(spoil)
    with pytest.raises(DivergedError, match="update 4"):
        run.train()
    assert all(p.isfinite().all() and p.dtype == torch.float32 for p in run.model.parameters())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fp16": True}, "master_weights and fp16"),
        ({"adversarial_weight": 1.0}, "master_weights and adversarial_weight"),
        ({"gradient_accumulation_steps": MOST_ACCUMULATED + 1}, "at most 16; make max_tokens larger"),
    ],
)
def test_refusals(arguments, fields, message):
    with pytest.raises(ValueError, match=message):
        arguments(**fields)


def test_its_memory_is_not_predicted(arguments, tiny_config):
    with pytest.raises(ValueError, match="master_weights is set"):
        predict_memory(tiny_config(), arguments(), BatchShape(2, 3, 4))
