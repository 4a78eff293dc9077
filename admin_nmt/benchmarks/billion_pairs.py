"""Time, memory and disk of a corpus too large to try, each from a rate that was measured on a smaller one."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.batching import WINDOW
from ..system.files import json_text

Rates = Mapping[str, Any]

EVERYWHERE, ONE_MACHINE, ONE_CORE = "all machines", "one machine", "one core"
WHERE = {
    "reading": "all machines, by files",
    "cleaning": EVERYWHERE,
    "vocabulary": ONE_MACHINE,
    "tokenising": EVERYWHERE,
}

# Where a benchmark leaves its results: in the folder of a machine, or in one of its own.
SOURCES = {
    "data": ("data", "data"),
    "planning": ("growth", "planning"),
    "translation": ("decoding", "translation"),
}


@dataclass(frozen=True)
class Machines:
    """What the work is given to."""

    number: int
    cores: int

    def hours(self, where: str, core_hours: float) -> float:
        """By the clock, if all cores that may take part are busy to the end."""
        if where == ONE_CORE:
            return core_hours
        return core_hours / self.cores / (1 if where == ONE_MACHINE else self.number)


def gather_rates(folder: Path) -> dict[str, Any]:
    """The rates among the results of `admin-nmt benchmark data`, `planning` and `translation` in a folder.

    Raises:
        ValueError: one of the first two is not there.
    """
    found = {name: _results(folder, files) for name, files in SOURCES.items()}
    for name, key in (("data", "steps"), ("planning", "duplicates")):
        if key not in found[name]:
            part = "growth" if name == "planning" else name
            raise ValueError(f"{folder}: has no results of {name}; measure them with: admin-nmt benchmark {part}")
    data, planning = found["data"], found["planning"]
    steps = [{key: step[key] for key in ("step", "pairs", "cpu_seconds", "peak_memory_gb")} for step in data["steps"]]
    rates = {
        "preparation": {key: data[key] for key in ("pairs", "num_proc", "text_gb", "cache_gb")} | {"steps": steps},
        "duplicates": planning["duplicates"],
        "checksum": planning["checksum"],
        "planning": {"max_tokens": planning["max_tokens"]} | _plan(planning),
    }
    if "runs" in found["translation"]:
        rates["synthesis"] = _translation_rates(found["translation"])
    return rates


def _plan(planning: Rates) -> dict[str, Any]:
    """The largest plan in windows of the size that a training takes; any plan where there is none."""
    plans = [*planning["growth"], *planning.get("windows", ())]
    in_windows = [plan for plan in plans if plan["window"] == WINDOW]
    return max(in_windows or plans, key=lambda plan: plan["pairs"])


def _results(folder: Path, files: tuple[str, str]) -> Rates:
    """What is there of a benchmark; in the folder of a machine each case has its value."""
    found: dict[str, Any] = {}
    for name in files:
        path = folder / f"{name}.json"
        if path.exists() and not found:
            found = json.loads(path.read_text(encoding="utf-8"))
    if "cases" not in found:
        return found
    values = [case["value"] for case in found["cases"].values() if isinstance(case["value"], dict)]
    together = {name: value for case in values for name, value in case.items()}
    return together | {"runs": together, "arguments": found["settings"]}


def _translation_rates(results: Rates) -> list[dict[str, Any]]:
    """The cheapest round of our search and of CTranslate2 in 8 bits, for each model."""
    sentences, beams = results["arguments"]["sentences"], results["arguments"]["num_beams"]
    return [
        {"model": model, "system": system, "num_beams": beams, "sentences": sentences}
        | {"cpu_seconds": min(run["cpu_seconds"] for run in runs[system])}
        for model, runs in results["runs"].items()
        for system in ("ours", "CTranslate2 int8")
        if system in runs
    ]


def page(rates: Rates, pairs: int, machines: Machines) -> str:
    """The plan as a page of Markdown."""
    preparation, plan, checksum = rates["preparation"], rates["planning"], rates["checksum"]
    sizes = {name: 1e9 * preparation[f"{name}_gb"] / preparation["pairs"] for name in ("text", "cache")}  # bytes a pair
    text, cache = (size * pairs / 1e9 for size in sizes.values())
    verify = cache / checksum["gb"] * checksum["cpu_seconds"] / 60 / machines.cores
    tokens, batches = (plan[name] * pairs / plan["pairs"] for name in ("tokens", "batches"))
    shards = max(step["peak_memory_gb"] for step in preparation["steps"])
    windows = f", in windows of {plan['window']:,}, and takes that for any corpus" if plan["window"] else " at once"
    many = f"--pairs {pairs} --machines {machines.number} --cores {machines.cores}"
    return f"""# {pairs:,} pairs, on paper

