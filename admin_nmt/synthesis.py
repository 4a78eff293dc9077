"""Synthetic sentence pairs: text on one side, a model's translations of it on the other.

Where the text is of the target language this is back-translation (Sennrich et al. 2016, Edunov et al. 2018), where it
is the source side of the training data, sequence-level distillation (Kim and Rush 2016).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from datasets import Dataset

from .cleaning import CleaningOptions, clean
from .distributed import gather_objects, rank_and_size
from .file_translation import PartialFile, translate_file
from .parallel_text import PAIR, read_lines

Side = Literal["source", "target"]


def read_text(files: Sequence[str | Path]) -> Iterator[str]:
    """The lines of several files, one after the other; see [`read_lines`]."""
    return chain.from_iterable(map(read_lines, files))


class SyntheticFile(PartialFile):
    """A TSV file of synthetic pairs: all lines are translated first, in chunks that are kept, then filtered at once.

    Args:
        output: the TSV file, source and target.
        settings: whatever the translations depend on besides their text; see [`PartialFile`].
        text: files of the text that is translated.
        generates: the side that holds the translations.
        filters: pairs to drop.

    Attributes:
        counts: of the pairs that each filter dropped, once the file is finished.
    """

    def __init__(
        self,
        output: str | Path,
        settings: Mapping[str, Any],
        *,
        text: Sequence[str | Path],
        generates: Side,
        filters: CleaningOptions,
    ) -> None:
        super().__init__(output, settings)
        self.text, self.generates, self.filters = text, generates, filters
        self.counts: dict[str, int] = {}

    def pairs(self) -> Iterator[dict[str, str]]:
        """All pairs as they were generated."""
        given = "target" if self.generates == "source" else "source"
        for text, translation in zip(read_text(self.text), _lines(self.partial), strict=True):
            yield {given: text, self.generates: translation}

    def finish(self) -> None:
        """Filter the pairs and give the file its name; only then the translations are deleted."""
        temporary = self.output.with_name(f"{self.output.name}.new")
        with TemporaryDirectory(prefix=f".{self.output.name}-", dir=self.output.parent) as cache:
            pairs = Dataset.from_generator(
                self.pairs, features=PAIR, cache_dir=cache, fingerprint=self.digest.hexdigest()[:32]
            )
            kept, self.counts = clean(pairs, self.filters, cache_dir=cache, num_proc=1)
            if not len(kept):
                raise ValueError(f"{self.output}: the filters dropped every pair; relax them: {self.counts}")
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{_cell(pair['source'])}\t{_cell(pair['target'])}\n" for pair in kept)
        temporary.replace(self.output)
        self.partial.unlink()
        self.record.unlink()
        self.is_finished = True


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def _cell(text: str) -> str:
    """Text that cannot break a TSV file."""
    return " ".join(text.replace("\t", " ").splitlines())


class NoFile:
    """What a process besides the first writes: it takes part in every chunk, from the one that the first is at."""

    def __init__(self, lines: int) -> None:
        self.lines = lines

    def skip_finished(self, lines: Iterator[str]) -> None:
        for _ in range(self.lines):
            next(lines)

    def append(self, sources: Sequence[str], translations: Sequence[str]) -> None:
        """Leave the writing to the first process."""

    def finish(self) -> None:
        """Leave the filtering to the first process."""


def synthesize(
    load: Callable[[], Callable[[list[str]], Sequence[str]]],
    text: Sequence[str | Path],
    output: str | Path,
    *,
    generates: Side,
    settings: Mapping[str, Any],
    filters: CleaningOptions,
    chunk_size: int = 2000,
    progress: bool = False,
) -> dict[str, int]:
    """Translate text into a TSV file of filtered pairs; killed at any moment, the same call goes on.

    Under several processes all of them call this and translate each chunk together; the first one writes.

    Args:
        load: gives the function that translates a list of sentences, on every process alike.
        text: files of one sentence a line.
        output: the TSV file, which appears when it is complete; finished lines wait in `OUTPUT.partial`.
        generates: the side of the pairs that holds the translations.
        settings: whatever these depend on besides the text.
        filters: pairs to drop; `drop_held_out` is not looked at, for a recipe knows what is held out.
        chunk_size: lines that are translated together, sorted by length.
        progress: show a progress bar.

    Returns:
        The counts of [`clean`]; nothing on processes other than the first.

    Raises:
        ValueError: finished lines are of other settings or text, or nothing is left of the pairs.
    """
    first = rank_and_size()[0] == 0
    file = SyntheticFile(output, settings, text=text, generates=generates, filters=filters) if first else None
    with file or nullcontext():
        (finished, *_) = gather_objects(file.lines if file else 0)
        writer: Any = file or NoFile(finished)
        translate_file(load(), read_text(text), writer, chunk_size=chunk_size, progress=progress and first)
    return file.counts if file else {}
