"""One table and one plot of finished runs: BLEU on the test set, and how far each run got.

python training/summarize.py runs/multi30k-en-de-4-4 runs/multi30k-en-de-18-6 --output model_cards/multi30k-en-de
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

from admin_nmt.checkpoints import complete_checkpoints
from cli import run as run_script
from plot import plot_runs


@dataclass
class Arguments:
    output: str = field(metadata={"help": "Folder of the table and the plot."})
    title: str = field(default="Finished runs", metadata={"help": "Title of the page."})
    note: str = field(default="", metadata={"help": "A paragraph below the table."})


def facts(folder: Path) -> dict[str, Any]:
    """What a finished run left: results, recipe, history and the model's configuration.

    Raises:
        ValueError: the run is not finished.
    """
    if not (folder / "results.json").exists():
        raise ValueError(f"{folder}: has no results.json; finish the run with training/train.py")
    state = json.loads((complete_checkpoints(folder)[-1] / "trainer_state.json").read_text())
    return {
        "results": json.loads((folder / "results.json").read_text()),
        "training": yaml.safe_load((folder / "recipe.yaml").read_text())["training"],
        "config": json.loads((folder / "final" / "config.json").read_text()),
        "history": state["log_history"],
    }


def row(name: str, run: dict[str, Any]) -> str:
    """A line of the table."""
    results, config, test = run["results"], run["config"], run["results"]["test"]
    chosen = results["chosen"]
    cells = [
        name,
        f"{config['variant']} {config['encoder_layers']}-{config['decoder_layers']}, d {config['d_model']}",
        f"{chosen['updates']:,} × {run['training']['max_tokens']:,} tokens",
        f"{results['train_minutes']:.0f}",
        chosen["kind"],
        f"{chosen['valid'][chosen['kind']]['eval_bleu']:.2f}",
        f"**{test['bleu']:.2f}**",
        f"{test['chrf']:.2f}",
        f"{test['tokenized_lowercase_bleu']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def page(args: Arguments, runs: dict[str, dict[str, Any]]) -> str:
    """The table with its signatures, in Markdown."""
    head = [
        "run",
        "model",
        "updates",
        "minutes",
        "weights",
        "valid BLEU",
        "test BLEU",
        "test chrF",
        "lower-cased tokenised",
    ]
    tests = [run["results"]["test"] for run in runs.values()]
    signatures = sorted({test["bleu_signature"] for test in tests} | {test["chrf_signature"] for test in tests})
    searches = {json.dumps(run["results"].get("search")) for run in runs.values()}
    lines = [f"# {args.title}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [row(name, run) for name, run in runs.items()]
    lines += [
        "",
        f"Signatures: {', '.join(f'`{signature}`' for signature in signatures)}. Search: {', '.join(searches)}.",
    ]
    lines += ["", args.note, "", "![validation BLEU](bleu.png)", "", "![validation NLL](nll.png)", ""]
    return "\n".join(lines)


def main() -> None:
    arguments, folders = HfArgumentParser(Arguments, description=__doc__).parse_args_into_dataclasses(
        return_remaining_strings=True
    )
    runs = {Path(folder).name: facts(Path(folder)) for folder in folders}
    output = Path(arguments.output)
    histories = {name: run["history"] for name, run in runs.items()}
    plot_runs(histories, "eval_bleu", "validation BLEU", arguments.title, output / "bleu.png")
    plot_runs(histories, "eval_loss", "validation NLL (nats per token)", arguments.title, output / "nll.png")
    (output / "README.md").write_text(page(arguments, runs), encoding="utf-8")
    (output / "results.json").write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
