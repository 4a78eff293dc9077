"""A recipe: one YAML file that says what is trained on which data, and the steps from it to a trainer."""

import json
import re
import reprlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from datasets import DatasetDict
from filelock import BaseFileLock, FileLock, Timeout
from transformers import AutoConfig, EarlyStoppingCallback, PreTrainedTokenizerBase, set_seed

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments

from ..data.cleaning import format_counts
from ..data.corpora import SPLITS, clean_corpora, read_corpora, tokenize, tokenizer_state
from ..data.mixing import Corpus, mix
from ..data.parallel_text import TEST_SET
from ..data.phrasebook import write_phrasebook
from ..tokenization.byte_bpe import (
    check_tokenizer,
    load_tokenizers,
    save_tokenizers,
    train_tokenizer,
    with_tags,
)
from ..trainer.adversarial import AdversarialTrainer
from ..trainer.checkpoints import complete_checkpoints
from ..trainer.evaluation import pair_lengths

# The optimizer of a checkpoint keeps its kind and rate, and its position in an epoch is one in this plan of batches.
RESUMED = ("optimizer", "learning_rate", "max_tokens", "seed", "data_seed")
MOVABLE = ("root", "cache_dir")
_locks: list[BaseFileLock] = []
STRATEGIES = ("eval_strategy", "save_strategy", "logging_strategy")
BUILTIN = {"phrasebook": write_phrasebook}

Watch = Callable[[str], AbstractContextManager["Step"]]


@dataclass
class Recipe:
    """The sections of a recipe.

    Args:
        output_dir: folder of the run: checkpoints, logs, results.
        data: `train`, `valid`, `test` and `cleaning` as `admin_nmt.data.corpora.read_corpora` reads them, or `builtin`,
            the name of a corpus that is made here; besides `root`, the folder of all files, `cache_dir`, and
            `max_length`, the most tokens of a training sentence.
        tokenizer: `vocab_size` of a new BPE and whether it is `joint`, or `path`, a folder that holds tokenizers.
        model: fields of `AdminConfig`; `attn_implementation`; `from_pretrained`, a folder or repository to start from.
        training: fields of `AdminTrainingArguments`, and `early_stopping_patience` in evaluations.
        evaluation: of the finished model: `average_last` checkpoints, `num_beams`, `length_penalty`.
        languages: [source, target], for scores and output.
        card: what only the author knows, for the model card: `license`, `dataset_name`, `dataset_type`, `note`,
            `example`, a source sentence, and `repo_id`, where the stock model will be on the Hub.
    """

    output_dir: str
    data: dict[str, Any]
    tokenizer: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    languages: list[str] = field(default_factory=lambda: ["en", "de"])
    card: dict[str, str] = field(default_factory=dict)


class RecipeLoader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number, as everybody but YAML 1.1 expects."""


RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
)


def load_recipe(path: str | Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe; `overrides` is a list such as ["--training.max_steps", "100", "--model.variant", "post_ln"].

    Raises:
        ValueError: naming the file or the override that is wrong.
    """
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), RecipeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: is not valid YAML: {error}") from error
    _check_mapping(values, str(path))
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
            _check_mapping(place, name)
        place[last] = yaml.load(text, RecipeLoader)
    return _checked(values, path)


