"""Scores that an evaluation reports: likelihood of the references, BLEU and chrF of the translations."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import nested_truncate
from transformers.trainer_utils import PredictionOutput

from ..data.batching import Seq2SeqCollator
from ..data.tokenizing import tokenize
from ..decoding.scoring import score_pairs
from ..decoding.search.generation import generate_ids
from ..decoding.translator import Translator
from ..metrics.scores import bleu_of, corpus_scores, reference_rows, reported_scores
from ..model.loss import IGNORED
from ..weights.evaluation_mode import evaluation_mode

if TYPE_CHECKING:
    from .arguments import AdminTrainingArguments


def mean_nll(model: PreTrainedModel, dataset: Dataset, *, max_tokens: int = 4096, progress: bool = False) -> float:
    """Negative log-likelihood of the references, in nats per target token of the whole dataset.

    Every pair counts once, on any number of processes; nothing is smoothed. Labels of −100 and `<pad>` are no targets.

    Args:
        max_tokens: token budget of a batch: pairs times the longest source or target.
        progress: show a progress bar on the first process.
    """
    none = (IGNORED, model.config.pad_token_id)
    targets = [[token for token in labels if token not in none] for labels in dataset["labels"][:]]
    scores = score_pairs(model, dataset["input_ids"][:], targets, max_tokens=max_tokens, progress=progress)
    return -sum(map(sum, scores)) / sum(map(len, scores))


@torch.no_grad()
def encoder_variance(model: PreTrainedModel, dataset: Dataset, *, pairs: int = 16) -> float:
    """The share of the encoder's output that differs between the tokens of some sources, 0 to 1.

    It comes near 0 where a deep encoder gives all tokens one state (rank collapse, Dong et al. 2021): the decoder then
    learns the target language alone, and its loss falls all the same.

    Args:
        pairs: so many from the start of the dataset.
    """
    rows = dataset.select(range(min(pairs, len(dataset))))["input_ids"][:]
    batch = Seq2SeqCollator(model.config.pad_token_id)([{"input_ids": row} for row in rows])
    inputs = {name: x.to(model.device) for name, x in batch.items()}
    with evaluation_mode(model):
        states = model.get_encoder()(**inputs).last_hidden_state[inputs["attention_mask"].bool()].double()
    return float((states - states.mean(0)).square().sum() / states.square().sum())


def translation_scores(
    model: PreTrainedModel,
    target_tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    language: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Scores beam search's translations as plain text against the untouched column `target`.

    Args:
        language: two-letter code of the target language, for BLEU's tokeniser.
        options: passed to `generate_ids`.

    Returns:
        What `admin_nmt.metrics.scores.corpus_scores` gives without TER, which costs too much for every evaluation; the
        same on every process.
    """
    ids = generate_ids(model, dataset["input_ids"][:], **options)
    translations = target_tokenizer.batch_decode(ids, skip_special_tokens=True)
    return corpus_scores(translations, dataset["target"][:], language, with_ter=False)


def first_rows(output: PredictionOutput, count: int) -> PredictionOutput:
    """Takes the `count` rows of a dataset from predictions and labels, without those that fill up the last batches."""
    arrays = {name: getattr(output, name) for name in ("predictions", "label_ids")}
    return output._replace(**{name: nested_truncate(x, count) for name, x in arrays.items() if x is not None})


def validation_scores(
    model: PreTrainedModel,
    dataset: Dataset,
    args: "AdminTrainingArguments",
    target_tokenizer: PreTrainedTokenizerBase | None,
    **options: Any,
) -> dict[str, Any]:
    """Scores a dataset for a training run: `loss` (`mean_nll`), `perplexity`, `encoder_variance`, and if wanted
    `translation_scores`.

    Args:
        args: budget, beam search and what to translate.
        options: settings of `generate` that override those of `args`.

    Raises:
        ValueError: `eval_bleu` without a tokenizer.
    """
    progress = not args.disable_tqdm
    nll = mean_nll(model, dataset, max_tokens=args.max_tokens, progress=progress)
    scores: dict[str, Any] = {"loss": nll, "perplexity": math.exp(min(nll, 700))}
    scores["encoder_variance"] = encoder_variance(model, dataset)
    if args.eval_bleu:
        if target_tokenizer is None:
            raise ValueError("processing_class is missing; BLEU needs a tokenizer, or set eval_bleu to False")
        search = {"num_beams": args.generation_num_beams, "length_penalty": args.generation_length_penalty}
        scores |= translation_scores(
            model,
            target_tokenizer,
            dataset.select(range(min(len(dataset), args.eval_bleu_sentences or len(dataset)))),
            language=args.target_language,
            batch_tokens=args.max_tokens,
            progress=progress,
            **search | options,
        )
    return scores


def evaluate_translator(
    translator: Translator,
    pairs: Dataset,
    language: str,
    *,
    more_references: Sequence[Sequence[str]] = (),
    progress: bool = False,
) -> tuple[list[str], dict[str, Any]]:
    """Translates the column `source` and scores the text against the untouched column `target`.

    Args:
        language: two-letter code of the target language.
        more_references: of each file of further references the lines; `nll` is that of the column `target` alone.
        progress: show progress bars.

    Returns:
        The translations, and `reported_scores` with the number of `sentences`, and `nll`, in nats per target token,
        over the `nll_sentences` that the model's positions have room for.
    """
    bleu_of(language)  # raises what it lacks before anything is translated
    positions = translator.model.config.max_position_embeddings
    data = tokenize(pairs, translator.tokenizer, translator.target_tokenizer, max_length=positions)
    translations = translator.translate(pairs["source"][:], progress=progress)
    references = reference_rows([pairs["target"][:], *more_references])
    results: dict[str, Any] = reported_scores(translations, references, language)
    results["sentences"] = len(pairs)
    results["nll"] = mean_nll(translator.model, data, max_tokens=translator.options.batch_tokens, progress=progress)
    results["nll_sentences"] = len(data)
    return translations, results
