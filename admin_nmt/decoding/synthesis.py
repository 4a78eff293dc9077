"""Synthetic sentence pairs: text on one side, a model's translations of it on the other.

Where the text is of the target language this is back-translation (Sennrich et al. 2016, Edunov et al. 2018), where it
is the source side of the training data, sequence-level distillation (Kim and Rush 2016).
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal

from ..data.arrow_cache import batched_columns, open_arrow, write_arrow
from ..data.cleaning import CleaningOptions, clean
from ..data.parallel_text import PAIR
from ..data.text_lines import read_lines
from .file_translation import PartialFile, one_line, translate_file
from .translator import Translator
from .usual_scores import Unusual, add_up_unusual
from .worker_processes import InOrder

Side = Literal["source", "target"]

OVER_LONG = "over-long for the model"
CUT = f"\0{OVER_LONG}"  # in OUTPUT.partial, where a translation belongs


def read_text(files: Sequence[str | Path]) -> Iterator[str]:
    """The lines of several files, one after the other; see [`read_lines`]."""
    return chain.from_iterable(map(read_lines, files))


def translate_whole(translator: Translator, lines: Sequence[str], *, progress: bool = False) -> list[str]:
    """Translations of the lines that the model reads to their end, [`CUT`] for each of the others."""
    longest = translator.model.config.max_position_embeddings
    rows = translator.tokenizer(list(lines), truncation=False, verbose=False)["input_ids"]
    fits = [len(row) <= longest for row in rows]
    whole = [line for line, fit in zip(lines, fits, strict=True) if fit]
    translations = iter(translator.translate(whole, progress=progress))
    return [one_line(next(translations)) if fit else CUT for fit in fits]


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
        cut: lines that `translate_whole` left out.
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
        self.cut = 0

    def pairs(self) -> Iterator[tuple[str, str]]:
        """All pairs, source and target, as they were generated.

        Raises:
            ValueError: the text is not the one that was translated.
        """
        digest = hashlib.sha256()
        # A missing line counts as a blank one: the digest tells, and so it does if lines were added.
        for text, translation in zip_longest(read_text(self.text), _lines(self.partial), fillvalue=""):
            digest.update(text.encode() + b"\n")
            if translation == CUT:
                self.cut += 1
            else:
                yield (translation, text) if self.generates == "source" else (text, translation)
        if digest.digest() != self.digest.digest():
            raise ValueError(
                f"the input has changed since {self.partial} was begun; restore it, or delete {self.partial} and "
                f"{self.record} to start over"
            )

    def finish(self) -> None:
        """Filter the pairs and give the file its name; only then the translations are deleted.

        Raises:
            ValueError: the text has changed, or nothing is left.
            OSError: the disk is full.
        """
        with _own_folder(self.output.with_name(f".{self.output.name}.filtering")) as cache:
            self.cut, columns = 0, list(PAIR)
            total = write_arrow(cache / "pairs.arrow", batched_columns(self.pairs(), columns), PAIR)
            if not total:
                raise ValueError(f"{self.output}: every line is {OVER_LONG}; split the lines, or choose another one")
            pairs = open_arrow([cache / "pairs.arrow"], self.digest.hexdigest())
            kept, counts = clean(pairs, self.filters, cache_dir=cache, num_proc=1)
            self.counts = {"total": total + self.cut, OVER_LONG: self.cut} | {
                name: count for name, count in counts.items() if name != "total"
            }
            if not len(kept):
                raise ValueError(f"{self.output}: the filters dropped every pair; relax them: {self.counts}")
            complete = cache / "kept.tsv"
            with complete.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{_cell(pair['source'])}\t{_cell(pair['target'])}\n" for pair in kept)
            complete.replace(self.output)
        self.file.close()  # Windows deletes no open file
        self.partial.unlink()
        self.record.unlink()
        self.is_finished = True


@contextmanager
def _own_folder(path: Path) -> Iterator[Path]:
    """A new folder, in place of what a killed process left, which is removed in the end."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def _cell(text: str) -> str:
    """Text that cannot break a TSV file."""
    return " ".join(text.replace("\t", " ").splitlines())


def synthesize(
    in_order: InOrder,
    text: Sequence[str | Path],
    output: str | Path,
    *,
    generates: Side,
    settings: Mapping[str, Any],
    filters: CleaningOptions,
    chunk_size: int = 2000,
    progress: bool = False,
) -> dict[str, int]:
    """Translate text into a TSV file of filtered pairs; killed at any moment, the same call continues.

    Args:
        in_order: gives each list of lines with their translations, see [`translate_whole`]. Where these come from
            [`with_unusual`], a single warning tells of all unusual sentences.
        text: files of one sentence a line, which are read twice.
        output: the TSV file, which appears when it is complete; finished lines wait in `OUTPUT.partial`.
        generates: the side of the pairs that holds the translations.
        settings: whatever these depend on besides the text.
        filters: pairs to drop; `drop_held_out` is not looked at, for a recipe knows what is held out.
        chunk_size: lines that are translated together, sorted by length.
        progress: show a progress bar.

    Returns:
        The counts of [`clean`], and under [`OVER_LONG`] that of lines without a translation.

    Raises:
        ValueError: finished lines are of other settings or text, a text is a pipe or changes, or nothing is left of
            the pairs.
    """
    for path in map(Path, text):
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: is no regular file; the text is read twice, so write it to one first")
    unusual = Unusual()
    with SyntheticFile(output, settings, text=text, generates=generates, filters=filters) as file:
        try:
            in_order = add_up_unusual(in_order, unusual)
            translate_file(in_order, read_text(text), file, chunk_size=chunk_size, progress=progress)
        finally:
            unusual.warn()
    return file.counts
