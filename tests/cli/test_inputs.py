"""What a command is given: wrong values are one sentence, pipes are read once, and what it prints is valid JSON."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from toy import error, invoke, random_texts

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.cli.app import app
from admin_nmt.data.tokenization.byte_bpe import save_tokenizers
from admin_nmt.weights.exporting import export_standard


@pytest.fixture
def model(tmp_path, tiny_model, tokenizer) -> Path:
    """The folder of an unfolded model."""
    folder = tmp_path / "model"
    tiny_model(vocab_size=len(tokenizer), max_position_embeddings=32).save_pretrained(folder)
    save_tokenizers(folder, tokenizer)
    return folder


@pytest.fixture
def stock(tmp_path, model, tokenizer) -> Path:
    """Its stock model."""
    export_standard(AdminForConditionalGeneration.from_pretrained(model), tokenizer, tmp_path / "stock")
    return tmp_path / "stock"


@pytest.fixture
def sides(tmp_path) -> list[bytes]:
    """The two sides of seven pairs, which are in the files source and target, too."""
    texts = ["".join(f"{line}\n" for line in random_texts(7, seed)).encode() for seed in (1, 2)]
    for name, text in zip(("source", "target"), texts, strict=True):
        (tmp_path / name).write_bytes(text)
    return texts


@pytest.mark.parametrize(
    ("command", "code", "named"),
    [
        ("translate {model} --text 'a\udcff'", 2, "UTF-8"),
        ("translate {model} --text a --num-beams 301", 1, "num_beams"),
        ("model card {model} --repo nonsense", 2, "'nonsense'"),
        ("publish {model} --repo a/b/c", 2, "a/b/c"),
        ("train {yaml}", 1, "bad.yaml: unknown field trainig"),
        ("memory {yaml}", 1, "bad.yaml: unknown field trainig"),
        ("experiment {yaml}", 1, "bad.yaml: unknown field trainig"),
        ("train phrasebook --training.learning_rate abc", 1, "--training.learning_rate"),
        ("prepare phrasebook --languages [en,german]", 1, "--languages"),
        ("memory phrasebook --training.fp16 true --training.bf16 true", 1, "fp16"),
        ("memory phrasebook --training.nonsense 1", 1, "nonsense"),
    ],
)
def test_a_wrong_value_is_one_sentence(model, tmp_path, monkeypatch, command, code, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("output_dir: x\ntrainig: {max_steps: 3}\n")
    assert named in error(*shlex.split(command.format(model=model, yaml="bad.yaml")), code=code)


def float_options() -> list[tuple[str, str]]:
    """(command, option) of every option that is a number with a fraction."""

    def options(name: str, command: Any) -> Iterator[tuple[str, str]]:
        for inner, one in getattr(command, "commands", {}).items():
            yield from options(f"{name} {inner}".strip(), one)
        shown = invoke(*name.split(), "--help").stdout
        yield from ((name, option) for option in re.findall(r"(--[\w-]+) <?float", shown, re.IGNORECASE))

    return list(options("", typer.main.get_command(app)))


def test_there_are_options_that_are_numbers_with_a_fraction():
    assert {("translate", "--length-penalty"), ("synthesize", "--temperature")} < set(float_options())


@pytest.mark.parametrize(("command", "option"), float_options())
@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_no_option_takes_a_number_that_is_not_finite(command, option, value):
    assert value in error(*command.split(), f"{option}={value}", code=2)


GENERATION, CONFIG = "generation_config.json", "config.json"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (GENERATION, "no JSON", "generation_config.json"),
        (GENERATION, "[1]", "generation_config.json"),
        (GENERATION, {"eos_token_id": None}, "generation_config.json: eos_token_id"),
        (GENERATION, {"num_beams": "x"}, "generation_config.json: num_beams"),
        (GENERATION, {"length_penalty": math.nan}, "generation_config.json: length_penalty"),
        (CONFIG, {"encoder_attention_heads": 0}, "config.json: encoder_attention_heads"),
        (CONFIG, {"decoder_attention_heads": 3}, "config.json: decoder_attention_heads"),
        (CONFIG, {"d_model": 0}, "config.json: d_model"),
        (CONFIG, {"max_position_embeddings": -1}, "config.json: max_position_embeddings"),
        (CONFIG, {"activation_function": "nope"}, "config.json: activation_function"),
    ],
)
@pytest.mark.parametrize("kind", ["model", "stock"])
def test_a_damaged_configuration_is_named(request, kind, name, change, message):
    folder = request.getfixturevalue(kind)
    values = json.loads((folder / name).read_text())
    (folder / name).write_text(change if isinstance(change, str) else json.dumps(values | change))
    assert message in error("translate", folder, "--text", "Ba.")


def test_a_generation_config_without_end_of_sentence_is_named(model):
    values = json.loads((model / GENERATION).read_text())
    (model / GENERATION).write_text(json.dumps({name: v for name, v in values.items() if name != "eos_token_id"}))
    message = error("translate", model, "--text", "x")
    assert GENERATION in message and "eos_token_id" in message


def test_weights_that_are_not_finite_give_no_translations(model, sides, tmp_path):
    broken = AdminForConditionalGeneration.from_pretrained(model)
    with torch.no_grad():
        broken.model.decoder.layers[0].fc1.bias[0] = math.nan
    broken.save_pretrained(model)
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    synthetic = ["--input", tmp_path / "source", "--generates", "target", "--output", tmp_path / "out.tsv"]
    for command in (
        ["translate", model, "--text", "Ba."],
        ["score", model, *files],
        ["evaluate", model, *files, "--language", "de"],
        ["synthesize", model, *synthetic],
        ["synthesize", model, *synthetic, "--sampling"],
    ):
        assert f"{model}: its scores are not finite" in error(*command)
        assert not (tmp_path / "out.tsv").exists()


@pytest.mark.parametrize("command", ["score", "evaluate --language de --num-beams 1"])
def test_pipes_are_read_once(model, sides, tmp_path, command):
    name, *options = command.split()
    straight = invoke(name, model, *options, "--source", tmp_path / "source", "--target", tmp_path / "target")
    for side, text in zip(("source", "target"), sides, strict=True):
        os.mkfifo(tmp_path / f"{side}.pipe")
        threading.Thread(target=(tmp_path / f"{side}.pipe").write_bytes, args=(text,), daemon=True).start()
    piped = invoke(name, model, *options, "--source", tmp_path / "source.pipe", "--target", tmp_path / "target.pipe")
    assert piped.stdout == straight.stdout


@pytest.mark.slow
def test_stdin_can_be_a_side(model, sides, tmp_path):
    command = [sys.executable, "-m", "admin_nmt", "score", str(model), "--source", "/dev/stdin"]
    straight = invoke("score", model, "--source", tmp_path / "source", "--target", tmp_path / "target").stdout
    piped = subprocess.run([*command, "--target", str(tmp_path / "target")], input=sides[0], capture_output=True)
    assert piped.stdout.decode() == straight
    both = subprocess.run([*command, "--target", "/dev/stdin"], input=sides[0], capture_output=True, text=False)
    assert b"error: /dev/stdin: is a pipe, which cannot give both sides" in both.stderr


def test_what_is_printed_is_valid_json(model, sides, tmp_path, monkeypatch):
    scores = {"bleu": math.nan, "nll": math.inf, "sentences": 7}
    monkeypatch.setattr("admin_nmt.trainer.evaluation.evaluate_translator", lambda *_, **__: ([], scores))
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    printed = invoke("evaluate", model, *files, "--language", "de").stdout
    found = json.loads(printed, parse_constant=pytest.fail)
    assert found == {"bleu": None, "nll": None, "sentences": 7, "precision": "float32"}


def test_a_perplexity_beyond_all_numbers_is_one(model, sides, tmp_path, monkeypatch):
    monkeypatch.setattr("admin_nmt.decoding.scoring.score_pairs", lambda *_, **__: [[-1e5]] * 7)
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    invoke("score", model, *files, "--summary", tmp_path / "all.json")
    assert math.isfinite(json.loads((tmp_path / "all.json").read_text())["perplexity"])
