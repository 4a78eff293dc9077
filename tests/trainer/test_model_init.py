"""Several trainings of one trainer, each of a new model: with `model_init`, and in a search of hyper-parameters."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from toy import random_ids
from transformers import EarlyStoppingCallback, set_seed, trainer_utils
from transformers.hyperparameter_search import ALL_HYPERPARAMETER_SEARCH_BACKENDS

from admin_nmt import AdminForConditionalGeneration, AdminTrainer
from admin_nmt.weights.exporting import standard_model

DATA = random_ids(24)


@pytest.fixture
def model_init(tiny_config) -> Callable[[], AdminForConditionalGeneration]:
    return lambda: AdminForConditionalGeneration(
        tiny_config(encoder_layers=2, decoder_layers=1, omega_rule="profile", dropout=0.1)
    )


def facts(trainer: AdminTrainer) -> tuple[list[dict], dict[str, Any]]:
    """The log without times, and the weights, ω among them."""
    assert trainer.model.config.omega_profiled
    history = [
        {name: value for name, value in row.items() if "second" not in name and "runtime" not in name}
        for row in trainer.state.log_history
    ]
    return history, {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def given(model_init, args) -> AdminTrainer:
    """Trains a model that is handed over, as `model_init` makes it."""
    set_seed(args.seed)
    trainer = AdminTrainer(model_init(), args, train_dataset=DATA, eval_dataset=DATA)
    set_seed(args.seed)
    model_init()  # draws as many random numbers
    trainer.train()
    return trainer


def same(one: tuple, other: tuple) -> bool:
    return one[0] == other[0] and all(torch.equal(tensor, other[1][name]) for name, tensor in one[1].items())


def test_each_training_begins_with_a_new_model_and_forgets_what_was_counted(model_init, arguments):
    """Early stopping too, which would end the second training after its second evaluation."""
    best = {"metric_for_best_model": "loss", "greater_is_better": True}  # of a loss that falls
    args, patience = arguments(max_steps=4, eval_strategy="steps", eval_steps=1, **best), EarlyStoppingCallback(3)
    data = {"train_dataset": DATA, "eval_dataset": DATA}
    trainer = AdminTrainer(args=args, model_init=model_init, callbacks=[patience], **data)
    trainer.train()
    first, model = facts(trainer), trainer.model
    trainer.meter.add_tokens(7)
    trainer.stop_request.received = True
    trainer.train()
    assert trainer.model is not model and patience.early_stopping_patience_counter > 0
    assert same(first, facts(trainer)) and same(first, facts(given(model_init, args)))


def test_a_stock_model_gets_its_loss_and_collator(model_init, arguments):
    args = arguments(label_smoothing_factor=0.1, max_steps=1)
    trainer = AdminTrainer(args=args, model_init=lambda: standard_model(model_init()), train_dataset=DATA)
    trainer.train()
    assert "nll" in trainer.state.log_history[0]


class TwoTrials:
    """A search that tries two learning rates, as optuna's backend would."""

    def ensure_available(self) -> None:
        pass

    def run(self, trainer, n_trials, direction):
        runs = []
        for number, rate in zip(range(n_trials), (1e-3, 1e-2), strict=True):
            trainer.objective = None
            trainer.train(trial=SimpleNamespace(number=number, params={"learning_rate": rate, "max_tokens": 60}))
            runs.append((trainer.compute_objective(trainer.evaluate()), facts(trainer)))
            trainer.model_wrapped = trainer.model = None  # optuna's backend lets go of them
        return runs


def test_a_search_trains_each_trial_as_a_run_of_its_own(model_init, arguments, monkeypatch):
    backend = trainer_utils.HPSearchBackend.OPTUNA
    monkeypatch.setitem(ALL_HYPERPARAMETER_SEARCH_BACKENDS, backend, TwoTrials)
    monkeypatch.setattr(transformers.integrations, "hp_params", lambda trial: trial.params)
    trainer = AdminTrainer(args=arguments(max_steps=3), model_init=model_init, train_dataset=DATA, eval_dataset=DATA)
    found = trainer.hyperparameter_search(lambda trial: trial.params, n_trials=2, backend="optuna")
    for (objective, run), rate in zip(found, (1e-3, 1e-2), strict=True):
        alone = given(model_init, arguments(learning_rate=rate, max_tokens=60, max_steps=3))
        assert objective == alone.evaluate()["eval_loss"]
        assert same(run, facts(alone))
    assert found[0][0] != found[1][0]
