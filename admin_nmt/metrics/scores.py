"""Translation quality, in one place for training, evaluation, model cards and comparisons.

`corpus_scores` is what they all report: sacreBLEU's BLEU, chrF and TER on detokenised text, each with its signature.
`tokenized_bleu` and `published_bleu` exist only to stand beside published numbers that were computed on tokenised text.
A sentence has one reference or several, as in the Chinese-English test sets of NIST, which have four.
"""

import re
from collections.abc import Callable, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from .comet import comet
from .languages import SPLIT, has_spaces, language_code
from .meteor import Meteor

Scores = dict[str, float | str]
References = Sequence[str] | Sequence[Sequence[str]]
"""The reference of each sentence, or the list of its references, as many for every sentence."""

_HYPHEN = re.compile(rb"(\S)-(\S)")


def reference_columns(references: References) -> list[list[str]]:
    """The first reference of every sentence, then the second of every sentence, and so on: sacreBLEU's order.

    Raises:
        ValueError: a sentence has no reference, or another number of them than the first one.
    """
    rows = [[one] if isinstance(one, str) else list(one) for one in references]
    for number, row in enumerate(rows, 1):
        if not row or len(row) != len(rows[0]):
            raise ValueError(f"sentence {number} has {len(row)} references and the first {len(rows[0])}; give as many")
    return [list(column) for column in zip(*rows, strict=True)]


