"""The page of the GPU benchmark, Markdown with pictures, from whatever results there are."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...system.files import json_text, write_text_whole
from ...system.markdown import table_text
from ..gpu_plots import plot_attention, plot_memory, plot_search, plot_updates
from .gpu_setup import Setup
from .step_runner import RESULTS, Step, read_results

Results = dict[str, dict[str, Any]]
GB = 1e9
SHOWN = 10  # steps that are left, by name
TOY = "**Toy size: tiny models on made-up text. The numbers mean nothing.**"


def write_page(setup: Setup, steps: list[Step]) -> Path:
    """Write README.md, results.json and the pictures; they alone need to be kept of the folder."""
    results, folder = read_results(setup), setup.output
    write_text_whole(folder / RESULTS, json_text(results, indent=1) + "\n")
    ended = [step.name for step in steps if results.get(step.name, {}).get("status") == "done"]
    done = {name: results[name]["result"] for name in ended}
    parts = ["# Measured on a GPU", *([TOY] if setup.toy else []), machines(results), progress(results, steps)]
    device = next((result["device"] for result in reversed(results.values()) if "device" in result), "")
    for section in (checks, memory, updates, profiles, attention, trainings, searches):
        parts += section(done, device, folder)
    path = folder / "README.md"
    write_text_whole(path, "\n\n".join(parts) + "\n")
    return path


def machines(results: Results) -> str:
    """What the results were measured with, a line for each that differs."""
    head = ["device", "driver", "CUDA", "torch", "transformers", "commit", "steps"]
    rows: dict[tuple, int] = {}
    for result in results.values():
        if "device" in result:
            known = result["versions"]
            row = (result["device"], result["driver"], known.get("cuda"), known.get("torch"), known.get("transformers"))
            rows[*row, result["commit"]] = rows.get((*row, result["commit"]), 0) + 1
    return table_text(head, [[shown(value) for value in (*row, count)] for row, count in rows.items()])


def progress(results: Results, steps: list[Step]) -> str:
    """How many steps have ended, which are left, and the errors of those that failed."""
    left = [step.name for step in steps if step.name not in results]
    failed = [[name, one_line(result["error"])] for name, result in results.items() if result["status"] == "failed"]
    text = f"{len(results) - len(failed)} of {len(steps)} steps done, {len(failed)} failed."
    text += f" Left: {', '.join(left[:SHOWN])}{', …' if len(left) > SHOWN else ''}." if left else ""
    return text + ("\n\n" + table_text(["failed step", "error"], failed) if failed else "")


def chosen(done: Results, prefix: str) -> Results:
    """The results of the steps whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): result for name, result in done.items() if name.startswith(prefix)}


def checks(done: Results, device: str, folder: Path) -> Iterator[str]:
    """The tests of this project that need a GPU, and transformers' common tests."""
    found = {name: done[name] for name in done if name == "tests" or name.startswith("conformance-")}
    if not found:
        return
    yield "## Tests"
    rows = [[name, one["passed"], len(one["failed"]), one["skipped"]] for name, one in found.items()]
    yield table_text(["tests", "passed", "failed", "skipped"], rows)
    failed = [[f"`{test}`", one_line(error)] for one in found.values() for test, error in one["failed"].items()]
    if failed:
        yield table_text(["failed test", "error"], failed)


def memory(done: Results, device: str, folder: Path) -> Iterator[str]:
    """Predicted memory beside what CUDA allocated and what its allocator held."""
    predictions, measured = chosen(done, "predict-"), chosen(done, "updates-")
    rows = {name: one | measured[name] for name, one in predictions.items() if "reserved" in measured.get(name, {})}
    if not rows:
        return
    yield "## Memory"
    yield "GB are 10⁹ bytes; the prediction is for the largest of the same batches, the measured peak over all of them."
    head = ["case", "largest batch", "predicted", "allocated", "held by the allocator", "allocated / predicted"]
    yield table_text(head, [memory_row(name, row) for name, row in rows.items()])
    plot_memory(list(rows.values()), device, folder / "memory.png")
    yield "![predicted and measured memory](memory.png)"


def memory_row(name: str, row: dict[str, Any]) -> list[str]:
    """A case with what was predicted and measured."""
    sizes = [f"{row[key] / GB:.2f}" for key in ("predicted", "allocated", "reserved")]
    return [name, row["shape"], *sizes, f"{row['allocated'] / row['predicted']:.2f}"]


def updates(done: Results, device: str, folder: Path) -> Iterator[str]:
    """Speed and utilisation of training."""
    rows = chosen(done, "updates-")
    if not rows:
        return
    yield "## Updates"
    yield (
        "Two passes over the same batches, from the shortest to the longest sentences: the first meets every shape, "
        "the second is measured. Target tokens are those that are not padding; TFLOP/s are those of the model's matrix "
        "products, padding included, recomputation not; MFU is their share of the card's peak in the precision, where "
        "that is known."
    )
    head = ["case", "attention", "shapes", "ms an update", "first pass / second", "tokens/s", "TFLOP/s", "MFU", "GB"]
    yield table_text(head, [update_row(name, row) for name, row in rows.items()])
    plot_updates(rows, device, folder / "updates.png")
    yield "![target tokens a second](updates.png)"


