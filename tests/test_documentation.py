"""Every code block of the pages that explain the package, run or checked; a block of another kind fails.

Python blocks run as they stand, one after the other, and so do the commands that a toy run can serve, in a folder that
has what the pages speak of: `runs/mine`, `mine.yaml`, `test.en` and so on. Other commands are parsed, down to the
fields of the recipe that they change, and the files that they name must be there.
"""

import gzip
import re
import shlex
import shutil
from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from accelerate.commands.launch import launch_command_parser
from toy import invoke, write_recipe
from typer.testing import CliRunner

from admin_nmt.cli.app import app
from admin_nmt.cli.bundled import bundled, find_file
from admin_nmt.experiments.grids import load_grid
from admin_nmt.runs.recipe import load_recipe

ROOT = Path(__file__).parents[1]
GUIDE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "training" / "guide").glob("*.md"))
PAGES = ("README.md", "training/README.md", *GUIDE, "model_cards/README.md")
# Above a Python block that takes optional libraries or more than a moment: the test which runs it instead of this one.
ELSEWHERE = re.compile(r"^<!-- (.+), run by (tests/\S+) -->\n$")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = ("bash", "python", "yaml")
# A page, and the title above its table.
PAPERS = ("training/guide/experiments.md", "## The papers' tables and figures\n")
OVERRIDE = re.compile(r"--(\w+\.[\w.]+|output_dir)$")
# These take minutes, need the network or another model, or measure this machine; tests of their own run them.
PARSED_ONLY = {"train", "synthesize", "experiment", "compare", "publish", "demo", "analyse", "convert-fairseq"}
PARSED_ONLY |= {"plot dlcl", "prepare --cluster", "translate --processes"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line that opens it, its kind and its content."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [Block(page, text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in BLOCK.finditer(text)]
    assert text.count("```") == 2 * len(found), f"{page}: a block is not closed, or not at the start of its line"
    return found


def of_kind(kind: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.kind == kind]


@dataclass(frozen=True)
class Command:
    """A command of a bash block, with the files that stdin comes from and stdout goes to."""

    block: Block
    words: tuple[str, ...]
    stdin: str | None = None
    stdout: str | None = None

    def __str__(self) -> str:
        return f"{self.block}: {' '.join(self.words)}"


def commands(block: Block) -> Iterator[Command]:
    for line in block.text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        files: dict[str, str] = {}
        for word in [*lexer, "&&"]:
            if word == "&&":
                if words:
                    yield Command(block, tuple(words), files.get("<"), files.get(">"))
                words, files = [], {}
            elif words and words[-1] in ("<", ">"):
                files[words.pop()] = word
            else:
                assert word in ("<", ">") or not set(word) <= set("();<>|&"), f"{block}: {word} is not understood"
                words.append(word)


def in_table() -> list[Command]:
    """The commands of the table of all the papers' tables."""
    page, title = PAPERS
    section = (ROOT / page).read_text(encoding="utf-8").split(title)[1].split("\n#")[0]
    written = re.findall("`(admin-nmt [^`]+)`", section)
    assert len(written) > 20  # a change of the page's form must not empty the table
    return [command for text in written for command in commands(Block(page, 0, "bash", text))]


def runs_elsewhere(block: Block) -> bool:
    """Whether another test runs it, under the title that the comment above it gives."""
    above = (ROOT / block.page).read_text(encoding="utf-8").splitlines(keepends=True)[block.line - 2]
    found = ELSEWHERE.match(above)
    if found:
        title, test = found.groups()
        assert f'"{title}, ' in (ROOT / test).read_text(encoding="utf-8"), f"{block}: {test} does not run {title!r}"
    return bool(found)


ALL = [command for block in of_kind("bash") for command in commands(block)]


# Those that a toy run serves, so that they are really run.
RUN = [
    command
    for command in ALL
    if command.words[0] == "admin-nmt" and not any(set(known.split()) <= set(command.words) for known in PARSED_ONLY)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A working folder with everything that the pages' examples name, made by `admin-nmt train`."""
    folder = tmp_path_factory.mktemp("documentation")
    steps = {"save_steps": 1, "eval_steps": 1, "eval_bleu_sentences": 2, "generation_num_beams": 1}
    shutil.copy(write_recipe(folder, training=steps), folder / "mine.yaml")
    for language in ("en", "de"):
        text = (folder / f"train.{language}").read_bytes()
        (folder / f"train.{language}.gz").write_bytes(gzip.compress(text))
    pairs = zip(*((folder / f"train.{language}").read_text().splitlines() for language in ("en", "de")), strict=True)
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    invoke("train", folder / "mine.yaml", "--output_dir", folder / "runs/mine")
    for run in ("phrasebook", "train-en-de", "mine-2"):
        shutil.copytree(folder / "runs/mine", folder / "runs" / run)
    shutil.copy(folder / "runs/mine/test.hyp", folder / "test.hyp")
    return folder


@pytest.fixture
def here(folder, monkeypatch) -> Path:
    """The working folder, entered."""
    monkeypatch.chdir(folder)
    return folder


def test_every_block_is_of_a_known_kind():
    for page in PAGES:
        for block in blocks(page):
            assert block.kind in KINDS, f"{block}: a block of kind {block.kind!r} is neither run nor checked"
    assert len(RUN) > 20  # a change of the pages' form must not empty the list


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.kind == "python" for block in blocks(page))])
def test_python_runs(here, page, capsys):
    scope: dict[str, Any] = {}
    for block in blocks(page):
        if block.kind == "python" and not runs_elsewhere(block):
            exec(compile("\n" * block.line + block.text, str(ROOT / page), "exec"), scope)
    assert capsys.readouterr().out


