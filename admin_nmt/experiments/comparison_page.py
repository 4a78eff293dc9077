"""A comparison as Markdown, CSV and one HTML page."""

import base64
import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..metrics import training_runs
from ..metrics.comparison import Buckets, Comparison, Contrast
from ..metrics.significance import Difference
from ..system.files import whole_files
from ..system.markdown import escaped, table_lines
from .comparison_plots import LEAST, PICTURES, plot_comparison

VERDICTS = {"+": "better", "−": "worse", "=": "not significant"}
ARROW = {True: " ↓", False: ""}  # of lower is better
NAMES = {"tokenized_bleu": "tokenised BLEU", "tokenized_lowercase_bleu": "lower-cased tokenised BLEU", "comet": "COMET"}
LEFT_OUT = f"Buckets of fewer than {LEAST} are not in the plot."
ENOUGH = 100  # sentences for a bootstrap
RUNS_NOTE = (
    "{sentences:,} sentences. Scores are means over the training runs of a system; s_opt: standard deviation over the "
    "runs; s_sel: standard deviation over {samples:,} bootstrap samples of the sentences, mean over the runs. Δ: "
    "against {baseline}; + better, − worse at p < 0.05, = neither (two-sided approximate randomisation, {trials:,} "
    "trials, over the translations of all runs: Clark et al. 2011). p speaks of these runs alone: where Δ is not well "
    "above s_opt, other seeds may say otherwise. ↓: lower is better. "
)
# Every file of a report; one of an earlier report that the new one lacks would be taken for a part of it.
FILES = {"README.md", "comparison.html", "scores.csv", "significance.csv"}
FILES |= {f"{name}.{kind}" for name in PICTURES for kind in ("png", "svg")}


@dataclass
class Table:
    """A table to read, every cell a text."""

    header: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Section:
    """Part of the report: its tables, and the name of its picture, one of [`PICTURES`]."""

    title: str
    picture: str
    tables: list[Table]


def write_report(comparison: Comparison, folder: Path, title: str, remarks: Sequence[str] = ()) -> None:
    """Write README.md, comparison.html, the tables as CSV and the plots as PNG and SVG.

    Everything is made in a temporary folder first, so a failure leaves the files of an earlier report as they were.

    Args:
        comparison: what to report.
        folder: what an earlier report left there and this one lacks is deleted.
        title: of the report.
        remarks: what a reader must know beforehand, such as the systems that were left out.
    """
    remarks = [*remarks, *warnings(comparison)]
    folder.mkdir(parents=True, exist_ok=True)
    with whole_files(folder) as draft:
        plot_comparison(comparison, draft)
        for stem, rows in csv_tables(comparison).items():
            with open(draft / f"{stem}.csv", "w", encoding="utf-8", newline="") as table:
                csv.writer(table).writerows(rows)
        parts = sections(comparison)
        (draft / "README.md").write_text(markdown(title, parts, comparison, remarks), encoding="utf-8")
        (draft / "comparison.html").write_text(html(title, parts, comparison, remarks, draft), encoding="utf-8")
        written = {file.name for file in draft.iterdir()}
    for file in FILES - written:
        (folder / file).unlink(missing_ok=True)


def warnings(comparison: Comparison) -> list[str]:
    """Remarks on what makes the tests weak, and on which of several references or runs a part of the page shows."""
    count, found = len(comparison.references), []
    if count < ENOUGH:
        few = f"The test set has only {count} sentence{'s' if count > 1 else ''}: below about {ENOUGH} the bootstrap's"
        found.append(f"{few} intervals and p are too small to rely on.")
    if comparison.more_references:
        found.append("Words, n-grams and lengths are counted in the first reference; the scores use all of them.")
    if has_runs(comparison):
        found.append("N-grams and examples are of each system's first run; all other numbers are means over its runs.")
    return found


def has_runs(comparison: Comparison) -> bool:
    """True where a system was trained more than once."""
    return max(comparison.runs.values()) > 1


def summary(comparison: Comparison) -> str:
    """Number of systems and references, and the baseline."""
    count, references = len(comparison.systems), len(comparison.more_references) + 1
    text = f"{count} system{'s' if count > 1 else ''}, baseline: {comparison.baseline}."
    return text if references == 1 else f"{text} {references} references a sentence."


def sections(comparison: Comparison) -> list[Section]:
    """Everything but the examples."""
    tested = run_tables(comparison) if has_runs(comparison) else [score_table(comparison)]
    parts = [Section("Scores", "scores", tested + other_scores(comparison))]
    if len(comparison.systems) > 1:
        matrices = [matrix_table(comparison, metric) for metric in comparison.matrices]
        parts.append(Section("Each system against each", "significance", matrices))
    if comparison.accuracy:
        note = "F1 (%) of the words of a frequency. " + LEFT_OUT
        table = bucket_table(comparison.accuracy, "times in training text", "words", note)
        parts.append(Section("Word accuracy by training frequency", "word_accuracy", [table]))
    note = "BLEU of the sentences of a length. " + LEFT_OUT
    table = bucket_table(comparison.lengths, "tokens of the reference", "sentences", note)
    return [*parts, Section("BLEU by sentence length", "bleu_by_length", [table])]


