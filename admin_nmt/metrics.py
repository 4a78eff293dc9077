"""Translation quality: one BLEU everywhere, on detokenised text, with its signature.

The trainer, the evaluation script and the model cards all call `score`. `tokenized_bleu` exists only to stand beside
published numbers that were computed on lower-cased, tokenised text.
"""

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer


def score(hypotheses: Sequence[str], references: Sequence[str], language: str | None = None) -> dict[str, float | str]:
    """Corpus BLEU and chrF of detokenised translations against raw references, as sacreBLEU's command line gives them.

    Args:
        hypotheses: translations as a reader would see them.
        references: the untouched reference of each hypothesis.
        language: two-letter code of the target language. As on the command line, BLEU splits "zh", "ja" and "ko" with
            sacreBLEU's tokeniser for them, every other language with "13a".

    Returns:
        `bleu` and `chrf`, from 0 to 100 and cased, and `bleu_signature` and `chrf_signature`.
    """
    _check_paired(hypotheses, references)
    bleu, chrf = BLEU(trg_lang=language or ""), CHRF()
    return {
        "bleu": bleu.corpus_score(hypotheses, [references]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
    }


def tokenized_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, *, lowercase: bool = True
) -> float:
    """BLEU of multi-bleu.perl on Moses tokens, for comparison with papers that report it.

    With the defaults this is the measure of Multi30k's published 41.02 (English-German, test_2016_flickr). It depends
    on the tokenisation, so it compares with nothing else.

    Args:
        hypotheses: detokenised translations.
        references: the untouched reference of each hypothesis.
        language: two-letter code of the target language, for Moses.
        lowercase: lower-case both sides first.
    """
    _check_paired(hypotheses, references)
    tokens = [moses_tokenize(side, language, lowercase=lowercase) for side in (hypotheses, references)]
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    return float(bleu.corpus_score(tokens[0], [tokens[1]]).score)


def moses_tokenize(sentences: Sequence[str], language: str, *, lowercase: bool = True) -> list[str]:
    """Moses tokens separated by spaces: lower-cased, punctuation normalised, then tokenised, as Multi30k's script does.

    Hyphenated words stay whole (no `-a`): the German test_2016_flickr then has the 12,103 words of the published
    evaluation, with `-a` 12,243.
    """
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    if lowercase:
        sentences = [sentence.lower() for sentence in sentences]
    return [tokenizer.tokenize(normalizer.normalize(sentence), escape=False, return_str=True) for sentence in sentences]


def _check_paired(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references: give one reference each")
    if not hypotheses:
        raise ValueError("no hypotheses to score: the list is empty")
