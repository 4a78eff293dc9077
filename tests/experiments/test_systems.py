"""`admin-nmt compare` as a user runs it: what it writes, and what it says about systems that it cannot compare."""

import csv
import json
import random
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from finished_run import toy_results
from typer.testing import CliRunner

from admin_nmt.cli.app import app
from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.experiments.comparison_page import FILES, marked
from admin_nmt.experiments.comparison_plots import PICTURES
from admin_nmt.experiments.systems import read_run, target_language
from admin_nmt.metrics.scores import corpus_scores
from admin_nmt.system.markdown import escaped


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def compare(folder: Path, *arguments: object) -> tuple[int, str]:
    """Runs the command there, in this process; gives its exit code, and what it said on stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("admin_nmt.metrics.training_runs.TRIALS", 300)
        result = CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished run, one that diverged, one without test set, and files of translations."""
    folder, rng = tmp_path_factory.mktemp("compare"), random.Random(0)
    sources, references = map(list, zip(*phrasebook(60, 1, 1)["train"], strict=True))
    hypotheses = [" ".join(word for word in line.split() if rng.random() > 0.2) for line in references]
    hypotheses[0] = "<b>1 | 2</b> & “drei”"
    for name, lines in (("test.src", sources), ("test.ref", references), ("test.hyp", hypotheses)):
        write(folder / "runs" / "a" / name, lines)
    for name, status in (("a", "finished"), ("b", "diverged"), ("c", "finished")):
        facts = toy_results(status=status, diverged={"update": 7, "reason": "."} if status == "diverged" else None)
        write(folder / "runs" / name / "results.json", [json.dumps(facts)])
    write(folder / "runs" / "torn" / "results.json", ['{"status":'])
    write(folder / "perfect.txt", references)
    write(folder / "short.txt", references[:-1])
    write(folder / "empty.txt", [])
    write(folder / "train.de", [target for _, target in phrasebook(300, 1, 1)["train"]])
    for name, lines in (
        ("test.ref", references[::-1]),
        ("test.hyp", hypotheses),
        ("results.json", [json.dumps(toy_results())]),
    ):
        write(folder / "runs" / "other_test_set" / name, lines)
    return folder


@pytest.fixture(scope="module")
def report(folder) -> Path:
    systems = ("runs/a", "again=runs/a/test.hyp", "perfect.txt")
    assert compare(folder, *systems, "--train-target", "train.de", "--output", "out")[0] == 0
    return folder / "out"


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_tables_hold_the_scores_and_the_tests(report, folder):
    lines = {name: (folder / name).read_text().splitlines() for name in ("runs/a/test.hyp", "perfect.txt")}
    rows = {(row["system"], row["metric"]): row for row in read_csv(report / "scores.csv")}
    expected = corpus_scores(lines["runs/a/test.hyp"], lines["perfect.txt"])
    for metric in ("BLEU", "chrF", "TER"):
        assert float(rows["a", metric]["score"]) == pytest.approx(expected[metric.lower()], abs=1e-9)
        assert float(rows["again", metric]["p"]) == 1
        assert rows["again", metric]["verdict"] == "not significant"
        assert rows["perfect", metric]["verdict"] == "better"
    assert float(rows["perfect", "tokenized_lowercase_bleu"]["score"]) == pytest.approx(100)
    matrix = read_csv(report / "significance.csv")
    pairs = {(row["metric"], row["row"], row["column"]): row["verdict"] for row in matrix}
    assert pairs["BLEU", "a", "perfect"] == "worse"
    assert pairs["BLEU", "a", "a"] == pairs["BLEU", "a", "again"] == "not significant"
    text = (report / "README.md").read_text()
    assert "| a | = | = | − |" in text and "| perfect | + | + | = |" in text
    assert all((report / name).is_file() for name in re.findall(r"\]\(([^)]+)\)", text))


def test_the_page_needs_nothing_beside_it(report, folder):
    page = (report / "comparison.html").read_text()
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(addresses) == len(PICTURES)
    assert all(address.startswith("data:image/svg+xml;base64,") for address in addresses)
    assert not re.search(r"<(script|link|b)\b|url\(|@import", page)
    words = " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
    assert "1 | 2 & “drei”" in words.replace("<b>", "").replace("</b>", "")
    assert (folder / "runs/a/test.src").read_text().splitlines()[0] in words


