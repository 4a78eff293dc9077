"""The tables and plots of a grid: mean and spread over the seeds of each system."""

import csv
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..hub.run_folder import DEGENERATE, Results
from ..metrics.unigram import read_unigram
from ..runs.pictures.curves import has_speeds, plot_depths, plot_systems
from ..system.markdown import escaped, table_text
from .grids import Grid

Row = dict[str, Any]
MODEL = ("variant", "encoder_layers", "decoder_layers", "d_model", "parameters")
TRAINING = ("updates", "minutes", "tokens_per_second", "peak_memory_gb", "device", "precision")
MARGIN = 0.5  # nats: what length and punctuation alone are good for; a run that ends above unigram − MARGIN is stuck


def outcome(results: Results | None) -> str:
    """One line about a run that ended."""
    if results is None:
        return "left no results"
    if results.diverged:
        return f"diverged at update {results.diverged.update}"
    row = flat(results)
    scores = [
        f"{label} {row[name]:.2f}" for name, label in (("valid_nll", "NLL"), ("bleu", "BLEU")) if row[name] is not None
    ]
    return f"finished, {row['updates']} updates in {row['minutes']:.1f} minutes, {', '.join(scores)}"


def flat(results: Results) -> Row:
    """results.json as one row: what the tables and the CSV show. Scores are missing where a run diverged."""
    model, training, test = results.model, results.training, results.test
    valid = results.chosen.scores if results.chosen else {}
    return {
        "status": results.status,
        "diverged_at": results.diverged.update if results.diverged else None,
        **{name: getattr(model, name) for name in MODEL},
        **{name: getattr(training, name) for name in TRAINING},
        "valid_nll": valid.get("eval_loss"),
        "valid_perplexity": valid.get("eval_perplexity"),
        "valid_bleu": valid.get("eval_bleu"),
        **{name: getattr(test, name, None) for name in ("bleu", "chrf", "ter", "tokenized_lowercase_bleu")},
        "distinct_translations": results.distinct_translations,
        "sentences_per_second": results.decoding.sentences_per_second if results.decoding else None,
        "torch": results.versions["torch"],
        "transformers": results.versions["transformers"],
        "commit": results.commit,
    }


def spread(values: Iterable[float | None], digits: int = 2) -> str:
    """Mean ± sample standard deviation of what is there; a single value stands alone, none at all is a dash."""
    present = [value for value in values if value is not None]
    if not present:
        return "–"
    deviation = f" ± {stdev(present):,.{digits}f}" if len(present) > 1 else ""
    return f"{mean(present):,.{digits}f}{deviation}"


def verdict(rows: list[Row], runs: int, unigram: float | None) -> str:
    """Number of seeds of a system that ended, diverged, are stuck at the level of word frequencies, or degenerate."""
    finished = [row for row in rows if row["status"] == "finished"]
    parts = [f"{len(finished)} of {runs}" if len(finished) < runs else f"{runs}"]
    diverged = [str(row["diverged_at"]) for row in rows if row["status"] == "diverged"]
    if diverged:
        parts.append(f"{len(diverged)} diverged at update {', '.join(diverged)}")
    stuck = [row for row in finished if unigram and row["valid_nll"] and row["valid_nll"] > unigram - MARGIN]
    if stuck:
        parts.append(f"{len(stuck)} stuck")
    degenerate = [row for row in finished if is_degenerate(row)]
    if degenerate:
        parts.append(f"{len(degenerate)} degenerate")
    return "; ".join(parts)


def is_degenerate(row: Row) -> bool:
    """True where a run's model gives most sources the same few translations."""
    return (row["distinct_translations"] or 1) <= DEGENERATE


COLUMNS: dict[str, Callable[[list[Row]], str]] = {
    "variant": lambda rows: rows[0]["variant"],
    "layers": lambda rows: f"{rows[0]['encoder_layers']}-{rows[0]['decoder_layers']}",
    "parameters": lambda rows: f"{rows[0]['parameters'] / 1e6:.1f}M",
    "valid NLL": lambda rows: spread(row["valid_nll"] for row in rows),
    "test BLEU": lambda rows: spread(row["bleu"] for row in rows),
    "test chrF": lambda rows: spread(row["chrf"] for row in rows),
    "updates": lambda rows: spread((row["updates"] for row in rows if row["status"] == "finished"), 0),
    "minutes": lambda rows: spread((row["minutes"] for row in rows if row["status"] == "finished"), 1),
    "tokens/s": lambda rows: spread((row["tokens_per_second"] for row in rows), 0),
    "sentences/s": lambda rows: spread((row["sentences_per_second"] for row in rows), 0),
    "memory, GB": lambda rows: spread((row["peak_memory_gb"] for row in rows), 1),
}


def table(systems: dict[str, list[Row]], seeds: int, unigram: float | None) -> str:
    """A line a system, in Markdown; a system of which no run has ended shows dashes."""
    head = ["system", "seeds finished", *COLUMNS]
    lines = [
        [
            escaped(system),
            verdict(rows, seeds, unigram),
            *(column(rows) if rows else "–" for column in COLUMNS.values()),
        ]
        for system, rows in systems.items()
    ]
    return table_text(head, lines)


