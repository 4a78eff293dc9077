"""Language codes, in one place for every score, recipe and command; imports nothing heavy.

languages.tsv has the languages that Unicode's CLDR names, as Babel 2.18 gives them: code, English name, other codes of
it, and the territories that the CLDR has a locale of it for.
"""

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple

WITHOUT_SPACES = {"zh", "yue", "wuu", "gan", "hak", "hsn", "lzh", "nan", "ja", "th", "lo", "km", "my", "bo", "dz"}
SPLIT = {"zh", "ja"}  # of these, those that sacreBLEU has a tokeniser for
LEFTWARD = {
    "apc", "ar", "bal", "bgn", "ckb", "dv", "fa", "he", "ks", "lrc", "mzn", "nqo", "ps", "rhg", "sd", "sdh", "skr",
    "syr", "trw", "ug", "ur", "yi",
}  # fmt: skip


class Language(NamedTuple):
    """An English name, other codes, such as "deu", and codes of territories, such as "AT"."""

    name: str
    aliases: frozenset[str]
    territories: frozenset[str]


@cache
def known_languages() -> dict[str, Language]:
    """The languages by their codes."""
    lines = Path(__file__).with_name("languages.tsv").read_text(encoding="utf-8").splitlines()
    rows = ((line + "\t\t").split("\t")[:4] for line in lines)
    return {
        code: Language(name, frozenset(aliases.split()), frozenset(places.split()))
        for code, name, aliases, places in rows
    }


def find_code(word: str) -> str | None:
    """The code of a language that is called so in English, or by another code: de of "de", "deu" and "German"."""
    word, known = word.lower(), known_languages()
    if word in known:
        return word
    return next((code for code, one in known.items() if word in one.aliases or word == one.name.lower()), None)


def language_code(language: str) -> str:
    """The code without its region: "de" of "DE" and "de-AT".

    Raises:
        ValueError: it is none that Unicode's CLDR has a name for, as "German", "deu" (for which "de" stands) or "dee".
    """
    code, known = re.split("[-_]", language.lower())[0], known_languages()
    if code in known:
        return code
    meant = find_code(code) or find_code(language)
    similar = ", ".join([meant] if meant else get_close_matches(code, known))
    hint = f"did you mean {similar}?" if similar else "give the two-letter code, such as de"
    raise ValueError(f"language {language!r}: is no known code; {hint}")


def has_spaces(language: str) -> bool:
    """Tell whether its words stand between spaces."""
    return language_code(language) not in WITHOUT_SPACES


def has_words(language: str) -> bool:
    """Tell whether sacreBLEU finds words in its text: else a sentence is one word, and BLEU finds no 4-grams."""
    return has_spaces(language) or language_code(language) in SPLIT


def language_name(code: str) -> str:
    """English name of a language, with its region or script, or the code where that is no known one."""
    language, *rest = re.split("[-_]", code)
    found = known_languages().get(language.lower())
    if found is None:
        return code
    return f"{found.name} ({', '.join(rest)})" if rest else found.name


def is_written_leftward(code: str) -> bool:
    """Tell whether the lines of a language run from right to left."""
    language, *rest = re.split("[-_]", code)
    return "Arab" in rest or (language in LEFTWARD and "Latn" not in rest)
