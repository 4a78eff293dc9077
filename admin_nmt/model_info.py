"""What a model folder holds, read from its configuration and the headers of its weights."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig

from .folding import SMALLEST_OMEGA
from .model.configuration_admin import AdminConfig
from .model_folder import check_tokenizers, check_weights, read_config

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
    config = read_config(folder)
    check_weights(folder)
    check_tokenizers(folder, config)
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")])
    omega = omega_tensors(folder)
    return {
        **{name: getattr(config, name) for name in FIELDS if hasattr(config, name)},
        "parameters": count_parameters(config),
        "dtypes": dtypes(folder),
        "bytes": sum(path.stat().st_size for path in files),
        "omega": [[name, w.min().item(), w.mean().item(), w.max().item()] for name, w in omega.items()],
        "export": export_outlook(config, omega),
    }


def count_parameters(config: PreTrainedConfig) -> int:
    """Trained parameters, each once however many modules share it."""
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def dtypes(folder: Path) -> list[str]:
    """Types of the stored tensors, as safetensors names them."""
    found = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    return sorted(found)


def omega_tensors(folder: Path) -> dict[str, Tensor]:
    """ω of each sublayer in the order in which they run, under names such as `encoder 0 self_attn`."""
    found: dict[str, dict[int, list[tuple[str, Tensor]]]] = defaultdict(lambda: defaultdict(list))
    order = ("self_attn", "encoder_attn", "ffn")
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                if name.endswith("_residual.omega"):
                    _, stack, _, layer, block, _ = name.split(".")
                    sublayer = block.removesuffix("_residual")
                    found[stack][int(layer)].append((sublayer, file.get_tensor(name).float()))
    return {
        f"{stack} {layer} {sublayer}": omega
        for stack in sorted(found, reverse=True)  # the encoder comes first
        for layer in sorted(found[stack])
        for sublayer, omega in sorted(found[stack][layer], key=lambda row: order.index(row[0]))
    }


def export_outlook(config: PreTrainedConfig, omega: dict[str, Tensor]) -> str:
    """The stock class that a model is or becomes, or what stands in the way; `export_standard` has the last word."""
    if not isinstance(config, AdminConfig):
        return f"is a stock {config.model_type} already"
    if config.has_history:
        return f"none: variant {config.variant} has no stock class; share the model with its code"
    if config.positions != "marian" or config.score_padding:
        return "none: stock classes have Marian's positions and never score <pad>; fold still works"
    if config.pad_token_id != config.decoder_vocab_size - 1 or config.decoder_start_token_id != config.pad_token_id:
        return "none: stock tools need <pad> to be the last id and to start the decoder; fold still works"
    if config.variant == "pre_ln":
        if not config.share_encoder_decoder_embeddings:
            return "none: a stock Pegasus has one vocabulary, this model has two"
        return "PegasusForConditionalGeneration"
    for name, w in omega.items():
        if w.abs().min() < SMALLEST_OMEGA:
            return f"none: {name}: ω is too near 0 to be folded"
        if " 0 self_attn" in name and not torch.allclose(w, w[0], rtol=1e-6, atol=0):
            return f"none: {name}: ω of a first sublayer must be uniform to be folded"
    return "MarianMTModel" if config.variant == "post_ln" else "MarianMTModel, folded"
