"""The cards of a finished run's models: their facts, writing and checking."""

import re
import shlex
import shutil
from pathlib import Path

from ..hub.cards import CARD, OMEGA, run_card
from ..hub.run_folder import CURVE, RESULTS, Results, load_results
from ..system.files import whole_files
from .pictures.omega import plot_mean_omega

HINTS = {
    "test": "name a test set in data.test of the recipe and train anew",
    "chosen": "let the run finish",
    "export": "let the run finish",
    "search": "let the run finish",
}
"""Facts that a card needs and not every run has, and what to do."""


def read_facts(run: Path, results: Results | None = None) -> Results:
    """The facts of a finished run that has all that a card needs.

    Args:
        results: what will be in results.json; default: what is there.

    Raises:
        ValueError: results.json is absent or damaged or lacks a fact, or the run diverged.
    """
    facts = load_results(run) if results is None else results
    if facts.diverged is not None:
        reason = facts.diverged.reason.rstrip(".")
        raise ValueError(f"{run}: has no model to describe, it diverged at update {facts.diverged.update} ({reason})")
    for name, hint in HINTS.items():
        if getattr(facts, name) is None:
            raise ValueError(f"{run / RESULTS}: {name} is missing, and a model card needs it: {hint}")
    return facts


def write_card(run: Path, folder: Path, repo_id: str | None = None, results: Results | None = None) -> Path:
    """Write README.md and its pictures into the folder of a model; all are complete, or nothing changes.

    Args:
        repo_id: as for [`run_card`].
        results: as for [`read_facts`].

    Returns:
        The path of README.md.

    Raises:
        ValueError: a fact, the run's curve.png or matplotlib is missing.
    """
    facts = read_facts(run, results)
    text, omega = run_card(facts, folder, repo_id), facts.omega
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; give that of a model of the run")
    if not (run / CURVE).is_file():
        raise ValueError(f"{run / CURVE}: is missing, and the card shows it: training leaves it in the run's folder")
    with whole_files(folder) as draft:
        shutil.copyfile(run / CURVE, draft / CURVE)
        if omega:
            plot_mean_omega(omega, draft / OMEGA)
        (draft / CARD).write_text(text, encoding="utf-8")
    return folder / CARD


def check_card(run: Path, folder: Path, repo_id: str | None = None) -> None:
    """Check that the card in the folder of a model is the one that its run's facts give.

    Args:
        repo_id: as for [`run_card`].

    Raises:
        ValueError: the card or a picture is absent, a fact is missing, or the card differs from a fresh rendering.
    """
    fresh, where = run_card(read_facts(run), folder, repo_id), f" --repo {repo_id}" if repo_id else ""
    again = f"render it with `admin-nmt model card {shlex.quote(str(run))}{where}`"
    for name in (CARD, *pictures(fresh)):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: is missing from the model card: {again}")
    if (folder / CARD).read_text(encoding="utf-8") != fresh:
        raise ValueError(f"{folder / CARD}: differs from what {run / RESULTS} gives: {again}")


def pictures(text: str) -> list[str]:
    """The files that a card shows."""
    return re.findall(r"!\[[^\]]*\]\((\S+?)\)", text)
