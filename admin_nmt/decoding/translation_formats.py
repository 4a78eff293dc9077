"""Output for a line of text: its translation alone, an n-best list, or a JSON object."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..system.files import json_text
from .file_translation import one_line
from .search.forced_decoding import default_layer
from .translator import Translation, Translator
from .worker_processes import Parts

Format = Literal["text", "nbest", "jsonl"]
BAR = " ||| "


def pharaoh(translation: Translation) -> str:
    """Its alignment as Pharaoh wrote it: source word, hyphen, target word, counted from 0."""
    return " ".join(f"{source}-{target}" for source, target in translation.alignment())


def _fields(translation: Translation, *others: str) -> str:
    aligned = [pharaoh(translation)] if translation.attention is not None else []
    return BAR.join([one_line(translation.text), *others, *aligned])


def text_line(source: str, translations: Sequence[Translation]) -> str:
    """The best translation, and its alignment where there is one."""
    return _fields(translations[0])


def nbest_lines(source: str, translations: Sequence[Translation]) -> str:
    """A line for each translation with its score; [`numbered`] puts the number of the sentence in front."""
    return "\n".join(_fields(translation, f"{translation.score:.4f}") for translation in translations)


def json_line(source: str, translations: Sequence[Translation]) -> str:
    """An object with the source, its tokens, and all that is known of each translation but the attention."""

    def known(translation: Translation) -> dict[str, Any]:
        facts = {name: getattr(translation, name) for name in ("text", "score", "log_prob", "tokens")}
        return facts | ({} if translation.attention is None else {"alignment": translation.alignment()})

    shown = {"source": source, "source_tokens": translations[0].source_tokens}
    return json_text(shown | {"translations": [known(translation) for translation in translations]})


LINES: dict[str, Callable[[str, Sequence[Translation]], str]] = {
    "text": text_line,
    "nbest": nbest_lines,
    "jsonl": json_line,
}


def numbered(in_order: Callable[..., Parts], first: int) -> Callable[..., Parts]:
    """N-best lists with the number of their sentence in front of each line, counted from `first`."""

    def parts(chunks: Any) -> Iterator[tuple[list[str], Sequence[str]]]:
        number = first
        for chunk, written in in_order(chunks):
            lists = [lines.split("\n") for lines in written]
            yield chunk, ["\n".join(f"{number + i}{BAR}{line}" for line in lines) for i, lines in enumerate(lists)]
            number += len(chunk)

    return parts


@dataclass(frozen=True)
class LineTranslator:
    """Output for each of some lines, as one string that may hold several lines.

    Args:
        form: how translations are written.
        align: whether their alignment is written.
        layer: of the decoder, whose attention aligns; None for the one before the last.
        prefix: what every translation begins with; with `prefixed`, it stands behind a tab in each line instead.
    """

    form: Format = "text"
    align: bool = False
    layer: int | None = None
    prefix: str | None = None
    prefixed: bool = False

    def __call__(self, translator: Translator, lines: Sequence[str], *, progress: bool = False) -> list[str]:
        """Translate lines, of each as many translations as the translator's options ask for.

        Raises:
            ValueError: an option does not fit the model.
        """
        if self == LineTranslator() and translator.options.nbest == 1:  # spares what is not shown
            return [one_line(translation) for translation in translator.translate(lines, progress=progress)]
        options: dict[str, Any] = {"progress": progress}
        if self.prefixed:
            rows = [line.partition("\t") for line in lines]
            lines, options["target_prefixes"] = [row[0] for row in rows], [row[2] for row in rows]
        elif self.prefix is not None:
            options["target_prefixes"] = [self.prefix] * len(lines)
        if self.align:
            options["alignment_layer"] = default_layer(translator.model) if self.layer is None else self.layer
        found = translator.translations(lines, **options)
        return [LINES[self.form](line, translations) for line, translations in zip(lines, found, strict=True)]
