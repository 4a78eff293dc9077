"""Shared by the benchmarks: options, text, systems in turns, results that are kept, timed updates, the machine."""

import argparse
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch
from torch import Tensor
from transformers import Trainer

from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.data.text_lines import read_lines
from admin_nmt.runs.results import commit
from admin_nmt.system.cpu_features import capabilities, cpu_bfloat16_is_fast, cpu_name
from admin_nmt.system.files import json_text, write_text_whole

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PACKAGES = ("torch", "transformers", "ctranslate2", "tokenizers", "datasets", "accelerate", "numpy", "admin_nmt")
FLAGS = ("avx2", "avx512_f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16")

# Variables that change what the libraries use of the processor.
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
MACHINES = Path("model_cards/benchmark")
LANGUAGES = ("en", "de")
TOY_PAIRS = (300, 20, 20)  # of training, validation and test


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks of a machine have; a module's docstring describes it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of train.en.gz, train.de.gz, ...; default: the phrasebook")
    parser.add_argument("--output", type=Path, help="folder of the results; default: the machine's in model_cards")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--toy", action="store_true", help="tiny models, to try the script; the numbers mean nothing")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each system, in turns")
    return parser


def corpus(args: argparse.Namespace) -> str:
    """The name of the text."""
    return "the built-in phrasebook" if args.data is None or args.toy else args.data.resolve().name


def lines(args: argparse.Namespace, side: str, *splits: str, count: int | None = None) -> list[str]:
    """The first lines of one side of --data, of the first split of which there is a file; or of the phrasebook."""
    if args.data is None or args.toy:
        pairs = phrasebook(*(TOY_PAIRS if args.toy else ()))[splits[-1]]
        return [pair[LANGUAGES.index(side)] for pair in pairs][:count]
    paths = [args.data / f"{split}.{side}{ending}" for split in splits for ending in ("", ".gz")]
    return list(islice(read_lines(next((path for path in paths if path.is_file()), paths[-1])), count))


def cpu_seconds() -> float:
    """Seconds of this process and of the children that have ended."""
    return sum(os.times()[:4])


def alone(function: Callable, *arguments: Any) -> Any:
    """The result of a function in a process of its own: settings of torch and of the allocator outlive a trainer."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=quiet) as pool:
        return pool.submit(function, *arguments).result()


def quiet() -> None:
    """Silence stdout, where trainers report."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def one_round(systems: Sequence[str], number: int, function: Callable, *arguments: Any) -> dict[str, Any]:
    """`function(system, *arguments)` for each system in a process of its own; every other round from the last."""
    found = {system: alone(function, system, *arguments) for system in systems[:: -1 if number % 2 else 1]}
    return {system: found[system] for system in systems}