Nothing of this size was run. Every number is a rate that was measured on a smaller corpus ([rates.json](rates.json))
times the number of pairs: core hours = {pairs:.0e} × CPU seconds ÷ pairs measured ÷ 3,600. Hours are for
{machines.number} machines of {machines.cores} cores, as fast as the one measured and busy to the end. The download and
the network are left out.

```bash
admin-nmt benchmark billion-pairs --rates model_cards/benchmark/MACHINE {many}
```

{_table(_rows(rates, pairs, machines))}

**Memory.** A step in shards takes as much for any corpus: measured, at most {shards:.2f} GB with
{preparation["num_proc"]} processes, all of them together. What grows are the keys among which duplicates are looked
for, on one machine: {_grown(rates["duplicates"], pairs)}.
The plan of the batches of {plan["pairs"]:,} pairs took {plan["peak_mb"]:,.0f} MB{windows}.

**Disk.** In a folder that all machines share, {text:,.0f} GB of text, {sizes["text"]:,.0f} bytes a pair as measured,
and {cache:,.0f} GB of pairs and ids, {sizes["cache"]:,.0f} bytes a pair. Each start of a training verifies their
checksums: {checksum["gb"]:.2f} GB took {checksum["cpu_seconds"]:.2f} CPU seconds from memory, so {cache:,.0f} GB take
{verify:,.1f} minutes on {machines.cores} cores, if the disk is as fast.

**Training.** An epoch has {tokens:.2e} tokens of both sides in {batches:.2e} batches of {plan["max_tokens"]:,}, with
{plan["padding"]:.2%} padding.
"""


def _grown(rate: Rates, pairs: int) -> str:
    peak = rate["peak_mb"] / rate["pairs"] * pairs / 1e3
    return f"{rate['peak_mb']:,.0f} MB for {rate['pairs']:,}, so {peak:,.0f} GB for {pairs:,}"


def _rows(rates: Rates, pairs: int, machines: Machines) -> Iterator[tuple[str, ...]]:
    for step in rates["preparation"]["steps"]:
        yield _row(step["step"], step["pairs"], step["cpu_seconds"], WHERE[step["step"]], pairs, machines)
    for name, what in (("duplicates", "finding duplicates"), ("planning", "planning batches, each start and epoch")):
        yield _row(what, rates[name]["pairs"], rates[name]["cpu_seconds"], ONE_CORE, pairs, machines)
    for rate in rates.get("synthesis", ()):
        what = f"synthetic pairs, beam {rate['num_beams']}: {rate['model']}, {rate['system']}"
        yield _row(what, rate["sentences"], rate["cpu_seconds"], EVERYWHERE, pairs, machines)


def _row(what: str, measured: int, seconds: float, where: str, pairs: int, machines: Machines) -> tuple[str, ...]:
    core_hours = pairs * seconds / measured / 3600
    hours = machines.hours(where, core_hours)
    return (
        what,
        f"{measured:,} in {seconds:,.2f} CPU s",
        f"{measured / seconds:,.0f}",
        f"{core_hours:,.2f}",
        where,
        f"{hours:,.2f}",
    )


def _table(rows: Iterator[tuple[str, ...]]) -> str:
    head = ("step", "measured", "pairs a second and core", "core hours", "runs on", "hours")
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))


def write_plan(rates: Rates, pairs: int, machines: Machines, folder: Path) -> str:
    """Leave rates.json and README.md in a folder, and give the page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = page(rates, pairs, machines)
    (folder / "rates.json").write_text(json_text(rates, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(text, encoding="utf-8")
    return text
