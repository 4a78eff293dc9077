"""The sentences that pages, help texts and recipes translate: the quickstart's model must know them, unseen."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from admin_nmt.data.phrasebook import EXAMPLES, phrasebook

ROOT = Path(__file__).parents[1]
SENTENCE = re.compile(
    r"""--text ["']([A-Z][^"']*)["']|translate\(\[?"([A-Z][^"\n]*[.?!])"|^  example: (.*)""", re.MULTILINE
)
UNLIKE = "The parliament ratified the agreement on fisheries."


def test_every_printed_sentence_is_a_known_example():
    """What `--text` and `translate` are given in pages and help texts, and the recipe's example."""
    files = [ROOT / "README.md", ROOT / "training" / "recipes" / "phrasebook.yaml"]
    files += [*(ROOT / "training" / "guide").glob("*.md"), *(ROOT / "admin_nmt" / "cli").glob("*.py")]
    rows = [row for path in files for row in SENTENCE.findall(path.read_text(encoding="utf-8"))]
    found = {sentence for row in rows for sentence in row if sentence}
    assert len(found) >= 3  # a change of form must not empty the search
    assert found <= {sentence for pair in EXAMPLES.items() for sentence in pair}


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