def test_bad_systems_are_named_and_the_rest_is_compared(folder):
    bad = ["short.txt", "empty.txt", "runs/nothing", "runs/b", "runs/c", "runs/torn", "runs/other_test_set"]
    given = ("x=runs/a", "perfect.txt", *bad, "perfect.txt")
    code, errors = compare(folder, *given, "--baseline", "b", "--output", "rest")
    left_out = [line.split()[2] for line in errors.splitlines() if line.startswith("left out: ")]
    assert code == 1 and len(left_out) == len(bad) + 1
    assert all(said.startswith(name) for said, name in zip(left_out, [*bad, "perfect.txt"], strict=True))
    assert {row["system"] for row in read_csv(folder / "rest" / "scores.csv")} == {"x", "perfect"}
    for page in ("README.md", "comparison.html"):
        text = (folder / "rest" / page).read_text()
        assert "baseline: x." in text and all(name in text for name in bad)


def test_files_of_an_earlier_report_do_not_stay(report, folder):
    """Word accuracies and a matrix of other systems would be taken for these systems'; other files are the user's."""
    twice = folder / "twice"
    shutil.copytree(report, twice)
    assert {file.name for file in twice.iterdir()} == FILES
    (twice / "notes.txt").touch()
    compare(folder, "runs/a", "--output", "twice")
    left = FILES - {file.name for file in twice.iterdir()}
    assert left == {"significance.png", "significance.svg", "word_accuracy.png", "word_accuracy.svg"}
    assert (twice / "notes.txt").exists()


@pytest.fixture(scope="module")
def grid(tmp_path_factory) -> Path:
    """A grid's folder with three seeds of two systems, of which one run diverged, on two references."""
    folder, rng = tmp_path_factory.mktemp("grids") / "toy", random.Random(2)
    sources, references = map(list, zip(*phrasebook(30, 1, 1)["train"], strict=True))
    for system, share in (("admin-6-6", 0.1), ("post_ln-6-6", 0.4)):
        for seed in (1, 2, 10):
            run = folder / f"{system}-seed{seed}"
            hypotheses = [" ".join(word for word in line.split() if rng.random() > share) for line in references]
            files = {"test.src": sources, "test.ref": references, "test.hyp": hypotheses}
            for name, lines in (files | {"test.ref1": [f"{line} Ja." for line in references]}).items():
                write(run / name, lines)
            diverged = {"update": 7, "reason": "."} if (system, seed) == ("post_ln-6-6", 2) else None
            status = "diverged" if diverged else "finished"
            write(run / "results.json", [json.dumps(toy_results(status=status, diverged=diverged))])
    write(folder / "runs.csv", [])
    return folder


def test_the_seeds_of_a_grid_are_runs_of_its_systems(grid):
    code, errors = compare(grid.parent, grid, "--output", "out")
    out = grid.parent / "out"
    assert code == 1 and "post_ln-6-6-seed2: diverged at update 7" in errors
    text = (out / "README.md").read_text()
    plain = text.replace("\\", "")  # as it is escaped
    assert "runs of admin-6-6: admin-6-6-seed1, admin-6-6-seed2, admin-6-6-seed10" in plain
    assert "runs of post_ln-6-6: post_ln-6-6-seed1, post_ln-6-6-seed10" in plain
    first = grid / "admin-6-6-seed1"
    several = list(zip(*((first / name).read_text().splitlines() for name in ("test.ref", "test.ref1")), strict=True))
    rows = {(row["system"], row["metric"]): row for row in read_csv(out / "scores.csv")}
    scores = [
        corpus_scores((grid / f"admin-6-6-seed{n}" / "test.hyp").read_text().splitlines(), several)["bleu"]
        for n in (1, 2, 10)
    ]
    assert float(rows["admin-6-6", "BLEU"]["score"]) == pytest.approx(sum(scores) / 3)
    assert f"| admin-6-6 | 3 | {scores[2]:.2f} |" in text
    assert rows["post_ln-6-6", "TER"]["verdict"] == "worse"
    assert all(float(rows["post_ln-6-6", "METEOR (exact, stem)"][name]) > 0 for name in ("p", "s_opt", "s_sel"))
    assert "nrefs:2|bs:1000|ar:300|" in plain


