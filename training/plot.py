"""Plots of runs and models, one subcommand a picture.

    python training/plot.py curves runs/a runs/b --output curves.png     training and validation perplexity
    python training/plot.py depth runs/grids/x/* --output depth.png      test BLEU by depth and variant
    python training/plot.py dlcl runs/dlcl/final --output weights.png    the matrices W of DLCL
    python training/plot.py omega runs/a/final runs/b/final --output omega.png
    python training/plot.py sizes runs/a/final runs/b/final --output sizes.png
    python training/plot.py speed --measure --output speed.png           measures, leaves speed.json beside it
    python training/plot.py speed speed.json --output speed.png

`curves` and `depth` take folders of runs (with their results.json), `dlcl`, `omega` and `sizes` folders of models.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.model_folder import load_model
from cli import run
from figures import COLOURS, STYLES, plot_curve, plot_depths, plot_perplexity, plot_runs, save
from model_figures import plot_history_weights, plot_omega, plot_sizes, plot_speed
from speed import SpeedTest, measure
from tables import flat

__all__ = ["COLOURS", "STYLES", "plot_curve", "plot_runs", "save"]


def read_json(path: Path, needed: set[str]) -> dict[str, Any]:
    """What a run or a measurement left; raises OSError where it has not ended, ValueError where it lacks `needed`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is no valid JSON ({error})") from error
    if missing := needed - set(values):
        raise ValueError(f"{path}: lacks {', '.join(sorted(missing))}; make it anew with this version")
    return values


def results(folder: Path) -> dict[str, Any]:
    return read_json(folder / "results.json", {"model", "training", "history"})


def names(folders: list[Path]) -> list[str]:
    """Short names that tell the folders apart: a model's `final` is that of its run."""
    return [folder.parent.name if folder.name in ("final", "standard") else folder.name for folder in folders]


def load(folder: Path) -> AdminForConditionalGeneration:
    model = load_model(folder)
    if not isinstance(model, AdminForConditionalGeneration):
        raise ValueError(f"{folder}: is a {model.config.model_type} model; give the one as trained, such as final/")
    return model


def curves(args: argparse.Namespace) -> None:
    plot_perplexity({name: results(f) for name, f in zip(names(args.inputs), args.inputs, strict=True)}, args.output)


def depth(args: argparse.Namespace) -> None:
    plot_depths([flat(results(folder)) for folder in args.inputs], args.title, args.output)


def dlcl(args: argparse.Namespace) -> None:
    if len(args.inputs) != 1:
        raise ValueError("dlcl shows one model: give one folder")
    plot_history_weights(load(args.inputs[0]), args.output)


def omega(args: argparse.Namespace) -> None:
    plot_omega({name: load(f) for name, f in zip(names(args.inputs), args.inputs, strict=True)}, args.output)


def sizes(args: argparse.Namespace) -> None:
    plot_sizes({name: parts(load(f)) for name, f in zip(names(args.inputs), args.inputs, strict=True)}, args.output)


def parts(model: AdminForConditionalGeneration) -> dict[str, int]:
    """Parameters of the layers of each stack, and of all the rest, the embeddings; a tied one counts once."""
    stacks = {
        name: sum(p.numel() for key, p in stack.named_parameters() if not key.startswith("embed_tokens"))
        for name, stack in (("encoder", model.model.encoder), ("decoder", model.model.decoder))
    }
    return {"embeddings": sum(p.numel() for p in model.parameters()) - sum(stacks.values())} | stacks


def speed(args: argparse.Namespace) -> None:
    if args.measure == bool(args.inputs):
        raise ValueError("speed: give either a JSON of earlier measurements or --measure")
    if args.measure:
        facts = measure(SpeedTest())
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    else:
        facts = read_json(args.inputs[0], {"rows"})
    plot_speed(facts, args.output)


FIGURES: tuple[Callable[[argparse.Namespace], None], ...] = (curves, depth, dlcl, omega, sizes, speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=[figure.__name__ for figure in FIGURES])
    parser.add_argument("inputs", nargs="*", type=Path, help="folders of runs or models, or the JSON of speed")
    parser.add_argument("--output", type=Path, required=True, help="PNG, SVG or PDF file")
    parser.add_argument("--title", default="", help="of depth")
    parser.add_argument("--measure", action="store_true", help="speed: measure now, on models of random weights")
    args = parser.parse_args()
    if not args.inputs and args.figure != "speed":
        raise ValueError(f"{args.figure}: name at least one folder")
    {figure.__name__: figure for figure in FIGURES}[args.figure](args)


if __name__ == "__main__":
    run(main)
