"""Rewriting of training text with Moses' rules: normalised punctuation, plain text of tokenised files, tokens."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import datasets
import pyarrow as pa
from datasets import Dataset
from datasets.fingerprint import Hasher
from sacremoses import MosesDetokenizer, MosesPunctNormalizer

from .arrow_cache import map_shards
from .parallel_text import PAIR
from .tokenization.bpe_codes import CONTINUED
from .tokenization.moses import Moses, without_region

Rule = Callable[[str], str]


def normalizer(language: str) -> Rule:
    """Moses' normalize-punctuation.perl and then remove-non-printing-char.perl, as fairseq's preparation runs them.

    A few lines in ten thousand differ from theirs, as those of [`Moses`] do not: `."` at the end of a German or French
    line stays as it is, and removed characters leave no space.
    """
    rule: Rule = MosesPunctNormalizer(
        lang=without_region(language), post_remove_control_chars=True, perl_parity=True
    ).normalize
    return rule


def detokenizer(language: str) -> Rule:
    """Plain text of a line that subword-nmt and Moses' tokenizer have split, as fairseq and tensor2tensor leave it."""
    moses = MosesDetokenizer(lang=without_region(language))

    def detokenize(line: str) -> str:
        return str(moses.detokenize(f"{line} ".replace(f"{CONTINUED} ", "").split()))

    return detokenize


RULES: Mapping[str, Callable[[str], Rule]] = {"detokenize": detokenizer, "normalize": normalizer}


def rewrite(
    dataset: Dataset,
    rules: Sequence[str],
    languages: Sequence[str],
    *,
    moses: Mapping[str, bool] | None = None,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> Dataset:
    """Apply `RULES` to both sides of sentence pairs; the result is cached, a shard at a time.

    Args:
        dataset: columns `source` and `target`.
        rules: names of `RULES`, in the order in which they act; none leaves the dataset as it is.
        languages: two-letter codes of source and target.
        moses: then make tokens of the text, with these settings of [`Moses`]; None to leave it text.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes; None for one a core.
    """
    if not rules and moses is None:
        return dataset
    settings = [] if moses is None else [dict(moses)]
    key = Hasher.hash([dataset._fingerprint, list(rules), list(languages), *settings])
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / f"rewritten-{key}"
    function = partial(_rewrite, rules=tuple(rules), languages=tuple(languages), moses=moses)
    desc = " and ".join(rules if moses is None else [*rules, "tokenize"])
    return map_shards(dataset, function, PAIR, folder, fingerprint=key, num_proc=num_proc, desc=desc)


def _rewrite(
    batch: pa.RecordBatch, rules: Sequence[str], languages: Sequence[str], moses: Mapping[str, bool] | None
) -> dict[str, list[str]]:
    sides = {}
    for side, language in zip(PAIR, languages, strict=True):
        lines = batch.column(side).to_pylist()
        acts = [RULES[rule](language) for rule in rules]
        if moses is not None:
            acts.append(Moses(language, language, **moses).tokenize)
        for act in acts:
            lines = [act(line) for line in lines]
        sides[side] = lines
    return sides
