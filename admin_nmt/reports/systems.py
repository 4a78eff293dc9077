"""Reading the systems of a comparison: folders of runs, and files of translations."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..data.parallel_text import read_lines
from ..metrics.comparison import compare
from ..runs.results import FILE, load_results
from ..user_errors import describe
from .comparison_page import write_report


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
    if not path.is_dir():
        return path
    results = facts(path)
    if results.get("status") == "diverged":
        raise ValueError(f"{path}: diverged at update {results['diverged']['update']}, so it translated no test set")
    if not (results and (path / "test.hyp").exists()):
        raise ValueError(f"{path}: has no finished evaluation; finish the run with `admin-nmt train`")
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


def compare_systems(
    arguments: list[str],
    output: Path,
    *,
    reference: str | None = None,
    source: str | None = None,
    train_target: str | None = None,
    baseline: str | None = None,
    language: str | None = None,
    title: str = "Comparison of systems",
) -> bool:
    """Compare systems that translated one test set and write the report; says whether all of them are in it.

    Args:
        arguments: folders of finished runs, or files of detokenised translations, each maybe as `name=path`.
        output: folder of the report.
        reference: raw references; by default those of the first finished run.
        source: source sentences, shown with the examples; by default those of the run.
        train_target: target side of the training text, for word accuracy by frequency.
        baseline: name of the system to set the others against; by default the first.
        language: target language, for tokenisation; by default the first run's, else German.

    Raises:
        ValueError: naming the argument or file that leaves nothing to compare.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: is a file; name a folder")
    candidates = [named(argument) for argument in arguments]
    names = [name for name, _ in candidates]
    if baseline and baseline not in names:
        raise ValueError(f"--baseline {baseline}: the systems are {', '.join(names)}")
    references = list(read_lines(reference or reference_file(path for _, path in candidates)))
    systems, kept, remarks = read_systems(candidates, references)
    if not systems:
        raise ValueError("no system is left to compare")
    chosen = baseline if baseline in systems else next(iter(systems))
    if baseline and chosen != baseline:
        remarks.append(f"the baseline {baseline} was left out; {chosen} takes its place")
        print(remarks[-1], file=sys.stderr)
    comparison = compare(
        systems,
        references,
        sources=read_sources(source or beside(kept, "test.src"), len(references)),
        baseline=chosen,
        train_target=read_lines(train_target) if train_target else None,
        language=language or target_language(kept),
        progress=True,
    )
    write_report(comparison, output, title, remarks)
    print(f"{output / 'comparison.html'}: {', '.join(systems)}")
    return len(systems) == len(candidates)


def reference_file(paths: Iterable[Path]) -> Path:
    """The references of the first run that has some."""
    if (found := beside(paths, "test.ref")) is None:
        raise ValueError("no run here has a test.ref; give the references with --reference")
    return found


def read_sources(path: str | Path | None, count: int) -> list[str] | None:
    """The source sentences, if there are any; raises ValueError if they are not as many as the references."""
    sources = list(read_lines(path)) if path else None
    if sources and len(sources) != count:
        raise ValueError(f"{path}: has {len(sources)} lines for {count} references; give the test set's own")
    return sources
