"""Model folders: finding, naming, checking and loading them, with one clear sentence for what is wrong."""

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HTTPError, StrictDataclassError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..data.tokenization.tokenizer_folder import TARGET_FOLDER, check_tokenizer, load_tokenizers
from ..model.configuration_admin import LARGEST, AdminConfig, check_shape
from ..model.modeling_admin import AdminForConditionalGeneration
from ..system.errors import ForeignCodeError, refusing_code
from ..system.messages import sentence
from ..weights.averaging import indexed_files
from .run_folder import FINAL, STANDARD

# Of a repository on the Hub: the same weights for other frameworks, and what training leaves beside a model.
NEVER_READ = ("*.h5", "*.msgpack", "*.ot", "*.onnx*", "*.tflite", "checkpoint-*/*", "optimizer.pt", "*.tfevents.*")
# Matrices that every model stores, by the fields of their shapes.
MATRICES = (
    ("vocab_size", "d_model"),
    ("decoder_vocab_size", "d_model"),
    ("d_model", "encoder_ffn_dim"),
    ("d_model", "decoder_ffn_dim"),
)
FLOATS = (None, torch.float64, torch.float32, torch.bfloat16, torch.float16)
MODEL_FILES = (".json", ".safetensors", ".bin", ".spm", ".model", ".txt")
logger = logging.getLogger(__name__)


def local_folder(path_or_repo: str | Path, *, trained: bool = False, revision: str | None = None) -> Path:
    """The folder itself, or the local copy of a Hub repository, which is fetched if need be.

    A run's folder stands for its standard model, or its final one if there is no other; a warning names it.

    Args:
        trained: take the final model of a run.
        revision: branch, tag or commit of the repository.

    Raises:
        ValueError: it is neither, or a run that has not finished; a folder has a revision.
    """
    name = str(path_or_repo)
    if Path(name).is_dir() and revision is not None:
        raise ValueError(f"{name}: is a folder here, which has no revision {revision}; leave that out")
    if Path(name).is_dir():
        model = model_of_run(Path(name), trained=trained)
        if model is not None:
            logger.warning("%s: is the folder of a run; taking its %s model, %s", name, model.name, model)
        return model or Path(name)
    if Path(name).exists():
        raise ValueError(f"{name}: is a file; name the folder of a model")
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or name.endswith("/") or "\\" in name:
        raise ValueError(f"{name}: there is no such folder")
    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=[*NEVER_READ]))
    except (OSError, ValueError, RuntimeError, HfHubHTTPError, HTTPError) as error:
        cause = f"{error}".splitlines()[0].rstrip(".") if f"{error}" else type(error).__name__
        raise ValueError(
            f"{path_or_repo}: is no folder, and the Hub gives no model of that name ({cause}); check the name, or give "
            "the same command again: what has arrived is not fetched twice"
        ) from error


def model_of_run(folder: Path, *, trained: bool = False) -> Path | None:
    """The model that a run's folder stands for, None where it is no run.

    Args:
        trained: take the final model, not the standard one.

    Raises:
        ValueError: the run has not finished.
    """
    if (folder / "config.json").exists() or (folder / "adapter_config.json").exists():
        return None
    for name in (FINAL,) if trained else (STANDARD, FINAL):
        if (folder / name / "config.json").is_file():
            return folder / name
    checkpoints = [path.parent for path in folder.glob("checkpoint-*/config.json")]
    if not checkpoints:
        return None
    newest = max(checkpoints, key=lambda path: (len(path.name), path.name))
    raise ValueError(
        f"{folder}: is the folder of a run that has not finished; give its training command again, or name one of its "
        f"checkpoints, such as {newest}"
    )


def short_names(models: Sequence[str | Path]) -> list[str]:
    """The shortest ends of paths or repositories that tell them apart; a model of a run is named as its run."""
    paths = [Path(model).resolve() if Path(model).is_dir() else Path(model) for model in models]
    runs = [path.parent if path.name in (FINAL, STANDARD) else path for path in paths]
    if len(set(runs)) < len(runs):  # two folders of one run
        runs = paths

    def short(run: Path) -> str:
        ends = [run.parts[-count:] for count in range(1, len(run.parts) + 1)]
        return "/".join(next((end for end in ends if sum(o.parts[-len(end) :] == end for o in runs) == 1), run.parts))

    return [short(run) for run in runs]


