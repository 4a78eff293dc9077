"""Updates cut into as few batches as a GPU holds."""

import copy

import numpy as np
import pytest
import torch
from toy import StopAfter, random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.data.tokenized_pairs import survey
from admin_nmt.trainer import memory_prediction
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.memory_prediction import (
    CONTEXT_BYTES,
    FRAGMENTATION,
    RunMemory,
    largest_micro_batch,
    predicted_peak,
)

DATA = random_ids(48)
MUCH = 1e12  # bytes


def planned(max_tokens: int) -> set[tuple[int, int, int]]:
    """Shapes of the batches under this budget."""
    return set(survey(DATA, max_tokens, seed=0).shapes)


@pytest.fixture
def arguments(tmp_path):
    def build(**fields) -> AdminTrainingArguments:
        small = {
            "max_tokens": 30,
            "gradient_accumulation_steps": 4,
            "max_steps": 6,
            "warmup_steps": 2,
            "logging_steps": 1,
        }
        quiet = {"eval_bleu": False, "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
        return AdminTrainingArguments(str(tmp_path / "run"), **small | quiet | {"auto_micro_batch": True} | fields)

    return build


def card_for(config, args, max_tokens: int) -> float:
    """GB of a GPU that just holds the run with batches of so many tokens."""
    trial = copy.copy(args)
    trial.max_tokens, trial.gradient_accumulation_steps = max_tokens, 120 // max_tokens
    return (predicted_peak(config, trial, planned) * FRAGMENTATION + CONTEXT_BYTES + 1) / 1e9


@pytest.mark.parametrize(
    ("holds", "expected"),
    [(120, (120, 1)), (60, (60, 2)), (30, (30, 4)), (15, (15, 8))],
    ids=["all", "half", "as given", "less"],
)
def test_the_largest_batch_that_fits(arguments, tiny_config, holds, expected):
    args, config = arguments(), tiny_config(d_model=32)
    assert largest_micro_batch(config, args, planned, card_for(config, args, holds)) == expected
    assert (args.max_tokens, args.gradient_accumulation_steps) == (30, 4)


def test_as_given_where_nothing_fits(arguments, tiny_config):
    assert largest_micro_batch(tiny_config(), arguments(), planned, 0.1) == (30, 4)


def test_no_checkpointing_for_a_larger_batch(arguments, tiny_config, monkeypatch):
    seen = []
    monkeypatch.setattr(memory_prediction, "predicted_peak", lambda _, args, *__: seen.append(args) or 0)
    largest_micro_batch(tiny_config(), arguments(activation_checkpointing="auto"), planned, 1e3)
    assert seen[0].activation_checkpointing is False


def new_trainer(args, config, monkeypatch, free: float, callbacks=()) -> AdminTrainer:
    monkeypatch.setattr(RunMemory, "is_predicted", lambda self: True)
    monkeypatch.setattr(memory_prediction, "free_memory", lambda device: free)
    monkeypatch.setattr(memory_prediction, "largest_micro_batch", lambda *given: (120, 1) if given[3] else (30, 4))
    torch.manual_seed(1)
    model = AdminForConditionalGeneration(config)
    return AdminTrainer(model, args, train_dataset=DATA, callbacks=list(callbacks))


def test_an_update_has_as_many_tokens(arguments, tiny_config, monkeypatch):
    tokens = []
    for free, expected in ((0.0, (30, 4)), (MUCH, (120, 1))):  # bytes
        trainer = new_trainer(arguments(), tiny_config(omega_rule="log_n"), monkeypatch, free)
        trainer.train()
        assert (trainer.args.max_tokens, trainer.args.gradient_accumulation_steps) == expected
        tokens.append(np.mean([row["target_tokens"] for row in trainer.state.log_history if "target_tokens" in row]))
    assert tokens[1] == pytest.approx(tokens[0], rel=0.2)  # larger batches have more padding


def test_a_cpu_keeps_what_is_given(arguments, tiny_config):
    trainer = AdminTrainer(AdminForConditionalGeneration(tiny_config()), arguments(max_steps=1), train_dataset=DATA)
    trainer.train()
    assert (trainer.args.max_tokens, trainer.args.gradient_accumulation_steps) == (30, 4)


def test_a_run_goes_on_with_its_batches_on_another_card(arguments, tiny_config, monkeypatch):
    config, saving = tiny_config(omega_rule="log_n"), {"save_strategy": "steps", "save_steps": 3}
    whole = new_trainer(arguments(), config, monkeypatch, MUCH)
    whole.train()
    new_trainer(arguments(**saving), config, monkeypatch, MUCH, [StopAfter(3)]).train()
    resumed = new_trainer(arguments(**saving), config, monkeypatch, 0.0)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.args.max_tokens == 120
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_every_gpu_takes_the_batches_of_the_smallest(arguments, tiny_config, monkeypatch):
    monkeypatch.setattr(RunMemory, "is_predicted", lambda self: True)
    monkeypatch.setattr(memory_prediction, "free_memory", lambda device: MUCH)
    monkeypatch.setattr(memory_prediction, "largest_micro_batch", lambda *given: (120, 1))
    monkeypatch.setattr(memory_prediction, "gather_objects", lambda mine: [mine, (30, 4)])
    args = arguments(max_steps=1)
    AdminTrainer(AdminForConditionalGeneration(tiny_config(omega_rule="log_n")), args, train_dataset=DATA).train()
    assert (args.max_tokens, args.gradient_accumulation_steps) == (30, 4)
