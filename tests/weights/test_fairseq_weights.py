"""Checkpoints of fairseq: names, settings and refusals; a real one is translated with in test_fairseq_folder.py."""

import pytest
import torch

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.model.residual import AdminPostNorm
from admin_nmt.weights.fairseq_weights import ConversionError, convert_fairseq

PAD, EOS = 1, 2
CONVENTIONS = {
    "positions": "fairseq",
    "score_padding": True,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "decoder_start_token_id": EOS,
}
NORMS = {
    "self_attn_residual": "self_attn_layer_norm",
    "encoder_attn_residual": "encoder_attn_layer_norm",
    "ffn_residual": "final_layer_norm",
}
OMEGAS = {
    "encoder": {"self_attn_residual": "attention_ratio_change", "ffn_residual": "fc_ratio_change"},
    "decoder": {
        "self_attn_residual": "self_ratio_change",
        "encoder_attn_residual": "encoder_ratio_change",
        "ffn_residual": "fc_ratio_change",
    },
}


def fairseq_name(name: str, dlcl: bool) -> str:
    """What fairseq calls a parameter that we call `name`."""
    parts = name.split(".")
    if parts[1] == "history" and parts[2] == "layer_norms":
        parts[3] = str(int(parts[3]) + 1)
    elif parts[1] == "layers" and parts[3].endswith("_residual"):
        omegas = OMEGAS[parts[0]]
        if parts[4] == "omega":
            parts[3:] = [omegas[parts[3]]]
        elif dlcl:
            parts[3:5] = ["layer_norms", str(list(omegas).index(parts[3]))]
        else:
            parts[3:5] = [NORMS[parts[3]]]
    return ".".join(parts)


def fairseq_checkpoint(model: AdminForConditionalGeneration, fused: bool | str = True) -> tuple[dict, dict]:
    """The `model` entry and the arguments of a fairseq checkpoint that holds this model."""
    config = model.config
    weights = {name.removeprefix("model."): tensor.clone() for name, tensor in model.state_dict().items()}
    state = {"encoder.version": torch.ones(1), "decoder.embed_positions._float_tensor": torch.ones(1)}
    if not config.tie_word_embeddings:
        state["decoder.embed_out"] = weights["lm_head.weight"]
    for name in weights.keys() - {"shared.weight", "lm_head.weight"}:
        theirs, tensor = fairseq_name(name, config.has_history), weights[name]
        if config.variant == "deepnorm" and name.endswith("omega"):
            continue
        if fused == "bias" and name.endswith("_proj.weight") and "out_proj" not in name:
            state[theirs.replace("_proj.weight", "_proj_weight")] = tensor
            continue
        if fused and (".k_proj" in name or ".v_proj" in name):
            continue
        if fused and ".q_proj" in name:
            theirs = theirs.replace("q_proj.", "in_proj_")
            tensor = torch.cat([weights[name.replace("q_proj", f"{part}_proj")] for part in "qkv"])
        state[theirs] = tensor[..., None] if name.endswith("history.weight") else tensor
    return state, fairseq_arguments(config)


def fairseq_arguments(config: AdminConfig) -> dict:
    args = {
        "share_all_embeddings": config.share_encoder_decoder_embeddings,
        "share_decoder_input_output_embed": config.tie_word_embeddings,
        "dropout": 0.3,
        "attention_dropout": 0.1,
        "relu_dropout": 0.2,
        "label_smoothing": 0.1,
    }
    for stack in ("encoder", "decoder"):
        args[f"{stack}_layers"] = getattr(config, f"{stack}_layers")
        args[f"{stack}_embed_dim"] = config.d_model
        args[f"{stack}_ffn_embed_dim"] = getattr(config, f"{stack}_ffn_dim")
        args[f"{stack}_attention_heads"] = getattr(config, f"{stack}_attention_heads")
        args[f"{stack}_normalize_before"] = config.normalizes_before
    if config.variant in ("admin", "deepnorm"):
        args["init_type"] = {"admin": "adaptive", "deepnorm": "deepnet"}[config.variant]
    return args


@torch.no_grad()
def logits(model: AdminForConditionalGeneration, batch: dict) -> torch.Tensor:
    return model(batch["input_ids"], batch["attention_mask"], batch["input_ids"].roll(1, 1)).logits


@pytest.fixture
def checkpoint(tiny_model):
    return fairseq_checkpoint(tiny_model(**CONVENTIONS, train_omega=True))


