"""The scores as a module of Hugging Face's `evaluate`, loaded from this file without the Hub.

import evaluate
from admin_nmt.metrics.evaluate_module import MODULE, NAMES

evaluate.load(MODULE, "bleu").compute(predictions=translations, references=references, language="de")
evaluate.combine([evaluate.load(MODULE, name) for name in NAMES]).compute(...)
"""

from collections.abc import Sequence

import datasets
import evaluate

from admin_nmt.metrics.scores import References, Scores, bleu, chrf, meteor, ter, tokenized_bleu  # evaluate copies it

MODULE = __file__
NAMES = ("bleu", "chrf", "ter", "tokenized_bleu", "meteor")


class TranslationScore(evaluate.Metric):
    """A score of translations, as text, against a reference each, or a list of references each.

    The configuration chooses it: cased BLEU, chrF or TER of sacreBLEU, where `language` chooses BLEU's tokeniser of
    "zh", "ja" and "ko"; BLEU of multi-bleu.perl on Moses tokens, cased and lower-cased; METEOR of Banerjee and Lavie.
    """

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in NAMES:
            raise ValueError(f"no score {self.config_name!r}; load this module with one of {', '.join(NAMES)}")
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="predictions: untokenised texts; references: an untokenised text of each, or a list of "
            "as many for each; language: two-letter code.",
            features=[
                datasets.Features({"predictions": text, "references": references})
                for references in (datasets.Sequence(text), text)
            ],
        )

    def _compute(self, predictions: Sequence[str], references: References, language: str | None = None) -> Scores:
        if self.config_name == "bleu":
            return bleu(predictions, references, language)
        if self.config_name in ("chrf", "ter"):
            return {"chrf": chrf, "ter": ter}[self.config_name](predictions, references)
        if language is None:
            raise ValueError(f'{self.config_name} needs the target language: compute(..., language="de")')
        if self.config_name == "meteor":
            return meteor(predictions, references, language)
        return {
            "tokenized_bleu": tokenized_bleu(predictions, references, language, lowercase=False),
            "tokenized_lowercase_bleu": tokenized_bleu(predictions, references, language),
        }
