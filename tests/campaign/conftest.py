"""Seeds, folders and the table of counts."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import campaign
import pytest

README = Path(__file__).with_name("README.md")
TABLE = "<!-- table -->\n"
OUTCOMES = {"same": "ended as if nothing had been", "told": "told in one line", "not noticed": "not noticed"}
COLUMNS = {"tried": "tried"} | OUTCOMES | {"failed": "failed", "skipped": "skipped"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-table", action="store_true", help=f"write the campaign's table of counts to {README}")


def pytest_report_header() -> str:
    return f"campaign: ADMIN_NMT_CAMPAIGN_SEED={campaign.SEED} ADMIN_NMT_CAMPAIGN_SCALE={campaign.SCALE:g}"


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> Random:
    """The dice of a trial, which fall alike under the same seed."""
    print(f"ADMIN_NMT_CAMPAIGN_SEED={campaign.SEED} pytest -m campaign {request.node.nodeid!r}")  # shown when it fails
    return Random(f"{campaign.SEED} {request.node.name}")


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty folder, which stays if the trial fails."""
    failed = request.session.testsfailed
    yield tmp_path
    if request.session.testsfailed == failed:
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def tally(record_property: Callable[[str, Any], None]) -> Callable[..., None]:
    """Counts for the table: first with what a trial does, then with how it ended, one of `OUTCOMES`."""

    def count(attack: str, outcome: str | None = None, number: int = 1) -> None:
        record_property("campaign", (attack, outcome, number))

    return count


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe and its text, to be copied."""
    return campaign.new_inputs(tmp_path_factory.mktemp("campaign") / "inputs")


@pytest.fixture(scope="session")
def finished(inputs: Path) -> Path:
    """The same folder after a straight run: `run/final`, `run/standard` and all else that it leaves."""
    folder = inputs.with_name("finished")
    shutil.copytree(inputs, folder)
    campaign.assert_done(campaign.run("train", "recipe.yaml", folder=folder))
    return folder


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                count(report, counts)
    if not counts:
        return
    table = as_table(counts)
    terminalreporter.section("campaign")
    terminalreporter.write(f"{pytest_report_header()}\n{table}")
    if config.getoption("--write-table", default=False):
        head = README.read_text().split(TABLE)[0]
        README.write_text(f"{head}{TABLE}\nSeed {campaign.SEED}, scale {campaign.SCALE:g}.\n\n{table}")


def as_table(counts: dict[str, Counter[str]]) -> str:
    """Markdown, an attack a row."""
    rows = [["attack", *COLUMNS.values(), "minutes of one core"], ["---"] * (len(COLUMNS) + 2)]
    for attack, row in sorted(counts.items()):
        rows.append([attack, *(str(row[name]) for name in COLUMNS), f"{row['seconds'] / 60:.1f}"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def count(report: pytest.TestReport, counts: dict[str, Counter[str]]) -> None:
    """Add a test to the table, which may have tried several attacks."""
    told = [value for name, value in report.user_properties if name == "campaign"]
    for attack in dict.fromkeys(attack for attack, *_ in told):
        row = counts.setdefault(attack, Counter())
        tried = sum(number for name, outcome, number in told if name == attack and outcome is None)
        row["tried"] += tried
        row["seconds"] += report.duration
        row[report.outcome] += tried
        if report.passed:
            for outcome in OUTCOMES:
                row[outcome] += sum(number for name, kind, number in told if name == attack and kind == outcome)