@pytest.mark.parametrize("block", of_kind("yaml"), ids=str)
def test_yaml_is_a_recipe_or_a_grid(block, tmp_path):
    values = yaml.safe_load(block.text)
    if "systems" in values:
        (tmp_path / "phrasebook.yaml").symlink_to(bundled("recipes")["phrasebook"])
        path = tmp_path / "grid.yaml"
        path.write_text(block.text, encoding="utf-8")
        assert list(load_grid(path).runs())
        return
    base = {"output_dir": "runs/mine", "data": {"train": {"source": "train.en", "target": "train.de"}}}
    path = tmp_path / "recipe.yaml"
    sections = {name: base[name] | values[name] for name in base.keys() & values.keys() if name != "output_dir"}
    path.write_text(yaml.safe_dump(base | values | sections), encoding="utf-8")
    recipe = load_recipe(path)
    assert recipe.output_dir == "runs/mine"


def admin_nmt_arguments(command: Command) -> list[str] | None:
    """What `admin-nmt` is given, also where accelerate launches it; None for other programs."""
    program, *words = command.words
    if program == "admin-nmt":
        return words
    if program == "accelerate":
        launched = launch_command_parser().parse_args(words[1:])
        return launched.training_script_args if launched.module else ["train", *launched.training_script_args]
    return None


def parse(command: Any, name: str, arguments: list[str], parent: Any = None) -> None:
    """Refuses what the command would refuse before it begins: unknown commands and options, missing or wrong values."""
    context = command.make_context(name, list(arguments), parent=parent)
    words = [*context._protected_args, *context.args]
    if hasattr(command, "resolve_command") and words:  # without any, a group is a command of its own, or shows its help
        name, command, rest = command.resolve_command(context, words)
        parse(command, name, rest, context)


@pytest.mark.parametrize("command", [c for c in ALL + in_table() if admin_nmt_arguments(c)], ids=str)
def test_arguments_are_understood(command, here):
    arguments = admin_nmt_arguments(command)
    parse(typer.main.get_command(app), "admin-nmt", arguments)
    overrides = [word for pair in override_pairs(arguments) for word in pair]
    if "--source" in arguments[:2]:  # text of one's own, without a recipe
        assert all(Path(name).is_file() for option, name in pairwise(arguments) if option in ("--source", "--target"))
    elif arguments[0] in ("train", "prepare", "memory"):
        assert load_recipe(find_file(arguments[1], "recipes"), overrides)
    if arguments[0] == "experiment":
        grid = ROOT / arguments[1] if arguments[1].endswith(".yaml") else find_file(arguments[1], "grids")
        assert list(load_grid(grid, overrides).runs())


def override_pairs(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for name, value in pairwise(arguments):
        if OVERRIDE.match(name):
            yield name, value


@pytest.mark.parametrize("command", RUN, ids=str)
def test_commands_run(command, here):
    for new in ("averaged", "folded", "exported"):
        shutil.rmtree(here / new, ignore_errors=True)
    stdin = Path(command.stdin).read_bytes() if command.stdin else None
    result = CliRunner().invoke(app, list(command.words[1:]), input=stdin)
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes or not command.stdout


def test_files_modules_and_extras_in_commands_are_there():
    package = ConfigParser()
    package.read(ROOT / "setup.cfg", encoding="utf-8")
    for command in ALL:
        words = " ".join(command.words)
        files = re.findall(r"\btraining/[\w/-]+\.\w+", words)
        files += [f"{module.replace('.', '/')}.py" for module in re.findall(r"-m (training\.[\w.]+)", words)]
        assert all((ROOT / file).is_file() for file in files), command
        extras = {extra for found in re.findall(r"\.\[([\w,]+)\]", words) for extra in found.split(",")}
        assert extras <= set(package["options.extras_require"]), command


def every_page() -> list[str]:
    """All that people read, as paths from the root; comparisons and cards are written by commands."""
    found = [*ROOT.glob("*.md"), *(ROOT / "training").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    found += (ROOT / "model_cards").glob("**/README.md")
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@pytest.mark.parametrize("page", every_page())
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert targets or page not in PAGES
    for target in targets:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, target
