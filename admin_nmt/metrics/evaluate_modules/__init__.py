"""The scores as modules of Hugging Face's `evaluate`, loaded from this folder without the Hub.

import evaluate
from admin_nmt.metrics.evaluate_modules import NAMES, module_path

evaluate.load(module_path("bleu")).compute(predictions=translations, references=references, language="de")
evaluate.combine([module_path(name) for name in NAMES]).compute(...)
"""

from pathlib import Path

import datasets
import evaluate

NAMES = ("bleu", "chrf", "ter", "tokenized_bleu", "meteor")


def module_path(name: str) -> str:
    """The file that `evaluate.load` takes for a score, one of `NAMES`."""
    if name not in NAMES:
        raise ValueError(f"no module {name!r}; there are {', '.join(NAMES)}")
    return str(Path(__file__).with_name(f"{name}.py"))


def needed(language: str | None) -> str:
    """The language, for a score that depends on it; raises ValueError where `compute` was not given one."""
    if language is None:
        raise ValueError('tokenised BLEU and METEOR need the target language: compute(..., language="de")')
    return language


class TextMetric(evaluate.Metric):
    """A score of translations, as text, against a reference each, or a list of references each."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        several = datasets.Sequence(text)
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="predictions: untokenised texts; references: an untokenised text of each, or a list of "
            "as many for each; language: two-letter code.",
            features=[datasets.Features({"predictions": text, "references": one}) for one in (several, text)],
        )
