"""METEOR of Banerjee and Lavie; the name of the result says which modules were at work."""

from collections.abc import Sequence

from admin_nmt.metrics import evaluate_modules
from admin_nmt.metrics.references import References
from admin_nmt.metrics.scores import Scores, meteor


class Meteor(evaluate_modules.TextMetric):
    __doc__ = __doc__

    def _compute(self, predictions: Sequence[str], references: References, language: str | None = None) -> Scores:
        return meteor(predictions, references, evaluate_modules.needed(language))
