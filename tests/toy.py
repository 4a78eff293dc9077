"""Toy corpora of the tests, random pairs as ids and as text, and ways to interrupt a run."""

import math
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import yaml
from datasets import Dataset, Features, Value
from pyarrow import RecordBatch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Trainer, TrainerCallback
from typer.testing import CliRunner, Result

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.cli.app import app
from admin_nmt.data.arrow_cache import map_shards
from admin_nmt.data.batching import TokenBatchSampler
from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.data.tokenized_pairs import pair_lengths
from admin_nmt.weights.exporting import export_standard

WORDS = [letters + ending for letters in ("ba", "do", "ki", "mu", "re") for ending in ("", "l", "n", "tu", "ro")]
# Shifts the seeds of toy data and toy models, so that one can see whether a test holds for one draw only.
SHIFT = 1000 * int(os.environ.get("ADMIN_NMT_TEST_SEED", 0))


def random_ids(pairs: int, seed: int = 0, vocabulary: int = 99, longest: int = 12) -> Dataset:
    """Tokenised pairs of random ids, of 2 to `longest` tokens with the end of sentence."""
    draw = random.Random(seed + SHIFT)
    ids = range(2, vocabulary - 1)

    def sentence() -> list[int]:
        return [*draw.choices(ids, k=draw.randint(1, longest - 1)), 0]

    return with_lengths([{"input_ids": sentence(), "labels": sentence()} for _ in range(pairs)])


def random_texts(count: int, seed: int = 0) -> list[str]:
    """Sentences of 1 to 8 made-up words, capitalised and with a full stop."""
    draw = random.Random(seed + SHIFT)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))).capitalize() + "." for _ in range(count)]


def toy_tokenizer(seed: int = 0, vocab_size: int = 300) -> PreTrainedTokenizerFast:
    """Byte-level BPE over `random_texts`."""
    return train_tokenizer(random_texts(200, seed), vocab_size)


def text_pairs(tokenizer: PreTrainedTokenizerFast, pairs: int, seed: int = 0) -> Dataset:
    """Tokenised pairs with their raw text: the target has the source's words in reverse order."""
    rows = []
    for source in random_texts(pairs, seed):
        target = " ".join(reversed(source.split()))
        ids = {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(target)["input_ids"]}
        rows.append(ids | {"source": source, "target": target})
    return with_lengths(rows)


def with_lengths(rows: list[dict]) -> Dataset:
    """A dataset of these rows with the columns of lengths."""
    lengths = [{"source_length": len(row["input_ids"]), "target_length": len(row["labels"])} for row in rows]
    return Dataset.from_list([row | length for row, length in zip(rows, lengths, strict=True)])


def write_recipe(folder: Path, *, held_out: int = 20, model: dict | None = None, training: dict | None = None) -> Path:
    """A recipe of a 2-1 model for six updates, beside its files of 300 pairs and `held_out` for each evaluation set."""
    for split, pairs in phrasebook(300, held_out, held_out).items():
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    recipe = {
        "output_dir": str(folder / "run"),
        "data": {"root": str(folder), "cache_dir": str(folder / "cache")}
        | {split: {"source": f"{split}.en", "target": f"{split}.de"} for split in ("train", "valid", "test")},
        "tokenizer": {"vocab_size": 400},
        "model": sizes | heads | {"dropout": 0.1, "max_position_embeddings": 128} | (model or {}),
        "training": {"max_tokens": 256, "warmup_steps": 2, "max_steps": 6, "logging_steps": 2, "eval_strategy": "steps"}
        | {"eval_steps": 3, "save_strategy": "steps", "save_steps": 3, "generation_num_beams": 1}
        | {"load_best_model_at_end": True, "metric_for_best_model": "eval_bleu", "eval_bleu_sentences": 5}
        | (training or {}),
        "evaluation": {"average_last": 5, "num_beams": 2, "length_penalty": 0.7},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def truncated(path: Path, draw: random.Random | None = None) -> None:
    """Cuts a file in half, or where `draw` says."""
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: draw.randrange(max(1, size)) if draw else size // 2])


def bit_flipped(path: Path, draw: random.Random | None = None) -> None:
    """Flips one bit of a file."""
    content = bytearray(path.read_bytes() or b"\0")
    place = (draw or random.Random(SHIFT)).randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def emptied(path: Path, draw: random.Random | None = None) -> None:
    """Leaves a file of no bytes."""
    path.write_bytes(b"")


def removed(path: Path, draw: random.Random | None = None) -> None:
    """Deletes a file."""
    path.unlink()


def made_a_folder(path: Path, draw: random.Random | None = None) -> None:
    """Puts a folder in the place of a file."""
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def overwritten(path: Path, draw: random.Random | None = None) -> None:
    """Puts another kind of file in the place of one."""
    path.write_text('{"other": "things"}\n' * 99)


DAMAGES = (truncated, bit_flipped, emptied, removed, made_a_folder, overwritten)


def double(batch: RecordBatch) -> dict[str, list[int]]:
    """Doubles the numbers of a batch."""
    return {"n": [2 * n for n in batch["n"].to_pylist()]}


def doubled(folder: Path, function=double, *, count: int = 1000, num_proc: int = 1) -> Dataset:
    """The numbers below `count`, doubled by a step that keeps its shards in this folder."""
    numbers, features = Dataset.from_dict({"n": range(count)}), Features({"n": Value("int64")})
    return map_shards(numbers, function, features, folder, fingerprint="f", num_proc=num_proc, desc="doubling")


def budget_for(dataset: Dataset, batches: int) -> int:
    """The smallest token budget under which a dataset makes this many batches."""
    lengths = pair_lengths(dataset)
    return next(n for n in range(12, 9999) if len(TokenBatchSampler(*lengths, n, seed=0)) == batches)


def invoke(*arguments: object, stdin: str | None = None, code: int = 0) -> Result:
    """Runs `admin-nmt` in this process; a bug raises, and another exit code than `code` fails."""
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, catch_exceptions=False)
    assert result.exit_code == code, result.stderr
    return result


