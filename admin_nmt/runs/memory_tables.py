"""Tables of predicted peak memory: of recipes, and of small models beside what PyTorch's profiler sees allocated."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, PreTrainedTokenizerBase, PrinterCallback

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments

from ..data.batching import Seq2SeqCollator
from ..data.tokenization.tokenizer_folder import load_tokenizers
from ..data.tokenized_pairs import survey
from ..system.errors import refusing_code
from ..system.markdown import table_text
from ..trainer.memory_prediction import (
    CONTEXT_BYTES,
    FRAGMENTATION,
    BatchShape,
    Memory,
    fits,
    largest_shapes,
    planned_shapes,
    predict_memory,
    worst_shape,
)
from .preparation import Prepared, model_folder, prepare
from .recipe import Recipe, load_recipe
from .training_run import training_arguments

NOTE = (
    "Predicted, not measured, in GB of 10⁹ bytes. A card is large enough if it holds the peak under DDP times "
    f"{FRAGMENTATION:.1f}, for fragmentation, and {CONTEXT_BYTES / 1e9:.1f} GB for the driver: both are assumed. "
    "V is the size of the vocabulary, assumed where the folder of tokenizer.path is yet to be made."
)
VERIFIED = (
    "Measured: most bytes of tensors at a time while AdminTrainer makes three updates on a CPU, by PyTorch's profiler. "
    "The width is 128, the feed-forward width 512."
)
CARDS = (16, 24, 40, 80)
PRECISIONS: list[dict[str, Any]] = [
    {"training.bf16": False, "training.fp16": False},
    {"training.bf16": True, "training.fp16": False},
    {"training.bf16": False, "training.fp16": False, "model.dtype": "bfloat16"},
]
CHECKPOINTING = (None, 4, 2, 1)  # every how many layers
WITHOUT_AND_WITH = [["--training.activation_checkpointing", value] for value in ("false", "true")]
SHORT, LONG = BatchShape(64, 16, 16), BatchShape(8, 128, 128)


@dataclass
class Case:
    """A small model and batch on which a prediction is compared with a measurement."""

    name: str
    model: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    shape: BatchShape = field(default_factory=lambda: SHORT)
    attention: str = "sdpa"


def small(encoder_layers: int, decoder_layers: int, vocab_size: int, width: int = 128, **fields: Any) -> dict[str, Any]:
    """Fields of a model whose feed-forward sublayers are four times as wide."""
    sizes = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers, "vocab_size": vocab_size}
    wide = {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}
    return sizes | wide | {"d_model": width, "max_position_embeddings": 256} | fields


CHECKPOINTED = {"activation_checkpointing": True}
EVERY_3RD = CHECKPOINTED | {"activation_checkpointing_kwargs": {"every_n_layers": 3}}
CASES = [
    Case("admin 6-6, V 1,000", small(6, 6, 1000)),
    Case("admin 6-6, V 1,000, eager, long", small(6, 6, 1000), shape=LONG, attention="eager"),
    Case("admin 6-6, V 20,000", small(6, 6, 20_000)),
    Case("admin 12-4, V 1,000, checkpointed", small(12, 4, 1000, variant="admin"), CHECKPOINTED, LONG),
    Case("admin 12-4, V 1,000, every 3rd checkpointed", small(12, 4, 1000), EVERY_3RD, LONG),
    Case("pre_ln 12-3, V 20,000, Adam", small(12, 3, 20_000, variant="pre_ln"), {"optimizer": "adam"}, LONG),
    Case("pre_ln 12-3, V 1,000, bf16 autocast", small(12, 3, 1000, variant="pre_ln"), {"bf16": True}, LONG),
    Case("dlcl_pre_ln 12-3, V 1,000", small(12, 3, 1000, variant="dlcl_pre_ln"), shape=LONG),
    Case("dlcl_post_ln 12-3, V 1,000, checkpointed", small(12, 3, 1000, variant="dlcl_post_ln"), CHECKPOINTED, LONG),
    Case("admin 6-6, V 1,000, two accumulated", small(6, 6, 1000), {"gradient_accumulation_steps": 2}, LONG),
    Case("admin 6-6, V 1,000, bf16 parameters", small(6, 6, 1000, dtype="bfloat16"), shape=LONG),
]


class PaddedCollator(Seq2SeqCollator):
    """Hides the last token of one source: without padding attention gets no mask, which real batches need."""

    def __call__(self, pairs: Any) -> dict[str, Tensor]:
        batch = super().__call__(pairs)
        batch["attention_mask"][0, -1] = 0
        return batch


def case_arguments(case: Case, folder: str) -> AdminTrainingArguments:
    """Three updates, after which the optimizer has all that it keeps."""
    tokens = case.shape.sentences * max(case.shape.source, case.shape.target)
    quiet: dict[str, Any] = {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "report_to": "none"}
    limits = {"max_tokens": tokens, "profile_tokens": tokens, "max_steps": 3}
    return AdminTrainingArguments(folder, use_cpu=True, **quiet | limits | {"bf16": False} | case.training)


def predict_case(case: Case) -> Memory:
    with TemporaryDirectory() as folder:
        return predict_memory(AdminConfig(**case.model), case_arguments(case, folder), case.shape, case.attention)


def measure_case(case: Case) -> int:
    """Most bytes of tensors that exist at a time while `AdminTrainer` trains, by PyTorch's profiler."""
    with TemporaryDirectory() as folder:
        args, shape = case_arguments(case, folder), case.shape
        config = AdminConfig(**case.model)
        model = AdminForConditionalGeneration._from_config(config, attn_implementation=case.attention)
        at_rest = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
        row: dict[str, Any] = {"input_ids": [5] * shape.source, "labels": [5] * shape.target}
        row |= {"source_length": shape.source, "target_length": shape.target}
        rows = [row] * (shape.sentences * args.max_steps * args.gradient_accumulation_steps)
        pad: Any = config.pad_token_id
        trainer = AdminTrainer(model, args, train_dataset=Dataset.from_list(rows), data_collator=PaddedCollator(pad))
        trainer.remove_callback(PrinterCallback)  # it prints between the lines of the table
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            trainer.train()
    results: Any = profiler.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return at_rest + peak