def _check_mapping(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: holds {reprlib.repr(value)} where fields with values belong")


def _checked(values: dict[str, Any], path: str | Path) -> Recipe:
    """A recipe with no field that nobody reads, and none that contradicts another."""
    known = {
        "": {f.name for f in fields(Recipe)},
        "tokenizer": {"vocab_size", "joint", "path"},
        "model": {f.name for f in fields(AdminConfig)} | {"attn_implementation", "from_pretrained"},
        "training": {f.name for f in fields(AdminTrainingArguments)} | {"early_stopping_patience"},
        "evaluation": {"average_last", "num_beams", "length_penalty"},
        "card": {"license", "dataset_name", "dataset_type", "note", "example", "repo_id"},
    }
    for section, names in known.items():
        content = values.get(section, {}) if section else values
        _check_mapping(content, f"{path}: {section}")
        unknown = set(content) - names
        if unknown:
            where = f"{section}." if section else ""
            raise ValueError(f"{path}: unknown field {where}{min(unknown)}; known are {', '.join(sorted(names))}")
    for name, text in values.get("card", {}).items():
        if not isinstance(text, str):
            raise ValueError(f"{path}: card.{name} holds {text!r} where text belongs; put it in quotes")
    languages = values.get("languages", ["en", "de"])
    if not isinstance(languages, list) or len(languages) != 2 or not all(isinstance(code, str) for code in languages):
        raise ValueError(f"{path}: languages holds {languages!r}; write two codes in quotes, source and target")
    missing = {"output_dir", "data"} - set(values)
    if missing:
        raise ValueError(f"{path}: lacks {', '.join(sorted(missing))}")
    _check_mapping(values["data"], f"{path}: data")
    for split in set(SPLITS) & set(values["data"]):
        for corpus in _as_list(values["data"][split]):
            _check_mapping(corpus, f"{path}: data.{split}")
            for side in {"source", "target"} & set(corpus):
                if not corpus[side] or not all(isinstance(file, str) for file in _as_list(corpus[side])):
                    raise ValueError(
                        f"{path}: data.{split}.{side} holds {corpus[side]!r}; name a file, or a list of them"
                    )
    if not {"train", "builtin"} & set(values["data"]):
        raise ValueError(f"{path}: data has no train; name its files, or a builtin corpus: {', '.join(BUILTIN)}")
    recipe = Recipe(**values)
    for name in STRATEGIES:
        if recipe.training.get(name) is False:  # YAML's reading of a bare no
            recipe.training[name] = "no"
    _check_selection(recipe, path)
    return recipe


def _check_selection(recipe: Recipe, path: str | Path) -> None:
    """Whether early stopping and averaging find what they need."""
    training, average_last = recipe.training, recipe.evaluation.get("average_last", 0)
    if training.get("early_stopping_patience") is not None and not training.get("metric_for_best_model"):
        raise ValueError(f"{path}: training.early_stopping_patience needs metric_for_best_model, such as eval_bleu")
    needed = average_last + bool(training.get("load_best_model_at_end"))
    limit = training.get("save_total_limit")
    if limit is not None and limit < needed:
        raise ValueError(
            f"{path}: training.save_total_limit {limit} deletes checkpoints that evaluation.average_last "
            f"{average_last} needs; set it to {needed} or more"
        )


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


@dataclass
class Step:
    """A step of the preparation, for whoever watches it."""

    name: str
    pairs: int = 0


@contextmanager
def unwatched(name: str) -> Iterator[Step]:
    """Nobody watches."""
    yield Step(name)


def prepare(recipe: Recipe, num_proc: int | None = None, watch: Watch = unwatched) -> Prepared:
    """Load, clean and tokenise the corpora; every step is cached, and one process of a machine does it first.

    Args:
        num_proc: worker processes; None for one a core.
        watch: a context around each step; the step tells it the number of its pairs.
    """
    spec = dict(recipe.data)
    cache, builtin, root = Path(spec.pop("cache_dir", "runs/cache")), spec.pop("builtin", None), spec.pop("root", None)
    max_length = spec.pop("max_length", 256)
    options: dict[str, Any] = {"cache_dir": cache, "num_proc": num_proc}
    with PartialState().local_main_process_first():
        if builtin is not None:
            spec |= _write_builtin(builtin, cache)
        if root is not None:
            spec |= {split: _below(root, spec[split]) for split in SPLITS if split in spec}
        with watch("reading") as step:
            training, evaluation = read_corpora(spec, **options)
            step.pairs = sum(len(corpus.pairs) for corpus in training)
        with watch("cleaning") as step:
            training, counts = clean_corpora(training, evaluation, spec, recipe.languages, **options)
            step.pairs = counts["total"]
        say(format_counts(counts))
        with watch("vocabulary") as step:
            source, target = _tokenizers(recipe, training, cache)
            step.pairs = counts["kept"]
        with watch("tokenising") as step:
            ids = options | {"max_length": max_length, "keep_text": False}
            train = [tokenize(c.pairs, source, target, tag=c.share.tag, **ids) for c in training]
            data = {"train": mix(train, [corpus.share.upsample for corpus in training])}
            data |= {split: tokenize(pairs, source, target, **options) for split, pairs in evaluation.items()}
            step.pairs = counts["kept"]
    counts = counts | {"too many tokens": counts["kept"] - sum(map(len, train))}
    say(f"too many tokens {counts['too many tokens']}; vocabulary {len(source)}")
    say(", ".join(f"{split} {len(part)} pairs" for split, part in data.items()))
    return Prepared(DatasetDict(data), source, target, counts)


def start_processes() -> None:
    """Join the other processes, with patience: preparing a large corpus takes one of them hours."""
    PartialState(cpu=not torch.accelerator.is_available(), timeout=timedelta(days=1))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _below(root: str, corpora: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any] | list[dict[str, Any]]:
    """The corpora with their files below `root`."""

    def below(files: Any) -> Any:
        if isinstance(files, list):
            return [below(file) for file in files]
        return files if files.startswith(TEST_SET) else str(Path(root) / files)

    sides = ("source", "target")
    found = [corpus | {side: below(corpus[side]) for side in sides if side in corpus} for corpus in _as_list(corpora)]
    return found if isinstance(corpora, list) else found[0]


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


def _tokenizers(recipe: Recipe, training: list[Corpus], cache: Path) -> tuple[Any, Any]:
    """Those of `path` or of the model to start from, or new ones, which are kept by what they were trained on."""
    settings = recipe.tokenizer
    start = recipe.model.get("from_pretrained")
    existing = settings.get("path") or start
    tags = sorted({corpus.share.tag for corpus in training if corpus.share.tag is not None})
    if existing is not None:
        source, target = load_tokenizers(existing)
        if start is not None:  # whose embeddings have no room for tags
            return source, target
        tagged = with_tags(source, tags)
        return tagged, tagged if target is source else with_tags(target, tags)  # which both end with <pad>
    vocab_size, joint = settings.get("vocab_size", 8000), settings.get("joint", True)
    inputs = [[corpus.pairs._fingerprint for corpus in training], vocab_size, joint, tags]
    folder = cache / f"tokenizer-{sha256(json.dumps(inputs).encode()).hexdigest()[:16]}"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            sides = [[corpus.pairs[side] for corpus in training] for side in ("source", "target")]
            texts = [chain(*sides[0], *sides[1])] if joint else [chain(*side) for side in sides]
            tokenizers = [train_tokenizer(side, vocab_size, tags=tags) for side in texts]
            if len({len(tokenizer) for tokenizer in tokenizers}) > 1:
                sizes = " and ".join(str(len(tokenizer)) for tokenizer in tokenizers)
                raise ValueError(
                    f"tokenizer.vocab_size: the two vocabularies reach {sizes} tokens; choose what both reach"
                )
            temporary = tempfile.mkdtemp(dir=cache)
            save_tokenizers(temporary, *tokenizers)
            Path(temporary).rename(folder)
    return load_tokenizers(folder)


def build_model(recipe: Recipe, prepared: Prepared) -> AdminForConditionalGeneration:
    """A new model of the recipe's configuration, or the one to start from."""
    settings = dict(recipe.model)
    attention = settings.pop("attn_implementation", None)
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    if (start := settings.pop("from_pretrained", None)) is not None:
        kind = AutoConfig.from_pretrained(start).model_type
        if kind != AdminConfig.model_type:
            raise ValueError(
                f"model.from_pretrained: {start} holds a {kind} model; start from an unfolded one (final/)"
            )
        model = AdminForConditionalGeneration.from_pretrained(start, attn_implementation=attention, **settings)
    else:
        settings.setdefault("share_encoder_decoder_embeddings", source is target)
        config = AdminConfig(vocab_size=len(source), decoder_vocab_size=len(target), **settings)
        model = AdminForConditionalGeneration._from_config(config, attn_implementation=attention)
    check_tokenizer(source, model.config)
    check_tokenizer(target, model.config, target=True)
    if start is not None:
        _check_vocabulary(prepared, Path(start), "remove tokenizer.path, or start from the model of that tokenizer")
    for checkpoint in complete_checkpoints(recipe.output_dir)[-1:]:
        _check_vocabulary(prepared, checkpoint, "restore the training files of that run, or choose another output_dir")
    return model


def _check_vocabulary(prepared: Prepared, folder: Path, remedy: str) -> None:
    """Whether the data has the ids of the tokenizers, if any, that lie beside a model's weights."""
    if (folder / "tokenizer_config.json").exists():
        tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
        for side, own, other in zip(("source", "target"), tokenizers, load_tokenizers(folder), strict=True):
            if tokenizer_state(own) != tokenizer_state(other):
                raise ValueError(f"{folder} was trained with another {side} vocabulary than the data has: {remedy}")


def _check_lengths(prepared: Prepared, positions: int) -> None:
    for split in ("train", "valid"):
        if split in prepared.data:
            longest = max(int(lengths.max()) for lengths in pair_lengths(prepared.data[split]))
            if longest > positions:
                raise ValueError(
                    f"data.{split}: a sentence has {longest} tokens, more than model.max_position_embeddings "
                    f"{positions}; raise that, or lower data.max_length for training sentences"
                )


def training_arguments(recipe: Recipe) -> AdminTrainingArguments:
    """The section `training`, on the devices of this machine."""
    settings = {"target_language": recipe.languages[1], "use_cpu": not torch.accelerator.is_available()}
    settings |= {name: value for name, value in recipe.training.items() if name != "early_stopping_patience"}
    return AdminTrainingArguments(output_dir=recipe.output_dir, **settings)


def build_trainer(recipe: Recipe, prepared: Prepared) -> AdminTrainer:
    """The trainer of a recipe, model included, from its seed."""
    patience = recipe.training.get("early_stopping_patience")
    args = training_arguments(recipe)
    set_seed(args.seed)
    model = build_model(recipe, prepared)
    _check_lengths(prepared, model.config.max_position_embeddings)
    kind = AdversarialTrainer if args.adversarial_weight else AdminTrainer
    return kind(
        model,
        args,
        train_dataset=prepared.data["train"],
        eval_dataset=prepared.data.get("valid"),
        processing_class=prepared.source_tokenizer,
        target_tokenizer=prepared.target_tokenizer,
        callbacks=[] if patience is None else [EarlyStoppingCallback(patience)],
    )


def claim_folder(recipe: Recipe) -> None:
    """Leave the recipe in its output folder; refuse to go on from checkpoints of other data, model or optimizer.

    The folder is this process's until it ends, however it ends.

    Raises:
        ValueError: naming the first field that differs, or another process trains there.
    """
    folder = Path(recipe.output_dir)
    path, values = folder / "recipe.yaml", asdict(recipe)
    earlier = _read_claim(path)
    if earlier is not None and complete_checkpoints(folder):
        for name, (old, new) in differences(earlier, values, RESUMED).items():
            raise ValueError(
                f"{folder}: its checkpoints were trained with {name} {reprlib.repr(old)}, and the recipe has "
                f"{reprlib.repr(new)}: choose another output_dir"
            )
    PartialState().wait_for_everyone()  # all have read it
    if PartialState().is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        _lock(folder)
        if earlier != values:
            temporary = folder / "recipe.yaml.tmp"
            temporary.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
            temporary.replace(path)
    PartialState().wait_for_everyone()


def _lock(folder: Path) -> None:
    """Held until the process dies: nobody releases it."""
    lock = FileLock(folder / "lock", is_singleton=True)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise ValueError(f"{folder}: another process trains there; wait, or choose another output_dir") from error
    _locks.append(lock)


def _read_claim(path: Path) -> dict[str, Any] | None:
    """The recipe that a run left with all its sections, None if there is none or only a part of it."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), RecipeLoader)
        return asdict(Recipe(**values))
    except (FileNotFoundError, yaml.YAMLError, TypeError):
        return None


def differences(
    earlier: Mapping[str, Any], now: Mapping[str, Any], training: Collection[str]
) -> dict[str, tuple[Any, Any]]:
    """Fields of two recipes that differ in data, tokenizer, model or these fields of training, with both values."""
    kinds: dict[str, Any] = {"model": AdminConfig, "training": AdminTrainingArguments}
    defaults = {section: {f.name: f.default for f in fields(kind)} for section, kind in kinds.items()}
    differing = {}
    for section in ("data", "tokenizer", "model", "training"):
        old, new = earlier.get(section, {}), now.get(section, {})
        names = training if section == "training" else [name for name in (*old, *new) if name not in MOVABLE]
        for name in names:
            default = defaults.get(section, {}).get(name)
            pair = old.get(name, default), new.get(name, default)
            if pair[0] != pair[1]:
                differing[f"{section}.{name}"] = pair
    return differing
