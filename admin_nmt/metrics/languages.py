"""What a language code is, in one place for every score, recipe and command; imports nothing heavy."""

import re


def language_code(language: str) -> str:
    """The code without its region: "de" of "DE" and "de-AT"; raises ValueError where there is none, as in "German"."""
    code = re.split("[-_]", language.lower())[0]
    if not re.fullmatch("[a-z]{2,3}", code):
        raise ValueError(f"language {language!r}: give the two-letter code, such as de")
    return code
