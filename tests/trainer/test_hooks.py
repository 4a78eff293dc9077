"""The Trainer's private methods are as they were when ours were written, and only one module touches them."""

import ast
import inspect
from pathlib import Path

import pytest
import transformers
from safetensors.torch import load_file
from transformers import Seq2SeqTrainer, Trainer

from admin_nmt.trainer import hooks
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.hooks import TrainerHooks

ROOM = Path(hooks.__file__).parent
# As in transformers 5.23, without annotations.
SIGNATURES = {
    "_run_epoch": "(self, model, epoch, train_dataloader, steps_in_epoch, num_update_steps_per_epoch, trial, "
    "ignore_keys_for_eval, start_time, resume_from_checkpoint, epochs_trained, steps_trained_in_current_epoch)",
    "_get_grad_norm": "(self, model, grad_norm=None)",
    "_save_checkpoint": "(self, model, trial)",
    "_save_rng_state": "(self, output_dir)",
    "_save_optimizer_and_scheduler": "(self, output_dir)",
    "_issue_warnings_after_load": "(self, load_result)",
    "_load_best_model": "(self)",
}


def signature(owner: type, name: str) -> str:
    """Parameters with their defaults, without annotations."""
    found = inspect.signature(getattr(owner, name))
    bare = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def private_methods(owner: type) -> set[str]:
    return {name for name, value in vars(owner).items() if inspect.isfunction(value) and name[0] == "_" != name[1]}


@pytest.mark.parametrize("name", SIGNATURES)
def test_private_methods_of_the_trainer_are_as_they_were(name):
    now = signature(Seq2SeqTrainer, name)
    assert now == SIGNATURES[name], f"transformers {transformers.__version__} changed it: look at trainer/hooks.py"


def test_every_override_has_its_signature_in_the_table():
    assert private_methods(TrainerHooks) == set(SIGNATURES)


def test_no_other_module_touches_a_private_method_of_the_trainer():
    private = private_methods(Trainer) | private_methods(Seq2SeqTrainer)
    assert len(private) > 30
    for path in {*ROOM.glob("*.py")} - {ROOM / "hooks.py"}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None)
            assert name not in private, f"{path.name}, line {node.lineno}: {name}; move it to hooks.py"


def test_tied_weights_are_not_called_missing(tiny_model, tmp_path, monkeypatch):
    """A file holds them under one of their names; what else is not there is told."""
    model = tiny_model()
    model.save_pretrained(tmp_path)
    trainer = AdminTrainer(model, AdminTrainingArguments(str(tmp_path / "run"), use_cpu=True))
    told: list[str] = []
    monkeypatch.setattr("transformers.trainer.logger.warning", told.append)
    weights = load_file(tmp_path / "model.safetensors")
    result = model.load_state_dict(weights, strict=False)
    assert result.missing_keys
    trainer._issue_warnings_after_load(result)
    assert not told
    del weights["model.encoder.layers.0.fc1.weight"]
    trainer._issue_warnings_after_load(model.load_state_dict(weights, strict=False))
    assert len(told) == 1 and "['model.encoder.layers.0.fc1.weight']" in told[0]
