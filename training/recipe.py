"""A recipe: one YAML file that says what is trained on which data, and the steps from it to a trainer."""

import json
from dataclasses import dataclass, field, fields
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState
from datasets import Dataset, DatasetDict
from transformers import EarlyStoppingCallback, PreTrainedTokenizerBase, set_seed

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.cleaning import format_counts
from admin_nmt.data import SPLITS, load_corpora, tokenize
from admin_nmt.phrasebook import write_phrasebook
from admin_nmt.tokenization import load_tokenizers, save_tokenizers, train_tokenizer

BUILTIN = {"phrasebook": write_phrasebook}


@dataclass
class Recipe:
    """The sections of a recipe.

    Args:
        output_dir: folder of the run: checkpoints, logs, results.
        data: `train`, `valid`, `test` and `cleaning` as `admin_nmt.data.load_corpora` reads them, or `builtin`, the
            name of a corpus that is made here; besides `root`, where files are looked up, `cache_dir`, and
            `max_length`, the most tokens of a training sentence.
        tokenizer: `vocab_size` of a new BPE and whether it is `joint`, or `path`, a folder that holds tokenizers.
        model: fields of `AdminConfig`; `from_pretrained`, a folder or repository to start from.
        training: fields of `AdminTrainingArguments`, and `early_stopping_patience` in evaluations.
        languages: [source, target], for the output.
    """

    output_dir: str
    data: dict[str, Any]
    tokenizer: dict[str, Any] = field(default_factory=lambda: {"vocab_size": 8000})
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    languages: list[str] = field(default_factory=lambda: ["en", "de"])


