"""The recipes, grids and launch configurations that come with the package."""

import os
from errno import ENOENT
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
KINDS = {"recipes": "Recipes", "accelerate": "Launch configurations for accelerate", "grids": "Grids of experiments"}
"""Folders, each with what it holds."""


def bundled(kind: str) -> dict[str, Path]:
    """The files of a kind, by name: in an installed package its own, in a checkout those of training/."""
    folder = next((place / kind for place in (PACKAGE, PACKAGE.parent / "training") if (place / kind).is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))} if folder else {}


def find_file(name: str, kind: str) -> Path:
    """A file that a user names: by its path, or by the name of one that comes with the package.

    Raises:
        FileNotFoundError: it ends in .yaml and is not there.
        ValueError: there is neither.
    """
    path, known = Path(name), bundled(kind)
    if path.is_file():
        return path
    if name in known:
        return known[name]
    if path.suffix in (".yaml", ".yml"):
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), name)
    hint = "`admin-nmt recipe --list` lists them" if kind == "recipes" else f"there are {', '.join(known)}"
    raise ValueError(f"{name}: is no file, and no {kind[:-1]} of that name comes with the package; {hint}")


def summary(path: Path) -> str:
    """The first line of the comment that a file begins with, with an ellipsis where its sentence goes on."""
    first = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ").strip()
    return first if first.endswith(".") else f"{first} …"
