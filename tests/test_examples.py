"""The sentences that pages, help texts and recipes translate: the quickstart's model must know them, unseen."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from admin_nmt.data.phrasebook import EXAMPLES, phrasebook

ROOT = Path(__file__).parents[1]
SENTENCE = re.compile(r'"([A-Z0-9][^"\n]*\s[^"\n]*[.?!])"')
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ABOUT_TRANSLATION = re.compile("phrasebook|tokenizer|[Tt]ransl")  # others show scores or figures
COMMAND = re.compile(r"""--text ["']([A-Z][^"']*)["']""")
GUIDE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "training" / "guide").glob("*.md"))
PAGES = ("README.md", "training/README.md", *GUIDE, "model_cards/phrasebook/README.md")
UNLIKE = "The parliament ratified the agreement on fisheries."


def in_pages() -> set[str]:
    """Whole sentences in quotation marks in the code of pages and notebooks."""
    blocks = [text for page in PAGES for text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]
    for path in (ROOT / "training").rglob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        blocks += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    texts = [found for text in blocks if ABOUT_TRANSLATION.search(text) for found in SENTENCE.findall(text)]
    return {sentence for text in texts for sentence in re.split(r"(?<=[.?!])\s+", text)}


def in_commands() -> set[str]:
    """What `--text` is given in help texts and in the script of the checks."""
    files = [*(ROOT / "admin_nmt").rglob("*.py"), ROOT / ".ci" / "run"]
    return {found for path in files if path.exists() for found in COMMAND.findall(path.read_text(encoding="utf-8"))}


def in_recipe() -> set[str]:
    recipe = yaml.safe_load((ROOT / "training" / "recipes" / "phrasebook.yaml").read_text(encoding="utf-8"))
    return {recipe["card"]["example"]}


def test_every_printed_sentence_is_a_known_example():
    known = {sentence for pair in EXAMPLES.items() for sentence in pair}
    assert len(in_pages()) >= 5 and in_commands() and in_recipe()  # a change of form must not empty the search
    assert (in_pages() | in_commands() | in_recipe()) - known == set()


def test_no_example_is_in_the_quickstarts_text():
    """So that what the model does with them is no memory."""
    text = {sentence for split in phrasebook().values() for pair in split for sentence in pair}
    assert not text & {sentence for pair in EXAMPLES.items() for sentence in pair}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The quickstart, trained from beginning to end."""
    folder = tmp_path_factory.mktemp("quickstart")
    command = [sys.executable, "-m", "admin_nmt", "train", "phrasebook"]
    trained = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert trained.returncode == 0, trained.stderr
    assert "words it has never seen come out wrong" in trained.stdout.splitlines()[-2]
    return folder / "runs" / "phrasebook"


def translate(run: Path, lines: list[str], backend: str = "torch") -> tuple[list[str], str]:
    """The translations of lines, and what is said besides."""
    command = [sys.executable, "-m", "admin_nmt", "translate", str(run / "standard"), "--backend", backend]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
def test_the_quickstart_translates_all_examples_and_knows_what_it_does_not_know(run):
    translations, said = translate(run, list(EXAMPLES))
    assert dict(zip(EXAMPLES, translations, strict=True)) == EXAMPLES
    assert "warning" not in said
    _, said = translate(run, (run / "test.src").read_text(encoding="utf-8").splitlines())
    warned = re.search(r"warning: (\d+) of 500 sentences", said)
    assert warned is None or int(warned[1]) < 5  # 1 %
    for backend in ("torch", "ctranslate2"):
        assert "warning: 1 of 1 sentences" in translate(run, [UNLIKE], backend)[1]