def read_config(folder: Path) -> PreTrainedConfig:
    """The model's configuration.

    Raises:
        ValueError: it is missing, damaged or makes no sense.
    """
    path = folder / "config.json"
    if (folder / "adapter_config.json").exists():
        raise ValueError(f"{folder}: holds an adapter of PEFT; merge it into its model with PEFT, and give that folder")
    if (folder / "model.bin").exists():
        raise ValueError(
            f"{folder}: was written for CTranslate2 alone, to be run by ctranslate2.Translator; name the model it was "
            "made of, and choose the backend 'ctranslate2'"
        )
    if not path.is_file():
        raise ValueError(f"{folder}: has no config.json, so it is no model; name the folder that holds one")
    try:
        with refusing_code(folder):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if not config.is_encoder_decoder:
            raise ValueError(f"a {config.model_type} is no encoder-decoder model, so it cannot translate")
        check_shape(config)  # a stock configuration takes any, until something is divided by it
        if getattr(torch, str(config.dtype).removeprefix("torch."), None) not in FLOATS:
            raise ValueError(f"dtype {config.dtype}: a model is stored in float16 or wider; copy it again")
    except ForeignCodeError:
        raise
    except (ValueError, OSError, StrictDataclassError, RecursionError) as error:
        cause = error.__cause__ if isinstance(error, StrictDataclassError) else error
        raise ValueError(f"{path}: {cause}") from error
    return config


def _in_vocabulary(token: int, info: ValidationInfo) -> int:
    tokens = cast(dict[str, int], info.context)["tokens"]
    if not 0 <= token < tokens:
        raise ValueError(f"is {token}, but the vocabulary has {tokens} tokens")
    return token


Token = Annotated[int, AfterValidator(_in_vocabulary)]


