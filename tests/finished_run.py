"""A finished run of a toy model: the facts that it leaves, its folder, and the command that publishes it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars
from toy import save_models, toy_tokenizer
from typer.testing import CliRunner

from admin_nmt import AdminConfig
from admin_nmt.cli.app import app
from admin_nmt.hub.run_folder import ModelFacts
from admin_nmt.runs.cards import write_card

REPO = "someone/toy"
SENTENCE = 'Bal "don" kitu, mu re dol.'
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def toy_results(config: AdminConfig | None = None, **sections: Any) -> dict[str, Any]:
    """results.json of a finished run, with numbers that nobody measured; `sections` take the place of parts of it.

    Args:
        config: of the model; by default `admin` of 3-2 layers.
    """
    shape = {name: 32 for name in ModelFacts.model_fields if name.endswith("ffn_dim")}
    shape |= {name: 4 for name in ModelFacts.model_fields if name.endswith("attention_heads")}
    config = config or AdminConfig(encoder_layers=3, decoder_layers=2, d_model=16, vocab_size=99, **shape)
    omega = {"origin": "profiled", "encoder": [1.0, 1.5, 2.0], "decoder": [1.0, 2.5]}
    scores = {"bleu": 36.474, "chrf": 60.456, "ter": 48.1}
    facts = {
        "status": "finished",
        "diverged": None,
        "recipe": {
            "output_dir": "/somewhere/runs/toy",
            "data": {"test": {"source": "/somewhere/toy.test.en.gz", "target": "toy.test.de.gz"}, "max_length": 40},
            "tokenizer": {"vocab_size": 300},
            "model": {"variant": config.variant},
            "languages": ["en", "de"],
            "card": {"license": "cc-by-4.0", "example": SENTENCE, "repo_id": REPO},
        },
        "data": {
            "filters": {"total": 300, "empty side": 1, "duplicate": 20, "kept": 279, "too many tokens": 9},
            "sizes": {"train": 270, "valid": 30, "test": 20},
            "longest": 40,
        },
        "model": {name: getattr(config, name) for name in ModelFacts.model_fields if hasattr(config, name)}
        | {"parameters": 21_345, "config": config.to_diff_dict()},
        "omega": omega if config.has_omega else None,
        "training": {
            "updates": 600,
            "minutes": 1.25,
            "target_tokens": 1_234_567,
            "tokens_per_second": 4321.0,
            "peak_memory_gb": 0.5,
            "processes": 1,
            "device": "a CPU",
            "precision": "float32",
            "seed": 7,
            "optimizer": "radam",
            "learning_rate": 0.001,
            "warmup_steps": 100,
            "max_tokens": 512,
            "gradient_accumulation_steps": 1,
            "label_smoothing": 0.1,
        },
        "versions": {"python": "3.11", "torch": "2.13", "transformers": "5"},
        "commit": "abc1234",
        "history": [{"step": 300, "eval_bleu": 20.0}, {"step": 600, "eval_bleu": 30.0}],
        "chosen": {"kind": "last weights", "valid": {"last weights": {"eval_bleu": 30.0}}, "updates": 600},
        "export": {"refused": "DLCL has no fold"}
        if config.variant.startswith(("dlcl", "transparent"))
        else {"class": "MarianMTModel", "max_logit_error": 2.5e-6},
        "test": scores | {f"{name}_signature": SIGNATURE for name in scores} | {"tokenized_lowercase_bleu": 37.0},
        "test_sentences": 20,
        "search": {"num_beams": 3, "length_penalty": 0.8},
    }
    return facts | sections


@pytest.fixture
def make_run(tmp_path) -> Callable[..., Path]:
    """Builds a finished run of a tiny model, with its cards."""

    def make(**fields) -> Path:
        run = tmp_path / "run"
        model = save_models(run, toy_tokenizer(), **fields)
        (run / "curve.png").write_bytes(b"\x89PNG\0")
        (run / "results.json").write_text(json.dumps(toy_results(model.config)))
        for folder in (run / "standard", run / "final"):
            if folder.is_dir():
                write_card(run, folder)
        return run

    return make


@pytest.fixture
def publish(hub) -> Iterator[Callable[..., str]]:
    """Runs the command in this process without progress bars; returns what it says on stderr."""

    def call(*arguments: object) -> str:
        result = CliRunner().invoke(app, ["publish", *map(str, arguments)], catch_exceptions=False)
        assert result.exit_code == bool(result.stderr)
        return result.stderr.removesuffix("\n")

    disable_progress_bars()
    yield call
    enable_progress_bars()
