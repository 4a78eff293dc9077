"""The page of a machine and the index of all machines, from whatever results there are."""

import json
from pathlib import Path
from typing import Any

from ...system.files import write_text_whole
from ...system.markdown import table_text
from .growth_section import draw_growth
from .machine_facts import instructions
from .machine_parts import MULTI30K
from .page_section import Section, paragraph
from .part_runner import BUSY, MACHINE, Results, read_results
from .part_sections import SECTIONS

PAGE = "README.md"
COMMAND = "admin-nmt benchmark"


def write_pages(folder: Path) -> None:
    """Write the page of a machine's folder, its pictures, and the index beside all such folders."""
    if growth := known_parts(folder).get("growth"):
        draw_growth(growth, folder)
    write_text_whole(folder / PAGE, machine_page(folder))
    write_text_whole(folder.parent / PAGE, index_page(folder.parent))


def read_machine(folder: Path) -> dict[str, Any]:
    """The facts of a machine's folder."""
    facts: dict[str, Any] = json.loads((folder / MACHINE).read_text(encoding="utf-8"))
    return facts


def known_parts(folder: Path) -> dict[str, Results]:
    """The parts of which there are results, by their names."""
    found = {name: read_results(folder, name) for name in SECTIONS}
    return {name: results for name, results in found.items() if results is not None and results.cases}


def machine_page(folder: Path) -> str:
    """Everything about one machine, as Markdown."""
    facts, parts = read_machine(folder), known_parts(folder)
    sections = {name: SECTIONS[name](results) for name, results in parts.items()}
    text = [f"# {title(facts)}", facts_table(facts), redo(), measured(parts), *warnings(parts)]
    for name, section in sections.items():
        text += [f"## {section.title}", f"```bash\n{command(name, parts[name])}\n```", section.text]
    return "\n\n".join(text) + "\n"


def title(facts: dict[str, Any]) -> str:
    """The processor, its instructions in use, threads, and the GPU if there is one."""
    cpu = facts["cpu"]
    gpu = f", {facts['gpu']}" if facts["gpu"] else ""
    threads = "1 thread" if cpu["threads"] == 1 else f"{cpu['threads']} threads"
    return f"{cpu['name']}, {instructions(cpu)}, {threads}{gpu}"


def facts_table(facts: dict[str, Any]) -> str:
    """The machine and the versions."""
    cpu = facts["cpu"]
    rows = [
        ["processor", cpu["name"]],
        ["instructions", ", ".join(cpu["flags"]) or "none of those that matter"],
        ["in use", instructions(cpu)],
        ["cores, threads", f"{cpu['cores']}, {cpu['threads']}"],
        *([["GPU", facts["gpu"]]] if facts["gpu"] else []),
        ["memory", f"{facts['memory_gb']} GB"],
        ["system", facts["system"]],
        ["versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())],
    ]
    if facts["variables"]:
        rows.append(["variables", ", ".join(f"`{name}={value}`" for name, value in facts["variables"].items())])
    return table_text(["machine", ""], rows)


def redo() -> str:
    """How the page is made, and how its numbers are to be read."""
    return paragraph(f"""Made by `{COMMAND}`, which measures what is missing here; a part is measured anew with its own
        command and `--again`. Ratios are medians over rounds, in brackets the lowest and the highest round; each
        compares systems that were measured in turns within a minute or two. The absolute numbers beside them hold for
        this machine alone.""")


def measured(parts: dict[str, Results]) -> str:
    """When each part was measured, with what code, how long it took, and what else the machine was doing."""
    rows = []
    for name, results in parts.items():
        cases = list(results.cases.values())
        dates = sorted(case["date"] for case in cases)
        facts = [", ".join(sorted({str(case[key]) for case in cases})) for key in ("commit", "torch")]
        minutes, others = sum(case["seconds"] for case in cases) / 60, max(case["others"] for case in cases)
        rows.append([name, dates[-1], *facts, f"{minutes:.1f}", f"{others:.0%}"])
    head = ["part", "measured", "commit", "torch", "minutes", "most of the cores that other work used"]
    return table_text(head, rows)


def warnings(parts: dict[str, Results]) -> list[str]:
    """A sentence where other work disturbed a measurement."""
    busy = [name for name, part in parts.items() if any(case["others"] > BUSY for case in part.cases.values())]
    text = f"**Other work ran during {', '.join(busy)}: ratios there vary more than on an idle machine.**"
    return [text] if busy else []


def command(part: str, results: Results) -> str:
    """That measures a part anew."""
    data = " --data path/to/multi30k" if results.settings.get("corpus") == MULTI30K else ""
    return f"{COMMAND} {part}{data} --again"


def index_page(folder: Path) -> str:
    """The machines that were measured, the rows of their pages beside each other."""
    machines = {path.parent.name: read_machine(path.parent) for path in sorted(folder.glob(f"*/{MACHINE}"))}
    sections = {slug: read_sections(folder / slug) for slug in machines}
    names = list(dict.fromkeys(name for found in sections.values() for one in found for name in one.rows))
    rows = [[name, *(cell(found, name) for found in sections.values())] for name in names]
    links = [f"[{title(facts)}]({slug}/{PAGE})" for slug, facts in machines.items()]
    text = "# Benchmarks by machine\n\n" + paragraph(f"""`{COMMAND}` measures training, decoding, the loss, start,
        preparation of data and the growth of cost on the machine where it runs, and writes a folder for it here. Ratios
        compare systems that were measured in turns on one machine, in brackets the lowest and the highest round; where
        there is a dash, nothing was measured. *ours* is admin_nmt. Of speeds, more is better; of the start, less.
        Growth is the speed at the largest size over what it would be if time grew with the operations (of batches: if
        it were that of the smallest), so above 1 is better.""")
    if not machines:
        return f"{text}\n\nNo machine has a page yet.\n"
    return f"{text}\n\n{table_text(['ratio', *links], rows)}\n"


def read_sections(folder: Path) -> list[Section]:
    """The sections of a machine's page."""
    return [SECTIONS[name](results) for name, results in known_parts(folder).items()]


def cell(sections: list[Section], name: str) -> str:
    """A row's ratio on one machine."""
    return next((section.rows[name] for section in sections if name in section.rows), "–")
