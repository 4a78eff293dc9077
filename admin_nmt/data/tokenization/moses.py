"""Moses' scripts on one sentence at a time: sacremoses, where it differs from them corrected."""

import re
from unicodedata import category

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer


class Moses:
    """Text to Moses' tokens and back.

    Args:
        source: two-letter code of the language of the text that is tokenised; a region behind it is ignored.
        target: that of tokens that are made text again, and of text that is tokenised as the target.
        normalize_punctuation: normalize-punctuation.perl and then remove-non-printing-char.perl come first.
        aggressive_hyphens: tokenizer.perl's `-a`: `a-b` becomes `a @-@ b`.
        escape: `'` becomes `&apos;`, and so on; the opposite of tokenizer.perl's `-no-escape`.
        split_final_dots: the full stop of a last word that is an abbreviation becomes a token: so tokenizer.perl does
            since November 2018, and did not before.
    """

    def __init__(
        self,
        source: str,
        target: str,
        normalize_punctuation: bool = False,
        aggressive_hyphens: bool = False,
        escape: bool = True,
        split_final_dots: bool = False,
    ) -> None:
        source, target = without_region(source), without_region(target)
        kind = DotSplitter if split_final_dots else FastTokenizer
        self.tokenizers = {language: kind(lang=language) for language in (source, target)}
        self.normalizers = {language: Normalizer(language) for language in (source, target)}
        self.detokenizer = MosesDetokenizer(lang=target)
        self.source, self.target = source, target
        self.normalize_punctuation = normalize_punctuation
        self.aggressive_hyphens = aggressive_hyphens
        self.escape = escape

    def tokenize(self, text: str, of_target: bool = False) -> str:
        """Moses' tokens of a source, or of a target, separated by spaces."""
        language = self.target if of_target else self.source
        if self.normalize_punctuation:
            text = self.normalizers[language](text)
        return str(
            self.tokenizers[language].tokenize(
                text, aggressive_dash_splits=self.aggressive_hyphens, return_str=True, escape=self.escape
            )
        )

    def detokenize(self, text: str) -> str:
        """Plain text of the target's tokens."""
        return str(self.detokenizer.detokenize(text.split(), unescape=self.escape))


def without_region(language: str) -> str:
    """The code by which Moses' rules are known: "fr" of "fr-CA"."""
    return re.split("[-_]", language.lower())[0]


class Normalizer:
    """normalize-punctuation.perl and then remove-non-printing-char.perl, but for the white space around the line.

    sacremoses sees no line feed, which stands behind the last full stop in the scripts, and it removes characters for
    which they leave a space.
    """

    def __init__(self, language: str) -> None:
        self.punctuation = MosesPunctNormalizer(lang=language, perl_parity=True)

    def __call__(self, text: str) -> str:
        text = str(self.punctuation.normalize(f"{text}\n"))
        return text if text.isprintable() else "".join(" " if category(c)[0] == "C" else c for c in text)


class FastTokenizer(MosesTokenizer):
    """sacremoses' tokenizer, which makes a set of all letters anew for each abbreviation that it looks at."""

    def __init__(self, lang: str) -> None:
        super().__init__(lang=lang)
        self.letters, self.lower_case = frozenset(self.IsAlpha), frozenset(self.IsLower)

    def isanyalpha(self, text: str) -> bool:
        return not self.letters.isdisjoint(text)

    def islower(self, text: str) -> bool:
        return self.lower_case.issuperset(text)


class DotSplitter(FastTokenizer):
    """Tokenizer with tokenizer.perl's rule of 2018 for the last word, which sacremoses lacks."""

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        return re.sub(r"(?<=\S)\.$", " .", super().handles_nonbreaking_prefixes(text))


__all__ = ["Moses"]
