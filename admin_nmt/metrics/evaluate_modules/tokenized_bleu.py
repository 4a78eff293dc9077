"""BLEU of multi-bleu.perl on Moses tokens, cased and lower-cased."""

from collections.abc import Sequence

from admin_nmt.metrics import evaluate_modules
from admin_nmt.metrics.references import References
from admin_nmt.metrics.scores import Scores, tokenized_bleu


class TokenizedBleu(evaluate_modules.TextMetric):
    __doc__ = __doc__

    def _compute(self, predictions: Sequence[str], references: References, language: str | None = None) -> Scores:
        language = evaluate_modules.needed(language)
        return {
            "tokenized_bleu": tokenized_bleu(predictions, references, language, lowercase=False),
            "tokenized_lowercase_bleu": tokenized_bleu(predictions, references, language),
        }