class GenerationFields(BaseModel):
    """The fields of generation_config.json that a search reads."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    eos_token_id: Token | Annotated[list[Token], Field(min_length=1)]
    num_beams: int | None = Field(default=None, ge=1)
    length_penalty: int | float | None = None
    pad_token_id: Token | None = None
    decoder_start_token_id: Token | None = None
    suppress_tokens: list[Token] | None = None
    bad_words_ids: list[list[Token]] | None = None


def generation_defaults(folder: Path, config: PreTrainedConfig) -> GenerationConfig:
    """The settings of a search that a model was saved with; without generation_config.json a stock model's are in
    its configuration.

    Raises:
        ValueError: the file is damaged, where transformers would search by other settings and say nothing.
    """
    path = folder / "generation_config.json"
    if not path.exists() and not isinstance(config, AdminConfig):
        return GenerationConfig.from_model_config(config)
    values: Any = None
    tokens = getattr(config, "decoder_vocab_size", None) or getattr(config, "vocab_size", LARGEST["vocab_size"])
    try:
        values = json.loads(path.read_bytes())
        GenerationFields.model_validate(values, context={"tokens": tokens})
        return GenerationConfig.from_pretrained(folder)
    except (OSError, ValueError, RecursionError) as error:
        what = sentence(error, values)[1] if isinstance(error, ValidationError) else error
        raise ValueError(f"{path}: cannot be read: {what}; copy it again") from error


def beam_size(folder: Path) -> int:
    """Beam size of the search that a model was saved with, 5 where it names none."""
    return generation_defaults(folder, read_config(folder)).num_beams or 5


def check_weights(folder: Path, config: PreTrainedConfig) -> None:
    """Check that the weights are there, that no safetensors file was cut off, and that they fill the configuration.

    Only their headers are read, before anything is allocated for what config.json says.

    Raises:
        ValueError: naming the file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files and not any(folder.glob("pytorch_model*.bin")):
        raise ValueError(f"{folder}: has a config.json but no weights; copy or train the model again")
    for index in folder.glob("*.index.json"):
        for path in indexed_files(index):
            if not path.is_file():
                raise ValueError(f"{path}: is missing, and {index.name} lists it; copy it again")
    sizes = []
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                sizes += [math.prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: is damaged or cut off ({error}); copy it again") from error
    if files:
        _check_memory(folder / "config.json", config, sizes)


def _check_memory(path: Path, config: PreTrainedConfig, sizes: list[int]) -> None:
    """Refuse a configuration that is larger than the weights: a few bytes of JSON could ask for any memory."""

    def product(*fields: str) -> int:
        return math.prod(getattr(config, field, None) or 0 for field in fields)

    if (layers := product("encoder_layers") + product("decoder_layers")) > len(sizes):
        raise ValueError(f"{path}: says {layers} layers, but the weights are {len(sizes)} tensors; copy both again")
    for fields in MATRICES:
        if product(*fields) > max(sizes, default=0):
            raise ValueError(f"{path}: no tensor of the weights is as large as {' × '.join(fields)}; copy both again")


def check_tokenizers(folder: Path, config: PreTrainedConfig) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """The tokenizers of a folder, (source, target), which must belong to the model.

    Raises:
        ValueError: one is missing or damaged, or does not belong to the model.
        ImportError: one needs sentencepiece, which is not installed.
    """
    try:
        source, target = load_tokenizers(folder)
    except ForeignCodeError:
        raise
    except ImportError as error:
        raise ImportError(
            f"{folder}: its tokenizer needs a package that is not installed; for the Marian models of the Hub: "
            "pip install 'admin_nmt[marian]'"
        ) from error
    except Exception as error:  # transformers and tokenizers raise whatever their parsers do
        what = "is damaged" if any(folder.glob("tokenizer*")) or any(folder.glob("*.spm")) else "is missing"
        raise ValueError(
            f"{folder}: its tokenizer {what}; copy tokenizer.json and tokenizer_config.json again"
        ) from error
    try:
        check_tokenizer(source, config)
        check_tokenizer(target, config, target=True)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return source, target


def check_folder(folder: Path) -> PreTrainedConfig:
    """Check all that can be checked without loading the weights; errors are those of the functions above.

    Returns:
        The model's configuration.
    """
    config = read_config(folder)
    check_tokenizers(folder, config)
    check_weights(folder, config)
    return config


def load_model(folder: Path, **kwargs: Any) -> PreTrainedModel:
    """The model of a folder, with all of its weights.

    Args:
        kwargs: arguments of `from_pretrained`.

    Raises:
        ValueError: config.json or the weights are missing or damaged, or do not fit each other. (transformers draws
            weights that are missing at random, and goes on.)
    """
    config = read_config(folder)
    generation_defaults(folder, config)
    check_weights(folder, config)
    with refusing_code(folder):
        model, info = AutoModelForSeq2SeqLM.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, trust_remote_code=False, **kwargs
        )
    problems = {
        "missing": sorted(info["missing_keys"]),
        "of another shape": sorted(name for name, *_ in info["mismatched_keys"]),
        "not part of the model": sorted(name for name in info["unexpected_keys"] if ".layers." in name),
    }
    for problem, names in problems.items():
        if names:
            raise ValueError(
                f"{folder}: the weights do not fit config.json: {names[0]} is {problem} ({len(names)} such tensors); "
                "copy both files of the same model again"
            )
    return model


def load_admin_model(folder: Path) -> AdminForConditionalGeneration:
    """The model of a folder that was trained with this package, whose tokenizers belong to it; see [`load_model`].

    One of half precision comes in float32: ω is folded, and models are compared, in that.

    Raises:
        ValueError: as there, and for a model of another class.
    """
    config = read_config(folder)
    if not isinstance(config, AdminConfig):
        raise ValueError(f"{folder}: is a {config.model_type} model; give the unfolded one that was trained here")
    check_tokenizers(folder, config)
    model = cast(AdminForConditionalGeneration, load_model(folder))
    return model.float() if model.dtype.itemsize < torch.float32.itemsize else model


def fingerprint(folder: Path) -> str:
    """SHA-256 over the contents of a model's files: configuration, weights, tokenizers."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*"), *(folder / TARGET_FOLDER).glob("*")]):
        if path.is_file() and path.suffix in MODEL_FILES:
            digest.update(str(path.relative_to(folder)).encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
