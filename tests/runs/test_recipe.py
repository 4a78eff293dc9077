"""Recipes: what they may hold, how each mistake is told, and how they are written again."""

import json
import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from toy import write_recipe

from admin_nmt import AdminConfig, AdminTrainingArguments
from admin_nmt.data.cleaning import CleaningOptions
from admin_nmt.data.corpora import CORPUS_FIELDS, TREATMENT_FIELDS
from admin_nmt.runs.claim import differences, is_fixed_on_resume
from admin_nmt.runs.recipe import Recipe, load_recipe
from admin_nmt.runs.yaml_files import YamlLoader

RECIPES = sorted((Path(__file__).parents[2] / "training" / "recipes").glob("*.yaml"))
CORPUS = {"source": "a.en", "target": "a.de"}


@pytest.fixture
def recipe_file(tmp_path) -> Path:
    return write_recipe(tmp_path)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_name_fields_that_exist(path):
    recipe = load_recipe(path)
    assert AdminConfig(**recipe.model.configuration()).variant == recipe.model.variant
    assert re.search(rf"(admin-nmt train|training/train.py) {path.stem}\b", path.read_text())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_written_as_it_was_given(path):
    """The same fields, no number turned into another type, no default added."""
    given = yaml.load(path.read_text(), YamlLoader)
    written = load_recipe(path).as_dict()
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


def test_a_model_has_the_fields_that_admin_adds_or_keeps():
    """Of those that every configuration of transformers has, dtype alone."""
    names = set(type(Recipe.model_validate({"output_dir": "run", "data": {"train": CORPUS}}).model).model_fields)
    assert {"variant", "d_model", "dtype", "attn_implementation", "from_pretrained"} <= names
    assert not names & {"omega_profiled", "architectures", "problem_type", "id2label", "return_dict", "attribute_map"}


def test_a_model_may_be_of_another_dtype(recipe_file):
    model = load_recipe(recipe_file, ["--model.dtype", "bfloat16"]).model
    assert str(AdminConfig(**model.configuration()).dtype) == "torch.bfloat16"


def test_a_corpus_has_the_fields_that_are_read():
    recipe = Recipe.model_validate({"output_dir": "run", "data": {"train": CORPUS, "valid": [CORPUS, CORPUS]}})
    assert set(type(recipe.data.train).model_fields) == {*CORPUS_FIELDS, *TREATMENT_FIELDS}
    assert [set(type(corpus).model_fields) for corpus in recipe.data.valid] == [{*CORPUS_FIELDS}] * 2


def test_no_is_a_strategy_and_null_no_early_stopping(recipe_file):
    overrides = ["--training.eval_strategy", "no", "--training.early_stopping_patience", "null"]
    training = load_recipe(recipe_file, [*overrides, "--training.metric_for_best_model", "null"]).training
    assert training.eval_strategy == training.given()["eval_strategy"] == "no"
    assert training.early_stopping_patience is None


def test_fsdp_may_be_true(recipe_file):
    assert load_recipe(recipe_file, ["--training.fsdp", "true"]).training.arguments()["fsdp"] is True


def test_overrides(recipe_file):
    recipe = load_recipe(recipe_file, ["--model.variant", "pre_ln", "--training.learning_rate", "1e-3"])
    assert (recipe.model.variant, recipe.training.learning_rate) == ("pre_ln", 1e-3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--model.variant"], "--model.variant: has no value; write --section.field value"),
        (["variant", "admin"], "variant: is no override; write --section.field value"),
        (["--data.train.source.x", "3"], "--data.train.source.x: expected a mapping, got 'train.en'"),
    ],
)
def test_a_wrong_override_is_named(recipe_file, overrides, message):
    with pytest.raises(ValueError) as error:
        load_recipe(recipe_file, overrides)
    assert str(error.value) == message


