"""Recipes: what they may hold, that each mistake is named, and how they are written again."""

import json
import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from toy import write_recipe

from admin_nmt import AdminConfig, AdminTrainingArguments
from admin_nmt.data.cleaning import CleaningOptions
from admin_nmt.runs.claim import differences, is_fixed_on_resume
from admin_nmt.runs.recipe import Recipe, load_recipe
from admin_nmt.runs.yaml_files import YamlLoader

RECIPES = sorted((Path(__file__).parents[2] / "training" / "recipes").glob("*.yaml"))
CORPUS = {"source": "a.en", "target": "a.de"}


@pytest.fixture
def recipe_file(tmp_path) -> Path:
    return write_recipe(tmp_path)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_names_fields_that_exist_and_is_written_as_it_was_given(path):
    """The same fields, no number turned into another type, no default added."""
    recipe = load_recipe(path)
    assert AdminConfig(**recipe.model.configuration()).variant == recipe.model.variant
    assert re.search(rf"(admin-nmt train|training/train.py) {path.stem}\b", path.read_text())
    given = yaml.load(path.read_text(), YamlLoader)
    written = recipe.as_dict()
    assert list(written) == list(Recipe.model_fields)
    assert all(json.dumps(written[name], sort_keys=True) == json.dumps(given[name], sort_keys=True) for name in given)
    assert not any(written[name] for name in set(written) - set(given) - {"languages"})


def test_defaults_are_those_of_what_a_section_is_handed_to():
    recipe = Recipe.model_validate({"output_dir": "run", "data": {"train": CORPUS, "cleaning": {}}})
    config, cleaning = AdminConfig(), CleaningOptions()
    own = [f for f in fields(AdminConfig) if f.name in AdminConfig.__annotations__ and f.name != "omega_profiled"]
    assert all(getattr(recipe.model, f.name) == f.default for f in own)
    assert recipe.model.d_model == config.d_model and recipe.training.max_tokens == AdminTrainingArguments.max_tokens
    assert all(getattr(recipe.data.cleaning, f.name) == getattr(cleaning, f.name) for f in fields(CleaningOptions))
    assert recipe.model.given() == recipe.training.arguments() == {}


def test_overrides(recipe_file):
    """`no` is a strategy and `null` is nothing, as in a file of YAML."""
    changed = {"model.variant": "pre_ln", "model.dtype": "bfloat16", "training.learning_rate": "1e-3"}
    changed |= {"training.eval_strategy": "no", "training.fsdp": "true", "training.metric_for_best_model": "null"}
    recipe = load_recipe(recipe_file, [text for name, value in changed.items() for text in (f"--{name}", value)])
    assert (recipe.model.variant, recipe.training.learning_rate) == ("pre_ln", 1e-3)
    assert AdminConfig(**recipe.model.configuration()).dtype == torch.bfloat16
    assert recipe.training.eval_strategy == recipe.training.given()["eval_strategy"] == "no"
    assert recipe.training.arguments()["fsdp"] is True
    assert recipe.training.metric_for_best_model is None


