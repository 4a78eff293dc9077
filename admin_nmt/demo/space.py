"""The page as a Space on the Hub: app.py, its requirements, a README with its settings, and this package's source.

The package comes along as a folder: a Space installs requirements.txt before its other files are there, so it could not
install a wheel among them.
"""

import platform
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory

from ..hub.cards import CARD, space_card
from ..hub.repositories import push_folder
from ..runs.publishing import publish_run, repositories
from .description import describe_model

PACKAGE = Path(__file__).parents[1]
SOURCES = (".py", ".css", ".jinja", ".tsv", ".typed")
# Rooms that the page does without.
NOT_SHOWN = ("cli", "experiments", "runs", "trainer")
# These have the releases of the machine that published. The others keep the package's own bounds, for a Space adds
# packages of the Hub that have bounds of their own.
PINNED = ("torch", "transformers", "ctranslate2")
EXTRAS = ("ctranslate2", "paragraphs")
APP = '''"""A page that translates with {model}; the package admin_nmt lies beside this file."""

from admin_nmt.demo.page import build_page, serve
from admin_nmt.demo.session import ServedModel

page = build_page([ServedModel("{model}")])
serve(page)
page.block_thread()
'''


def publish_with_space(run: Path, repo: str, *, private: bool = False) -> Iterator[str]:
    """Push the models of a finished run, see [`publish_run`], and then a Space of the same name that shows `repo`.

    The Space is made, and the cards are checked, before anything is sent.

    Yields:
        The URL of each commit.

    Raises:
        ValueError, HubError: as there.
        ImportError: Gradio, whose release a Space names, is not installed.
    """
    shown = next(iter(repositories(run, repo)))
    with TemporaryDirectory() as name:
        write_space(Path(name), shown, repo)
        yield from publish_run(run, repo, private=private)
        yield push_folder(name, repo, repo_type="space", private=private)


def write_space(folder: Path, model: Path, repo: str) -> None:
    """Write the files of a Space.

    Args:
        folder: where to; exists.
        model: folder of the model that is in `repo`, or will be; its card has the languages and the licence.

    Raises:
        ValueError: the folder is no model, or its card cannot be read.
        ImportError: Gradio is not installed.
    """
    description = describe_model(model)
    title = description.title or repo.split("/")[1]
    try:
        gradio = version("gradio")
    except PackageNotFoundError as error:
        raise ImportError('a Space names the release of Gradio: pip install "admin_nmt[demo]"') from error
    python = ".".join(platform.python_version_tuple()[:2])
    card = space_card(title, repo, description.card.license, version("admin_nmt"), sdk_version=gradio, python=python)
    (folder / CARD).write_text(card, encoding="utf-8")
    (folder / "app.py").write_text(APP.format(model=repo), encoding="utf-8")
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in requirements()), encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*")):
        within = path.relative_to(PACKAGE)
        if path.suffix in SOURCES and within.parts[0] not in NOT_SHOWN:
            target = folder / PACKAGE.name / within
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    license_text = distribution("admin_nmt").read_text("licenses/LICENSE")
    if license_text:
        (folder / PACKAGE.name / "LICENSE").write_text(license_text, encoding="utf-8")


def requirements() -> list[str]:
    """List what the package and these extras need; Gradio comes with the Space."""
    found = []
    for line in requires("admin_nmt") or []:
        requirement, _, marker = line.partition(";")
        name = re.split(r"[^\w.-]", requirement)[0]
        if not marker or marker.strip() in [f'extra == "{extra}"' for extra in EXTRAS]:
            found.append(_pinned(name) if name in PINNED else requirement.strip())
    return found


def _pinned(name: str) -> str:
    """A requirement of the release that is installed; of any, where none is."""
    try:
        return f"{name}=={version(name).split('+')[0]}"
    except PackageNotFoundError:
        return name
