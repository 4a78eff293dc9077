"""Publishing the models of a finished run with their cards on the Hub."""

from collections.abc import Iterator
from pathlib import Path

from ..hub.repositories import push_folder
from ..hub.run_folder import FINAL, STANDARD
from .cards import check_card


def repositories(folder: Path, repo: str) -> dict[Path, str]:
    """The folders of the run's models, and where each goes."""
    final, standard = folder / FINAL, folder / STANDARD
    if not final.is_dir():
        raise ValueError(f"{folder}: holds no finished run, {FINAL}/ is missing; give the output_dir of its recipe")
    return {standard: repo, final: f"{repo}-admin"} if standard.is_dir() else {final: repo}


def publish_run(folder: Path, repo: str, *, private: bool = False) -> Iterator[str]:
    """Push the standard model to `repo` and the final one to `repo`-admin.

    Without a standard model the final one goes to `repo`. Before anything is sent the cards are checked.

    Args:
        folder: of the finished run.
        private: whether the repositories are created as private ones; public ones are refused then.

    Yields:
        The URL of each commit.

    Raises:
        ValueError: there is no finished run, or a card is missing, lacks a fact, differs from a fresh rendering or
            names another repository.
        HubError: the Hub refused or failed.
    """
    targets = repositories(folder, repo)
    for model in targets:
        check_card(folder, model, repo)
    for model, repo_id in targets.items():
        yield push_folder(model, repo_id, private=private)
