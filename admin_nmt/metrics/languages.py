"""What a language code is, in one place for every score, recipe and command; imports nothing heavy."""

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from babel.core import Locale

WITHOUT_SPACES = {"zh", "yue", "wuu", "gan", "hak", "hsn", "lzh", "nan", "ja", "th", "lo", "km", "my", "bo", "dz"}
SPLIT = {"zh", "ja"}  # of these, those that sacreBLEU has a tokeniser for


def language_code(language: str) -> str:
    """The code without its region: "de" of "DE" and "de-AT".

    Raises:
        ValueError: it is none that Unicode's CLDR has a name for, as "German", "deu" (for which "de" stands) or "dee".
    """
    from babel.core import Locale, get_global

    code, known = re.split("[-_]", language.lower())[0], Locale("en").languages
    if code in known:
        return code
    names = {name.lower(): code for code, name in known.items()}
    meant = get_global("language_aliases").get(code) or names.get(language.lower())
    similar = ", ".join([meant] if meant else get_close_matches(code, known))
    hint = f"did you mean {similar}?" if similar else "give the two-letter code, such as de"
    raise ValueError(f"language {language!r}: is no known code; {hint}")


def has_spaces(language: str) -> bool:
    """Whether its words stand between spaces."""
    return language_code(language) not in WITHOUT_SPACES


def has_words(language: str) -> bool:
    """Whether sacreBLEU finds words in its text: without them a sentence is one word, and BLEU finds no 4-grams."""
    return has_spaces(language) or language_code(language) in SPLIT


def language_name(code: str) -> str:
    """English name of a language, or its code where that is no known one."""
    found = _locale(code)
    name = found.get_display_name("en") if found is not None else None
    return name or code


def is_written_leftward(code: str) -> bool:
    """Whether the lines of a language run from right to left."""
    found = _locale(code)
    return found is not None and found.text_direction == "rtl"


def _locale(code: str) -> "Locale | None":
    from babel.core import Locale, UnknownLocaleError

    try:
        return Locale.parse(code, sep="-")
    except (ValueError, UnknownLocaleError):
        return None
