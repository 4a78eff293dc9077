"""Time, memory and disk of a corpus too large to try, each from a rate that was measured on a smaller one.

    python -m training.benchmarks.billion_pairs --rates model_cards/benchmark/MACHINE --output model_cards/billion-pairs
    python -m training.benchmarks.billion_pairs --pairs 40000000 --machines 1 --cores 2

--rates is a machine's folder with data.json, growth.json and maybe decoding.json, or a folder with rates.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from admin_nmt.data.batching import WINDOW
from admin_nmt.system.files import json_text, write_text_whole
from admin_nmt.system.markdown import table_text
from training.benchmarks.common import Results

EVERYWHERE, ONE_MACHINE, ONE_CORE = "all machines", "one machine", "one core"
WHERE = {"reading": "all machines, by files", "vocabulary": ONE_MACHINE}  # others: everywhere


def gather_rates(folder: Path) -> dict[str, Any]:
    """The rates among a machine's results."""
    (data,) = (case["value"] for case in Results.read(folder / "data.json").cases.values())
    planning = Results.read(folder / "growth.json").cases["pairs"]["value"]
    plan = max(planning["growth"], key=lambda plan: (plan["window"] == WINDOW, plan["pairs"]))
    steps = [{key: step[key] for key in ("step", "pairs", "cpu_seconds", "peak_memory_gb")} for step in data["steps"]]
    rates = {
        "preparation": {key: data[key] for key in ("pairs", "num_proc", "text_gb", "cache_gb")} | {"steps": steps},
        "duplicates": planning["duplicates"],
        "checksum": planning["checksum"],
        "planning": {"max_tokens": planning["max_tokens"]} | plan,
    }
    if (path := folder / "decoding.json").is_file():
        results = Results.read(path)
        search = {key: results.settings[key] for key in ("num_beams", "sentences")}
        rates["synthesis"] = [
            {"model": model, "system": system, **search, "cpu_seconds": min(run["cpu_seconds"] for run in runs[system])}
            for case in results.cases.values()
            for model, runs in case["value"].items()
            for system in ("ours", "CTranslate2 int8")
            if system in runs
        ]  # fmt: skip
    return rates


def rows(rates: dict[str, Any], pairs: int, machines: int, cores: int) -> list[list[str]]:
    """What each step takes: core hours = pairs × CPU seconds ÷ pairs measured ÷ 3,600."""
    measured = [
        (step["step"], step["pairs"], step["cpu_seconds"], WHERE.get(step["step"], EVERYWHERE))
        for step in rates["preparation"]["steps"]
    ]
    for key, what in (("duplicates", "finding duplicates"), ("planning", "planning batches, each start and epoch")):
        measured.append((what, rates[key]["pairs"], rates[key]["cpu_seconds"], ONE_CORE))
    for rate in rates.get("synthesis", ()):
        what = f"synthetic pairs, beam {rate['num_beams']}: {rate['model']}, {rate['system']}"
        measured.append((what, rate["sentences"], rate["cpu_seconds"], EVERYWHERE))
    found = []
    for what, count, seconds, where in measured:
        core_hours = pairs * seconds / count / 3600
        hours = core_hours / {ONE_CORE: 1, ONE_MACHINE: cores}.get(where, cores * machines)
        rate, amount = f"{count / seconds:,.0f}", f"{count:,} in {seconds:,.2f} CPU s"
        found.append([what, amount, rate, f"{core_hours:,.2f}", where, f"{hours:,.2f}"])
    return found


def page(rates: dict[str, Any], pairs: int, machines: int, cores: int) -> str:
    """The plan as a page of Markdown."""
    preparation, plan, checksum = rates["preparation"], rates["planning"], rates["checksum"]
    text, cache = (preparation[f"{name}_gb"] * pairs / preparation["pairs"] for name in ("text", "cache"))
    keys = rates["duplicates"]
    verify = cache / checksum["gb"] * checksum["cpu_seconds"] / 60 / cores
    shards = max(step["peak_memory_gb"] for step in preparation["steps"])
    windows = f", in windows of {plan['window']:,}, and takes that for any corpus" if plan["window"] else " at once"
    head = ["step", "measured", "pairs a second and core", "core hours", "runs on", "hours"]
    return f"""# {pairs:,} pairs, on paper

Nothing of this size was run. Every number is a rate that was measured on a smaller corpus ([rates.json](rates.json))
times the number of pairs: core hours = {pairs:.0e} × CPU seconds ÷ pairs measured ÷ 3,600. Hours are for
{machines} machines of {cores} cores, as fast as the one measured and busy to the end. The download and
the network are left out.

```bash
python -m training.benchmarks.billion_pairs --rates model_cards/billion-pairs --pairs {pairs} --machines {machines} --cores {cores}
```

{table_text(head, rows(rates, pairs, machines, cores))}

**Memory.** A step in shards takes as much for any corpus: measured, at most {shards:.2f} GB with
{preparation["num_proc"]} processes, all of them together. What grows are the keys among which duplicates are looked
for, on one machine: {keys["peak_mb"]:,.0f} MB for {keys["pairs"]:,}, so {keys["peak_mb"] / keys["pairs"] * pairs / 1e3:,.0f} GB for {pairs:,}.
The plan of the batches of {plan["pairs"]:,} pairs took {plan["peak_mb"]:,.0f} MB{windows}.

**Disk.** In a folder that all machines share, {text:,.0f} GB of text, {1e9 * text / pairs:,.0f} bytes a pair as measured,
and {cache:,.0f} GB of pairs and ids, {1e9 * cache / pairs:,.0f} bytes a pair. Each start of a training verifies their
checksums: {checksum["gb"]:.2f} GB took {checksum["cpu_seconds"]:.2f} CPU seconds from memory, so {cache:,.0f} GB take
{verify:,.1f} minutes on {cores} cores, if the disk is as fast.

**Training.** An epoch has {plan["tokens"] * pairs / plan["pairs"]:.2e} tokens of both sides in {plan["batches"] * pairs / plan["pairs"]:.2e} batches of {plan["max_tokens"]:,}, with
{plan["padding"]:.2%} padding.
"""  # noqa: E501


def main(arguments: list[str] | None = None) -> None:
    """Print the page, or leave it with its rates in a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=Path, default=Path("model_cards/billion-pairs"), help="folder of the rates")
    parser.add_argument("--output", type=Path, help="folder of README.md and rates.json")
    for name, default in {"pairs": 10**9, "machines": 8, "cores": 32}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default:,}")
    args = parser.parse_args(arguments)
    known = args.rates / "rates.json"
    rates = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else gather_rates(args.rates)
    text = page(rates, args.pairs, args.machines, args.cores)
    if args.output is None:
        print(text)
        return
    args.output.mkdir(parents=True, exist_ok=True)
    write_text_whole(args.output / "rates.json", json_text(rates, indent=1) + "\n")
    write_text_whole(args.output / "README.md", text)


if __name__ == "__main__":
    main()