def verify(cases: list[Case]) -> Iterator[dict[str, Any]]:
    """Predictions and measurements in MB."""
    for case in cases:
        predicted, measured = predict_case(case).peak, measure_case(case)
        sizes = {"predicted, MB": f"{predicted / 1e6:.1f}", "measured, MB": f"{measured / 1e6:.1f}"}
        yield {"model": case.name, "batch": str(case.shape)} | sizes | {"ratio": f"{predicted / measured:.3f}"}


def find_tokenizers(
    recipe: Recipe, prepared: Prepared | None
) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase] | None:
    """Tokenizers of the prepared data or of `tokenizer.path`, source and target; None where they are yet to be made."""
    if prepared is not None:
        return prepared.source_tokenizer, prepared.target_tokenizer
    path = recipe.tokenizer.path
    return load_tokenizers(path) if path is not None and Path(path).is_dir() else None


def model_config(recipe: Recipe, prepared: Prepared | None = None) -> AdminConfig:
    """The configuration of a recipe's model, with the vocabulary that its tokenizers have or are to have."""
    fields = recipe.model.configuration()
    if recipe.model.from_pretrained is not None:
        with refusing_code(recipe.model.from_pretrained):
            start = model_folder(recipe.model.from_pretrained, "model.from_pretrained")
            return AutoConfig.from_pretrained(start, trust_remote_code=False, **fields)
    if (tokenizers := find_tokenizers(recipe, prepared)) is not None:
        source, target = tokenizers
        sizes, joint = {"vocab_size": len(source), "decoder_vocab_size": len(target)}, source is target
    else:
        sizes, joint = {"vocab_size": recipe.tokenizer.expected}, recipe.tokenizer.joint
    return AdminConfig(**sizes, **{"share_encoder_decoder_embeddings": joint} | fields)


def vocabulary(recipe: Recipe, prepared: Prepared | None = None) -> str:
    """The size of the vocabulary, of source and target if they differ, and whether nothing but a guess is behind it."""
    config = model_config(recipe, prepared)
    sizes = dict.fromkeys([config.vocab_size, config.decoder_vocab_size or config.vocab_size])
    absent = recipe.tokenizer.path is not None and find_tokenizers(recipe, prepared) is None
    guessed = (absent or (prepared is None and recipe.tokenizer.most is None)) and recipe.model.from_pretrained is None
    return "/".join(f"{size:,}" for size in sizes) + (" (assumed)" if guessed else "")


