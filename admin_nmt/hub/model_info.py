"""Facts of a model folder, read from its configuration, its card and the headers of its weights."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig

from ..metrics.languages import language_code
from ..model.configuration_admin import AdminConfig
from ..system.errors import refusing_code
from ..weights.exporting import ExportError, stock_class
from ..weights.folding import FoldingError
from ..weights.omega import stored_omega
from .cards import read_card
from .model_folder import check_folder

FIELDS = (
    "model_type", "variant", "encoder_layers", "decoder_layers", "d_model", "encoder_ffn_dim", "decoder_ffn_dim",
    "encoder_attention_heads", "decoder_attention_heads", "vocab_size", "decoder_vocab_size",
    "max_position_embeddings", "positions", "score_padding", "omega_rule", "omega_profiled", "train_omega",
    "pad_token_id", "eos_token_id", "decoder_start_token_id", "tie_word_embeddings",
    "share_encoder_decoder_embeddings",
)  # fmt: skip


def model_info(folder: Path) -> dict[str, Any]:
    """Facts of a model; its weights are not loaded, apart from ω.

    Returns:
        The fields of its configuration that shape it, `parameters` (trained ones, tied ones once), `dtypes` and `bytes`
        of the weights, `omega` ([sublayer, smallest, mean, largest] in their order), and `export`: the stock class that
        it is or becomes, or why there is none.

    Raises:
        ValueError: the folder is no complete model.
    """
    config = check_folder(folder)
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")])
    omega = stored_omega(folder, config) if isinstance(config, AdminConfig) else {}
    fields = [name for name in FIELDS if "omega" not in name or getattr(config, "variant", None) == "admin"]
    return {
        **{name: getattr(config, name) for name in fields if hasattr(config, name)},
        "parameters": count_parameters(config),
        "dtypes": dtypes(folder),
        "bytes": sum(path.stat().st_size for path in files),
        "omega": [[name, w.min().item(), w.mean().item(), w.max().item()] for name, w in omega.items()],
        "export": export_outlook(config, omega),
    }


def model_languages(folder: Path) -> tuple[str | None, str | None]:
    """Codes of the languages that a model reads and writes, such as ("en", "de"), None where the folder does not tell.

    Marian's tokenizers and those of imported fairseq models have them, and the cards that this package writes.
    """
    settings, card = {}, None
    with suppress(OSError, ValueError, RecursionError):
        settings = json.loads((folder / "tokenizer_config.json").read_bytes())
    with suppress(OSError, ValueError):
        card = read_card(folder).languages
    settings = settings if isinstance(settings, dict) else {}
    moses = settings.get("moses") if isinstance(settings.get("moses"), dict) else {}
    source, target = (
        _first_code(settings.get(f"{side}_lang"), moses.get(side), card and card[number])
        for number, side in enumerate(("source", "target"))
    )
    return source, target


def _first_code(*candidates: Any) -> str | None:
    """The first that is the code of a language."""
    for code in candidates:
        if isinstance(code, str):
            with suppress(ValueError):
                return language_code(code)
    return None


def count_parameters(config: PreTrainedConfig) -> int:
    """Trained parameters, each once however many modules share it."""
    with torch.device("meta"), refusing_code(config.name_or_path):
        model = AutoModelForSeq2SeqLM.from_config(config, trust_remote_code=False)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def dtypes(folder: Path) -> list[str]:
    """Types of the stored tensors, as safetensors names them."""
    found = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    return sorted(found)


def export_outlook(config: PreTrainedConfig, omega: Mapping[str, Tensor]) -> str:
    """The stock class that a model is or becomes, or why the export refuses it; `export_standard` has the last word."""
    if not isinstance(config, AdminConfig):
        return f"is a stock {config.model_type} already"
    try:
        name = stock_class(config, omega).__name__
    except (ExportError, FoldingError) as error:
        return f"none: {error}"
    return f"{name}, folded" if config.is_folded_on_export else name
