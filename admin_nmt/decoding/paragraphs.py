"""Texts of several sentences: split by sentencex, translated sentence by sentence, and put together again.

Its rules need no model and know some 300 languages, and it loses no character. Two sentences that stay together are
better than one that is cut: the rules here join again what it cuts.
"""

import re
from collections.abc import Iterable
from itertools import chain
from unicodedata import category, east_asian_width

from .translator import Translator, checked

# The initial of "M. Dupont" and the number of a list's item end no sentence, nor does "im 19." in these languages.
INITIAL = re.compile(r"((?<![\w.])[^\W\d_]|^\s*\d{1,2})\.$")
ORDINAL = re.compile(r"(?<![\w.,])\d{1,2}\.$")
HAVE_ORDINALS = {
    "bs", "cs", "da", "de", "et", "fi", "fo", "hr", "hu", "is", "lb", "lt", "lv", "nb", "nn", "no", "pl", "sk", "sl",
    "sr", "tr",
}  # fmt: skip


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the whitespace behind it: joined, they are the text.

    A line break ends a sentence, too.

    Args:
        language: code of the text's language, such as "de"; for one that is not known, rules that most share.

    Raises:
        ImportError: sentencex is not installed.
    """
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError("--split-sentences needs sentencex: pip install 'admin_nmt[paragraphs]'") from error
    sentences = []
    for line in text.splitlines(keepends=True):
        start = end = 0
        # Behind an initial the library cuts other whitespace than a space within its bytes, and fails.
        for piece in segment(language, re.sub(r"\s", " ", line)):
            end += len(piece)
            if _is_end(line[start:end], line[end:], language):
                sentences.append(line[start:end])
                start = end
        sentences.append(line[start:])
    return [sentence for sentence in sentences if sentence]


def _is_end(sentence: str, rest: str, language: str) -> bool:
    """Tell whether a sentence can end where the library ends one, which it also does in "ASP.NET" or "art. premier"."""
    stop = sentence.rstrip()
    if not stop.endswith("."):
        return stop != sentence or not sentence.isascii()
    has_number = language in HAVE_ORDINALS and ORDINAL.search(stop)
    return stop != sentence and not (rest[:1].islower() or INITIAL.search(stop) or has_number)


def translate_paragraphs(
    translator: Translator, texts: Iterable[str], language: str, *, progress: bool = False
) -> list[str]:
    """Translates texts of several sentences; gives one for each, in the same order.

    The sentences of all texts are translated together, and joined with the whitespace that was between them. A single
    space, or none, becomes what belongs behind the translation's full stop: none behind a wide one, as in Chinese.

    Args:
        language: code of the texts' language, such as "de".
        progress: show a progress bar.

    Raises:
        TypeError: `texts` is a single string, or one of them is no string.
        ValueError: one holds half a surrogate pair.
    """
    split = [[_parts(sentence) for sentence in split_sentences(text, language)] for text in checked(texts)]
    sentences = [sentence for _, sentence, _ in chain(*split)]
    translations = iter(translator.translate(sentences, progress=progress))
    return [
        "".join(_spaced(before, next(translations), behind) for before, _, behind in text).strip() for text in split
    ]


def _parts(sentence: str) -> tuple[str, str, str]:
    """A sentence, with the whitespace before it and behind it."""
    return sentence.partition(sentence.strip()) if sentence.strip() else (sentence, "", "")


def _spaced(before: str, translation: str, behind: str) -> str:
    if behind in ("", " ") and translation:
        last = translation[-1]
        behind = "" if category(last).startswith("P") and east_asian_width(last) in "WF" else " "
    return f"{before}{translation}{behind}"
