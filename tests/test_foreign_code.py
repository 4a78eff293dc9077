"""Nothing that comes with a model folder runs: canaries, for each command and for each function that loads."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from hostile import HOSTILE_FOLDERS, NEED_CODE, PICKLES, foreign_pickles
from toy import random_texts, save_models, toy_tokenizer, write_recipe
from transformers import AutoConfig
from typer.testing import CliRunner

import admin_nmt
from admin_nmt import AdminForConditionalGeneration, Translator
from admin_nmt.cli.app import app
from admin_nmt.data.tokenization.tokenizer_folder import load_tokenizers
from admin_nmt.hub.model_folder import check_folder, load_admin_model, load_model, read_config
from admin_nmt.hub.model_info import count_parameters, model_info
from admin_nmt.hub.run_folder import load_results
from admin_nmt.runs.yaml_files import load_yaml
from admin_nmt.weights.averaging import average_checkpoints

YES = "y\n" * 9  # what transformers asks for on stdin


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """The folder of a small model with everything that a model needs."""
    folder = tmp_path_factory.mktemp("good")
    save_models(folder, toy_tokenizer())
    return folder / "final"


@pytest.fixture
def hostile(good, tmp_path):
    """Makes a hostile folder of a kind; gives it and the canary, which must never exist."""
    marker = tmp_path / "marker"

    def make(kind: str) -> tuple[Path, Path]:
        folder = tmp_path / kind
        shutil.copytree(good, folder)
        HOSTILE_FOLDERS[kind](folder, marker)
        return folder, marker

    return make


# Arguments of each command that loads a model or its tokenizer, of its folder and a folder for other files.
TEXT = "{tmp}/text"
PAIRS = f"--source {TEXT} --target {TEXT}"
COMMANDS = [
    "translate {model}",
    "translate {model} --backend ctranslate2",
    f"score {{model}} {PAIRS}",
    f"evaluate {{model}} {PAIRS} --language de",
    f"synthesize {{model}} --input {TEXT} --generates source --output {{tmp}}/out.tsv",
    "model info {model}",
    f"model profile {{model}} {PAIRS}",
    "model fold {model} --output {tmp}/out",
    "model export {model} --output {tmp}/out",
    "model average {model} {model} --output {tmp}/out",
    "plot omega {model} --output {tmp}/out.png",
    "train {recipe} --tokenizer.path {model}",
    "train {recipe} --model.from_pretrained {model}",
    "prepare {recipe} --tokenizer.path {model} --num-proc 1",
    "memory {recipe} --model.from_pretrained {model}",
    "memory {recipe} --tokenizer.path {model}",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_code_of_a_folder(command, hostile, tmp_path):
    """Whatever stdin says; one line names the folder."""
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in random_texts(3)))
    recipe = write_recipe(tmp_path, held_out=2) if "{recipe}" in command else None
    folder, marker = hostile("everything")
    arguments = command.format(model=folder, tmp=tmp_path, recipe=recipe).split()
    result = CliRunner().invoke(app, arguments, input=YES, catch_exceptions=False)
    assert not marker.exists()
    last = result.stderr.strip().rsplit("\r")[-1].splitlines()
    assert result.exit_code == 1
    assert any(str(folder) in line and "needs Python code" in line for line in last), result.stderr


@pytest.mark.parametrize("kind", HOSTILE_FOLDERS)
def test_no_loading_runs_code_of_a_folder(kind, hostile, monkeypatch):
    """By functions and classes; each gives what it can without that code, or says what is wrong in one sentence."""
    monkeypatch.setattr("builtins.input", lambda question: "y")
    folder, marker = hostile(kind)
    loads = {
        function: lambda function=function: function(folder)
        for function in (read_config, check_folder, load_model, load_admin_model, load_tokenizers, model_info)
    }
    loads[Translator] = lambda: Translator.from_pretrained(folder)
    loads[count_parameters] = lambda: count_parameters(read_config(folder))
    if kind == "generate":
        loads[AdminForConditionalGeneration] = lambda: AdminForConditionalGeneration.from_pretrained(folder)
    refused = []
    for name, load in loads.items():
        try:
            load()
        except ValueError as error:
            refused.append(name)
            assert str(folder) in str(error) and "\n" not in str(error)
        assert not marker.exists()
    assert (load_model in refused) == (kind in (*NEED_CODE, "adapter"))


def test_the_canary_would_sing(hostile, monkeypatch):
    """With transformers' own question and y for an answer, the code runs: the tests above can fail."""
    folder, marker = hostile("config")
    monkeypatch.setattr("builtins.input", lambda question: "y")
    AutoConfig.from_pretrained(folder)
    assert marker.exists()


def test_the_source_never_leaves_the_question_open():
    """Auto classes are told not to run code, and pickles are read as weights or by the inert unpickler."""
    found = 0
    for path in Path(admin_nmt.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner, method = ast.unparse(node.func.value), node.func.attr
            words = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if owner.startswith("Auto") and method in ("from_pretrained", "from_config"):
                assert words["trust_remote_code"] == "False", f"{path}: {owner}.{method}"
                found += 1
            if (owner, method) == ("torch", "load"):
                assert words["weights_only"] == "True", f"{path}: torch.load"
            assert (owner, method) not in {("pickle", "load"), ("pickle", "loads"), ("yaml", "unsafe_load")}, path
    assert found >= 5


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", 3, "absent.safetensors"])
def test_an_index_names_files_beside_it(good, tmp_path, name):
    folder = shutil.copytree(good, tmp_path / "model")
    shutil.copy(folder / "model.safetensors", tmp_path / "other.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    for load in (check_folder, load_model, model_info):
        with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json: does not list|absent\.safetensors: is"):
            load(folder)
    with pytest.raises(ValueError):
        average_checkpoints([folder])


def test_files_nested_beyond_reason_are_named(tmp_path):
    """Parsers of JSON and YAML give up with an error of their own kind."""
    deep = "[" * 100_000
    for name, load in (
        ("config.json", lambda: read_config(tmp_path)),
        ("results.json", lambda: load_results(tmp_path)),
        ("recipe.yaml", lambda: load_yaml(tmp_path / "recipe.yaml")),
    ):
        (tmp_path / name).write_text(deep if name.endswith("json") else deep[:2000])
        with pytest.raises(ValueError, match=re.escape(name)):
            load()


@pytest.mark.slow
def test_no_pickle_of_a_checkpoint_runs(tmp_path):
    """Resuming from checkpoints whose pickles call functions, all of them and each file alone."""
    recipe, marker = write_recipe(tmp_path, held_out=2), tmp_path / "marker"
    trained = CliRunner().invoke(app, ["train", str(recipe)], catch_exceptions=False)
    assert trained.exit_code == 0, trained.stderr
    (tmp_path / "run" / "results.json").unlink()
    shutil.copytree(tmp_path / "run", tmp_path / "kept")
    for name in (*PICKLES, None):
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(tmp_path / "kept", tmp_path / "run")
        for checkpoint in (tmp_path / "run").glob("checkpoint-*"):
            foreign_pickles(checkpoint, marker, [name] if name else PICKLES)
        CliRunner().invoke(app, ["train", str(recipe), "--training.max_steps", "7"], input=YES)
        assert not marker.exists(), name