WRONG = [
    # names, with the one that is meant
    ("modle.variant", "admin", "did you mean model?"),
    ("model.layers", 3, "did you mean model.encoder_layers?"),
    ("model.omega_profiled", True, "unknown field"),
    ("training.output_dir", "x", "unknown field"),
    ("data.valid", CORPUS | {"upsample": 2}, "data.valid.upsample"),
    # fields without effect
    ("model.encoder_d_model", 1024, "model.d_model"),
    ("training.per_device_train_batch_size", 16, "max_tokens"),
    ("tokenizer.target_vocab_size", 300, "joint: false"),
    ("model.vocab_size", 300, "tokenizer.vocab_size"),
    ("training.hub_token", "hf_secret", "HF_TOKEN"),
    # types
    ("data", "corpus.tsv", "a mapping"),
    ("data.train", [3], "data.train[0]"),
    ("data.train.source", None, "null"),
    ("tokenizer.joint", 1, "true or false"),
    ("training.max_steps", 1.5, "an integer"),
    # values
    ("training.learning_rate", math.nan, "finite"),
    ("training.max_steps", 0, "num_train_epochs"),
    ("tokenizer.vocab_size", 10**9, "at most"),
    ("model.dropout", 1.5, "[0, 1)"),
    ("model.variant", "foo", "post_ln"),
    ("card.repo_id", "nonsense", "user/name"),
    ("languages", ["en", "dee"], "'dee'"),
    ("languages", [False, "en"], "quotes"),
    ("data", {"root": "x"}, "train"),
    ("data.builtin", "x", "phrasebook"),
    ("data", {"builtin": "phrasebook", "valid": CORPUS}, "valid"),
    # fields that need another
    ("training.early_stopping_patience", 3, "metric_for_best_model"),
    ("training", {"early_stopping_patience": 3, "metric_for_best_model": "loss"}, "training.eval_strategy"),
    ("training.eval_strategy", "steps", "data.valid"),
    ("training.metric_for_best_model", "eval_blue", "eval_l"),
    ("training", {"eval_bleu": False, "metric_for_best_model": "bleu"}, "training.eval_bleu"),
    ("training.save_strategy", "no", "evaluation.average_last"),
    ("training.save_total_limit", 2, "evaluation.average_last"),
]


@pytest.mark.parametrize(("name", "value", "word"), WRONG, ids=[f"{name}={value}" for name, value, _ in WRONG])
def test_a_wrong_field_is_named_in_one_sentence(tmp_path, name, value, word):
    values: dict[str, Any] = {"output_dir": "run", "data": {"train": dict(CORPUS)}, "evaluation": {"average_last": 3}}
    *sections, last = name.split(".")
    place = values
    for section in sections:
        place = place.setdefault(section, {})
    place[last] = value
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError) as error:
        load_recipe(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and word in message and name.split(".")[0] in message.partition(": ")[2]
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("overrides", "option"),
    [
        (["--training.learning_rate", "abc"], "--training.learning_rate"),
        (["--model", "{variant: x}"], "--model.variant"),
        (["--evaluation.average_last", "99", "--training.save_total_limit", "3"], "--training.save_total_limit"),
        (["--training.seed", "3", "--data.trian", "4"], "--data.trian"),
        (["--data.train.source.x", "3"], "--data.train.source.x"),
    ],
)
def test_an_error_names_the_option_that_made_it(recipe_file, overrides, option):
    with pytest.raises(ValueError, match=rf"^{re.escape(option)}\b"):
        load_recipe(recipe_file, overrides)


def test_a_default_that_is_written_out_makes_no_difference(recipe_file):
    plain = load_recipe(recipe_file).as_dict()
    same = ["--data.max_length", "256", "--tokenizer.joint", "true", "--model.omega_rule", "log_n", "--data.root", "x"]
    assert differences(plain, load_recipe(recipe_file, same).as_dict(), is_fixed_on_resume) == {}
    other = ["--data.max_length", "99", "--training.seed", "7", "--training.max_steps", "9"]
    found = differences(plain, load_recipe(recipe_file, other).as_dict(), is_fixed_on_resume)
    assert found == {"data.max_length": (256, 99), "training.seed": (42, 7)}


def test_a_recipe_of_another_version_is_compared_all_the_same(recipe_file):
    now = load_recipe(recipe_file).as_dict()
    earlier = {name: now[name] for name in ("output_dir", "data", "model")} | {"tokenizer": {"style": "bpe"}}
    assert differences(earlier, now, is_fixed_on_resume) == {
        "tokenizer.style": ("bpe", None),
        "tokenizer.vocab_size": (8000, 400),
        "training.max_tokens": (4096, 256),
    }


def test_a_path_below_the_home_folder(recipe_file, monkeypatch):
    """The Trainer puts its checkpoints there; all else of a run lies beside them."""
    monkeypatch.setenv("HOME", "/home/user")
    names = ("output_dir", "data.root", "data.cache_dir", "data.train.source")
    recipe = load_recipe(recipe_file, [text for name in names for text in (f"--{name}", "~/x")])
    data = recipe.as_dict()["data"]
    assert {recipe.output_dir, data["root"], data["cache_dir"], data["train"]["source"]} == {"/home/user/x"}
