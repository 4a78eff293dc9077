"""What a command is given: wrong values are one sentence, pipes are read once, and what it prints is valid JSON."""

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import error, invoke, truncated

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.weights.exporting import export_standard

PADDED = {"pad_token_id": 279, "decoder_start_token_id": 279}


def damage(path: Path, change: Any) -> None:
    """Removes a file, writes text, changes fields of its JSON, or damages it by a function."""
    if change is None:
        path.unlink()
    elif callable(change):
        change(path)
    else:
        text = change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change)
        path.write_text(text)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("translate {model} --text a --num-beams 301", "num_beams"),
        ("translate {model} --device cpu,abc", "'abc'"),
        ("translate {model} --device cpu,cpu --processes 1", "--processes"),
        ("train bad.yaml", "bad.yaml: unknown field trainig"),
        ("experiment bad.yaml", "bad.yaml: unknown field trainig"),
        ("train phrasebook --training.learning_rate abc", "--training.learning_rate"),
        ("prepare phrasebook --languages [en,german]", "--languages"),
        ("memory phrasebook --training.fp16 true --training.bf16 true", "fp16"),
        ("memory phrasebook --training.nonsense 1", "nonsense"),
    ],
)
def test_a_wrong_value_is_one_sentence(model, tmp_path, monkeypatch, command, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("output_dir: x\ntrainig: {max_steps: 3}\n")
    assert named in error(*command.format(model=model).split())


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("config.json", None, "config.json"),
        ("config.json", "{", "config.json"),
        ("config.json", {"variant": "foo"}, "variant"),
        ("config.json", {"vocab_size": 777}, "777"),
        ("config.json", dict.fromkeys(("vocab_size", "decoder_vocab_size"), 280) | PADDED, "280"),
        ("config.json", {"encoder_layers": 4}, "fc1.bias"),
        ("config.json", {"encoder_ffn_dim": 48}, "shape"),
        ("model.safetensors", None, "weights"),
        ("model.safetensors", truncated, "model.safetensors"),
        ("tokenizer*", None, "tokenizer"),
        ("tokenizer.json", truncated, "tokenizer"),
    ],
)
def test_a_bad_folder_is_one_sentence(model, tmp_path, name, change, named):
    for path in model.glob(name):
        damage(path, change)
    output = ["--output", tmp_path / "out"]
    for command in (["translate", model, *output], ["model", "fold", model, *output]):
        message = error(*command)
        assert named in message and str(model) in message
        assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("generation_config.json", "no JSON", ""),
        ("generation_config.json", {"eos_token_id": None}, "eos_token_id"),
        ("generation_config.json", {"num_beams": "x"}, "num_beams"),
        ("generation_config.json", {"eos_token_id": []}, "eos_token_id"),
        ("generation_config.json", {"suppress_tokens": [10**9]}, "suppress_tokens"),
        ("generation_config.json", {"length_penalty": math.nan}, "length_penalty"),
        ("config.json", {"encoder_attention_heads": 0}, "encoder_attention_heads"),
        ("config.json", {"d_model": 0}, "d_model"),
        ("config.json", {"max_position_embeddings": -1}, "max_position_embeddings"),
        ("config.json", {"encoder_layers": 10**9}, "encoder_layers"),
        ("config.json", {"dtype": "float8_e4m3fn"}, "dtype"),
        ("config.json", {"activation_function": "nope"}, "activation_function"),
    ],
)
def test_a_damaged_configuration_is_named(model, tmp_path, tokenizer, name, change, field):
    """Of a final and of a standard model."""
    export_standard(AdminForConditionalGeneration.from_pretrained(model), tokenizer, tmp_path / "standard")
    for folder in (model, tmp_path / "standard"):
        damage(folder / name, change)
        message = error("translate", folder, "--text", "Ba.")
        assert name in message and field in message


def test_weights_that_are_not_finite_give_no_translations(model, files, tmp_path):
    broken = AdminForConditionalGeneration.from_pretrained(model)
    with torch.no_grad():
        broken.model.decoder.layers[0].fc1.bias[0] = math.nan
    broken.save_pretrained(model)
    synthetic = ["--input", tmp_path / "source", "--generates", "target", "--output", tmp_path / "out.tsv"]
    for command in (
        ["translate", model, "--text", "Ba."],
        ["score", model, *files],
        ["evaluate", model, *files, "--language", "de"],
        ["synthesize", model, *synthetic, "--sampling"],
    ):
        assert f"{model}: its scores are not finite" in error(*command)
        assert not (tmp_path / "out.tsv").exists()


@pytest.mark.parametrize("command", ["score", "evaluate --language de --num-beams 1"])
def test_pipes_are_read_once(model, files, tmp_path, command):
    name, *options = command.split()
    straight = invoke(name, model, *options, *files)
    for side in ("source", "target"):
        pipe, text = tmp_path / f"{side}.pipe", (tmp_path / side).read_bytes()
        os.mkfifo(pipe)
        threading.Thread(target=pipe.write_bytes, args=(text,), daemon=True).start()
    piped = invoke(name, model, *options, "--source", tmp_path / "source.pipe", "--target", tmp_path / "target.pipe")
    assert piped.stdout == straight.stdout