def load_recipe(path: str | Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe; `overrides` is a list such as ["--training.max_steps", "100", "--model.variant", "post_ln"].

    Raises:
        ValueError: naming the file or the override that is wrong.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: is not valid YAML: {error}") from error
    overrides = overrides or []
    if len(overrides) % 2:
        raise ValueError(f"{overrides[-1]}: has no value; write --section.field value")
    for name, text in zip(overrides[::2], overrides[1::2], strict=True):
        if not name.startswith("--"):
            raise ValueError(f"{name}: is no override; write --section.field value")
        *sections, last = name[2:].split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = yaml.safe_load(text)
    return _checked(values, path)


def _checked(values: dict[str, Any], path: str | Path) -> Recipe:
    """A recipe with no field that nobody reads."""
    known = {
        "": {f.name for f in fields(Recipe)},
        "tokenizer": {"vocab_size", "joint", "path"},
        "model": {f.name for f in fields(AdminConfig)} | {"attn_implementation", "from_pretrained"},
        "training": {f.name for f in fields(AdminTrainingArguments)} | {"early_stopping_patience"},
    }
    for section, names in known.items():
        unknown = set(values.get(section, {}) if section else values) - names
        if unknown:
            where = f"{section}." if section else ""
            raise ValueError(f"{path}: unknown field {where}{sorted(unknown)[0]}; known are {', '.join(sorted(names))}")
    missing = {"output_dir", "data"} - set(values)
    if missing:
        raise ValueError(f"{path}: lacks {', '.join(sorted(missing))}")
    return Recipe(**values)


def say(message: str) -> None:
    """Print once, however many processes there are."""
    if PartialState().is_main_process:
        print(message, flush=True)


@dataclass
class Prepared:
    """Tokenised data, tokenizers and the counts of the cleaning."""

    data: DatasetDict
    source_tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase
    counts: dict[str, int]


def prepare(recipe: Recipe) -> Prepared:
    """Load, clean and tokenise the corpora; every step is cached and done by one process first."""
    spec = dict(recipe.data)
    cache = Path(spec.pop("cache_dir", "runs/cache"))
    max_length = spec.pop("max_length", 256)
    root = Path(spec.pop("root", "."))
    builtin = spec.pop("builtin", None)
    with PartialState().main_process_first():
        if builtin is not None:
            spec |= _write_builtin(builtin, cache)
        for corpus in (spec[split] for split in SPLITS if split in spec):
            corpus |= {side: _below(root, corpus[side]) for side in ("source", "target") if side in corpus}
        corpora, counts = load_corpora(spec, cache_dir=cache)
        say(format_counts(counts))
        source, target = _tokenizers(recipe.tokenizer, corpora["train"], cache)
        data = {}
        for split, pairs in corpora.items():
            longest = max_length if split == "train" else None
            data[split] = tokenize(pairs, source, target, max_length=longest, cache_dir=cache)
    dropped = len(corpora["train"]) - len(data["train"])
    counts = counts | {"too many tokens": dropped}
    say(f"vocabulary {len(source)}; " + ", ".join(f"{split} {len(part)} pairs" for split, part in data.items()))
    return Prepared(DatasetDict(data), source, target, counts)


def _below(root: Path, name: str) -> str:
    """`name` below `root` where that is a file; else as it is, for it may name a dataset."""
    return str(root / name) if (root / name).is_file() else name


def _write_builtin(name: str, cache: Path) -> dict[str, dict[str, str]]:
    if name not in BUILTIN:
        raise ValueError(f"data.builtin: {name!r} is not one of {', '.join(BUILTIN)}")
    folder = cache / name
    if PartialState().is_local_main_process:
        BUILTIN[name](folder)
    return {
        split: {"source": str(folder / f"{split}.en"), "target": str(folder / f"{split}.de")}
        for split in ("train", "valid", "test")
    }


def _tokenizers(settings: dict[str, Any], train: Dataset, cache: Path) -> tuple[Any, Any]:
    """The tokenizers at `path`, or new ones, which are kept by what they were trained on."""
    if "path" in settings:
        return load_tokenizers(settings["path"])
    vocab_size, joint = settings.get("vocab_size", 8000), settings.get("joint", True)
    key = sha256(json.dumps([train._fingerprint, vocab_size, joint]).encode()).hexdigest()[:16]
    folder = cache / f"tokenizer-{key}"
    if not (folder / "tokenizer.json").exists():
        sides = train["source"], train["target"]
        if joint:
            tokenizer = train_tokenizer(chain(*sides), vocab_size, text_count=2 * len(train))
            save_tokenizers(folder, tokenizer)
        else:
            save_tokenizers(folder, *(train_tokenizer(side, vocab_size, text_count=len(train)) for side in sides))
    return load_tokenizers(folder)


def build_model(recipe: Recipe, prepared: Prepared) -> AdminForConditionalGeneration:
    """A new model of the recipe's configuration, or the one to start from."""
    settings = dict(recipe.model)
    attention = settings.pop("attn_implementation", None)
    if (start := settings.pop("from_pretrained", None)) is not None:
        return AdminForConditionalGeneration.from_pretrained(start, attn_implementation=attention, **settings)
    source, target = len(prepared.source_tokenizer), len(prepared.target_tokenizer)
    joint = prepared.source_tokenizer is prepared.target_tokenizer
    settings.setdefault("share_encoder_decoder_embeddings", joint)
    config = AdminConfig(vocab_size=source, decoder_vocab_size=target, **settings)
    return AdminForConditionalGeneration._from_config(config, attn_implementation=attention)


def build_trainer(recipe: Recipe, prepared: Prepared) -> AdminTrainer:
    """The trainer of a recipe, model included, from its seed."""
    settings = dict(recipe.training)
    patience = settings.pop("early_stopping_patience", None)
    args = AdminTrainingArguments(output_dir=recipe.output_dir, **settings)
    set_seed(args.seed)
    return AdminTrainer(
        build_model(recipe, prepared),
        args,
        train_dataset=prepared.data["train"],
        eval_dataset=prepared.data.get("valid"),
        processing_class=prepared.source_tokenizer,
        target_tokenizer=prepared.target_tokenizer,
        callbacks=[] if patience is None else [EarlyStoppingCallback(patience)],
    )
