"""Turn checkpoints of fairseq into models: stock `transformer`, Transformer-Clinic and the authors' DLCL forks."""

import re
import reprlib
from collections.abc import Mapping
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from ..model.configuration_admin import AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration
from ..model.sublayers import NORM_NAMES, SUBLAYERS, Stack

# Transformer-Clinic names ω after the sublayer, in the encoder differently than in the decoder.
OMEGA_NAMES = {
    "attention_ratio_change": "self_attn_residual.omega",
    "self_ratio_change": "self_attn_residual.omega",
    "encoder_ratio_change": "encoder_attn_residual.omega",
    "fc_ratio_change": "ffn_residual.omega",
}
# Arguments that change what is computed, with the only value that we can follow; None and "" mean the default too.
SUPPORTED = {
    "encoder_learned_pos": False,
    "decoder_learned_pos": False,
    "no_token_positional_embeddings": False,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "layernorm_embedding": False,
    "no_decoder_final_norm": False,
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "char_inputs": False,
    "merge_src_tgt_embed": False,
    "encoder_layers_to_keep": None,
    "decoder_layers_to_keep": None,
    "normalize_embed": False,
    "normalize_learned_weight": False,
    "history_window_size": -1,
    "weight_type": "scalar",
    "residual_bottom_to_top": False,
    "dont_use_layernorm": False,
}
# Transformer-Clinic's initialisations; of those it has besides, rezero computes something else.
INIT_TYPES = ("default", "adaptive", "adaptive-profiling", "deepnet")
IGNORED_KEYS = re.compile(r"(^|\.)(version|_float_tensor)$")
EOS, PAD = 2, 1


class ConversionError(ValueError):
    """The checkpoint has keys or settings that do not fit; the message lists them."""


