"""Reading the systems of a comparison: folders of runs and of grids, and files of translations."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.parallel_text import read_more_references
from ..data.text_lines import read_lines
from ..hub.run_folder import RESULTS, SOURCES, TRANSLATIONS, Results, load_results, reference_name
from ..metrics.comparison import compare
from ..metrics.scores import reference_rows
from ..system.errors import describe
from .comparison_page import write_report
from .grids import RUN_NAME


@dataclass(frozen=True)
class Candidate:
    """A possible system, or a training run of one.

    Attributes:
        name: of the system.
        path: folder of a run, or file of translations.
        named: whether the name was given, or is that of a grid's system: candidates of such a name are runs of it.
    """

    name: str
    path: Path
    named: bool


def candidates(argument: str) -> list[Candidate]:
    """The candidates of an argument: `name=path`, a path with its own name without ending, or all runs of a grid."""
    path = Path(argument)
    if "=" in argument and not path.exists():
        name, rest = argument.split("=", 1)
        if not name.strip():
            raise ValueError(f"{argument}: has no name before the =; write name=path, or the path alone")
        return [Candidate(name, Path(rest), True)]
    return runs_of_grid(path) or [Candidate(path.resolve().name if path.is_dir() else path.stem, path, False)]


def runs_of_grid(path: Path) -> list[Candidate]:
    """The runs of a grid's folder by system and seed; none where this is a run, or no folder."""
    if not path.is_dir() or (path / RESULTS).exists():
        return []
    found = [(match, folder) for folder in path.iterdir() if (match := RUN_NAME.fullmatch(folder.name))]
    ordered = sorted(found, key=lambda one: (one[0][1], int(one[0][2])))
    return [Candidate(match[1], folder, True) for match, folder in ordered]


def facts(path: Path) -> Results | None:
    """The results.json of a run, None where there is none."""
    return load_results(path) if (path / RESULTS).is_file() else None


def read_run(path: Path, columns: Sequence[list[str]]) -> list[str]:
    """The translations of a run, or of a file, checked against the references.

    Raises:
        ValueError: there is no such file or run, or it has not finished its evaluation, or the lines are not as many
            as the references, or these are not the run's.
    """
    if not path.exists():
        raise ValueError(f"{path}: there is no such run folder or file of translations")
    file = path
    if path.is_dir():
        results, file = facts(path), path / TRANSLATIONS
        if results and results.diverged:
            raise ValueError(f"{path}: diverged at update {results.diverged.update}, so it translated no test set")
        if not (results and file.exists()):
            raise ValueError(f"{path}: has no finished evaluation; finish the run with `admin-nmt train`")
    lines, wanted = list(read_lines(file)), len(columns[0])
    if len(lines) != wanted:
        raise ValueError(f"{file}: has {len(lines)} translations for {wanted} references; give one a line")
    own = sorted(path.glob("test.ref*"))
    if own and not any(list(read_lines(file)) in columns for file in own):
        raise ValueError(f"{own[0]}: differs from the references, so this run translated another test set")
    return lines


def read_systems(
    given: Iterable[Candidate], columns: Sequence[list[str]]
) -> tuple[dict[str, list[list[str]]], list[Path], list[str]]:
    """The runs of the systems that can be compared, their paths, and why the others cannot, said on stderr."""
    systems: dict[str, list[list[str]]] = {}
    kept: list[Candidate] = []
    left_out = []
    for one in given:
        try:
            if any(one.name == other.name and not (one.named and other.named) for other in kept):
                raise ValueError(f"{one.path}: there is a system {one.name} already; give this one as name=path")
            systems.setdefault(one.name, []).append(read_run(one.path, columns))
            kept.append(one)
        except (ValueError, OSError) as error:
            left_out.append(f"left out: {describe(error)}")
            print(left_out[-1], file=sys.stderr)
    systems = {name: runs for name, runs in systems.items() if runs}
    for name in systems:
        if len(runs := [one.path for one in kept if one.name == name]) > 1:
            left_out.append(f"runs of {name}: {', '.join(path.name for path in runs)}")
    return systems, [one.path for one in kept], left_out


def first_file(paths: Iterable[Path], name: str) -> Path | None:
    """The file `name` of the first run that has it."""
    return next((path / name for path in paths if (path / name).is_file()), None)


def target_language(paths: Iterable[Path]) -> str:
    """Target language of the first run that has results, else German."""
    return next((found.recipe.languages[1] for path in paths if (found := facts(path))), "de")


def compare_systems(
    arguments: list[str],
    output: Path,
    *,
    references: Sequence[str] = (),
    source: str | None = None,
    train_target: str | None = None,
    baseline: str | None = None,
    language: str | None = None,
    title: str = "Comparison of systems",
) -> bool:
    """Compare systems that translated one test set and write the report; says whether all of them are in it.

    Args:
        arguments: folders of finished runs or of grids, or files of detokenised translations, each maybe as
            `name=path`; several of one name are runs of one system.
        output: folder of the report.
        references: files of raw references; by default those of the first finished run.
        source: source sentences, shown with the examples; by default those of the run.
        train_target: target side of the training text, for word accuracy by frequency.
        baseline: name of the system to set the others against; by default the first.
        language: target language, for tokenisation; by default the first run's, else German.

    Raises:
        ValueError: naming the argument or file that leaves nothing to compare.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: is a file; name a folder")
    given = [one for argument in arguments for one in candidates(argument)]
    names = dict.fromkeys(one.name for one in given)
    if baseline and baseline not in names:
        raise ValueError(f"--baseline {baseline}: the systems are {', '.join(names)}")
    files = list(references) or reference_files(one.path for one in given)
    first = list(read_lines(files[0]))
    columns = [first, *read_more_references(files[1:], len(first))]
    systems, kept, remarks = read_systems(given, columns)
    if not systems:
        raise ValueError("no system is left to compare")
    chosen = baseline if baseline in systems else next(iter(systems))
    if baseline and chosen != baseline:
        remarks.append(f"the baseline {baseline} was left out; {chosen} takes its place")
        print(remarks[-1], file=sys.stderr)
    comparison = compare(
        systems,
        reference_rows(columns),
        sources=read_sources(source or first_file(kept, SOURCES), len(first)),
        baseline=chosen,
        train_target=read_lines(train_target) if train_target else None,
        language=language or target_language(kept),
        progress=True,
    )
    write_report(comparison, output, title, remarks)
    print(f"{output / 'comparison.html'}: {', '.join(systems)}")
    return len(kept) == len(given)


def reference_files(paths: Iterable[Path]) -> list[Path]:
    """The references of the first run that has some."""
    if (found := first_file(paths, reference_name(0))) is None:
        raise ValueError("no run here has a test.ref; give the references with --reference")
    files = [found]
    while (further := found.with_name(reference_name(len(files)))).is_file():
        files.append(further)
    return files


def read_sources(path: str | Path | None, count: int) -> list[str] | None:
    """The source sentences, if there are any; raises ValueError if they are not as many as the references."""
    sources = list(read_lines(path)) if path else None
    if sources and len(sources) != count:
        raise ValueError(f"{path}: has {len(sources)} lines for {count} references; give the test set's own")
    return sources
