"""Precision and attention of a training on a CPU: chosen where nobody names them, and kept by a run that goes on."""

import logging
from collections.abc import Callable

import pytest
import torch
from toy import StopAfter, last_gradient, random_ids

from admin_nmt import AdminTrainer
from admin_nmt.trainer import precision_and_attention as rule
from admin_nmt.trainer.memory_prediction import BatchShape, predict_memory
from admin_nmt.trainer.precision_and_attention import bfloat16_pays, computes_in_bfloat16, cpu_attention

WIDE = {"d_model": 128, "omega_rule": "log_n", "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1}
DATA = random_ids(24)


@pytest.fixture
def fast(monkeypatch) -> Callable[[bool], None]:
    """Makes this processor one that is fast in bfloat16, or one that is not; it is to begin with."""

    def set_to(value: bool) -> None:
        monkeypatch.setattr(rule, "cpu_bfloat16_is_fast", lambda: value)

    set_to(True)
    return set_to


@pytest.fixture
def trainer(new_model, arguments) -> Callable[..., AdminTrainer]:
    def build(*callbacks, folder: str = "run", model: dict | None = None, **fields):
        args = arguments(folder, **{"max_tokens": 60, "max_steps": 4} | fields)
        return AdminTrainer(new_model(**WIDE | (model or {})), args, train_dataset=DATA, callbacks=list(callbacks))

    return build


def product_types(trainer: AdminTrainer, **options) -> set[torch.dtype]:
    """The types of what the linear layers of a training give."""
    found: set[torch.dtype] = set()
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Linear) and module is not trainer.model.lm_head:
            module.register_forward_hook(lambda module, args, output: found.add(output.dtype))
    trainer.train(**options)
    return found


@pytest.mark.parametrize(
    ("is_fast", "width", "attention", "expected"),
    [
        (True, 128, "eager", True),
        (True, 64, "eager", False),
        (True, 128, "sdpa", False),
        (True, 256, "sdpa", True),
        (True, 256, None, True),
        (False, 512, "eager", False),
    ],
)
def test_bfloat16_pays_on_fast_processors_for_wide_models(fast, is_fast, width, attention, expected):
    fast(is_fast)
    assert bfloat16_pays(width, attention) is expected


@pytest.mark.parametrize(
    ("model", "fields", "is_fast", "expected"),
    [
        ({}, {}, True, torch.bfloat16),
        ({}, {"gradient_accumulation_steps": 2}, True, torch.bfloat16),
        ({}, {}, False, torch.float32),
        ({}, {"bf16": False}, True, torch.float32),
        ({"d_model": 16}, {"bf16": True}, False, torch.bfloat16),
        ({"attn_implementation": "sdpa"}, {}, True, torch.float32),
        ({}, {"adversarial_weight": 1.0}, True, torch.float32),
    ],
    ids=str,
)
def test_products_are_in_the_type_that_is_asked_for_or_pays(trainer, fast, model, fields, is_fast, expected):
    fast(is_fast)
    run = trainer(model=model, max_steps=1, **fields)
    assert product_types(run) == {expected}
    assert run.record.precisions == [str(expected).removeprefix("torch.")]
    assert {tensor.dtype for tensor in run.model.state_dict().values()} == {torch.float32}
    for layer in run.model.model.encoder.layers:  # so that the scores of a training are those of the saved weights
        layer.fc1.register_forward_hook(lambda module, args, output: evaluated.add(output.dtype))
    evaluated: set[torch.dtype] = set()
    run.evaluate(DATA)
    run.predict(DATA)
    assert evaluated == {torch.float32}


def test_what_was_not_measured_with_bfloat16_stays_in_float32(tiny_config, arguments, fast, monkeypatch):
    config = tiny_config(**WIDE, attn_implementation="eager")
    assert computes_in_bfloat16(arguments(), config)
    for name, value in {"torch_compile": True, "fp16": True}.items():
        args = arguments()
        setattr(args, name, value)
        assert not computes_in_bfloat16(args, config)
    assert not computes_in_bfloat16(arguments(), tiny_config(**WIDE, attn_implementation="eager", dtype="bfloat16"))
    args = arguments()
    monkeypatch.setattr(type(args), "device", torch.device("cuda"))
    assert not computes_in_bfloat16(args, config)


def test_attention_is_plain_unless_it_is_named_or_sentences_are_long(trainer, monkeypatch):
    for named, expected in ({}, "eager"), ({"attn_implementation": "sdpa"}, "sdpa"):
        assert trainer(model=named).model.config._attn_implementation == expected
    assert [cpu_attention(longest) for longest in (0, 512, 513)] == ["eager", "eager", "sdpa"]
    monkeypatch.setattr(rule, "LONGEST_PLAIN", 5)
    assert trainer().model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("variant", ["admin", "dlcl_post_ln"])
def test_gradients_are_those_of_float32_but_for_rounding(trainer, fast, variant):
    """And the same to the bit where layers are computed again."""
    model = {"variant": variant, "dropout": 0.0, "activation_function": "gelu"}
    fields = {}, {"activation_checkpointing": True}, {"bf16": False}
    found, again, expected = (last_gradient(trainer(model=model, max_steps=1, **given)) for given in fields)
    torch.testing.assert_close(found, again, rtol=0, atol=0)
    epsilon = torch.finfo(torch.bfloat16).eps
    whole = torch.stack([exact.norm() for exact in expected.values()]).norm()  # those of key biases are 0
    for name, exact in expected.items():
        assert (found[name] - exact).norm() <= 16 * epsilon * exact.norm() + epsilon**2 * whole, name
        assert found[name].dtype == torch.float32
    assert any(not torch.equal(found[name], exact) for name, exact in expected.items())


def test_a_run_that_goes_on_keeps_its_record(trainer, fast, monkeypatch, tmp_path):
    """The same bit for bit; in float32 on another processor, which is said; with the memory of all its legs."""
    used, told = {"bytes": 7}, []
    monkeypatch.setattr("admin_nmt.trainer.callbacks.peak_memory", lambda device: used["bytes"])
    monkeypatch.setattr(logging.getLogger("admin_nmt.trainer.callbacks"), "warning", told.append)
    saved = {"save_strategy": "steps", "save_steps": 2}
    straight = trainer(folder="straight", **saved)
    straight.train()
    trainer(StopAfter(2), folder="resumed", **saved).train()
    used["bytes"] = 3
    resumed = trainer(folder="resumed", **saved)
    resumed.train(resume_from_checkpoint=True)
    torch.testing.assert_close(resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0)
    assert straight.record.precisions == resumed.record.precisions == ["bfloat16"] and not told
    assert resumed.record.peak_bytes() == 7
    fast(False)
    elsewhere = trainer(folder="elsewhere", **saved)
    checkpoint = tmp_path / "straight" / "checkpoint-2"
    assert product_types(elsewhere, resume_from_checkpoint=str(checkpoint)) == {torch.float32}
    assert elsewhere.record.precisions == ["bfloat16", "float32"]
    assert len(told) == 1 and "update 2" in told[0]


def test_memory_is_predicted_in_the_precision_of_the_training(tiny_config, arguments, fast):
    config, shape = tiny_config(**WIDE, attn_implementation="eager"), BatchShape(16, 16, 16)
    wanted = [predict_memory(config, arguments(bf16=bf16), shape, "eager").activations for bf16 in (None, False)]
    assert wanted[0] < wanted[1]