def error(*arguments: object, code: int = 1) -> str:
    """The message, on one line, of an `admin-nmt` that fails; with the code 1 nothing else may be on stderr."""
    result = invoke(*arguments, code=code)
    assert result.stdout == ""
    if code == 1:
        assert result.stderr.count("\n") == 1 and "error: " in result.stderr
    return " ".join(result.stderr.rsplit("\r")[-1].split())


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def started_translation(*arguments: object, **streams: int) -> subprocess.Popen:
    """The real command translate, which is killed where it hangs for half an hour."""
    command = [sys.executable, "-m", "admin_nmt", "translate", *map(str, arguments)]
    process = subprocess.Popen(command, env=ENVIRONMENT, text=True, **streams)
    guard = threading.Timer(1800.0, process.kill)
    guard.daemon = True
    guard.start()
    return process


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the library may catch it."""


class KilledAfter:
    """Writes each line as `rewrite` does; after `limit` calls it is killed."""

    def __init__(self, rewrite: Callable[[str], str], limit: int | None = None) -> None:
        self.rewrite, self.limit, self.calls = rewrite, limit, 0

    def __call__(self, lines: list[str]) -> list[str]:
        if self.calls == self.limit:
            raise Killed
        self.calls += 1
        return [self.rewrite(line) for line in lines]


@torch.no_grad()
def hooked(
    run: Callable[[], object], writers: Iterable[torch.nn.Module], readers: Iterable[torch.nn.Module], argument: int = 0
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What some modules write during a run, and what others read as their argument of this number."""
    written, read = [], []
    hooks = [module.register_forward_hook(lambda _, __, output: written.append(output)) for module in writers]
    hooks += [module.register_forward_pre_hook(lambda _, args: read.append(args[argument])) for module in readers]
    run()
    for hook in hooks:
        hook.remove()
    return written, read


class SaveAfter(TrainerCallback):
    """Saves a checkpoint after an update."""

    stops = False

    def __init__(self, update: int) -> None:
        self.update = update

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.update:
            control.should_save = True
            control.should_training_stop |= self.stops


class StopAfter(SaveAfter):
    """Saves a checkpoint after an update and stops the run there."""

    stops = True


class KeepGradient(TrainerCallback):
    """Keeps the gradient of the last update."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def last_gradient(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The gradient of the last update of a training, by parameter."""
    keep = KeepGradient()
    trainer.add_callback(keep)
    trainer.train()
    return keep.gradient


def poison(model: PreTrainedModel, run: Trainer, update: int) -> None:
    """Makes the decoder's output NaN at an update."""

    def hook(module, args, output):
        return output * math.nan if run.state.global_step == update - 1 else output

    model.model.decoder.layers[-1].register_forward_hook(hook)


def small_config(**fields) -> AdminConfig:
    """A configuration of width 16, 3 + 2 layers and 99 tokens; keyword arguments override its fields."""
    small = {"vocab_size": 99, "d_model": 16, "encoder_layers": 3, "decoder_layers": 2, "max_position_embeddings": 64}
    for stack in ("encoder", "decoder"):
        small |= {f"{stack}_ffn_dim": 32, f"{stack}_attention_heads": 4}
    return AdminConfig(**small | {"dropout": 0.0} | fields)


def learn_to_copy(
    model: AdminForConditionalGeneration,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    texts: list[str],
    updates: int = 40,
) -> AdminForConditionalGeneration:
    """Trains for a few updates, so that translations end and differ."""
    batch = source(texts, return_tensors="pt", padding=True)
    labels = target(texts, return_tensors="pt", padding=True)["input_ids"]
    labels = labels.masked_fill(labels == target.pad_token_id, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(updates):
        optimizer.zero_grad()
        model.train()(**batch, labels=labels).loss.backward()
        optimizer.step()
    return model.eval()


def save_models(folder: Path, tokenizer: PreTrainedTokenizerFast, **fields) -> AdminForConditionalGeneration:
    """A random model of `small_config` in folder/final, its standard model, if it has one, in folder/standard."""
    torch.manual_seed(SHIFT)
    model = randomised(AdminForConditionalGeneration(small_config(vocab_size=len(tokenizer), **fields)))
    model.save_pretrained(folder / "final")
    save_tokenizers(folder / "final", tokenizer, positions=model.config.max_position_embeddings)
    if not model.config.has_history:
        export_standard(model, tokenizer, folder / "standard")
    return model


@torch.no_grad()
def randomised(model: AdminForConditionalGeneration, first_omega: float | None = 1.0) -> AdminForConditionalGeneration:
    """Give LayerNorms, biases, ω and α random values, so that no mistake hides behind ones and zeros."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if "layer_norm" in name or name.endswith("bias"):
            centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            tensor.normal_(centre, 0.2)
        if name.endswith("alpha"):
            tensor.uniform_(0.2, 0.8)
        if name.endswith("omega"):
            tensor.uniform_(0.5, 3.0)
            if "layers.0.self_attn" in name and first_omega is not None:
                tensor.fill_(first_omega)
    return model.eval()