def score_table(comparison: Comparison) -> Table:
    """Scores that have a significance test, with their difference from the baseline."""
    header = ["system"]
    for metric, tested in comparison.against.items():
        header += [metric + ARROW[tested[comparison.baseline].lower_is_better], "Δ (p)"]
    rows = []
    for name in comparison.systems:
        row = [name]
        for tested in comparison.against.values():
            one = tested[name]
            row += [f"{one.score:.2f} ± {one.interval:.2f}", "" if name == comparison.baseline else versus(one)]
        rows.append(row)
    note = (
        f"{len(comparison.references):,} sentences. Δ: against {comparison.baseline}; + better, − worse at p < 0.05, "
        "= neither (sacreBLEU's paired bootstrap, 1,000 samples; its p is about that of a one-sided test, "
        "at least 2⁻ⁿ where n lines differ). "
        "±: 95% confidence interval. ↓: lower is better. "
    )
    note += " ".join(f"{metric}: {signature}." for metric, signature in comparison.signatures.items())
    return Table(header, rows, note)


def run_tables(comparison: Comparison) -> list[Table]:
    """A table for each score that is tested over the training runs, as MultEval has them, and one of every run."""
    tables, baseline = [], comparison.baseline
    for metric, tested in comparison.against.items():
        rows = []
        for name, one in tested.items():
            spreads = ["–" if s is None else f"{s:.2f}" for s in (one.s_opt, one.s_sel)]
            delta = "" if name == baseline else versus(one)
            rows.append([name, f"{comparison.runs[name]}", f"{one.score:.2f}", *spreads, delta])
        arrow = ARROW[tested[baseline].lower_is_better]
        header = ["system", "runs", metric + arrow, "s_opt", "s_sel", "Δ (p)"]
        tables.append(Table(header, rows, f"{metric}: {comparison.signatures[metric]}."))
    counts = {"sentences": len(comparison.references), "trials": training_runs.TRIALS, "samples": training_runs.SAMPLES}
    tables[0].note = RUNS_NOTE.format(baseline=baseline, **counts) + tables[0].note
    titles = [metric + ARROW[one[baseline].lower_is_better] for metric, one in comparison.against.items()]
    rows = [
        [name, f"{run + 1}", *(f"{scores[name][run]:.2f}" for scores in comparison.run_scores.values())]
        for name, runs in comparison.runs.items()
        for run in range(runs)
    ]
    return [*tables, Table(["system", "run", *titles], rows, "Every run by itself.")]


def versus(one: Difference) -> str:
    """A difference with its p and verdict."""
    p = f"{one.p:.3f}" if one.p >= 0.001 else "<0.001"
    return f"{signed(one.points)} ({p}) {one.mark}"


def signed(points: float, digits: int = 2) -> str:
    """With a true minus, and none for nothing."""
    return f"{points:+.{digits}f}".replace("-", "−") if points else f"{0:.{digits}f}"


def other_scores(comparison: Comparison) -> list[Table]:
    """Scores without a test, with their difference from the baseline; none where there is no such score."""
    of_baseline = comparison.scores[comparison.baseline]
    metrics = [name for name, value in of_baseline.items() if not isinstance(value, str)]
    if not metrics:
        return []
    rows = []
    for name, scores in comparison.scores.items():
        difference = {metric: float(scores[metric]) - float(of_baseline[metric]) for metric in metrics}
        digits = {metric: 4 if metric == "comet" else 2 for metric in metrics}  # it goes from 0 to 1
        shown = (f"{scores[one]:.{digits[one]}f} ({signed(difference[one], digits[one])})" for one in metrics)
        rows.append([name, *shown])
    return [Table(["system", *map(label, metrics)], rows, "In brackets: Δ, not tested.")]


def label(metric: str) -> str:
    """Name of a score in a table."""
    return NAMES.get(metric, metric)


def matrix_table(comparison: Comparison, metric: str) -> Table:
    """Marks of each system (row) against each (column)."""
    names = list(comparison.systems)
    matrix = comparison.matrices[metric]
    rows = [[row, *(matrix[row, column].mark for column in names)] for row in names]
    return Table(
        [metric, *names], rows, f"{metric}: + the row is better than the column at p < 0.05, − worse, = neither."
    )