WRONG = [
    # names
    ("modle.variant", "admin", "unknown field modle; did you mean model?"),
    ("model.layers", 3, "unknown field model.layers; did you mean model.encoder_layers?"),
    ("model.omega_profiled", True, "unknown field model.omega_profiled; did you mean model.omega_rule?"),
    ("model.problem_type", "x", "unknown field model.problem_type; among the "),
    (
        "model.encoder_d_model",
        1024,
        "model.encoder_d_model has no effect; both stacks have one width, as in the stock classes: set model.d_model ",
    ),
    ("training.max_tokns", 3, "unknown field training.max_tokns; did you mean training.max_tokens?"),
    ("training.output_dir", "x", "unknown field training.output_dir; among the "),
    ("evaluation.beams", 3, "unknown field evaluation.beams; did you mean evaluation.num_beams?"),
    ("data.trian", CORPUS, "unknown field data.trian; did you mean data.train?"),
    ("data.train.sauce", "x", "unknown field data.train.sauce; did you mean data.train.source?"),
    (
        "data.train",
        [CORPUS, {"source": "x", "sauce": 3}],
        "unknown field data.train[1].sauce; did you mean data.train[1].source?",
    ),
    ("data.valid", CORPUS | {"upsample": 2}, "unknown field data.valid.upsample; known are columns, name, "),
    ("data.cleaning.max_length", 3, "unknown field data.cleaning.max_length; known are count, drop_copies, "),
    # types
    ("output_dir", 3, "output_dir: expected a string, got 3"),
    ("data", "corpus.tsv", "data: expected a mapping, got 'corpus.tsv'"),
    ("data.train", "a.en", "data.train: expected a mapping, got 'a.en'"),
    ("data.train", [3], "data.train[0]: expected a mapping, got 3"),
    ("data.train.target", 3, "data.train.target: expected a string or a list, got 3"),
    ("data.train.target", ["a.de", 3], "data.train.target[1]: expected a string, got 3"),
    ("data.train.source", None, "data.train.source: expected a string or a list, got null"),
    ("data.train.upsample", 0.5, "data.train.upsample: expected an integer, got 0.5"),
    ("data.train.upsample", True, "data.train.upsample: expected an integer, got true"),
    ("data.test", [CORPUS], "data.test: expected a mapping, got [{'source': 'a.en', 'target': 'a.de'}]"),
    ("data.max_length", "x", "data.max_length: expected an integer, got 'x'"),
    ("data.cache_dir", None, "data.cache_dir: expected a string, got null"),
    ("data.cleaning.max_words", "x", "data.cleaning.max_words: expected an integer, got 'x'"),
    ("tokenizer.vocab_size", 1e3, "tokenizer.vocab_size: expected an integer, got 1000.0"),
    ("tokenizer.joint", 1, "tokenizer.joint: expected true or false, got 1"),
    ("model.dropout", "x", "model.dropout: expected a number, got 'x'"),
    ("model.vocab_size", "x", "model.vocab_size: expected an integer, got 'x'"),
    ("model.encoder_layers", True, "model.encoder_layers: expected an integer, got true"),
    ("model.eos_token_id", ["x"], "model.eos_token_id[0]: expected an integer, got 'x'"),
    ("training", "x", "training: expected a mapping, got 'x'"),
    ("training.learning_rate", "abc", "training.learning_rate: expected a number, got 'abc'"),
    ("training.max_steps", 1.5, "training.max_steps: expected an integer, got 1.5"),
    ("training.seed", "abc", "training.seed: expected an integer, got 'abc'"),
    ("training.report_to", 3, "training.report_to: expected a string or a list, got 3"),
    ("training.eval_strategy", "x", "training.eval_strategy: expected 'no', 'steps' or 'epoch', got 'x'"),
    ("training.eval_strategy", True, "training.eval_strategy: expected 'no', 'steps' or 'epoch', got true"),
    ("training.lr_scheduler_type", "cosin", "training.lr_scheduler_type: expected 'linear', 'cosine', "),
    ("card.license", 4, "card.license: expected a string, got 4"),
    # values
    ("training.learning_rate", -1, "training.learning_rate: expected a number of at least 0, got -1"),
    ("training.learning_rate", math.nan, "training.learning_rate: expected a finite number, got nan"),
    ("training.adam_beta2", 1, "training.adam_beta2: expected a number below 1, got 1"),
    (
        "tokenizer.target_vocab_size",
        300,
        "tokenizer.target_vocab_size is that of a vocabulary of the target alone; set joint: false, too",
    ),
    ("training.max_steps", -5, "training.max_steps is -5; give at least 1, or leave it out for num_train_epochs"),
    ("training.max_steps", 0, "training.max_steps is 0; give at least 1, or leave it out for num_train_epochs"),
    ("training.max_steps", None, "training.max_steps: expected an integer, got null"),
    ("training.max_tokens", "lots", "training.max_tokens: expected an integer, got 'lots'"),
    ("training.max_tokens", 0, "training.max_tokens: expected a number of at least 1, got 0"),
    ("training.eval_steps", 0, "training.eval_steps: expected a number above 0, got 0"),
    (
        "training.gradient_accumulation_steps",
        0,
        "training.gradient_accumulation_steps: expected a number of at least 1, got 0",
    ),
    ("training.optimizer", "adamw", "training.optimizer: expected 'radam' or 'adam', got 'adamw'"),
    (
        "training.per_device_train_batch_size",
        16,
        "training.per_device_train_batch_size has no effect; batches are made by max_tokens",
    ),
    (
        "training.bf16_full_eval",
        True,
        "training.bf16_full_eval has no effect; evaluations are in float32 on a CPU, in training's precision on a GPU",
    ),
    ("training.optim_args", "x", "training.optim_args has no effect; set optimizer"),
    ("tokenizer.vocab_size", 10, "tokenizer.vocab_size: expected a number of at least 259, got 10"),
    ("evaluation.average_last", "x", "evaluation.average_last: expected an integer, got 'x'"),
    ("evaluation.length_penalty", math.inf, "evaluation.length_penalty: expected a finite number, got inf"),
    ("card.repo_id", "nonsense", "card.repo_id 'nonsense': has no user; give user/name, as the Hub has it"),
    ("languages", ["en", "dee"], "languages holds ['en', 'dee']: language 'dee': is no known code; did you mean "),
    ("languages", ["english", "de"], "languages holds ['english', 'de']: language 'english': is no known code; did yo"),
    ("languages", "en", "languages holds 'en'; write two codes in quotes, source and target"),
    ("languages", [False, "en"], "languages holds [False, 'en']; write two codes in quotes, source and target"),
    ("data", {"root": "x"}, "data has no train; name its files, or a builtin corpus: phrasebook"),
    ("data.builtin", "x", "data.builtin: 'x' is not one of phrasebook"),
    ("data.train", {}, "data.train lacks source"),
    ("data.max_length", 0, "data.max_length: expected a number of at least 1, got 0"),
    ("data.cleaning.max_words", 0, "data.cleaning.max_words is 0: give at least 1, or null for no limit"),
    ("evaluation.num_beams", 0, "evaluation.num_beams: expected a number of at least 1, got 0"),
    ("model.dropout", 1.5, "model.dropout: must lie in [0, 1), not 1.5"),
    ("model.variant", "foo", "model.variant: 'foo' is not one of post_ln, admin, "),
    ("model.vocab_size", 300, "model.vocab_size is that of the tokenizer; set tokenizer.vocab_size instead"),
    ("training.early_stopping_patience", 3, "training.early_stopping_patience needs metric_for_best_model, such as "),
    (
        "training",
        {"early_stopping_patience": 3, "metric_for_best_model": "loss"},
        "training.early_stopping_patience needs evaluations; set training.eval_strategy",
    ),
    (
        "training.eval_strategy",
        "steps",
        "training.eval_strategy is 'steps', which needs data.valid; name its files, or ",
    ),
    (
        "training.metric_for_best_model",
        "eval_blue",
        "training.metric_for_best_model is 'eval_blue'; choose one of eval_l",
    ),
    ("training.metric_for_best_model", "bleu", "training.metric_for_best_model is 'bleu', which needs training.eval_b"),
    ("training.save_strategy", "no", "evaluation.average_last is 3, and training.save_strategy 'no' leaves no check"),
    ("training.save_total_limit", 2, "training.save_total_limit 2 deletes checkpoints that evaluation.average_last 3 "),
]


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG, ids=[f"{name}={value}" for name, value, _ in WRONG])
def test_a_wrong_field_is_one_sentence(tmp_path, name, value, sentence):
    values: dict[str, Any] = {"output_dir": "run", "data": {"train": dict(CORPUS)}, "evaluation": {"average_last": 3}}
    if name == "training.metric_for_best_model":
        values["training"] = {"eval_bleu": False}
    *sections, last = name.split(".")
    place = values
    for section in sections:
        place = place.setdefault(section, {})
    place[last] = value
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError) as error:
        load_recipe(path)
    assert str(error.value).startswith(f"{path}: {sentence}")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("--training.learning_rate abc", "--training.learning_rate: expected a number, got 'abc'"),
        ("--training.max_stepz 3", "--training.max_stepz: unknown field training.max_stepz; did you mean training.max"),
        ("--model.dropout 2", "--model.dropout: must lie in [0, 1), not 2"),
        ("--model {variant: x}", "--model.variant: 'x' is not one of post_ln, "),
        ("--languages [en,german]", "--languages holds ['en', 'german']: language 'german'"),
        ("--evaluation.average_last 99 --training.save_total_limit 3", "--training.save_total_limit 3 deletes checkp"),
        ("--training.seed 3 --data.trian 4", "--data.trian: unknown field data.trian; did you mean data.train?"),
    ],
)
def test_what_an_option_sets_is_told_of_the_option(recipe_file, overrides, sentence):
    with pytest.raises(ValueError) as error:
        load_recipe(recipe_file, overrides.split(" ") if "{" not in overrides else overrides.split(" ", 1))
    assert str(error.value).startswith(sentence)