def update_row(name: str, row: dict[str, Any]) -> list[Any]:
    """A case with its speed and its memory."""
    slower, update = row["first_seconds"] / row["seconds"], 1000 * row["seconds"] / row["updates"]
    times = [f"{update:.1f}", f"{slower:.2f}", f"{row['tokens_per_second']:,.0f}", f"{row['tflops']:.3g}"]
    used = "–" if row["mfu"] is None else f"{row['mfu']:.1%}"
    return [name, row["attention_used"], row["shapes"], *times, used, f"{row['allocated'] / GB:.2f}"]


def profiles(done: Results, device: str, folder: Path) -> Iterator[str]:
    """One update, operator by operator."""
    for name, one in chosen(done, "profile-").items():
        yield f"## One update of {name}, profiled"
        yield (
            f"{one['wall_ms']:.1f} ms under the profiler, {one['host_ms']:.1f} ms of it in operators on the host; "
            f"{one['kernels']:,} kernels and copies take {one['gpu_ms']:.1f} ms of the GPU."
        )
        rows = [
            [f"`{row['name'][:80]}`", row["calls"], f"{row['ms']:.2f}", f"{row['host_ms']:.2f}"] for row in one["top"]
        ]
        yield table_text(["operator", "calls", "own ms on the device", "own ms on the host"], rows)


def attention(done: Results, device: str, folder: Path) -> Iterator[str]:
    """The backends of scaled dot-product attention."""
    for name, one in chosen(done, "attention-").items():
        yield f"## Attention on {len(one['shapes'])} shapes of {name} tokens"
        yield "bfloat16, forward and backward, milliseconds over all shapes; encoder and cross-attention with a mask."
        rows = [
            [row["kind"], row["backend"], *([one_line(row["error"]), ""] if "error" in row else milliseconds(row))]
            for row in one["rows"]
        ]
        yield table_text(["attention", "backend", "first call of each shape", "repeated call"], rows)
        plot_attention(one["rows"], device, folder / "attention.png")
        yield "![milliseconds by backend](attention.png)"


def milliseconds(row: dict[str, Any]) -> list[str]:
    """Of the first and of the repeated calls."""
    return [f"{sum(row[key]):.2f}" for key in ("first_ms", "repeated_ms")]


def trainings(done: Results, device: str, folder: Path) -> Iterator[str]:
    """What the systems of the grid reached, and their curves."""
    rows = chosen(done, "train-")
    if not rows:
        return
    yield "## Training"
    head = ["system", "outcome", "updates", "target tokens", "valid NLL", "test BLEU", "minutes", "tokens/s", "GB"]
    yield table_text(head, [training_row(name, row) for name, row in rows.items()])
    drawn = folder / "runs" / "curves.png"
    if drawn.is_file():  # else the runs are on another machine, and the picture came with the results
        shutil.copyfile(drawn, folder / "curves.png")
    if (folder / "curves.png").is_file():
        yield "![learning curves](curves.png)"


def training_row(name: str, row: dict[str, Any]) -> list[Any]:
    """A system with its scores and its effort."""
    outcome = row["status"] + (f" at update {row['diverged_at']}" if row["diverged_at"] else "")
    scores = [number(row["valid_nll"]), number(row["bleu"])]
    effort = [number(row["minutes"], 1), number(row["tokens_per_second"], 0), number(row["peak_memory_gb"], 1)]
    return [name, outcome, row["updates"], f"{row['training']['target_tokens']:,}", *scores, *effort]


def searches(done: Results, device: str, folder: Path) -> Iterator[str]:
    """Decoding speed."""
    rows = [
        {"depth": f"{one['encoder_layers']}-{one['decoder_layers']}", "system": f"{one['system']} {one['dtype']}"} | row
        for one in chosen(done, "search-").values()
        for row in one["rows"]
    ]
    if not rows:
        return
    yield "## Decoding"
    first = next(iter(chosen(done, "search-").values()))
    yield (
        f"{first['sentences']} sentences, {first['steps']} decoder steps each under random weights, after the same "
        "sentences once to warm up. Ours and CTranslate2 take batches of as many source positions as the stated "
        "sentences have."
    )
    head = ["depth", "system", "beam", "sentences a batch", "sentences/s", "GB"]
    yield table_text(head, [search_row(row) for row in rows])
    plot_search(rows, device, folder / "search.png")
    yield "![sentences a second](search.png)"


def search_row(row: dict[str, Any]) -> list[Any]:
    """A system with one beam and batch size."""
    memory = "–" if "allocated" not in row else f"{row['allocated'] / GB:.2f}"
    return [row["depth"], row["system"], row["num_beams"], row["batch"], f"{row['sentences_per_second']:,.1f}", memory]


def number(value: float | None, digits: int = 2) -> str:
    """A dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def shown(value: Any) -> str:
    """A dash where there is none."""
    return "–" if value is None else str(value)


def one_line(text: str) -> str:
    """Text that cannot break a table."""
    return " ".join(text.split()).replace("|", "\\|")
