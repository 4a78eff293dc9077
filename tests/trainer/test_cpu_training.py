"""Precision and attention of a training on a CPU: chosen where nobody names them, and kept by a run that goes on."""

import logging
from collections.abc import Callable

import pytest
import torch
from toy import StopAfter, random_ids
from transformers import TrainerCallback

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.trainer import precision as rule
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.callbacks import PeakMemory, callback_of
from admin_nmt.trainer.memory_prediction import BatchShape, predict_memory
from admin_nmt.trainer.precision import computes_in_bfloat16

WIDE = {"d_model": 128, "omega_rule": "log_n", "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1}
DATA = random_ids(60)
NewTrainer = Callable[..., AdminTrainer]


@pytest.fixture
def fast(monkeypatch) -> Callable[[bool], None]:
    """Makes this processor one that is fast in bfloat16, or one that is not; it is to begin with."""

    def set_to(value: bool) -> None:
        monkeypatch.setattr(rule, "cpu_bfloat16_is_fast", lambda: value)

    set_to(True)
    return set_to


@pytest.fixture
def arguments(tmp_path) -> Callable[..., AdminTrainingArguments]:
    def build(folder: str = "run", **fields) -> AdminTrainingArguments:
        small = {"output_dir": str(tmp_path / folder), "max_tokens": 60, "profile_tokens": 60, "max_steps": 4}
        quiet = {"eval_bleu": False, "disable_tqdm": True, "use_cpu": True, "report_to": "none"}
        return AdminTrainingArguments(**small | {"warmup_steps": 2, "save_strategy": "no"} | quiet | fields)

    return build


@pytest.fixture
def trainer(tiny_config, arguments) -> NewTrainer:
    def build(*callbacks, folder: str = "run", model: dict | None = None, **fields):
        torch.manual_seed(1)
        made = AdminForConditionalGeneration(tiny_config(**WIDE | (model or {})))
        return AdminTrainer(made, arguments(folder, **fields), train_dataset=DATA, callbacks=list(callbacks))

    return build


def weights(trainer: AdminTrainer) -> dict[str, torch.Tensor]:
    return trainer.model.state_dict()


class KeepGradient(TrainerCallback):
    """Keeps the gradient of the last update."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def product_types(trainer: AdminTrainer, **options) -> set[torch.dtype]:
    """The types of what the linear layers of a training give."""
    found: set[torch.dtype] = set()
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Linear) and module is not trainer.model.lm_head:
            module.register_forward_hook(lambda module, args, output: found.add(output.dtype))
    trainer.train(**options)
    return found


@pytest.mark.parametrize(
    ("model", "fields", "processor", "expected"),
    [
        ({}, {}, True, torch.bfloat16),
        ({}, {}, False, torch.float32),
        ({"d_model": 64}, {}, True, torch.float32),
        ({}, {"bf16": False}, True, torch.float32),
        ({"d_model": 16}, {"bf16": True}, False, torch.bfloat16),
        ({"attn_implementation": "sdpa"}, {}, True, torch.float32),
    ],
)
def test_products_are_in_the_type_that_is_asked_for_or_pays(trainer, fast, model, fields, processor, expected):
    fast(processor)
    run = trainer(model=model, max_steps=1, **fields)
    assert product_types(run) == {expected}
    assert run.precisions == [str(expected).removeprefix("torch.")]
    assert {tensor.dtype for tensor in weights(run).values()} == {torch.float32}


def test_what_was_not_measured_with_bfloat16_stays_in_float32(tiny_config, arguments, fast):
    config = tiny_config(**WIDE, attn_implementation="eager")
    assert computes_in_bfloat16(arguments(), config)
    for fields in ({"adversarial_weight": 1.0}, {"torch_compile": True}, {"fp16": True}):
        args = arguments()
        for name, value in fields.items():
            setattr(args, name, value)
        assert not computes_in_bfloat16(args, config)
    assert not computes_in_bfloat16(arguments(), tiny_config(**WIDE, attn_implementation="eager", dtype="bfloat16"))


def test_adversarial_training_is_left_in_float32(trainer, fast):
    run = trainer(adversarial_weight=1.0, max_steps=1)
    assert product_types(run) == {torch.float32}


def test_a_gpu_chooses_as_before(tiny_config, arguments, fast, monkeypatch):
    args = arguments()
    monkeypatch.setattr(type(args), "device", torch.device("cuda"))
    assert not computes_in_bfloat16(args, tiny_config(**WIDE, attn_implementation="eager"))


@pytest.mark.parametrize(("named", "expected"), [(None, "eager"), ("sdpa", "sdpa"), ("eager", "eager")])
def test_attention_is_plain_unless_it_is_named(trainer, named, expected):
    run = trainer(model={} if named is None else {"attn_implementation": named})
    assert run.model.config._attn_implementation == expected


def test_attention_to_long_sentences_is_fused(trainer, monkeypatch):
    monkeypatch.setattr(rule, "LONGEST_PLAIN", 11)
    assert trainer().model.config._attn_implementation == "sdpa"  # there are 12 tokens


@pytest.mark.parametrize("bf16", [None, True])
def test_evaluations_are_in_float32(trainer, fast, bf16):
    """So that the scores of a training are those of the saved weights."""
    run = trainer(max_steps=1, bf16=bf16)
    run.train()
    found: set[torch.dtype] = set()
    for layer in run.model.model.encoder.layers:
        layer.fc1.register_forward_hook(lambda module, args, output: found.add(output.dtype))
    run.evaluate(DATA)
    assert found == {torch.float32}


def test_bfloat16_learns_what_float32_learns(trainer, fast):
    losses = []
    for bf16 in (True, False):
        run = trainer(bf16=bf16, max_steps=12, logging_steps=4, learning_rate=1e-3)
        run.train()
        losses.append(run.state.log_history[-2]["nll"])
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)


def gradients(trainer: AdminTrainer) -> dict[str, torch.Tensor]:
    keep = KeepGradient()
    trainer.add_callback(keep)
    trainer.train()
    return keep.gradient


@pytest.mark.parametrize("variant", ["admin", "dlcl_post_ln"])
def test_gradients_are_those_of_float32_but_for_rounding(trainer, fast, variant):
    model = {"variant": variant, "dropout": 0.0, "activation_function": "gelu"}
    found, expected = (gradients(trainer(model=model, max_steps=1, bf16=bf16)) for bf16 in (None, False))
    epsilon = torch.finfo(torch.bfloat16).eps
    whole = torch.stack([exact.norm() for exact in expected.values()]).norm()  # those of key biases are 0
    for name, exact in expected.items():
        assert (found[name] - exact).norm() <= 16 * epsilon * exact.norm() + epsilon**2 * whole, name
        assert found[name].dtype == torch.float32
    assert any(not torch.equal(found[name], exact) for name, exact in expected.items())


@pytest.mark.parametrize("fields", [{"gradient_accumulation_steps": 2}, {"activation_checkpointing": True}])
def test_accumulated_and_recomputed_gradients_are_in_bfloat16_too(trainer, fast, fields):
    run = trainer(max_steps=1, **fields)
    assert product_types(run) == {torch.bfloat16}
    if "activation_checkpointing" in fields:
        found, expected = (gradients(trainer(max_steps=1, **given)) for given in (fields, {}))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_run_that_goes_on_is_the_same_bit_for_bit(trainer, fast):
    saved = {"save_strategy": "steps", "save_steps": 2}
    straight = trainer(folder="straight", **saved)
    straight.train()
    trainer(StopAfter(2), folder="resumed", **saved).train()
    resumed = trainer(folder="resumed", **saved)
    resumed.train(resume_from_checkpoint=True)
    assert straight.precisions == resumed.precisions == ["bfloat16"]
    torch.testing.assert_close(weights(resumed), weights(straight), rtol=0, atol=0)


def test_a_run_goes_on_in_float32_on_another_processor_and_says_so(trainer, fast, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(logging.getLogger("admin_nmt.trainer.callbacks"), "warning", told.append)
    saved = {"save_strategy": "steps", "save_steps": 2}
    trainer(StopAfter(2), **saved).train()
    fast(False)
    resumed = trainer(**saved)
    assert product_types(resumed, resume_from_checkpoint=True) == {torch.float32}
    assert resumed.precisions == ["bfloat16", "float32"]
    assert told == ["this run computed in bfloat16 up to update 2; it goes on in float32"]


def test_memory_is_predicted_in_the_precision_of_the_training(tiny_config, arguments, fast):
    config, shape = tiny_config(**WIDE, attn_implementation="eager"), BatchShape(16, 16, 16)
    wanted = {bf16: predict_memory(config, arguments(bf16=bf16), shape, "eager") for bf16 in (None, True, False)}
    assert wanted[None] == wanted[True] != wanted[False]
    fast(False)
    assert predict_memory(config, arguments(), shape, "eager") == wanted[False]


def test_the_memory_of_a_run_is_that_of_all_its_legs(trainer, fast, monkeypatch):
    used = iter([7, 7, 3, 3, 3, 3, 3, 3, 3])
    monkeypatch.setattr("admin_nmt.trainer.callbacks.peak_memory", lambda device: next(used))
    saved = {"save_strategy": "steps", "save_steps": 2}
    first = trainer(StopAfter(2), **saved)
    first.train()
    resumed = trainer(**saved)
    resumed.train(resume_from_checkpoint=True)
    assert callback_of(resumed, PeakMemory).bytes() == 7
    anew = trainer(folder="anew")
    anew.train()
    assert callback_of(anew, PeakMemory).bytes() == 3
