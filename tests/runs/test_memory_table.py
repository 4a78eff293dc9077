"""The command `admin-nmt memory`, and the sizes of vocabulary that its table goes by."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from toy import invoke, small_config, toy_tokenizer

from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.runs.memory_table import memory_rows, model_config
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


@pytest.fixture
def recipe_of(tmp_path) -> Callable[..., Recipe]:
    """The recipe with another section `tokenizer`."""
    (tmp_path / "small.yaml").write_text(RECIPE)

    def load(tokenizer: dict, *overrides: str) -> Recipe:
        return load_recipe(tmp_path / "small.yaml", ["--tokenizer", json.dumps(tokenizer), *overrides])

    return load


def test_the_vocabulary_is_that_of_the_tokenizers_in_a_folder_or_of_prepared_data(recipe_of, tmp_path):
    made = toy_tokenizer(vocab_size=290)
    save_tokenizers(tmp_path / "joint", made)
    save_tokenizers(tmp_path / "two", toy_tokenizer(vocab_size=280), toy_tokenizer(1, vocab_size=270))
    joint, two = (recipe_of({"path": str(tmp_path / name)}) for name in ("joint", "two"))
    assert [row["V"] for recipe in (joint, two) for row in memory_rows(recipe)] == ["290", "280/270"]
    config = model_config(two)
    assert (config.vocab_size, config.decoder_vocab_size) == (280, 270)
    assert [model_config(recipe).share_encoder_decoder_embeddings for recipe in (joint, two)] == [True, False]
    prepared = SimpleNamespace(source_tokenizer=made, target_tokenizer=made)
    assert model_config(recipe_of({"vocab_size": 20_000}), prepared).vocab_size == 290


def test_the_vocabulary_is_that_of_the_model_to_start_from(recipe_of, tmp_path):
    small_config(vocab_size=285).save_pretrained(tmp_path / "final")
    absent = {"path": str(tmp_path / "absent")}
    assert model_config(recipe_of(absent, "--model.from_pretrained", str(tmp_path / "final"))).vocab_size == 285
    with pytest.raises(ValueError, match=r"^model\.from_pretrained: .*nowhere"):
        model_config(recipe_of(absent, "--model.from_pretrained", "/nowhere"))