def arguments_on_a_gpu(recipe: Recipe) -> AdminTrainingArguments:
    """The section `training` with the precision that a GPU has by default, though this machine may have none."""
    args = training_arguments(recipe)
    args.bf16 = bool(args.bf16)
    return args


def worst_batch(recipe: Recipe, prepared: Prepared | None = None) -> BatchShape:
    """The batch of a recipe that needs most memory: of its prepared data, or of sentences as long as it allows."""
    args, config = arguments_on_a_gpu(recipe), model_config(recipe, prepared)
    if prepared is not None:
        shapes = planned_shapes(survey(prepared.data["train"], args.max_tokens, seed=0).shapes)
    else:
        longest = min(recipe.data.max_length or config.max_position_embeddings, config.max_position_embeddings)
        shapes = largest_shapes(args.max_tokens, longest)
    return worst_shape(config, args, shapes, recipe.model.attn_implementation)


def variations(path: Path, overrides: list[str], called: str | None = None) -> Iterator[Recipe]:
    """A recipe with each precision and checkpointing."""
    for precision_fields, every in product(PRECISIONS, CHECKPOINTING):
        chosen = precision_fields | {"training.activation_checkpointing": every is not None}
        if every is not None:
            chosen["training.activation_checkpointing_kwargs"] = {"every_n_layers": every}
        varied = [text for name, value in chosen.items() for text in (f"--{name}", json.dumps(value))]
        yield load_recipe(path, overrides + varied, called)


def precision(recipe: Recipe) -> str:
    training, dtype = recipe.training, recipe.model.dtype or "float32"
    autocast = next((f"{kind} autocast" for kind in ("bf16", "fp16") if getattr(training, kind)), None)
    return autocast or f"{dtype} parameters".replace("float32 parameters", "float32")


def checkpointing(recipe: Recipe) -> str:
    args = training_arguments(recipe)
    every = (args.activation_checkpointing_kwargs or {}).get("every_n_layers", 1)
    return ("every layer" if every == 1 else f"every {every} layers") if args.activation_checkpointing else "none"


def recipe_rows(
    recipes: Mapping[str, Path], overrides: list[str], *, options: bool = False, prepared_data: bool = False
) -> Iterator[dict[str, Any]]:
    """One row a recipe, or a recipe and option, in GB of 10⁹ bytes.

    Args:
        recipes: their files, by what errors call them.
        options: vary precision and checkpointing.
        prepared_data: take the lengths of sentences and the vocabulary from the prepared data, not the recipe's limits.
    """
    for called, path in recipes.items():
        recipe = load_recipe(path, overrides, called)
        prepared = prepare(recipe) if prepared_data else None
        shape, size = worst_batch(recipe, prepared), vocabulary(recipe, prepared)
        both = recipe.training.activation_checkpointing == "auto"  # which is one or the other on a card
        alone = [load_recipe(path, [*overrides, *one], called) for one in WITHOUT_AND_WITH] if both else [recipe]
        for varied in variations(path, overrides, called) if options else alone:
            attention = varied.model.attn_implementation
            memory = predict_memory(model_config(varied, prepared), arguments_on_a_gpu(varied), shape, attention)
            cells = {"recipe": path.stem, "precision": precision(varied), "checkpointing": checkpointing(varied)}
            parts = {name: f"{value / 1e9:.2f}" for name, value in asdict(memory).items()}
            peaks = {"peak": f"{memory.peak / 1e9:.2f}", "peak, DDP": f"{memory.distributed_peak / 1e9:.2f}"}
            fitting = {f"{card} GB": "yes" if fits(memory.distributed_peak, card) else "no" for card in CARDS}
            yield cells | {"batch": str(shape), "V": size} | parts | peaks | fitting


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a Markdown table."""
    return table_text(list(rows[0]), (row.values() for row in rows)) + "\n"


def write(rows: list[dict[str, Any]], note: str, output: Path) -> None:
    """Leave the table and its note in OUTPUT.md, the rows in OUTPUT.json."""
    output.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{output}.md").write_text(f"{table(rows)}\n{note}\n", encoding="utf-8")
    Path(f"{output}.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