def test_outputs_of_one_name_are_runs_and_references_may_be_several(folder):
    references = ("--reference", "perfect.txt", "--reference", "runs/a/test.hyp")
    systems = ("x=perfect.txt", "x=runs/a/test.hyp", "y=perfect.txt")
    assert compare(folder, *systems, *references, "--output", "named")[0] == 0
    rows = {(row["system"], row["metric"]): row for row in read_csv(folder / "named" / "scores.csv")}
    assert float(rows["x", "BLEU"]["score"]) == pytest.approx(100)
    page = (folder / "named" / "comparison.html").read_text()
    assert "runs of x: perfect.txt, test.hyp" in page
    assert page.count("<th>reference") == 2 * page.count('<table class="example">')


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("perfect.txt",), "--reference"),
        (("runs/a", "--baseline", "z"), "--baseline z"),
        (("short.txt", "--reference", "perfect.txt"), "no system is left"),
    ],
)
def test_what_leaves_nothing_to_compare_is_one_line(folder, arguments, named):
    code, errors = compare(folder, *arguments, "--output", "never")
    last = errors.splitlines()[-1]
    assert code == 1 and last.startswith("error: ") and named in last
    assert not (folder / "never").exists()


def test_language_is_that_of_the_first_run_that_says_it(tmp_path):
    facts = toy_results()
    facts["recipe"]["languages"] = ["en", "fr"]
    write(tmp_path / "fr" / "results.json", [json.dumps(facts)])
    assert target_language([tmp_path / "hyp.txt", tmp_path / "fr"]) == "fr"
    assert target_language([tmp_path / "hyp.txt"]) == "de"


def test_words_that_the_reference_lacks_are_marked():
    assert marked("a b a c", ["a c d"]) == [("a", True), ("b", False), ("a", False), ("c", True)]


HOSTILE = ("a|b", "`c`", "<script>alert(1)</script>", "![x](http://x/y.png)", "[x](y)", "*z* _u_ $m$ &lt; \\|")


def unescaped_markup(line: str) -> str:
    """The characters of a line that Markdown would take for markup."""
    return "".join(re.findall(r"[`*\[\]<$~|]", re.sub(r"\\.", "", line)))


@pytest.mark.parametrize("text", HOSTILE)
def test_quoted_text_stays_text(text):
    assert unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", escaped(text))) == text  # what a reader of Markdown sees
    assert unescaped_markup(escaped(text)) == ""


def test_a_report_quotes_names_and_sentences_as_they_are(folder):
    """Each table keeps its columns, and nothing that a system wrote becomes markup, neither here nor on the page."""
    name = r"`x`|<b>![x](http://x/y.png)* $\frac$"
    lines = (folder / "perfect.txt").read_text().splitlines()
    lines[:6] = [f"{text} {line}" for text, line in zip(HOSTILE, lines[:6], strict=True)]
    (folder / "hostile.txt").write_text("".join(f"{line}\n" for line in lines))
    systems = ["perfect.txt", f"{name}=hostile.txt"]
    options = ("--reference", "runs/a/test.ref", "--output", "hostile", "--title", "<img src=x> `t`")
    compare(folder, *systems, *options)
    report, page = ((folder / "hostile" / name).read_text() for name in ("README.md", "comparison.html"))
    for line in report.splitlines():
        assert "<" not in line
        if line.startswith("|") or line.startswith("#"):
            assert set(unescaped_markup(line)) <= {"|"}, line
    tables = [block.splitlines() for block in report.split("\n\n") if block.startswith("|")]
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table}) == 1, table
    assert "<script>" not in page and "<b>!" not in page and "<img src=x>" not in page


def test_a_further_reference_of_a_run_is_one_of_its_test_set(tmp_path):
    for name, line in (("test.hyp", "x"), ("test.ref", "y"), ("test.ref1", "z")):
        (tmp_path / name).write_text(f"{line}\n")
    (tmp_path / "results.json").write_text(json.dumps(toy_results()))
    assert read_run(tmp_path, [["z"]]) == ["x"]
    with pytest.raises(ValueError, match=r"test\.ref"):
        read_run(tmp_path, [["w"]])
