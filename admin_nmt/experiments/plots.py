"""Single pictures: of runs, from their results.json, or of models, from their folders."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..hub.model_folder import load_model, short_names
from ..hub.run_folder import RESULTS, Results, load_results
from ..model.configuration_admin import AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration
from ..runs.pictures.curves import By, has_speeds, plot_depths, plot_perplexity
from ..runs.pictures.dlcl import plot_history_weights
from ..runs.pictures.omega import plot_omega
from ..system.errors import describe, user_errors
from .tables import flat

DEFAULTS = {
    name: getattr(AdminConfig(), name)
    for name in ("omega_rule", "train_omega", "dlcl_weights", "dlcl_normalize_history", "dlcl_dilation", "dlcl_period")
}


def results_with_speeds(folder: Path) -> Results:
    """results.json of a run whose curve can be drawn by target tokens and by hours."""
    results = load_results(folder)
    if not has_speeds(results.history):
        raise ValueError(f"{folder / RESULTS}: logged no target tokens and speeds; draw its curve by updates")
    return results


def depth_row(folder: Path) -> dict[str, Any]:
    """Facts of a run for the picture by depth, with the name of its line."""
    results = load_results(folder)
    return flat(results) | {"line": line(results)}


def load(folder: Path) -> AdminForConditionalGeneration:
    """The model as it was trained: `from_pretrained` would draw the weights of a standard one at random."""
    model = load_model(folder)
    if not isinstance(model, AdminForConditionalGeneration):
        raise ValueError(f"{folder}: is a {model.config.model_type} model; give the one as trained, such as final/")
    return model


def load_with_omega(folder: Path) -> AdminForConditionalGeneration:
    """The model as it was trained, if it has ω."""
    model = load(folder)
    if not model.config.has_omega:
        raise ValueError(f"{folder}: variant {model.config.variant!r} has no ω to show")
    return model


def read_all(folders: Sequence[Path], read: Callable[[Path], Any]) -> dict[str, Any]:
    """Apply `read` to each folder, by short names; a folder where it fails is named on stderr and left out."""
    found = {}
    for name, folder in zip(short_names(folders), folders, strict=True):
        try:
            found[name] = read(folder)
        except user_errors() as error:
            print(f"left out: {describe(error)}", file=sys.stderr)
    return found


def line(results: Results) -> str:
    """Name of a run without depth and seed: the variant, and settings that are not as by default."""
    config = results.model.config
    changed = [f"{name}={config[name]}" for name, value in DEFAULTS.items() if config.get(name, value) != value]
    return ", ".join([results.model.variant, *changed])


Draw = Callable[[Mapping[str, Any], str, Path, By], None]
FIGURES: dict[str, tuple[Callable[[Path], Any], Draw]] = {
    "curves": (load_results, plot_perplexity),
    "depth": (depth_row, lambda rows, title, path, by: plot_depths([*rows.values()], title, path)),
    "dlcl": (load, lambda models, title, path, by: plot_history_weights(next(iter(models.values())), path)),
    "omega": (load_with_omega, lambda models, title, path, by: plot_omega(models, path)),
}


def draw(figure: str, inputs: Sequence[Path], output: Path, title: str = "", by: By = "updates") -> bool:
    """Draw a figure of runs or models, `curves` by updates, target tokens or hours; says whether all are in it.

    Plain files among the inputs, as a pattern finds them in the folder of a grid, are skipped. What cannot be drawn is
    named on stderr and left out.
    """
    folders = list({path.resolve(): path for path in inputs if not path.is_file()}.values())
    if not folders:
        raise ValueError(f"{figure}: name at least one folder")
    if figure == "dlcl" and len(folders) != 1:
        raise ValueError("dlcl shows one model: give one folder")
    if figure != "curves" and by != "updates":
        raise ValueError(f"--by {by} is for curves, not for {figure}")
    read, plot = FIGURES[figure]
    found = read_all(folders, results_with_speeds if by != "updates" else read)
    if not found:
        raise ValueError("nothing is left to draw")
    plot(found, title, output, by)
    return len(found) == len(folders)