def rename_fairseq(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters (or gradients) under fairseq's names → under ours, the fused q, k, v split.

    Embeddings come out as `model.encoder.embed_tokens.weight` and `model.decoder.embed_tokens.weight`, an output layer
    of its own as `lm_head.weight`.
    """
    renamed: dict[str, Tensor] = {}
    # The simple of the two DLCL forks has no LayerNorm for the embedding and numbers those of the layers from 0.
    simple_dlcl = any(name.endswith("history.layer_norms.0.weight") for name in state)
    for name, tensor in state.items():
        if IGNORED_KEYS.search(name):
            continue
        if name in ("decoder.embed_out", "decoder.output_projection.weight"):
            renamed["lm_head.weight"] = tensor
        elif match := re.fullmatch(r"(.*history\.layer_norms)\.(\d+)\.(\w+)", name):
            renamed[f"model.{match[1]}.{int(match[2]) - (not simple_dlcl)}.{match[3]}"] = tensor
        elif match := re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name):
            for part, chunk in zip("qkv", tensor.chunk(3), strict=True):
                renamed[f"model.{match[1]}.{part}_proj.{match[2]}"] = chunk
        elif name.endswith("history.weight"):
            renamed[f"model.{name}"] = tensor.squeeze(2) if tensor.dim() == 3 else tensor
        else:
            renamed[f"model.{_rename(name)}"] = tensor
    return renamed


def _rename(name: str) -> str:
    if match := re.fullmatch(r"(encoder|decoder)(\.layers\.\d+)\.layer_norms\.(\d)\.(\w+)", name):
        sublayer = SUBLAYERS[cast(Stack, match[1])][int(match[3])]  # DLCL numbers the LayerNorms of a layer instead
        return f"{match[1]}{match[2]}.{sublayer}_residual.layer_norm.{match[4]}"
    name = re.sub(r"\.([qkv])_proj_weight$", r".\1_proj.weight", name)  # beside a fused bias
    for theirs, ours in {**OMEGA_NAMES, **NORM_NAMES}.items():
        name = re.sub(rf"\.{theirs}(?=\.|$)", f".{ours}", name)
    return name


def fairseq_config(state: Mapping[str, Tensor], args: Mapping[str, Any]) -> AdminConfig:
    """The configuration of a checkpoint with these parameters and training arguments.

    Raises:
        ConversionError: naming the argument that is not supported.
        KeyError: of an argument or an embedding that is missing.
    """
    for name, supported in SUPPORTED.items():
        if (args.get(name) or supported) != supported:
            raise ConversionError(f"{name}: {reprlib.repr(args[name])} is not supported, only {supported!r}")
    if args["encoder_embed_dim"] != args["decoder_embed_dim"]:
        raise ConversionError("decoder_embed_dim: differs from encoder_embed_dim, which is not supported")
    _check_sizes(state, args)
    variant = _variant(state, args)
    omega = {"omega_rule": "profile_reference", "omega_profiled": True, "train_omega": True}
    return AdminConfig(
        variant=variant,
        **(omega if variant == "admin" else {}),
        vocab_size=len(state["encoder.embed_tokens.weight"]),
        decoder_vocab_size=len(state["decoder.embed_tokens.weight"]),
        d_model=args["encoder_embed_dim"],
        **{
            f"{stack}_{ours}": args[f"{stack}_{theirs}"]
            for stack in ("encoder", "decoder")
            for ours, theirs in {
                "layers": "layers",
                "ffn_dim": "ffn_embed_dim",
                "attention_heads": "attention_heads",
            }.items()
        },
        max_position_embeddings=max(args.get("max_source_positions", 1024), args.get("max_target_positions", 1024)),
        activation_function=args.get("activation_fn", "relu"),
        scale_embedding=not args.get("no_scale_embedding", False),
        dropout=args["dropout"],
        attention_dropout=args["attention_dropout"],
        activation_dropout=args.get("activation_dropout") or args.get("relu_dropout") or 0.0,
        label_smoothing=args.get("label_smoothing", 0.0),
        share_encoder_decoder_embeddings=bool(args.get("share_all_embeddings")),
        tie_word_embeddings=bool(args.get("share_all_embeddings") or args.get("share_decoder_input_output_embed")),
        positions="fairseq",
        score_padding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
    )


def _variant(state: Mapping[str, Tensor], args: Mapping[str, Any]) -> str:
    before = [bool(args.get(f"{stack}_normalize_before")) for stack in ("encoder", "decoder")]
    if before[0] != before[1]:
        raise ConversionError("decoder_normalize_before: differs from encoder_normalize_before, which is not supported")
    if "encoder.history.weight" in state:
        return "dlcl_pre_ln" if before[0] else "dlcl_post_ln"
    if (init_type := args.get("init_type") or "default") not in INIT_TYPES:
        raise ConversionError(f"init_type: {init_type!r} is not supported, only {', '.join(INIT_TYPES)}")
    if init_type == "deepnet":
        if before[0]:
            raise ConversionError("init_type: 'deepnet' is supported without encoder_normalize_before only")
        return "deepnorm"
    if "adaptive" in init_type or any("ratio_change" in name for name in state):
        return "admin"
    return "pre_ln" if before[0] else "post_ln"


def _check_sizes(state: Mapping[str, Tensor], args: Mapping[str, Any]) -> None:
    """Refuse settings that are larger than the weights, before anything is built that large."""
    for stack in ("encoder", "decoder"):
        layers = {name.split(".")[2] for name in state if name.startswith(f"{stack}.layers.")}
        inner = [len(tensor) for name, tensor in state.items() if re.fullmatch(rf"{stack}\..*\.fc1\.weight", name)]
        stored = {
            f"{stack}_layers": len(layers),
            f"{stack}_embed_dim": state[f"{stack}.embed_tokens.weight"].shape[-1],
            f"{stack}_ffn_embed_dim": max(inner, default=0),
        }
        for name, size in stored.items():
            if not isinstance(args[name], int) or args[name] > size:
                raise ConversionError(f"{name}: is {reprlib.repr(args[name])}, but the weights have {size}")


def convert_fairseq(state_dict: Mapping[str, Tensor], args: Mapping[str, Any]) -> AdminForConditionalGeneration:
    """Build the model of a fairseq checkpoint: same token ids, same logits.

    Args:
        state_dict: its `model` entry.
        args: its training arguments as a dictionary.

    Raises:
        ConversionError: naming a setting that is missing or not supported; listing every missing and unexpected key,
            every one of another shape, and the embeddings that should be tied but differ.
    """
    try:
        config = fairseq_config(state_dict, args)
    except KeyError as error:
        raise ConversionError(f"missing: {error.args[0]}") from error
    except StrictDataclassError as error:
        raise ConversionError(f"its settings are no model's: {' '.join(str(error).split())[:200]}") from error
    model = AdminForConditionalGeneration(config)
    state = rename_fairseq(state_dict)
    if config.share_encoder_decoder_embeddings:
        state["model.shared.weight"] = state["model.encoder.embed_tokens.weight"]
    if config.tie_word_embeddings:
        state.setdefault("lm_head.weight", state["model.decoder.embed_tokens.weight"])
    _check_ties(config, state)
    if config.variant == "deepnorm":  # whose α is no parameter there
        state |= {name: tensor for name, tensor in model.state_dict().items() if name.endswith(".omega")}
    _check_keys(model.state_dict(), state)
    model.load_state_dict(state)
    return model.eval()


def _check_keys(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    missing, unexpected = (
        ", ".join(name for name in first if name not in second) or "none"
        for first, second in ((expected, state), (state, expected))
    )
    if missing != "none" or unexpected != "none":
        raise ConversionError(f"missing keys: {missing}; unexpected: {unexpected}")
    misshapen = [
        f"{name} is {list(state[name].shape)} instead of {list(tensor.shape)}"
        for name, tensor in expected.items()
        if state[name].shape != tensor.shape
    ]
    if misshapen:
        raise ConversionError(f"shapes do not fit the arguments: {', '.join(misshapen)}")


def _check_ties(config: AdminConfig, state: Mapping[str, Tensor]) -> None:
    names = []
    if config.share_encoder_decoder_embeddings:
        names.append(("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"))
    if config.tie_word_embeddings:
        names.append(("model.decoder.embed_tokens.weight", "lm_head.weight"))
    for first, second in names:
        if not torch.equal(state[first], state[second]):
            raise ConversionError(f"{first} and {second} are tied by the arguments but differ in the checkpoint")


__all__ = ["ConversionError", "convert_fairseq", "fairseq_config", "rename_fairseq"]
