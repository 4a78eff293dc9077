"""Trainings of the grid, one a step, each continued from its last checkpoint by the next call."""

import sys
from typing import Any

from ...experiments.grid_runner import last_line, run_all, wanted_runs
from ...experiments.tables import flat, outcome, write_tables
from ...metrics.unigram import write_unigram
from .gpu_setup import PREPARED, Setup


def prepare_data(setup: Setup) -> dict[str, Any]:
    """The tokenised data in the cache: the rest is quicker with it, and needs no network for it."""
    prepared = setup.prepared()
    tokens = {side: int(sum(prepared.data["train"][f"{side}_length"][:])) for side in ("source", "target")}
    size = sum(path.stat().st_size for path in (setup.output / "cache").rglob("*") if path.is_file())
    (setup.output / PREPARED).touch()
    sizes = {split: len(part) for split, part in prepared.data.items()}
    return {"pairs": sizes, "tokens": tokens, "cache_bytes": size, "vocabulary": len(prepared.source_tokenizer)}


def train_system(setup: Setup, system: str) -> dict[str, Any]:
    """One run of the grid with its first seed, by the program that runs grids; gives the facts of its table.

    Raises:
        RuntimeError: it failed; a run that diverged has not.
    """
    grid = setup.load_grid()
    (run,) = wanted_runs(grid, [system], grid.seeds[:1])
    prepared = setup.prepared()
    if run.results() is None:
        write_unigram(prepared.data, len(prepared.target_tokenizer), grid.output_dir)
        run_all([run], 1, [sys.executable], lambda run: outcome(run.results() or {}))
    results = run.results()
    if results is None:
        raise RuntimeError(f"{run.folder / 'train.log'}: {last_line(run)}")
    write_tables(grid)
    history = [
        {name: row[name] for name in ("step", "nll", "eval_loss", "target_tokens_per_second") if name in row}
        for row in results["history"]
    ]
    return flat(results) | {"system": system, "history": history, "training": results["training"]}
