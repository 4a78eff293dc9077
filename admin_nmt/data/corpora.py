"""The corpora of a recipe's section `data`: read, and for training rewritten, cleaned and mixed.

No step holds a corpus in memory, and each is cached under a key of its inputs.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, concatenate_datasets

from .cleaning import CleaningOptions, clean, format_counts
from .parallel_text import is_pipe, load_parallel, local_files
from .rewriting import rewrite
from .tokenization.bpe_codes import CONTINUED, BpeCodes
from .tokenization.byte_bpe import PAD, UNK

SPLITS = ("train", "valid", "test")
TAG = re.compile(r"<[^\W_]+>")  # no piece of a vocabulary mixes letters and brackets


@dataclass(frozen=True)
class Treatment:
    """Treatment of a training corpus, and how often an epoch takes it.

    Back-translated text is marked by a tag (Caswell et al. 2019, *Tagged Back-Translation*) and balanced by taking the
    original text `upsample` times.

    Attributes:
        upsample: how many times an epoch takes each pair; 3 here and 2 there make weights of 1.5 to 1.
        tag: a token in front of every source, such as `<bt>`.
        detokenize: its files went through Moses' tokenizer or BPE, and their plain text is wanted.
    """

    upsample: int = field(default=1, metadata={"ge": 1})
    tag: str | None = None
    detokenize: bool = False

    def __post_init__(self) -> None:
        if self.tag is not None and (not TAG.fullmatch(self.tag) or self.tag in (UNK, PAD)):
            raise ValueError(f"tag is {self.tag!r}; give letters or digits in angle brackets, such as <bt>, not {UNK}")


TREATMENT = tuple(one.name for one in fields(Treatment))


@dataclass(frozen=True)
class Corpus:
    """Training pairs, columns `source` and `target`, and how they are treated.

    Attributes:
        name: of its field, such as `data.train[1]`, by which errors call it.
    """

    name: str
    treatment: Treatment
    pairs: Dataset


def read_corpora(
    spec: Mapping[str, Any],
    *,
    valid_every: int | None = None,
    languages: Sequence[str] = ("en", "de"),
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> tuple[list[Corpus], DatasetDict]:
    """Load the corpora of a recipe.

    Args:
        spec: any of `train`, `valid` and `test`, each the arguments of `load_parallel` as a mapping, or a list of such
            mappings. Those of `train` may also have `upsample`, `tag` and `detokenize`, that of `test`
            `more_references`, a list of files, which are not read here.
        valid_every: every n-th of all training pairs becomes a pair of `valid` instead, as plain text.
        languages: two-letter codes of source and target, for Moses.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes; None for one a core.

    Returns:
        The training corpora, and the raw pairs of `valid` and `test` where they are given.
    """
    options: dict[str, Any] = {"cache_dir": cache_dir, "num_proc": num_proc}
    # A faulty field is refused before hours of reading.
    given = {split: _corpora(spec, split) for split in SPLITS}
    treatments = [(name, _treatment(name, corpus)) for name, corpus in given["train"]]
    others = {*TREATMENT, "more_references"}
    pairs = {
        split: [
            load_parallel(**{name: value for name, value in corpus.items() if name not in others}, **options)
            for _, corpus in named
        ]
        for split, named in given.items()
    }
    if valid_every is not None:
        pairs["train"], taken = _every(pairs["train"], valid_every)
        for (name, _), part in zip(treatments, pairs["train"], strict=True):
            if not len(part):
                where = f"the only pair of {name}; put it into another file of data.train"
                raise ValueError(f"data.valid_every {valid_every} takes {where}")
        pairs["valid"] = [
            rewrite(part, ["detokenize"] if treatment.detokenize and len(part) else [], languages, **options)
            for part, (_, treatment) in zip(taken, treatments, strict=True)
        ]
    evaluation = {split: concatenate_datasets(pairs[split]) for split in SPLITS[1:] if pairs[split]}
    training = [Corpus(*named, part) for named, part in zip(treatments, pairs["train"], strict=True)]
    return training, DatasetDict(evaluation)


def _treatment(name: str, corpus: Mapping[str, Any]) -> Treatment:
    try:
        return Treatment(**{one: corpus[one] for one in TREATMENT if one in corpus})
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from error


def _every(corpora: Sequence[Dataset], n: int) -> tuple[list[Dataset], list[Dataset]]:
    """The corpora without, and their, pairs n, 2n, … of all of them in a row (fairseq's prepare-wmt14en2fr.sh)."""
    rest, taken, start = [], [], 0
    for corpus in corpora:
        is_taken = (np.arange(start, start + len(corpus)) + 1) % n == 0
        rest.append(corpus.select(np.flatnonzero(~is_taken)))
        taken.append(corpus.select(np.flatnonzero(is_taken)))
        start += len(corpus)
    if start < n:
        raise ValueError(f"data.valid_every is {n}, and there are {start} training pairs; give a smaller number")
    return rest, taken


def _corpora(spec: Mapping[str, Any], split: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The corpora of a split, each with the name of its field."""
    if split not in spec:
        return []
    given = spec[split]
    named = [(f"data.{split}", given)]
    if isinstance(given, list) and split != "test":  # scores and cards name one test set
        named = [(f"data.{split}[{number}]", corpus) for number, corpus in enumerate(given)]
    for where, corpus in named:
        if split == "test" and isinstance(corpus["source"], list):
            raise ValueError(f"{where}.source is a list; give one file, as scores and model cards name one test set")
        for file in [*local_files(corpus["source"], corpus.get("target")), *(corpus.get("more_references") or [])]:
            _check_file(where, file)
    return named


def _check_file(where: str, file: str | Path) -> None:
    """Refuse a file that is not there, or a pipe: every process and every continuation of a run reads it."""
    if is_pipe(file):
        raise ValueError(f"{where}: {file} is a pipe, which a run cannot read again; write it to a file first")
    if not Path(file).exists():
        raise ValueError(
            f"{where}: {file}: No such file or directory; mend the name, or name its folder with --data.root FOLDER"
        )


def clean_corpora(
    training: Sequence[Corpus],
    evaluation: DatasetDict,
    cleaning: CleaningOptions,
    languages: Sequence[str],
    *,
    moses: Mapping[str, bool] | None = None,
    learn: Callable[[Sequence[Corpus]], Sequence[BpeCodes]] | None = None,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> tuple[list[Corpus], dict[str, int]]:
    """Rewrite and clean the training pairs of a recipe, each corpus by itself.

    Args:
        training: what `read_corpora` gave, and so `evaluation`, whose pairs are dropped from it.
        cleaning: the section `data.cleaning`.
        languages: two-letter codes of source and target, for Moses.
        moses: the text becomes tokens, by these settings of [`Moses`], before it is cleaned; None to leave it text.
        learn: gives the codes of source and target with which the cleaning counts subwords, of all that there is to
            clean; needed where `cleaning.count` says so.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes; None for one a core.

    Returns:
        The corpora, and the counts of the cleaning over all of them (see `format_counts`).
    """
    options: dict[str, Any] = {"cache_dir": cache_dir, "num_proc": num_proc}
    held_out = concatenate_datasets(list(evaluation.values())) if evaluation else None
    # Moses' tokens are of normalised text.
    normalize = ["normalize"] if cleaning.normalize and moses is None else []
    if held_out is not None and normalize:  # to find its sentences in text that was rewritten, and as they are
        held_out = concatenate_datasets([held_out, rewrite(held_out, normalize, languages, **options)])
    if held_out is not None and moses is not None and cleaning.drop_held_out is not None:
        held_out = rewrite(held_out, [], languages, moses=moses, **options)
    rewritten = []
    for corpus in training:
        if looks_segmented(corpus.pairs) and not corpus.treatment.detokenize:
            raise ValueError(
                f"{corpus.name}: its text went through BPE ('@@ '); give raw text, or set detokenize: true"
            )
        rules = ["detokenize", *normalize] if corpus.treatment.detokenize else normalize
        rewritten.append(replace(corpus, pairs=rewrite(corpus.pairs, rules, languages, moses=moses, **options)))
    codes = None if learn is None else learn(rewritten)
    cleaned, total = [], dict[str, int]()
    for corpus in rewritten:
        pairs, counts = clean(corpus.pairs, cleaning, held_out, codes=codes, **options)
        if not counts["kept"]:
            raise ValueError(
                f"cleaning dropped every pair of {corpus.name}: relax data.cleaning\n{format_counts(counts)}"
            )
        cleaned.append(replace(corpus, pairs=pairs))
        total = {name: total.get(name, 0) + count for name, count in counts.items()}
    return cleaned, total


def looks_segmented(dataset: Dataset, lines: int = 1000) -> bool:
    """Tell whether text went through BPE already: one in ten of the first source lines has a mark of subword-nmt."""
    head = dataset[:lines]["source"]
    return sum(f"{CONTINUED} " in line for line in head) * 10 >= max(len(head), 1)


def mix(parts: Sequence[Dataset], upsample: Sequence[int]) -> Dataset:
    """An epoch of these datasets, each taken as often as `upsample` says.

    It refers to their memory-mapped files, a repeated one again and again: nothing is copied.
    """
    chosen = [part for part, times in zip(parts, upsample, strict=True) for _ in range(times)]
    return chosen[0] if len(chosen) == 1 else concatenate_datasets(chosen)