def page(grid: Grid, systems: dict[str, list[Row]], results: list[Results], unigram: float | None) -> str:
    """README.md of a grid: table, what it was made with, plots."""
    rows = [row for rows in systems.values() for row in rows]
    seeds = ", ".join(map(str, grid.seeds))
    spreads = f"Mean ± standard deviation over the seeds {seeds}" if len(grid.seeds) > 1 else f"Seed {seeds}"
    parts = [f"# {escaped(grid.title)}", table(systems, len(grid.seeds), unigram)]
    parts += [
        f"{spreads}; NLL in nats per token on the validation set; target tokens "
        "a second in training, sentences a second in translating the test set."
    ]
    if unigram is not None:
        level = f"A model that knows nothing but the frequency of each token has a validation NLL of {unigram:.2f}"
        parts += [f"{level}; a run that ends above {unigram - MARGIN:.2f} is called stuck."]
    if any(is_degenerate(row) for row in rows):
        parts += [
            f"Output is called degenerate where there are at most {DEGENERATE:.0%} as many different translations as "
            "sources."
        ]
    tests = [run.test for run in results if run.test]
    if tests:
        signatures = distinct(f"`{name}`" for test in tests for name in (test.bleu_signature, test.chrf_signature))
        searches = [run.search for run in results if run.test and run.search]
        search = distinct(f"beam {one.num_beams}, length penalty {one.length_penalty}" for one in searches)
        parts += [f"Test set: {search}; {signatures}."]
    if rows:
        parts += [f"Made with {made_with(rows)}. Every run: [runs.csv](runs.csv)."]
    parts += [grid.note] if grid.note else []
    parts += ["![learning curves](curves.png)"] if results else []
    parts += ["![learning curves by hours](curves-hours.png)"] if results and have_speeds(results) else []
    parts += ["![BLEU by depth](depth.png)"] if differ_in_depth(rows) else []
    return "\n\n".join(parts) + "\n"


def made_with(rows: list[Row]) -> str:
    """Processors, versions, precisions and commits of runs; those outside a checkout have no commit."""
    commits: dict[str, dict[str, None]] = {}
    for row in rows:
        versions = "{device}, torch {torch}, transformers {transformers}".format(**row)
        commits.setdefault(f"{versions}, trained in {row['precision']}", {})[row["commit"]] = None
    known = {facts: ", ".join(filter(None, found)) for facts, found in commits.items()}
    return "; ".join(facts + (f", commit {found}" if found else "") for facts, found in known.items())


def distinct(texts: Iterable[str]) -> str:
    """Each text once."""
    return "; ".join(dict.fromkeys(texts))


def have_speeds(results: Iterable[Results]) -> bool:
    """True where the curves of all runs can be drawn by hours; runs that diverged at once have no speed."""
    return all(has_speeds(run.history) for run in results)


def differ_in_depth(rows: list[Row]) -> bool:
    """True where a plot of the scores by depth has something to show."""
    return len({(row["encoder_layers"], row["decoder_layers"]) for row in rows if row["bleu"] is not None}) > 1


def line_of(row: Row) -> str:
    """The system without its depth, 18-6: systems that differ in nothing else are one line of the plot."""
    left = row["system"].replace(f"{row['encoder_layers']}-{row['decoder_layers']}", "").strip("-_ ")
    return re.sub(r"([-_ ])[-_ ]+", r"\1", left) or row["variant"]


def write_csv(path: Path, rows: list[Row]) -> None:
    """A line a run."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["system", "seed"])
        writer.writeheader()
        writer.writerows(rows)


def write_tables(grid: Grid) -> str:
    """Write README.md, runs.csv and the plots of what has ended so far; returns the table."""
    folder, unigram = grid.output_dir, read_unigram(grid.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    ended = [(run, results) for run in grid.runs() if (results := run.results()) is not None]
    rows = [{"system": run.system, "seed": run.seed} | flat(results) for run, results in ended]
    systems = {system: [row for row in rows if row["system"] == system] for system in grid.systems}
    if ended:
        runs = {system: [results for run, results in ended if run.system == system] for system in grid.systems}
        begun = {system: seeds for system, seeds in runs.items() if seeds}
        plot_systems(begun, grid.title, folder / "curves.png", unigram)
        if have_speeds(results for _, results in ended):
            plot_systems(begun, grid.title, folder / "curves-hours.png", unigram, by="hours")
    if differ_in_depth(rows):
        plot_depths([row | {"line": line_of(row)} for row in rows], grid.title, folder / "depth.png")
    write_csv(folder / "runs.csv", rows)
    text = page(grid, systems, [results for _, results in ended], unigram)
    (folder / "README.md").write_text(text, encoding="utf-8")
    return table(systems, len(grid.seeds), unigram)