def test_a_recipe_of_the_package_is_told_by_its_name(recipe_file):
    recipe_file.write_text(recipe_file.read_text().replace("d_model: 16", "d_model: 15"))
    with pytest.raises(ValueError, match=r"^phrasebook: model\.encoder_attention_heads: 2 heads do not divide"):
        load_recipe(recipe_file, ["--training.seed", "3"], "phrasebook")


def test_everything_that_lacks_is_named(tmp_path):
    (tmp_path / "empty.yaml").write_text("languages: [en, de]")
    with pytest.raises(ValueError, match=r"empty\.yaml: lacks data, output_dir$"):
        load_recipe(tmp_path / "empty.yaml")


def test_a_damaged_recipe_is_named(tmp_path):
    path = tmp_path / "damaged.yaml"
    path.write_text("data: [")
    with pytest.raises(ValueError, match=r"damaged\.yaml: line 1, column 8: is not valid YAML"):
        load_recipe(path)
    path.write_text("- a list")
    with pytest.raises(ValueError, match=r"damaged\.yaml: expected a mapping, got \['a list'\]"):
        load_recipe(path)


def test_a_default_that_is_written_out_makes_no_difference(recipe_file):
    plain = load_recipe(recipe_file).as_dict()
    same = [
        "--data.max_length",
        "256",
        "--tokenizer.joint",
        "true",
        "--model.omega_rule",
        "log_n",
        "--data.root",
        "x",
    ]
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


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_builtin_corpus_has_all_splits(split):
    data = {"builtin": "phrasebook", split: CORPUS}
    with pytest.raises(ValueError, match=f"builtin: phrasebook has a {split} of its own; leave out builtin, or"):
        Recipe.model_validate({"output_dir": "run", "data": data})
