"""BLEU as the two papers computed it, to stand beside their numbers alone: multi-bleu.perl, cased, on tokens.

The tokens are those of the authors' own scripts. For every other purpose `scores.corpus_scores` has sacreBLEU's.
"""

import re
from collections.abc import Callable, Sequence

from sacremoses import MosesPunctNormalizer, MosesTokenizer

from .languages import has_spaces, language_code
from .references import References, check_paired, reference_columns
from .scores import multi_bleu

_HYPHEN = re.compile(rb"(\S)-(\S)")


def liu_tokens(sentences: Sequence[str], language: str) -> list[str]:
    """Liu et al. 2020: Moses' tokens with hyphens split off (-a), of all punctuation only ’ replaced, as their test
    sets are prepared (Transformer-Clinic, pre-process/wmt14en-*.sh)."""
    tokenizer = MosesTokenizer(lang=_spaced(language))
    lines = (line.replace("’", "'") for line in sentences)
    return [tokenizer.tokenize(line, aggressive_dash_splits=True, return_str=True) for line in lines]


def wang_tokens(sentences: Sequence[str], language: str) -> list[str]:
    """Wang et al. 2019: Unicode punctuation replaced, Moses' tokens, then hyphens split as `##AT##-##AT##`
    (wangqiangneu/dlcl, scripts/wmt_en2de_google_multi_bleu.sh)."""
    code = _spaced(language)
    normalizer, tokenizer = MosesPunctNormalizer(lang=code), MosesTokenizer(lang=code)
    tokens = (tokenizer.tokenize(normalizer.replace_unicode_punct(line), return_str=True) for line in sentences)
    # Perl's substitution sees bytes: of "c'est-à-dire" it splits both hyphens, of "A-B-C" the first alone.
    return [_HYPHEN.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode() for line in tokens]


PUBLISHED: dict[str, Callable[[Sequence[str], str], list[str]]] = {"liu2020": liu_tokens, "wang2019": wang_tokens}
"""The paper by its name, and its tokens: `(sentences, language)` to lines of tokens separated by spaces."""


def published_bleu(hypotheses: Sequence[str], references: References, language: str, paper: str) -> float:
    """BLEU (0 to 100) as a paper's own scripts give it for detokenised translations.

    Args:
        hypotheses: translations as a reader would see them.
        references: the untouched reference of each hypothesis, or a list of references of each.
        language: two-letter code of the target language.
        paper: a name in [`PUBLISHED`].

    Raises:
        ValueError: `paper` is none of them, the language is written without spaces, or the sentences are not paired.
    """
    if paper not in PUBLISHED:
        raise ValueError(f"{paper!r} is no paper whose BLEU is known; choose from {', '.join(PUBLISHED)}")
    check_paired(hypotheses, references)
    tokens = [PUBLISHED[paper](side, language) for side in (hypotheses, *reference_columns(references))]
    return multi_bleu(tokens[0], tokens[1:])


def _spaced(language: str) -> str:
    code = language_code(language)
    if not has_spaces(code):
        raise ValueError(f"language {language!r} is written without spaces, and the papers' scripts split at spaces")
    return code
