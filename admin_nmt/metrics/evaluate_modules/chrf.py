"""Cased chrF of sacreBLEU; `language` makes no difference."""

from collections.abc import Sequence

from admin_nmt.metrics import evaluate_modules
from admin_nmt.metrics.references import References
from admin_nmt.metrics.scores import Scores, chrf


class Chrf(evaluate_modules.TextMetric):
    __doc__ = __doc__

    def _compute(self, predictions: Sequence[str], references: References, language: str | None = None) -> Scores:
        return chrf(predictions, references)
