"""Compare systems that translated one test set: scores, significance, rare words, sentence length, n-grams.

    python training/compare.py runs/admin runs/pre_ln other=hyp.txt --train_target train.de.gz --output comparison

A system is the folder of a finished run or a file of detokenised translations, one a line; `name=path` names it. The
output folder gets README.md, comparison.html (one file, no server needed), CSV tables, and plots as PNG and SVG.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from admin_nmt.cli.commands import describe
from admin_nmt.data.parallel_text import read_lines
from admin_nmt.metrics.comparison import compare
from admin_nmt.reports.comparison_page import write_report
from admin_nmt.runs.results import FILE, load_results
from cli import ANEW, parse, run


@dataclass
class Arguments:
    systems: list[str] = field(metadata={"help": "Run folders or files of translations, each maybe as name=path."})
    output: str = field(metadata={"help": "Folder of the report."})
    reference: str | None = field(
        default=None, metadata={"help": "Raw references; by default those of the first finished run."}
    )
    source: str | None = field(
        default=None, metadata={"help": "Source sentences, shown with the examples; by default those of the run."}
    )
    train_target: str | None = field(
        default=None, metadata={"help": "Target side of the training text, for word accuracy by frequency."}
    )
    baseline: str | None = field(default=None, metadata={"help": "System to set the others against; default: first."})
    language: str | None = field(
        default=None, metadata={"help": "Target language, for tokenisation; default: the first run's, else de."}
    )
    title: str = field(default="Comparison of systems", metadata={"help": "Title of the report."})


def named(argument: str) -> tuple[str, Path]:
    """The name and the path of a system: `name=path`, else the path's own name without ending."""
    path = Path(argument)
    if "=" in argument and not path.exists():
        name, rest = argument.split("=", 1)
        if not name.strip():
            raise ValueError(f"{argument}: has no name before the =; write name=path, or the path alone")
        return name, Path(rest)
    return (path.resolve().name if path.is_dir() else path.stem), path


def translations(path: Path) -> Path:
    """The file of a system's translations.

    Raises:
        ValueError: there is no such file or run, or the run has not finished its evaluation.
    """
    if not path.exists():
        raise ValueError(f"{path}: there is no such run folder or file of translations")
    if path.is_file():
        return path
    results = facts(path)
    if results.get("status") == "diverged":
        raise ValueError(f"{path}: diverged at update {results['diverged']['update']}, so it translated no test set")
    if not (results and (path / "test.hyp").exists()):
        raise ValueError(f"{path}: has no finished evaluation; finish the run with training/train.py")
    return path / "test.hyp"


def facts(path: Path) -> dict[str, Any]:
    """The results.json of a run, empty where there is none."""
    return load_results(path) if (path / FILE).is_file() else {}


def read_system(path: Path, references: list[str]) -> list[str]:
    """The translations of a system, checked against the references.

    Raises:
        ValueError: as for `translations`; or the lines are not as many as the references, or these are not the run's.
    """
    file = translations(path)
    lines = list(read_lines(file))
    if len(lines) != len(references):
        raise ValueError(f"{file}: has {len(lines)} translations for {len(references)} references; give one a line")
    own = path / "test.ref"
    if own.exists() and list(read_lines(own)) != references:
        raise ValueError(f"{own}: differs from the references, so this run translated another test set")
    return lines


def read_systems(
    candidates: Iterable[tuple[str, Path]], references: list[str]
) -> tuple[dict[str, list[str]], list[Path], list[str]]:
    """The translations of the systems that can be compared, their paths, and why the others cannot, said on stderr."""
    systems: dict[str, list[str]] = {}
    kept, left_out = [], []
    for name, path in candidates:
        try:
            if name in systems:
                raise ValueError(f"{path}: there is a system {name} already; give this one as name=path")
            systems[name] = read_system(path, references)
            kept.append(path)
        except (ValueError, OSError) as error:
            left_out.append(f"left out: {describe(error)}")
            print(left_out[-1], file=sys.stderr)
    return systems, kept, left_out


def beside(paths: Iterable[Path], name: str) -> Path | None:
    """The file `name` of the first run that has it."""
    return next((path / name for path in paths if (path / name).is_file()), None)


def target_language(paths: Iterable[Path]) -> str:
    """That of the first run that says so, else German."""
    pairs = (facts(path).get("recipe", {}).get("languages") for path in paths)
    return next((pair[1] for pair in pairs if pair), "de")


def main() -> None:
    args = parse(Arguments, __doc__)
    output = Path(args.output)
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: is a file; name a folder")
    candidates = [named(argument) for argument in args.systems]
    names = [name for name, _ in candidates]
    if args.baseline and args.baseline not in names:
        raise ValueError(f"--baseline {args.baseline}: the systems are {', '.join(names)}")
    reference = args.reference or beside((path for _, path in candidates), "test.ref")
    if reference is None:
        raise ValueError("no run here has a test.ref; give the references with --reference")
    references = list(read_lines(reference))
    systems, kept, remarks = read_systems(candidates, references)
    if not systems:
        raise ValueError("no system is left to compare")
    baseline = args.baseline if args.baseline in systems else next(iter(systems))
    if args.baseline and baseline != args.baseline:
        remarks.append(f"the baseline {args.baseline} was left out; {baseline} takes its place")
        print(remarks[-1], file=sys.stderr)
    source = args.source or beside(kept, "test.src")
    sources = list(read_lines(source)) if source else None
    if sources and len(sources) != len(references):
        raise ValueError(
            f"{source}: has {len(sources)} lines for {len(references)} references; give the test set's own"
        )
    train_target = read_lines(args.train_target) if args.train_target else None
    comparison = compare(
        systems,
        references,
        sources=sources,
        baseline=baseline,
        train_target=train_target,
        language=args.language or target_language(kept),
        progress=True,
    )
    write_report(comparison, output, args.title, remarks)
    print(f"{output / 'comparison.html'}: {', '.join(systems)}")
    if len(systems) < len(candidates):
        sys.exit(1)


if __name__ == "__main__":
    run(main, ANEW)
