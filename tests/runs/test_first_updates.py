"""The first 20 updates of every recipe, and of every architecture of the grids, on toy text at a width of 32.

Depth (up to 60 layers), variant, ω, dropouts, optimiser and learning rate stay those of the recipe.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy import write_recipe

from admin_nmt import AdminConfig
from admin_nmt.experiments.grids import load_grid
from admin_nmt.runs.preparation import prepare
from admin_nmt.runs.recipe import Recipe, load_recipe
from admin_nmt.runs.training_run import build_trainer, training_arguments

pytestmark = pytest.mark.slow
TRAINING = Path(__file__).parents[2] / "training"
UPDATES = 20
DEEPEST = 60  # layers of a stack; 100 take more than a minute
WIDTH = {
    "d_model": 32,
    "max_position_embeddings": 128,
    **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
}
# Only the updates are looked at; warmup is over after half of them.
SHORT = {
    "max_tokens": 256,
    "gradient_accumulation_steps": 1,
    "bf16": False,  # which takes twice the time on many processors
    "warmup_steps": UPDATES // 2,
    "max_steps": UPDATES,
    "eval_strategy": "no",
    "eval_bleu": False,
    "save_strategy": "no",
    "disable_tqdm": True,
}
LEFT_OUT = ("early_stopping_patience", "metric_for_best_model", "load_best_model_at_end", "save_total_limit")


def cases() -> Iterator[Any]:
    """All recipes, and of the grids every architecture that no earlier file has."""
    seen = set()
    for path in sorted((TRAINING / "recipes").glob("*.yaml")):
        recipe = load_recipe(path)
        seen.add(architecture(recipe))
        yield pytest.param(recipe, id=path.stem)
    for path in sorted((TRAINING / "grids").glob("*.yaml")):
        for run in load_grid(path).runs():
            recipe = run.recipe()
            if architecture(recipe) not in seen:
                seen.add(architecture(recipe))
                yield pytest.param(recipe, id=f"{path.stem}/{run.system}")


def architecture(recipe: Recipe) -> str:
    """What is left of the model at the width of this test; dropouts do not tell two apart."""
    config = AdminConfig(**small_model(recipe.model.configuration())).to_dict()
    fields = {name: value for name, value in config.items() if not name.endswith("dropout")}
    return json.dumps({"joint": recipe.tokenizer.joint} | fields, sort_keys=True)


def small_model(given: dict[str, Any]) -> dict[str, Any]:
    depth = {name: min(given[name], DEEPEST) for name in ("encoder_layers", "decoder_layers") if name in given}
    return given | depth | WIDTH


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> dict[str, Any]:
    """The values of a toy recipe, with 300 pairs to train on."""
    return load_recipe(write_recipe(tmp_path_factory.mktemp("toy"))).as_dict()


def reduced(recipe: Recipe, toy: dict[str, Any], folder: Path) -> Recipe:
    """The recipe at this test's width, length and text."""
    given = recipe.as_dict()
    training = {name: value for name, value in given["training"].items() if name not in LEFT_OUT}
    tokenizer = {"vocab_size": 400, "joint": recipe.tokenizer.joint}
    values = {"output_dir": str(folder), "data": toy["data"], "tokenizer": tokenizer, "languages": recipe.languages}
    return Recipe.model_validate(values | {"model": small_model(given["model"]), "training": training | SHORT})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize by all recipes and grids, but where the slow tests are left out: to read them takes ten seconds."""
    if "recipe" in metafunc.fixturenames:
        left_out = "not slow" in metafunc.config.option.markexpr
        metafunc.parametrize("recipe", [] if left_out else [*cases()])


def test_the_loss_falls_in_the_first_updates(recipe, toy, tmp_path):
    small = reduced(recipe, toy, tmp_path / "run")
    trainer = build_trainer(small, prepare(small, num_proc=1), training_arguments(small))
    before = trainer.evaluate()["eval_loss"]
    trainer.train()  # raises where a loss or a gradient is not finite
    assert trainer.state.global_step == UPDATES
    after = trainer.evaluate()["eval_loss"]
    assert after < before - 0.05
