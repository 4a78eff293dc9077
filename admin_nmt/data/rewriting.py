"""Rewriting of training text with Moses' rules: normalised punctuation, and plain text of tokenised files."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import datasets
from datasets import Dataset
from datasets.fingerprint import Hasher
from sacremoses import MosesDetokenizer, MosesPunctNormalizer

from ..tokenization.bpe_codes import CONTINUED
from .arrow_cache import map_shards
from .parallel_text import PAIR

Rule = Callable[[str], str]


def normalizer(language: str) -> Rule:
    """Moses' normalize-punctuation.perl and then remove-non-printing-char.perl, as fairseq's preparation runs them."""
    rule: Rule = MosesPunctNormalizer(lang=language, post_remove_control_chars=True, perl_parity=True).normalize
    return rule


def detokenizer(language: str) -> Rule:
    """Plain text of a line that subword-nmt and Moses' tokenizer have split, as fairseq and tensor2tensor leave it."""
    moses = MosesDetokenizer(lang=language)

    def detokenize(line: str) -> str:
        return str(moses.detokenize(f"{line} ".replace(f"{CONTINUED} ", "").split()))

    return detokenize


RULES: Mapping[str, Callable[[str], Rule]] = {"detokenize": detokenizer, "normalize": normalizer}


def rewrite(
    dataset: Dataset,
    rules: Sequence[str],
    languages: Sequence[str],
    *,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> Dataset:
    """Apply `RULES` to both sides of sentence pairs; the result is cached, a shard at a time.

    Args:
        dataset: columns `source` and `target`.
        rules: names of `RULES`, in the order in which they act; none leaves the dataset as it is.
        languages: two-letter codes of source and target.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes; None for one a core.
    """
    if not rules:
        return dataset
    key = Hasher.hash([dataset._fingerprint, list(rules), list(languages)])
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / f"rewritten-{key}"
    function = partial(_rewrite, rules=tuple(rules), languages=tuple(languages))
    desc = " and ".join(rules)
    return map_shards(dataset, function, PAIR, folder, fingerprint=key, num_proc=num_proc, desc=desc)


def _rewrite(batch: Mapping[str, list[str]], rules: Sequence[str], languages: Sequence[str]) -> dict[str, list[str]]:
    sides = {}
    for side, language in zip(PAIR, languages, strict=True):
        lines = batch[side]
        for rule in rules:
            act = RULES[rule](language)
            lines = [act(line) for line in lines]
        sides[side] = lines
    return sides


def looks_segmented(dataset: Dataset, lines: int = 1000) -> bool:
    """Whether one in ten of the first source lines has a mark of subword-nmt: the text went through BPE already."""
    head = dataset[:lines]["source"]
    return sum(f"{CONTINUED} " in line for line in head) * 10 >= len(head)