def synchronize() -> None:
    """Wait until a GPU has computed all that it was given; a CPU has by then."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize(DEVICE)


def seconds(function: Callable, *arguments: Any, **options: Any) -> float:
    """The time of one call, with all that it gave a GPU to do."""
    synchronize()
    start = time.perf_counter()
    function(*arguments, **options)
    synchronize()
    return time.perf_counter() - start


def versions() -> dict[str, str]:
    """The releases on which numbers depend."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def cpu_facts() -> dict[str, Any]:
    """Model name, instruction sets, cores, and threads of a product: what a measurement on a CPU depends on."""
    return {
        "name": cpu_name(),
        "flags": [name for name in FLAGS if capabilities().get(name)],
        "used": torch.backends.cpu.get_cpu_capability(),
        "fast_bfloat16": cpu_bfloat16_is_fast(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "logical_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def machine_facts() -> dict[str, Any]:
    """The machine and the versions, as machine.json has them; `slug` names its folder."""
    cpu, gpu = cpu_facts(), torch.cuda.get_device_name(0) if DEVICE.type == "cuda" else None
    name = re.sub(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*$", " ", cpu["name"], flags=re.IGNORECASE)
    kind = "AMX" if "amx_bf16" in cpu["flags"] else f"{cpu['used']} bf16"
    kind = kind if cpu["fast_bfloat16"] else cpu["used"]
    slug = re.sub(r"[^a-z0-9]+", "-", f"{name} {kind} {gpu or ''}".lower()).strip("-")
    return {
        "slug": slug, "cpu": cpu, "gpu": gpu, "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}", "versions": versions(),
        "variables": {name: os.environ[name] for name in LIMITS if name in os.environ},
    }  # fmt: skip


def busy_seconds() -> float:
    """CPU time of all processes of the machine since it was started; a virtual machine's stolen time is others'."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


class Results:
    """What was measured of one part of a machine's benchmark: PART.json in its folder.

    Attributes:
        settings: on which the values depend.
        cases: by the name of each measurement `value`, `seconds`, `date`, `commit`, `torch`, and `others`, the share of
            the cores that other processes used meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.settings: dict[str, Any] = found.get("settings", {})
        self.cases: dict[str, dict[str, Any]] = found.get("cases", {})

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
        results, settings = cls(folder / f"{part}.json"), json.loads(json_text(settings))
        if args.again or not results.cases:
            results.settings, results.cases = settings, {}
        if results.settings != settings:
            raise ValueError(f"{results.path}: was measured with other settings; give --again or another --output")
        return results

    def measure(self, name: str, function: Callable, *arguments: Any) -> None:
        """Keep what a function gives, at once, so that an interrupted call goes on; nothing if it is there."""
        if name in self.cases:
            return
        date, start, busy, own = time.strftime("%F %T"), time.perf_counter(), busy_seconds(), cpu_seconds()
        value = function(*arguments)
        taken = time.perf_counter() - start
        others = max(0.0, busy_seconds() - busy - (cpu_seconds() - own)) / taken / (os.cpu_count() or 1)
        facts = {"seconds": taken, "others": others, "commit": commit(), "date": date, "torch": torch.__version__}
        self.cases[name] = {"value": value} | facts
        text = json_text({"settings": self.settings, "cases": self.cases}, indent=1)
        write_text_whole(self.path, text + "\n")
        print(f"{self.path.stem}: {name}, {taken:.0f} s, other work {others:.0%}", flush=True)

    def measure_rounds(
        self, name: str, count: int, systems: Sequence[str], function: Callable, *arguments: Any
    ) -> None:
        """Call `function(system, *arguments, round)` for all systems in turns."""
        for number in range(count):
            name_of_round = f"{name}, round {number + 1}"
            self.measure(name_of_round, one_round, systems, number, function, *arguments, number)

    def rounds(self) -> dict[str, list[Any]]:
        """The values of all rounds by what they are of: the name of a case up to its comma."""
        found: dict[str, list[Any]] = {}
        for name, case in self.cases.items():
            found.setdefault(name.partition(",")[0], []).append(case["value"])
        return found


def column(rounds: Sequence[Mapping[str, Any]], system: str, key: str) -> list[float]:
    """One number of a system in each round."""
    return [one[system][key] for one in rounds]


def spread(values: Sequence[float], base: Sequence[float] | None = None) -> str:
    """The median with the lowest and highest, of values or of their ratios to those of `base` in the same rounds.

    A dash where a base is 0, as the memory of a toy may be.
    """
    if base is not None and not all(base):
        return "–"
    ratios = list(values) if base is None else [own / other for own, other in zip(values, base, strict=True)]
    low, high = min(ratios), max(ratios)
    return f"{median(ratios):.2f}" + (f" ({low:.2f}–{high:.2f})" if len(ratios) > 1 else "")


class Timing(Trainer):
    """A mix-in before a Trainer's class, `class Timed(Timing, AdminTrainer)`: times the updates behind a warm-up.

    Attributes:
        first_seconds: until the first measured update.
        seconds: of the measured updates.
        shapes: (sentences, source positions, target positions) of each measured batch.
        counts: target tokens of each measured batch that are not padding.
    """

    def time_training(self, warm_up: int) -> None:
        """Train, and time what follows `warm_up` updates."""
        self.warm_up = warm_up
        self.shapes: list[tuple[int, int, int]] = []
        self.counts: list[Tensor] = []
        begin = time.perf_counter()
        self.train()
        synchronize()
        self.first_seconds, self.seconds = self._start - begin, time.perf_counter() - self._start

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """Counted here, as loader processes prepare more batches than are trained on."""
        if self.state.global_step >= self.warm_up:
            if not self.shapes:
                synchronize()
                self._start = time.perf_counter()
            self.shapes.append((*inputs["input_ids"].shape, inputs["labels"].shape[1]))
            self.counts.append((inputs["labels"] >= 0).sum())
        return super().training_step(model, inputs, *args, **kwargs)

    @property
    def target_tokens_per_second(self) -> float:
        """Target tokens that are not padding."""
        return sum(map(int, self.counts)) / self.seconds
