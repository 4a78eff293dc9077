"""Shared by the benchmarks: options, processes of their own, results that are kept, a stopwatch for updates, text."""

import argparse
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback

from admin_nmt.data.parallel_text import read_lines
from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.runs.preparation_meter import cpu_seconds
from admin_nmt.runs.results import commit
from admin_nmt.system.cpu_features import cpu_facts
from admin_nmt.system.files import json_text, write_text_whole

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PACKAGES = ("torch", "transformers", "ctranslate2", "tokenizers", "datasets", "accelerate", "numpy", "admin_nmt")
# Variables that change what the libraries use of the processor.
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
MACHINES = Path("model_cards/benchmark")
LANGUAGES = ("en", "de")
TOY_PAIRS = (300, 20, 20)  # of training, validation and test


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks of a machine have; a module's docstring describes it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder of the results; default: the machine's in model_cards")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--toy", action="store_true", help="tiny models, to try the script; the numbers mean nothing")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each system, in turns")
    return parser


def alone(function: Callable, *arguments: Any) -> Any:
    """The result of a function in a process of its own: settings of torch and of the allocator outlive a trainer."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=quiet) as pool:
        return pool.submit(function, *arguments).result()


def quiet() -> None:
    """Silence stdout, where trainers report."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def synchronize() -> None:
    """Wait until a GPU has computed all that it was given; a CPU has by then."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize(DEVICE)


def versions() -> dict[str, str]:
    """The releases on which numbers depend."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def machine_facts() -> dict[str, Any]:
    """The machine and the versions, as machine.json has them; `slug` names its folder."""
    cpu, gpu = cpu_facts(), torch.cuda.get_device_name(0) if DEVICE.type == "cuda" else None
    name = re.sub(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*$", " ", cpu["name"], flags=re.IGNORECASE)
    slug = re.sub(r"[^a-z0-9]+", "-", f"{name} {instructions(cpu)} {gpu or ''}".lower()).strip("-")
    return {
        "slug": slug, "cpu": cpu, "gpu": gpu, "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}", "versions": versions(),
        "variables": {name: os.environ[name] for name in LIMITS if name in os.environ},
    }  # fmt: skip


def instructions(cpu: Mapping[str, Any]) -> str:
    """The widest instructions in use, and whether they multiply bfloat16."""
    if not cpu["fast_bfloat16"]:
        return str(cpu["used"])
    return "AMX" if "amx_bf16" in cpu["flags"] else f"{cpu['used']} bf16"


def busy_seconds() -> float:
    """CPU time of all processes of the machine since it was started; a virtual machine's stolen time is others'."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


@dataclass
class Results:
    """What was measured of one part of a machine's benchmark: PART.json in its folder.

    Attributes:
        settings: on which the values depend.
        cases: by the name of each measurement `value`, `seconds`, `date`, `commit`, `torch`, and `others`, the share of
            the cores that other processes used meanwhile.
    """

    settings: dict[str, Any]
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    path: Path = Path()

    @classmethod
    def read(cls, path: Path) -> "Results":
        """The results in a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")), path=path)

    @classmethod
    def open(cls, args: argparse.Namespace, part: str, settings: dict[str, Any]) -> "Results":
        """What is there of a part, to go on with; nothing with --again.

        Raises:
            ValueError: it was measured with other settings.
        """
        facts = machine_facts()
        folder = args.output or (Path("benchmark-toy") if args.toy else MACHINES / facts["slug"])
        folder.mkdir(parents=True, exist_ok=True)
        write_text_whole(folder / "machine.json", json_text(facts, indent=1) + "\n")
        path, settings = folder / f"{part}.json", json.loads(json_text(settings))
        if args.again or not path.is_file():
            return cls(settings, path=path)
        if (found := cls.read(path)).settings != settings:
            raise ValueError(f"{path}: was measured with other settings; give --again or another --output")
        return found

    def measure(self, name: str, function: Callable, *arguments: Any) -> None:
        """Keep what a function gives, at once, so that an interrupted call goes on; nothing if it is there."""
        if name in self.cases:
            return
        date, start, busy, own = time.strftime("%F %T"), time.perf_counter(), busy_seconds(), cpu_seconds()
        value = function(*arguments)
        seconds = time.perf_counter() - start
        others = max(0.0, busy_seconds() - busy - (cpu_seconds() - own)) / seconds / (os.cpu_count() or 1)
        facts = {"seconds": seconds, "others": others, "commit": commit(), "date": date, "torch": torch.__version__}
        self.cases[name] = {"value": value} | facts
        text = json_text({"settings": self.settings, "cases": self.cases}, indent=1)
        write_text_whole(self.path, text + "\n")
        print(f"{self.path.stem}: {name}, {seconds:.0f} s, other work {others:.0%}", flush=True)

    def measure_rounds(
        self, name: str, count: int, systems: Sequence[str], function: Callable, *arguments: Any
    ) -> None:
        """Call `function(system, *arguments, round)` for all systems, every other round in the opposite order."""
        for number in range(count):
            order = systems if number % 2 == 0 else systems[::-1]
            self.measure(f"{name}, round {number + 1}", one_round, order, systems, function, *arguments, number)

    def rounds(self) -> dict[str, list[Any]]:
        """The values of all rounds by what they are of: the name of a case up to its comma."""
        found: dict[str, list[Any]] = {}
        for name, case in self.cases.items():
            found.setdefault(name.partition(",")[0], []).append(case["value"])
        return found


def one_round(order: Sequence[str], systems: Sequence[str], function: Callable, *arguments: Any) -> dict[str, Any]:
    """The values of all systems, each measured in a process of its own in the given order."""
    found = {system: alone(function, system, *arguments) for system in order}
    return {system: found[system] for system in systems}


@dataclass
class Section:
    """A part on the page: its title, its tables in Markdown, and by name the ratios for the index of all machines."""

    title: str
    text: str
    ratios: dict[str, str] = field(default_factory=dict)


def column(rounds: Sequence[Mapping[str, Any]], system: str, key: str) -> list[float]:
    """One number of a system in each round that has it."""
    return [one[system][key] for one in rounds if system in one]


def spread(values: Sequence[float], base: Sequence[float] | None = None) -> str:
    """The median with the lowest and highest, of values or of their ratios to those of `base` in the same rounds."""
    ratios = list(values) if base is None else [own / other for own, other in zip(values, base, strict=True)]
    low, high = min(ratios), max(ratios)
    return f"{median(ratios):.2f}" + (f" ({low:.2f}–{high:.2f})" if len(ratios) > 1 else "")


def corpus(args: argparse.Namespace) -> str:
    """The name of the text."""
    return "the built-in phrasebook" if args.data is None or args.toy else args.data.resolve().name


def text_folder(args: argparse.Namespace, folder: Path) -> Path:
    """The folder of train.en and the like, maybe as .gz: --data, or `folder` with the built-in phrasebook."""
    if args.data is not None and not args.toy:
        return args.data.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in phrasebook(*(TOY_PAIRS if args.toy else ())).items():
        for number, side in enumerate(LANGUAGES):
            write_text_whole(folder / f"{split}.{side}", "".join(f"{pair[number]}\n" for pair in pairs))
    return folder.absolute()


def lines(folder: Path, language: str, *splits: str, count: int | None = None) -> list[str]:
    """The first lines of the first split of which there is a file."""
    names = [f"{split}.{language}{ending}" for split in splits for ending in ("", ".gz")]
    found = next((path for name in names if (path := folder / name).is_file()), folder / names[-1])
    return list(islice(read_lines(found), count))


class Stopwatch(TrainerCallback):
    """Seconds from the first update behind the warm-up to the end of the last one, and what they trained on.

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
        """Take note of a batch that is trained on."""
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
    """A mix-in before a Trainer's class: `class Timed(Timing, AdminTrainer)`."""

    stopwatch: Stopwatch

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """Counted here, as loader processes prepare more batches than are trained on."""
        self.stopwatch.count(inputs)
        return super().training_step(model, inputs, *args, **kwargs)

    def time_training(self, warm_up: int) -> Stopwatch:
        """Train, and give the stopwatch."""
        self.stopwatch = Stopwatch(warm_up)
        self.add_callback(self.stopwatch)
        self.train()
        return self.stopwatch