@pytest.mark.parametrize(
    "fields",
    [
        {"variant": "post_ln"},
        {"variant": "admin"},
        {"variant": "pre_ln"},
        {"variant": "dlcl_pre_ln"},
        {"variant": "dlcl_post_ln"},
        {"variant": "deepnorm"},
        {"share_encoder_decoder_embeddings": False, "vocab_size": 120, "decoder_vocab_size": 99},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    ],
)
@pytest.mark.parametrize("fused", [True, False, "bias"])
def test_round_trip(tiny_model, batch, fields, fused, tmp_path):
    model = tiny_model(**CONVENTIONS, **fields)
    if model.config.variant == "deepnorm":  # whose α follows from the depth alone
        for block in model.modules():
            if isinstance(block, AdminPostNorm):
                block.omega.fill_(block.initial_omega)
    convert_fairseq(*fairseq_checkpoint(model, fused)).save_pretrained(tmp_path)
    converted = AdminForConditionalGeneration.from_pretrained(tmp_path)
    assert converted.config.variant == model.config.variant
    assert torch.equal(logits(converted, batch), logits(model, batch))


def test_simple_dlcl_numbers_its_norms_from_0(tiny_model, batch):
    model = tiny_model(**CONVENTIONS, variant="dlcl_pre_ln")
    state, args = fairseq_checkpoint(model)
    for stack in ("encoder", "decoder"):
        for index in range(args[f"{stack}_layers"]):
            for part in ("weight", "bias"):
                norm = f"{stack}.history.layer_norms"
                state[f"{norm}.{index}.{part}"] = state.pop(f"{norm}.{index + 1}.{part}")
        state[f"{stack}.history.weight"] = state[f"{stack}.history.weight"][:, :, 0]
    assert torch.equal(logits(convert_fairseq(state, args), batch), logits(model, batch))


@pytest.mark.parametrize("tied", [True, False])
def test_averaged_file_stores_the_embedding_several_times(tiny_model, batch, tied):
    fields = {} if tied else {"share_encoder_decoder_embeddings": False}
    model = tiny_model(**CONVENTIONS, **fields)
    state, args = fairseq_checkpoint(model, fused=False)
    state["decoder.output_projection.weight"] = state["decoder.embed_tokens.weight"].clone()
    assert torch.equal(logits(convert_fairseq(state, args), batch), logits(model, batch))


def test_each_argument_sets_its_field(checkpoint):
    state, args = checkpoint
    assert convert_fairseq(state, args).config.scale_embedding
    args |= {"no_scale_embedding": True, "activation_fn": "gelu", "max_target_positions": 2048}
    config = convert_fairseq(state, args).config
    expected = {"scale_embedding": False, "activation_function": "gelu", "max_position_embeddings": 2048}
    expected |= {"label_smoothing": 0.1, "dropout": 0.3, "attention_dropout": 0.1, "activation_dropout": 0.2}
    expected |= {"omega_profiled": True, "train_omega": True}
    assert {field: getattr(config, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("removed", "added", "named"),
    [
        ("encoder.layers.1.fc1.bias", {}, r"missing.*model\.encoder\.layers\.1\.fc1\.bias"),
        ("encoder.layers.2.fc_ratio_change", {}, r"missing.*layers\.2\.ffn_residual\.omega"),
        (None, {"decoder.adapter.weight": torch.ones(1)}, r"unexpected.*decoder\.adapter\.weight"),
        (None, {"decoder.layers.0.fc1.bias": torch.ones(1)}, r"fc1\.bias is \[1\]"),
        (None, {"decoder.embed_tokens.weight": torch.ones(99, 16)}, "tied"),
        (None, {"decoder.output_projection.weight": torch.ones(99, 16)}, "tied"),
    ],
)
def test_tensors_that_do_not_fit_are_named(checkpoint, removed, added, named):
    state, args = checkpoint
    with pytest.raises(ConversionError, match=named):
        convert_fairseq({name: tensor for name, tensor in state.items() if name != removed} | added, args)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_learned_pos", True),
        ("history_window_size", 3),
        ("init_type", "rezero"),
        ("decoder_embed_dim", 32),
        ("decoder_normalize_before", True),
        ("encoder_layers", 10**9),
        ("decoder_layers", "many"),
        ("dropout", "x" * 10**6),
        ("decoder_ffn_embed_dim", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_unsupported_setting_is_named(checkpoint, name, value):
    """Also sizes that the weights do not have, before a model is built: a small file can say that it is of any size."""
    state, args = checkpoint
    with pytest.raises(ConversionError, match=name) as refusal:
        convert_fairseq(state, {key: setting for key, setting in (args | {name: value}).items() if setting is not None})
    assert len(str(refusal.value)) < 1000
