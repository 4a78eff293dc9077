"""Shared by the benchmarks: processes of their own, a stopwatch for updates, results that are kept, toy text."""

import argparse
import gzip
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback

from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.runs.results import commit, device_name
from admin_nmt.system.cpu_features import cpu_facts
from admin_nmt.system.files import json_text, new_folder, write_text_whole
from admin_nmt.system.markdown import table_text

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "ctranslate2", "admin_nmt")
LANGUAGES = ("en", "de")


def options(description: str | None, output: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have; a module's docstring describes it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmark-results") / output, help="file of the results")
    parser.add_argument("--toy", action="store_true", help="tiny models, to try the script; the numbers mean nothing")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each system, in turns")
    return parser


def alone(function: Callable, *arguments: Any) -> Any:
    """The result of a function in a process of its own: settings of torch and of the allocator outlive a trainer."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=quiet) as pool:
        return pool.submit(function, *arguments).result()


def quiet() -> None:
    """Silence stdout, where trainers report, and warnings of kernels for other processors."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)


def synchronize() -> None:
    """Wait until a GPU has computed all that it was given; a CPU has by then."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize(DEVICE)


def machine() -> dict[str, Any]:
    """The device, the versions and the commit on which numbers depend."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {"device": device_name(DEVICE), "cpu": cpu_facts(), "versions": versions, "commit": commit()}


class Results:
    """Measurements by their names in a JSON file, each kept at once, so that an interrupted call goes on.

    Args:
        path: of the file.
        settings: on which the values depend; a file with others is refused.

    Raises:
        ValueError: the file has other settings.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, settings = path, json.loads(json_text(settings))
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"settings": settings}
        if found["settings"] != settings:
            raise ValueError(f"{path}: was measured with {found['settings']}, not {settings}; choose another --output")
        self.values: dict[str, Any] = found.get("values", {})
        self.facts = {"settings": settings, "machine": machine()}
        path.parent.mkdir(parents=True, exist_ok=True)

    def measure(self, name: str, function: Callable, *arguments: Any) -> Any:
        """The value that is there, or what the function gives in a process of its own."""
        if name not in self.values:
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
            self.values[name] = {"value": alone(function, *arguments), "load": load, "date": time.strftime("%F %T")}
            write_text_whole(self.path, json_text(self.facts | {"values": self.values}, indent=1) + "\n")
            print(f"{name}: measured", flush=True)
        return self.values[name]["value"]

    def rounds(
        self, name: str, systems: Sequence[str], count: int, function: Callable, *arguments: Any
    ) -> dict[str, list[Any]]:
        """The values of `function(system, *arguments, round)` by system; every other round in the opposite order."""
        for number in range(count):
            for system in systems if number % 2 == 0 else reversed(systems):
                self.measure(f"{name}, {system}, round {number + 1}", function, system, *arguments, number)
        return {
            system: [self.values[f"{name}, {system}, round {number + 1}"]["value"] for number in range(count)]
            for system in systems
        }


def ratio(values: Sequence[float], base: Sequence[float]) -> str:
    """The median of the ratios of neighbours in time, with the lowest and the highest."""
    ratios = [own / other for own, other in zip(values, base, strict=True)]
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print(f"\n## {title}\n\n{table_text(list(head), [list(row) for row in rows])}")


def text_files(data: Path | None, folder: Path, toy: bool) -> Path:
    """The folder of train.en.gz, train.de.gz and the like: `data`, or one with the built-in phrasebook."""
    if data is not None and not toy:
        return data.absolute()
    target = folder / ("phrasebook-toy" if toy else "phrasebook")
    if not target.is_dir():
        splits = phrasebook(300, 20, 20) if toy else phrasebook()
        with new_folder(target) as temporary:
            for split, pairs in splits.items():
                for language, lines in zip(LANGUAGES, zip(*pairs, strict=True), strict=True):
                    text = "".join(f"{line}\n" for line in lines)
                    (temporary / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return target.absolute()


class Stopwatch(TrainerCallback):
    """Seconds from the first update behind the warm-up to the end of the last one, and what they trained on.

    The trainer calls [`count`] at every batch: `class Timed(Timing, AdminTrainer)`.

    Attributes:
        first_seconds: of the warm-up.
        seconds: of the measured updates.
        shapes: (sentences, source positions, target positions) of each measured batch.
    """

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        self.first_seconds, self.seconds = 0.0, 0.0
        self.shapes: list[tuple[int, int, int]] = []
        self._start: float | None = None
        self._updates = 0
        self._tokens: list[Tensor] = []

    def count(self, inputs: dict[str, Tensor]) -> None:
        if self._updates >= self.warm_up:
            labels = inputs["labels"]
            self.shapes.append((*inputs["input_ids"].shape, labels.shape[1]))
            self._tokens.append((labels >= 0).sum())

    @property
    def tokens(self) -> int:
        """Target tokens of the measured updates that are not padding."""
        return sum(int(count) for count in self._tokens)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._updates = state.global_step
        if self._start is None or state.global_step == self.warm_up:
            synchronize()
            now = time.perf_counter()
            self.first_seconds, self._start = now - (self._start or now), now

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps and self._start is not None:
            synchronize()
            self.seconds = time.perf_counter() - self._start


class Timing(Trainer):
    """Before a Trainer's class among the bases: its `stopwatch` sees every batch that is trained on."""

    stopwatch: Stopwatch

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        self.stopwatch.count(inputs)
        return super().training_step(model, inputs, *args, **kwargs)

    def time_training(self, warm_up: int) -> Stopwatch:
        """Train; gives the stopwatch."""
        self.stopwatch = Stopwatch(warm_up)
        self.add_callback(self.stopwatch)
        self.train()
        return self.stopwatch
