"""Train every variant at the same depth on Multi30k, one seed each, and show their training NLL: one plot, one table.

    python training/variants.py --data path/to/multi30k
    python training/variants.py --data path/to/multi30k --updates 300 --encoder_layers 18 --decoder_layers 18

The optimiser, the data and its order are the same for all of them. A run that is there already is not repeated; one
that diverges is recorded as such.
"""

import json
import platform
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import HfArgumentParser

from admin_nmt.configuration_admin import VARIANTS
from admin_nmt.divergence import DivergedError
from cli import run as run_script
from plot import plot_runs
from recipe import Prepared, Recipe, build_trainer, prepare

REPORTED = 25  # updates over which the table's last NLL is averaged


@dataclass
class Arguments:
    data: str = field(metadata={"help": "Folder of Multi30k: train.en.gz, train.de.gz, val.en.gz, val.de.gz."})
    output: str = field(default="model_cards/multi30k-variants", metadata={"help": "Folder of the results."})
    runs: str = field(default="runs/variants", metadata={"help": "Folder of the runs."})
    updates: int = field(default=300, metadata={"help": "Updates of each run."})
    encoder_layers: int = field(default=18, metadata={"help": "Encoder layers."})
    decoder_layers: int = field(default=18, metadata={"help": "Decoder layers."})
    variants: list[str] = field(default_factory=lambda: list(VARIANTS), metadata={"help": "Which to train."})
    seed: int = field(default=1, metadata={"help": "Of weights, dropout and the order of the batches."})


def recipe(args: Arguments, variant: str) -> Recipe:
    """The run of one variant: width 128, 2,048 tokens a batch, RAdam at 1e-3 after 200 updates of warmup."""
    model: dict[str, Any] = {"d_model": 128, "attn_implementation": "eager", "variant": variant}
    for stack in ("encoder", "decoder"):
        model |= {f"{stack}_layers": getattr(args, f"{stack}_layers"), f"{stack}_ffn_dim": 256}
        model |= {f"{stack}_attention_heads": 4}
    return Recipe(
        output_dir=f"{args.runs}/{variant}",
        data={
            "root": args.data,
            "train": {"source": "train.en.gz", "target": "train.de.gz"},
            "valid": {"source": "val.en.gz", "target": "val.de.gz"},
        },
        tokenizer={"vocab_size": 8000},
        model=model,
        training={
            "max_tokens": 2048, "learning_rate": 1e-3, "warmup_steps": 200, "max_steps": args.updates,
            "seed": args.seed, "logging_steps": 5, "save_strategy": "no", "eval_bleu": False, "optimizer": "radam",
        },
    )  # fmt: skip


def run(args: Arguments, variant: str, prepared: Prepared) -> dict[str, Any]:
    """Train one variant and return its facts."""
    trainer = build_trainer(recipe(args, variant), prepared)
    start = time.perf_counter()
    facts: dict[str, Any] = {
        "variant": variant,
        "parameters": trainer.model.num_parameters(),
        "machine": f"{torch.get_num_threads()} threads of {platform.machine()}",
    }
    try:
        trainer.train()
    except DivergedError as error:
        facts["diverged"] = str(error)
    facts["minutes"] = (time.perf_counter() - start) / 60
    facts["valid_nll"] = trainer.evaluate()["eval_loss"]
    return facts | {"history": [row for row in trainer.state.log_history if "nll" in row]}


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as a Markdown table."""
    rows = ["| variant | parameters | training NLL at the end | validation NLL |", "|---|---|---|---|"]
    for variant, facts in results.items():
        steps = [row["step"] for row in facts["history"]]
        last = [row["nll"] for row in facts["history"] if row["step"] > steps[-1] - REPORTED]
        end = "diverged" if "diverged" in facts else f"{sum(last) / len(last):.2f}"
        size = f"{facts['parameters'] / 1e6:.1f}M"
        rows.append(f"| {variant} | {size} | {end} | {facts['valid_nll']:.2f} |")
    return "\n".join(rows) + "\n"


def report(args: Arguments, results: dict[str, dict[str, Any]], folder: Path) -> None:
    """Write the plot, the numbers and the README of the results."""
    depth = f"{args.encoder_layers}-{args.decoder_layers}"
    histories = {variant: facts["history"] for variant, facts in results.items()}
    title = f"Multi30k En-De, {depth} layers, width 128, seed {args.seed}"
    diverged = {variant for variant, facts in results.items() if "diverged" in facts}
    plot_runs(histories, "nll", "training NLL (nats per token)", title, folder / "nll.png", diverged)
    settings = asdict(recipe(replace(args, data="multi30k"), "VARIANT"))
    facts = {"settings": settings, "torch": torch.__version__, "transformers": transformers.__version__}
    (folder / "results.json").write_text(json.dumps(facts | {"results": results}, indent=1) + "\n")
    (folder / "README.md").write_text(
        f"# Training NLL by variant at depth {depth}\n\n"
        f"Multi30k En-De, width 128, feed-forward 256, 4 heads, 2,048 tokens a batch, RAdam, peak rate 1e-3 after 200 "
        f"updates of warmup, {args.updates} updates, dropout 0.1, label smoothing 0.1, seed {args.seed}, on a CPU. "
        f"The training NLL is the mean over the last {REPORTED} updates, dropout on, without smoothing.\n\n"
        f"{table(results)}\n![training NLL](nll.png)\n\n"
        "Made by `python training/variants.py --data path/to/multi30k`; the numbers are in results.json.\n"
    )


def main() -> None:
    (args,) = HfArgumentParser(Arguments, description=__doc__).parse_args_into_dataclasses()
    prepared = prepare(recipe(args, "admin"))
    results: dict[str, dict[str, Any]] = {}
    for variant in args.variants:
        depth = f"{args.encoder_layers}-{args.decoder_layers}"
        stored = Path(args.runs) / variant / f"facts-{depth}-{args.updates}-{args.seed}.json"
        if not stored.exists():
            facts = run(args, variant, prepared)
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.write_text(json.dumps(facts))
        results[variant] = json.loads(stored.read_text())
        print(table(results))
        report(args, results, Path(args.output))


if __name__ == "__main__":
    run_script(main)
