"""Plots of runs and models, one subcommand a picture.

    python training/plot.py curves runs/a runs/b --output curves.png     training and validation perplexity
    python training/plot.py depth runs/grids/x/* --output depth.png      test BLEU by depth and variant
    python training/plot.py dlcl runs/dlcl/final --output weights.png    the matrices W of DLCL
    python training/plot.py omega runs/a/final runs/b/final --output omega.png
    python training/plot.py sizes runs/a/final runs/b/final --output sizes.png
    python training/plot.py speed --measure --output speed.png           measures, leaves speed.json beside it
    python training/plot.py speed speed.json --output speed.png

`curves` and `depth` take folders of runs (with their results.json), `dlcl`, `omega` and `sizes` folders of models.
Plain files among them, as a pattern finds them in the folder of a grid, are skipped. What cannot be drawn is named and
left out; the exit code is then 1.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.benchmarks.generation_speed import SpeedTest, measure
from admin_nmt.cli.commands import USER_ERRORS, describe
from admin_nmt.figures.curves import plot_depths, plot_perplexity
from admin_nmt.figures.weights import plot_history_weights, plot_omega, plot_sizes, plot_speed
from admin_nmt.model_folder import load_model
from admin_nmt.reports.tables import flat
from admin_nmt.runs.results import FILE, load_results
from cli import ANEW, run

DEFAULTS = {
    name: getattr(AdminConfig(), name)
    for name in ("omega_rule", "train_omega", "dlcl_weights", "dlcl_normalize_history")
}
RESULTS = {"status", "diverged", "model", "training", "history", "versions", "commit"}


def read_json(path: Path, needed: set[str]) -> dict[str, Any]:
    """What a run or a measurement left; raises OSError where there is no file, ValueError where it lacks `needed`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is no valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: is no JSON object")
    check(path, values, needed)
    return values


def check(path: Path, values: Mapping[str, Any], needed: set[str]) -> None:
    """Raises ValueError where `values`, from a file of another version, lack any that are needed."""
    if missing := needed - set(values):
        raise ValueError(f"{path}: lacks {', '.join(sorted(missing))}; make it anew with this version")


def results(folder: Path) -> dict[str, Any]:
    """results.json of a run that ended."""
    if not folder.exists():
        raise ValueError(f"{folder}: there is no such folder")
    values = load_results(folder)
    check(folder / FILE, values, RESULTS)
    return values


def load(folder: Path) -> AdminForConditionalGeneration:
    model = load_model(folder)
    if not isinstance(model, AdminForConditionalGeneration):
        raise ValueError(f"{folder}: is a {model.config.model_type} model; give the one as trained, such as final/")
    return model


def load_with_omega(folder: Path) -> AdminForConditionalGeneration:
    model = load(folder)
    if not model.config.has_omega:
        raise ValueError(f"{folder}: variant {model.config.variant!r} has no ω to show")
    return model


def parts(model: AdminForConditionalGeneration) -> dict[str, int]:
    """Parameters of the layers of each stack, and of all the rest, the embeddings; a tied one counts once."""
    stacks = {
        name: sum(p.numel() for key, p in stack.named_parameters() if not key.startswith("embed_tokens"))
        for name, stack in (("encoder", model.model.encoder), ("decoder", model.model.decoder))
    }
    return {"embeddings": sum(p.numel() for p in model.parameters()) - sum(stacks.values())} | stacks


def names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of different paths that tell them apart: a model's `final` is that of its run."""
    paths = [folder.resolve() for folder in folders]
    runs = [path.parent if path.name in ("final", "standard") else path for path in paths]
    if len(set(runs)) < len(runs):  # two folders of one run
        runs = paths

    def short(run: Path) -> str:
        ends = (run.parts[-count:] for count in range(1, len(run.parts) + 1))
        return "/".join(next(end for end in ends if sum(other.parts[-len(end) :] == end for other in runs) == 1))

    return [short(run) for run in runs]


def read_all(folders: Sequence[Path], read: Callable[[Path], Any]) -> dict[str, Any]:
    """What `read` makes of each folder, by short names; where it cannot, this is said on stderr."""
    found = {}
    for name, folder in zip(names(folders), folders, strict=True):
        try:
            found[name] = read(folder)
        except USER_ERRORS as error:
            print(f"left out: {describe(error)}", file=sys.stderr)
    return found


def line(results: Mapping[str, Any]) -> str:
    """What runs have in common that differ in depth and seed alone: the variant, and what is not as by default."""
    model = results["model"]
    config = model.get("config", {})
    return ", ".join([model["variant"], *(f"{k}={config[k]}" for k, v in DEFAULTS.items() if config.get(k, v) != v)])


Draw = Callable[[Mapping[str, Any], argparse.Namespace], None]
FIGURES: dict[str, tuple[Callable[[Path], Any], Draw]] = {
    "curves": (results, lambda runs, args: plot_perplexity(runs, args.title, args.output)),
    "depth": (
        lambda folder: flat(run := results(folder)) | {"line": line(run)},
        lambda rows, args: plot_depths([*rows.values()], args.title, args.output),
    ),
    "dlcl": (load, lambda models, args: plot_history_weights(*models.values(), args.output)),
    "omega": (load_with_omega, lambda models, args: plot_omega(models, args.output)),
    "sizes": (lambda folder: parts(load(folder)), lambda sizes, args: plot_sizes(sizes, args.output)),
}


def draw(args: argparse.Namespace) -> bool:
    """Draw the figure of runs or models that was asked for; says whether all of them are in it."""
    files = [path for path in args.inputs if path.is_file()]
    folders = list({path.resolve(): path for path in args.inputs if path not in files}.values())
    if files:
        print(f"skipped, as they are no folders: {', '.join(path.name for path in files)}", file=sys.stderr)
    if not folders:
        raise ValueError(f"{args.figure}: name at least one folder")
    if args.figure == "dlcl" and len(folders) != 1:
        raise ValueError("dlcl shows one model: give one folder")
    read, plot = FIGURES[args.figure]
    found = read_all(folders, read)
    if not found:
        raise ValueError("nothing is left to draw")
    plot(found, args)
    return len(found) == len(folders)


def speed(args: argparse.Namespace) -> None:
    """Draw the speed by depth, measured now or earlier."""
    if args.measure == bool(args.inputs):
        raise ValueError("speed: give either a JSON of earlier measurements or --measure")
    if len(args.inputs) > 1:
        raise ValueError("speed shows one measurement: give one JSON")
    if args.measure:
        facts = measure(SpeedTest())
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    else:
        facts = read_json(args.inputs[0], {"rows", "settings", "device"})
        check(args.inputs[0], facts["settings"], {"others", "num_beams", "d_model"})
    plot_speed(facts, args.output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=[*FIGURES, "speed"])
    parser.add_argument("inputs", nargs="*", type=Path, help="folders of runs or models, or the JSON of speed")
    parser.add_argument("--output", type=Path, required=True, help="PNG, SVG or PDF file")
    parser.add_argument("--title", default="", help="of curves and depth")
    parser.add_argument("--measure", action="store_true", help="speed: measure now, on models of random weights")
    args = parser.parse_args()
    if args.figure == "speed":
        speed(args)
    elif not draw(args):
        sys.exit(1)


if __name__ == "__main__":
    run(main, ANEW)
