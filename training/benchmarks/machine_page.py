"""Render the page of each machine, and the index of all machines, from what the other benchmarks left.

    python -m training.benchmarks.machine_page
    python -m training.benchmarks.machine_page --output benchmark-toy

Without --output, all folders with a machine.json below model_cards/benchmark, and README.md there.
"""

import argparse
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from admin_nmt.system.files import write_text_whole
from admin_nmt.system.markdown import table_text
from training.benchmarks import data_preparation, start_time, step_cost, training_speed, translation_speed
from training.benchmarks.common import MACHINES, Results, instructions

PARTS: dict[str, ModuleType] = {
    "training": training_speed,
    "decoding": translation_speed,
    "loss": step_cost,
    "start": start_time,
    "data": data_preparation,
}
BUSY = 0.05  # share of the cores that others may use before a page warns
MADE = """Made by the scripts of training/benchmarks; each measures what is missing of its part, and all of it with
`--again`. Ratios are medians over rounds, in brackets the lowest and the highest round; each compares systems that were
measured in turns within a minute or two. The absolute numbers beside them hold for this machine alone."""
INDEX = """# Benchmarks by machine

The scripts of training/benchmarks measure training, decoding, the loss, start and preparation of data on the machine
where they run, each in a folder for it here. Ratios compare systems that were measured in turns on one machine, in
brackets the lowest and the highest round; where there is a dash, nothing was measured. *ours* is admin_nmt. Of speeds,
more is better; of the start, less."""


def read_facts(folder: Path) -> dict[str, Any]:
    """The content of machine.json."""
    facts: dict[str, Any] = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    return facts


def read_parts(folder: Path) -> dict[str, Results]:
    """The parts of which a machine's folder has results."""
    return {name: Results(path) for name in PARTS if (path := folder / f"{name}.json").is_file()}


def title(facts: dict[str, Any]) -> str:
    """Processor, instructions in use, threads, and the GPU if there is one."""
    cpu, gpu = facts["cpu"], f", {facts['gpu']}" if facts["gpu"] else ""
    return f"{cpu['name']}, {instructions(cpu)}, {cpu['threads']} thread{'s' * (cpu['threads'] > 1)}{gpu}"


def facts_table(facts: dict[str, Any]) -> str:
    """The machine and the versions."""
    cpu = facts["cpu"]
    rows = [
        ["processor", cpu["name"]],
        ["instructions", ", ".join(cpu["flags"]) or "none of those that matter"],
        ["in use", instructions(cpu)],
        ["cores, threads", f"{cpu['cores']}, {cpu['threads']}"],
        ["GPU", facts["gpu"]],
        ["memory", f"{facts['memory_gb']} GB"],
        ["system", facts["system"]],
        ["versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())],
        ["variables", ", ".join(f"`{name}={value}`" for name, value in facts["variables"].items())],
    ]
    return table_text(["machine", ""], [row for row in rows if row[1]])


def measured(parts: dict[str, Results]) -> str:
    """When each part was measured, with what code, how long it took, and what else the machine was doing."""
    rows, busy = [], []
    for name, results in parts.items():
        cases = list(results.cases.values())
        versions = [", ".join(sorted({str(case[key]) for case in cases})) for key in ("commit", "torch")]
        minutes, others = sum(case["seconds"] for case in cases) / 60, max(case["others"] for case in cases)
        rows.append([name, max(case["date"] for case in cases), *versions, f"{minutes:.1f}", f"{others:.0%}"])
        busy += [name] if others > BUSY else []
    head = ["part", "measured", "commit", "torch", "minutes", "most of the cores that other work used"]
    warning = f"\n\n**Other work ran during {', '.join(busy)}: ratios there vary more than on an idle machine.**"
    return table_text(head, rows) + (warning if busy else "")


def page(folder: Path) -> str:
    """Everything about one machine, as Markdown."""
    facts, parts = read_facts(folder), read_parts(folder)
    text = [f"# {title(facts)}", facts_table(facts), MADE, measured(parts)]
    for name, results in parts.items():
        about = (PARTS[name].__doc__ or "").partition("\n\n")[2].partition("\n\n    python")[0]
        fixed = "; ".join(f"{key} {value}" for key, value in results.settings.items() if not isinstance(value, dict))
        section, command = PARTS[name].section(results), f"```bash\npython -m {PARTS[name].__name__}\n```"
        text += [f"## {section.title}", command, about, *([f"Settings: {fixed}."] if fixed else []), section.text]
    return "\n\n".join(text) + "\n"


def index(folder: Path) -> str:
    """The machines beside each other, a row a ratio."""
    machines = [path.parent for path in sorted(folder.glob("*/machine.json"))]
    found: list[dict[str, str]] = [{} for _ in machines]
    for machine, ratios in zip(machines, found, strict=True):
        for name, results in read_parts(machine).items():
            ratios |= PARTS[name].section(results).ratios
    links = [f"[{title(read_facts(machine))}]({machine.name}/README.md)" for machine in machines]
    names = dict.fromkeys(name for ratios in found for name in ratios)
    rows = [[name, *(ratios.get(name, "–") for ratios in found)] for name in names]
    return f"{INDEX}\n\n{table_text(['ratio', *links], rows)}\n"


def main(arguments: list[str] | None = None) -> None:
    """Render."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder of one machine")
    args = parser.parse_args(arguments)
    for folder in [args.output] if args.output else [path.parent for path in MACHINES.glob("*/machine.json")]:
        write_text_whole(folder / "README.md", page(folder))
        print(folder / "README.md")
    if not args.output:
        write_text_whole(MACHINES / "README.md", index(MACHINES))


if __name__ == "__main__":
    main()
