"""`admin-nmt synthesize` as a user runs it, and the whole way from a reverse model to a comparison."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from admin_nmt.data.phrasebook import phrasebook

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
LAUNCH = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"


def command(*arguments: object, launch: str = "") -> list[str]:
    return [sys.executable, *launch.split(), "-m", "admin_nmt", *map(str, arguments)]


def run(*arguments: object, **options: str) -> str:
    """What a command prints, run in a process of its own, on one thread and without network."""
    result = subprocess.run(command(*arguments, **options), capture_output=True, text=True, env=ENVIRONMENT)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def write_recipe(path: Path, source: str, target: str, train: object, steps: int) -> Path:
    """A recipe of a 2-1 model beside its data."""
    files = {split: {"source": f"{split}.{source}", "target": f"{split}.{target}"} for split in ("valid", "test")}
    recipe = {
        "output_dir": str(path.parent / "runs" / path.stem),
        "languages": [source, target],
        "data": {"root": str(path.parent), "cache_dir": str(path.parent / "cache"), "train": train} | files,
        "tokenizer": {"vocab_size": 400},
        "model": {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        | {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "dropout": 0.0, "max_position_embeddings": 128},
        "training": {"max_tokens": 512, "warmup_steps": 5, "max_steps": steps, "learning_rate": 3e-3}
        | {"logging_steps": 5, "save_strategy": "no", "report_to": "none"},
        "evaluation": {"num_beams": 1},
    }
    path.write_text(yaml.safe_dump(recipe))
    return path


def write_corpus(folder: Path) -> None:
    """400 training pairs, a few for validation and test, and 300 more in mono.en and mono.de."""
    splits = phrasebook(700, 20, 20)
    splits["train"], splits["mono"] = splits["train"][:400], splits["train"][400:]
    for split, rows in splits.items():
        for language, lines in zip(("en", "de"), zip(*rows, strict=True), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def pairs(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_back_translation_from_the_reverse_model_to_the_comparison(tmp_path):
    """Interrupted and continued on two processes, the synthetic pairs are those of one process."""
    write_corpus(tmp_path)
    reverse = write_recipe(tmp_path / "reverse.yaml", "de", "en", {"source": "train.de", "target": "train.en"}, 30)
    run("train", reverse)
    text, output = tmp_path / "mono.de", tmp_path / "synthetic.tsv"
    arguments = [tmp_path / "runs" / "reverse" / "standard", "--input", text, "--generates", "source"]
    arguments += ["--sampling", "--chunk", "20", "--max-ratio", "0", "--max-words", "1000"]
    run("synthesize", *arguments, "--output", tmp_path / "straight.tsv")

    process = subprocess.Popen(command("synthesize", *arguments, "--output", output), env=ENVIRONMENT)
    record = tmp_path / "synthetic.tsv.partial.json"
    while not (record.exists() and json.loads(record.read_text())["lines"]):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < json.loads(record.read_text())["lines"] < 300
    printed = run("synthesize", *arguments, "--output", output, launch=LAUNCH)
    assert printed.count("kept") == 1
    assert output.read_bytes() == (tmp_path / "straight.tsv").read_bytes()
    assert {target for _, target in pairs(output)} <= set(text.read_text(encoding="utf-8").splitlines())
    assert not list(tmp_path.glob("*.partial*")) and not list(tmp_path.glob(".synthetic*"))

    bitext = {"source": "train.en", "target": "train.de", "upsample": 2}
    mixed = [bitext, {"source": "synthetic.tsv", "tag": "<bt>"}]
    run("train", write_recipe(tmp_path / "with.yaml", "en", "de", mixed, 10))
    vocabulary = ["--tokenizer.path", tmp_path / "runs" / "with" / "final"]
    run("train", write_recipe(tmp_path / "without.yaml", "en", "de", bitext, 10), *vocabulary)
    run("compare", tmp_path / "runs" / "without", tmp_path / "runs" / "with", "--output", tmp_path / "report")
    report = (tmp_path / "report" / "README.md").read_text()
    assert "without" in report and "paired bootstrap" in report


@pytest.mark.slow
def test_distillation_with_the_teachers_vocabulary(tmp_path):
    write_corpus(tmp_path)
    bitext = {"source": "train.en", "target": "train.de"}
    run("train", write_recipe(tmp_path / "teacher.yaml", "en", "de", bitext, 30))
    teacher = tmp_path / "runs" / "teacher"
    arguments = [teacher / "standard", "--input", tmp_path / "train.en", "--generates", "target", "--num-beams", "2"]
    run("synthesize", *arguments, "--max-ratio", "0", "--output", tmp_path / "distilled.tsv")
    found = dict(pairs(tmp_path / "distilled.tsv"))
    sources = (tmp_path / "train.en").read_text(encoding="utf-8").splitlines()
    assert set(found) <= set(sources) and len(found) > 0.9 * len(set(sources))
    recipe = write_recipe(tmp_path / "student.yaml", "en", "de", {"source": "distilled.tsv"}, 10)
    # A teacher of 30 updates babbles: its text has more tokens than it wrote.
    student = ["--model.encoder_layers", "1", "--model.max_position_embeddings", "1024"]
    run("train", recipe, "--tokenizer.path", teacher / "final", *student)
    assert (tmp_path / "runs" / "student" / "standard" / "model.safetensors").exists()
