"""Shows that a change of the code changes no numbers: short trainings before and after it, on one machine.

    python tests/golden.py --write golden.json    # before the change
    python tests/golden.py golden.json            # after it: "the same", or what differs, with exit code 1

Each of three variants makes 50 updates of the phrasebook in a process of its own, with one thread. Compared are the
losses, the evaluations, all numbers of results.json that are scores, and the bytes of the weights in final/ and
standard/. Other processors round otherwise, so that the file serves the machine that wrote it.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

VARIANTS = ("admin", "dlcl_pre_ln", "pre_ln")
FIELDS = {
    "training.max_steps": 50, "training.eval_steps": 50, "training.save_steps": 25, "training.logging_steps": 5,
    "training.warmup_steps": 20, "training.bf16": "false", "model.encoder_layers": 4,
}  # fmt: skip


def train(variant: str, folder: Path) -> dict[str, Any]:
    """Train a variant in a folder and return its numbers."""
    options = [part for name, value in FIELDS.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "admin_nmt", "train", "phrasebook", *options, "--model.variant", variant]
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [*command, "--output_dir", folder], env=os.environ | one_thread, stdout=subprocess.DEVNULL, check=True
    )
    log = json.loads((folder / "checkpoint-50" / "trainer_state.json").read_text())["log_history"]
    results = json.loads((folder / "results.json").read_text())
    weights = {path.parent.name: path.read_bytes() for path in sorted(folder.glob("[fs]*/model.safetensors"))}
    return {
        "losses": [row["loss"] for row in log if "loss" in row],
        "evaluations": [{name: row[name] for name in ("eval_loss", "eval_bleu")} for row in log if "eval_loss" in row],
        "scores": {"test": results["test"], "chosen": results["chosen"]},
        "weights": {name: hashlib.sha256(content).hexdigest() for name, content in weights.items()},
    }


def main() -> None:
    """Train the variants, and write their numbers or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing with it")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = {variant: train(variant, Path(folder) / variant) for variant in VARIANTS}
    if options.write:
        options.file.write_text(json.dumps(found, indent=1) + "\n")
        return
    wanted = json.loads(options.file.read_text())
    differences = [
        f"{variant}, {kind}: {wanted[variant][kind]} became {numbers[kind]}"
        for variant, numbers in json.loads(json.dumps(found)).items()
        for kind in numbers
        if wanted[variant][kind] != numbers[kind]
    ]
    print("\n".join(differences) or "the same")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