def reference_rows(columns: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The references of each sentence, from one list of lines a reference file."""
    return list(zip(*columns, strict=True))


def check_paired(hypotheses: Sequence[str], references: References) -> None:
    """Raises ValueError where they are no lists, not as many, or none."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError("hypotheses and references are lists of sentences; put a single one into a list")
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references: give one reference each")
    if not hypotheses:
        raise ValueError("no hypotheses to score: the list is empty")


def corpus_scores(
    hypotheses: Sequence[str], references: References, language: str | None = None, *, with_ter: bool = True
) -> Scores:
    """Corpus BLEU, chrF and TER of detokenised translations against raw references, as sacreBLEU's command gives them.

    Args:
        hypotheses: translations as a reader would see them.
        references: the untouched reference of each hypothesis, or a list of references of each.
        language: two-letter code of the target language, for BLEU's tokeniser.
        with_ter: also TER, which takes seconds for a thousand sentences and minutes where they are long.

    Returns:
        `bleu`, `chrf` (0 to 100, cased) and `ter` (in per cent of the reference words, lower is better, not cased),
        and of each its signature, as `bleu_signature` and so on. Of several references BLEU clips n-grams by all and
        compares with the closest length, chrF and TER take each sentence's best.
    """
    scores = bleu(hypotheses, references, language) | chrf(hypotheses, references)
    return scores | ter(hypotheses, references) if with_ter else scores


def bleu(hypotheses: Sequence[str], references: References, language: str | None = None) -> Scores:
    """`bleu` and `bleu_signature`, cased.

    As on the command line, "zh", "ja" and "ko" are split with sacreBLEU's tokeniser for them, every other language
    with "13a".

    Raises:
        ValueError: `language` is no code, or the sentences are not paired.
        ImportError: the tokeniser of "ja" or "ko" is not installed.
    """
    return _sacrebleu("bleu", bleu_of(language), hypotheses, references)


def bleu_of(language: str | None) -> BLEU:
    """sacreBLEU's BLEU with its tokeniser for a target language.

    Raises:
        ValueError: `language` is no code.
        ImportError: that tokeniser is not installed.
    """
    try:
        return BLEU(trg_lang=language_code(language) if language else "")
    except RuntimeError as error:  # what sacreBLEU raises where it finds no MeCab
        raise ImportError(
            f"BLEU of {language!r} needs a tokeniser that is not installed: pip install 'sacrebleu[{language}]'"
        ) from error


def chrf(hypotheses: Sequence[str], references: References) -> Scores:
    """`chrf` and `chrf_signature`, cased."""
    return _sacrebleu("chrf", CHRF(), hypotheses, references)


def ter(hypotheses: Sequence[str], references: References) -> Scores:
    """`ter` and `ter_signature`: edits, block shifts among them, per 100 reference words; case does not matter."""
    return _sacrebleu("ter", TER(), hypotheses, references)


def _sacrebleu(name: str, metric: Metric, hypotheses: Sequence[str], references: References) -> Scores:
    check_paired(hypotheses, references)
    value = metric.corpus_score(hypotheses, reference_columns(references)).score
    return {name: float(value), f"{name}_signature": str(metric.get_signature())}


def tokenized_bleu(
    hypotheses: Sequence[str], references: References, language: str, *, lowercase: bool = True
) -> float:
    """BLEU of multi-bleu.perl on Moses tokens, for comparison with papers that report it.

    With the defaults this is the measure of Multi30k's published 41.02 (English-German, test_2016_flickr). It depends
    on the tokenisation, so it compares with nothing else.

    Args:
        hypotheses: detokenised translations.
        references: the untouched reference of each hypothesis, or a list of references of each.
        language: two-letter code of the target language, for Moses.
        lowercase: lower-case both sides first, as multi-bleu.perl's option `-lc`.
    """
    check_paired(hypotheses, references)
    tokens = [
        moses_tokenize(side, language, lowercase=lowercase) for side in (hypotheses, *reference_columns(references))
    ]
    return multi_bleu(tokens[0], tokens[1:])


def multi_bleu(hypotheses: Sequence[str], columns: Sequence[Sequence[str]]) -> float:
    """BLEU (0 to 100) of tokens separated by spaces, as multi-bleu.perl computes it: not smoothed, cased.

    Args:
        hypotheses: a line each.
        columns: of each of its reference files the lines.
    """
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    return float(bleu.corpus_score(hypotheses, columns).score)


def meteor(hypotheses: Sequence[str], references: References, language: str) -> Scores:
    """METEOR (0 to 100) of lower-cased Moses tokens, as meteor.py defines it; its name says the modules."""
    check_paired(hypotheses, references)
    metric = Meteor(language, moses_tokenizer(language))
    score = metric.corpus_score(hypotheses, reference_columns(references)).score
    return {"_".join(("meteor", *metric.modules)): float(score)}


def reported_scores(hypotheses: Sequence[str], references: References, language: str) -> Scores:
    """Scores of a test set, as a run and `evaluate` report them: `corpus_scores` and tokenised BLEU."""
    return corpus_scores(hypotheses, references, language) | untested_scores(hypotheses, references, language)


def untested_scores(
    hypotheses: Sequence[str], references: References, language: str, sources: Sequence[str] | None = None
) -> Scores:
    """Scores without a test of significance here: tokenised BLEU, and COMET where it and its model are installed.

    Args:
        hypotheses: translations as a reader would see them.
        references: the untouched reference of each hypothesis, or a list of references of each; COMET takes the first.
        language: two-letter code of the target language.
        sources: the sentence that each hypothesis translates; COMET needs them.
    """
    scores: Scores = {
        name: tokenized_bleu(hypotheses, references, language, lowercase=lowercase)
        for name, lowercase in (("tokenized_bleu", False), ("tokenized_lowercase_bleu", True))
    }
    return scores | (comet(sources, hypotheses, reference_columns(references)[0]) if sources is not None else {})


def moses_tokenize(sentences: Sequence[str], language: str, *, lowercase: bool = True) -> list[str]:
    """Moses tokens separated by spaces: lower-cased, punctuation normalised, then tokenised, as Multi30k's script does.

    Hyphenated words stay whole (no `-a`): the German test_2016_flickr then has the 12,103 words of the published
    evaluation, with `-a` 12,243. Chinese and Japanese are split by sacreBLEU's tokeniser instead.
    """
    tokenize = moses_tokenizer(language)
    return [tokenize(sentence.lower() if lowercase else sentence) for sentence in sentences]


def moses_tokenizer(language: str) -> Callable[[str], str]:
    """Splitter of a sentence, cased or not, as in `moses_tokenize`."""
    code = language_code(language)
    if code in SPLIT:  # written without spaces, so that Moses finds no words
        return bleu_of(code).tokenizer
    normalizer, tokenizer = MosesPunctNormalizer(lang=code), MosesTokenizer(lang=code)
    return lambda sentence: tokenizer.tokenize(normalizer.normalize(sentence), escape=False, return_str=True)


def liu_tokens(sentences: Sequence[str], language: str) -> list[str]:
    """Liu, Duh et al. 2020: Moses' tokens with hyphens split off (-a), of all punctuation only ’ replaced, as in their
    test sets (Transformer-Clinic, pre-process/wmt14en-*.sh)."""
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