def bucket_table(buckets: Buckets, title: str, what: str, note: str) -> Table:
    """A row for every bucket that holds something."""
    columns = zip(buckets.labels, buckets.counts, *buckets.values.values(), strict=True)
    rows = [[label, f"{count:,}", *(f"{value:.2f}" for value in values)] for label, count, *values in columns if count]
    return Table([title, what, *buckets.values], rows, note)


def csv_tables(comparison: Comparison) -> dict[str, list[list[Any]]]:
    """All scores and all tests, in full precision, by the name of the file."""
    header = ["system", "metric", "score", "difference", "interval", "p", "verdict", "s_opt", "s_sel"]
    pairs = [
        [metric, row, column, one.points, one.p, VERDICTS[one.mark]]
        for metric, matrix in comparison.matrices.items()
        for (row, column), one in matrix.items()
    ]
    return {
        "scores": [header, *score_rows(comparison)],
        "significance": [["metric", "row", "column", "difference", "p", "verdict"], *pairs],
    }


def score_rows(comparison: Comparison) -> list[list[Any]]:
    """Every score of every system; interval, p and verdict where there is a test."""
    rows: list[list[Any]] = []
    for metric, tested in comparison.against.items():
        for name, one in tested.items():
            verdict = VERDICTS[one.mark]
            rows.append([name, metric, one.score, one.points, one.interval, one.p, verdict, one.s_opt, one.s_sel])
    for name, scores in comparison.scores.items():
        for metric, value in scores.items():
            if not isinstance(value, str):
                rows.append([name, metric, value, value - float(comparison.scores[comparison.baseline][metric])])
    return rows


def examples(comparison: Comparison, contrast: Contrast) -> list[dict[str, Any]]:
    """The sentences of a contrast with their texts; lines are counted from 1."""
    return [
        {
            "line": index + 1,
            "source": comparison.sources[index] if comparison.sources else "",
            "references": [column[index] for column in (comparison.references, *comparison.more_references)],
            "texts": [comparison.systems[name][index] for name in (contrast.better, contrast.worse)],
            "scores": scores,
        }
        for index, scores in contrast.sentences.items()
    ]


def marked(text: str, references: Sequence[str]) -> list[tuple[str, bool]]:
    """The words of a translation, and whether a reference has them too, each occurrence once."""
    left: Counter[str] = reduce(or_, (Counter(reference.split()) for reference in references))
    words = []
    for word in text.split():
        words.append((word, left[word] > 0))
        left[word] -= 1
    return words


def markdown(title: str, parts: Iterable[Section], comparison: Comparison, remarks: Iterable[str]) -> str:
    """The report for a repository."""
    lines = [
        f"# {escaped(title)}",
        "",
        "[comparison.html](comparison.html) is the same in one file; the CSV files have all digits.",
        "",
        escaped(summary(comparison)),
    ]
    bullets = [f"* {escaped(remark)}" for remark in remarks]
    lines += ["", *bullets] if bullets else []
    for part in parts:
        lines += ["", f"## {part.title}"]
        for table in part.tables:
            lines += ["", *markdown_table(table), "", escaped(table.note)]
        lines += ["", f"![{escaped(PICTURES[part.picture])}]({part.picture}.png)"]
    for contrast in comparison.contrasts:
        better, worse = escaped(contrast.better), escaped(contrast.worse)
        lines += ["", f"## Where “{better}” is better than “{worse}”", ""]
        header = ["n-gram", f"right in {contrast.better}", f"right in {contrast.worse}", "in the references"]
        rows = [[one.ngram, f"{one.first}", f"{one.second}", f"{one.wanted}"] for one in contrast.ngrams]
        lines += markdown_table(Table(header, rows)) if rows else ["No n-gram is right more often."]
        for one in examples(comparison, contrast):
            texts = [("source", one["source"])] if one["source"] else []
            texts += [("reference", reference) for reference in one["references"]]
            names = zip((contrast.better, contrast.worse), one["scores"], one["texts"], strict=True)
            texts += [(f"{name}, chrF {chrf:.1f}", text) for name, chrf, text in names]
            lines += ["", *markdown_table(Table([f"line {one['line']}", ""], [list(row) for row in texts]))]
    return "\n".join([*lines, ""])


def markdown_table(table: Table) -> list[str]:
    """In GitHub's Markdown; numbers to the right."""
    return [*table_lines([*map(escaped, table.header)], (map(escaped, row) for row in table.rows))]


def html(title: str, parts: Iterable[Section], comparison: Comparison, remarks: Iterable[str], folder: Path) -> str:
    """The report as one page that needs nothing beside it."""

    def picture(name: str) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"picture": picture, "marked": marked}
    shown = {"title": title, "summary": summary(comparison), "remarks": remarks, "parts": parts, "pictures": PICTURES}
    contrasts = [(contrast, examples(comparison, contrast)) for contrast in comparison.contrasts]
    return environment.get_template("comparison.html.jinja").render(**shown, contrasts=contrasts)
