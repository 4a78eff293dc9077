"""The command `admin-nmt memory`, and the sizes of vocabulary that its table goes by."""

import json

import pytest
from toy import invoke, small_config, toy_tokenizer

from admin_nmt.cli.bundled import find_file
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.runs.memory_table import memory_rows, model_config
from admin_nmt.runs.preparation import prepare
from admin_nmt.runs.recipe import Recipe, load_recipe

RECIPE = """
output_dir: runs/small
data: {builtin: phrasebook, max_length: 32}
tokenizer: {vocab_size: 300}
model: {encoder_layers: 1, decoder_layers: 1, d_model: 32, encoder_ffn_dim: 64, decoder_ffn_dim: 64}
training: {max_tokens: 128}
"""


def test_command(tmp_path):
    recipe = tmp_path / "small.yaml"
    recipe.write_text(RECIPE)
    result = invoke("memory", recipe, "--training.max_tokens", "64")
    assert "| small | float32 | none | 2 × 32/32 | 300 |" in result.stdout
    assert result.stdout.splitlines()[-1].endswith(" yes |") and "not measured" in result.stderr


def recipe_of(tmp_path, tokenizer: dict, *overrides: str) -> Recipe:
    (tmp_path / "small.yaml").write_text(RECIPE)
    places = ["--tokenizer", json.dumps(tokenizer), "--data.cache_dir", str(tmp_path / "cache")]
    return load_recipe(tmp_path / "small.yaml", [*places, *overrides])


def test_the_vocabulary_is_that_of_the_tokenizers_in_a_folder(tmp_path):
    save_tokenizers(tmp_path / "joint", toy_tokenizer(vocab_size=290))
    save_tokenizers(tmp_path / "two", toy_tokenizer(vocab_size=280), toy_tokenizer(1, vocab_size=270))
    joint, two = (recipe_of(tmp_path, {"path": str(tmp_path / name)}) for name in ("joint", "two"))
    assert [row["V"] for recipe in (joint, two) for row in memory_rows(recipe)] == ["290", "280/270"]
    config = model_config(two)
    assert (config.vocab_size, config.decoder_vocab_size) == (280, 270)
    assert [model_config(recipe).share_encoder_decoder_embeddings for recipe in (joint, two)] == [True, False]


def test_the_vocabulary_is_that_of_the_model_to_start_from(tmp_path):
    small_config(vocab_size=285).save_pretrained(tmp_path / "final")
    overrides = ["--model", f"{{from_pretrained: {tmp_path / 'final'}}}"]
    start = recipe_of(tmp_path, {"path": str(tmp_path / "absent")}, *overrides)
    assert model_config(start).vocab_size == 285


def test_prepared_data_tells_the_size_that_the_vocabulary_reached(tmp_path):
    """The words of the phrasebook are too few for the size asked for."""
    recipe = recipe_of(tmp_path, {"vocab_size": 20_000})
    prepared = prepare(recipe, num_proc=1)
    size = len(prepared.source_tokenizer)
    assert size < 20_000
    assert model_config(recipe, prepared).vocab_size == size


def test_a_model_to_start_from_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"^model\.from_pretrained: .*nowhere"):
        model_config(load_recipe(find_file("phrasebook", "recipes"), ["--model", "{from_pretrained: /nowhere}"]))
