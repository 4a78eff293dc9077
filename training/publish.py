"""Publish the models of a finished run on the Hub, each with its card in one commit.

    admin-nmt card runs/phrasebook --repo user/phrasebook-en-de
    python training/publish.py runs/phrasebook --repo user/phrasebook-en-de
    python training/publish.py runs/phrasebook --repo user/phrasebook-en-de --private

The stock model of `standard/` goes to `--repo`, the trained model of `final/` with its code beside it, to the same name
with `-admin`. A run whose model has no stock class publishes `final/` alone, to `--repo`. Before anything is sent both
cards are checked: one that is missing, lacks a fact, differs from a fresh rendering or names another repository is
refused. Log in first, with `hf auth login` or HF_TOKEN; HF_ENDPOINT names another Hub.
"""

from dataclasses import dataclass, field
from pathlib import Path

from admin_nmt.hub import push_folder
from admin_nmt.runs.cards import check_card
from cli import parse, run


@dataclass
class Arguments:
    run: str = field(metadata={"help": "Folder of a finished run."})
    repo: str = field(metadata={"help": "Repository of the stock model, user/name; created if there is none."})
    private: bool = field(default=False, metadata={"help": "Create private repositories; public ones are refused."})


def repositories(folder: Path, repo: str) -> dict[Path, str]:
    """The folders of the run's models, and where each goes."""
    final, standard = folder / "final", folder / "standard"
    if not final.is_dir():
        raise ValueError(f"{folder}: holds no finished run, final/ is missing; give the output_dir of train.py")
    return {standard: repo, final: f"{repo}-admin"} if standard.is_dir() else {final: repo}


def main() -> None:
    args = parse(Arguments, __doc__)
    folder = Path(args.run)
    targets = repositories(folder, args.repo)
    for model in targets:
        check_card(folder, model, args.repo)
    for model, repo_id in targets.items():
        print(push_folder(model, repo_id, private=args.private or None), flush=True)


if __name__ == "__main__":
    run(main)
