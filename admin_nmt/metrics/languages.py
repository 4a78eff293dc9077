"""What a language code is, in one place for every score, recipe and command; imports nothing heavy."""

import re
from difflib import get_close_matches


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
