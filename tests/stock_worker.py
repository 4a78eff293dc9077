"""Runs stock model folders in a process of its own, as somebody would who has transformers alone."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

SEARCH: dict[str, Any] = {"num_beams": 5, "early_stopping": True, "max_new_tokens": 10}


def run_stock(folders: Sequence[Path], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the models of `folders` in another process, with what `inputs` of [`outputs`] there are."""
    torch.save(inputs, folders[0] / "inputs.pt")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, *folders], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return torch.load(folders[0] / "outputs.pt")


@torch.no_grad()
def outputs(model, tokenizer, texts: list[str] | None = None, **inputs: torch.Tensor) -> dict[str, Any]:
    """The class, logits and beam-5 output of a model, and its translations of `texts`, if there are any."""
    found = {"class": type(model).__name__, "logits": model(**inputs).logits}
    del inputs["decoder_input_ids"]
    found["beams"] = model.generate(**inputs, **SEARCH).tolist()
    if texts:
        generated = model.generate(**tokenizer(texts, return_tensors="pt", padding=True), **SEARCH)
        found["translations"] = tokenizer.batch_decode(generated, skip_special_tokens=True)
    return found


def loaded_outputs(folders: Sequence[Path], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the models of `folders` in this process."""
    results = []
    for folder in folders:
        tokenizer = AutoTokenizer.from_pretrained(folder) if "texts" in inputs else None
        results.append(outputs(AutoModelForSeq2SeqLM.from_pretrained(folder), tokenizer, **inputs))
    return results


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    results = loaded_outputs(paths, torch.load(paths[0] / "inputs.pt"))
    assert "admin_nmt" not in sys.modules
    torch.save(results, paths[0] / "outputs.pt")
