"""Checkpoints of fairseq: names, settings, refusals, and the translations of a real one."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import GenerationConfig, LogitsProcessorList

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.decoding.search.generation import SentenceLengthLimit
from admin_nmt.model.residual import ScaledPostNorm
from admin_nmt.weights.exporting import ExportError, standard_model
from admin_nmt.weights.fairseq_weights import ConversionError, convert_fairseq

PAD, EOS, UNK = 1, 2, 3
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
            if isinstance(block, ScaledPostNorm):
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


def test_deepnet_with_pre_ln_is_refused(tiny_model):
    state, args = fairseq_checkpoint(tiny_model(**CONVENTIONS, variant="pre_ln"))
    with pytest.raises(ConversionError, match="init_type: 'deepnet'"):
        convert_fairseq(state, args | {"init_type": "deepnet"})


def test_adaptive_without_its_omega_lists_it(tiny_model):
    state, args = fairseq_checkpoint(tiny_model(**CONVENTIONS, variant="post_ln"))
    with pytest.raises(ConversionError, match=r"missing keys: .*layers\.2\.ffn_residual\.omega"):
        convert_fairseq(state, args | {"init_type": "adaptive"})


def test_other_shapes_are_listed(checkpoint):
    state, args = checkpoint
    with pytest.raises(ConversionError, match=r"fc1\.weight is \[32, 16\] instead of \[24, 16\]"):
        convert_fairseq(state, args | {"encoder_ffn_embed_dim": 24})


def test_exporting_says_what_to_do_instead(checkpoint):
    with pytest.raises(ExportError, match="models of fairseq; share it as it is"):
        standard_model(convert_fairseq(*checkpoint))


def test_settings_are_taken_over(checkpoint):
    config = convert_fairseq(*checkpoint).config
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.3, 0.1, 0.2)
    assert config.omega_profiled and config.train_omega
    assert {name: getattr(config, name) for name in CONVENTIONS} == CONVENTIONS


@pytest.mark.parametrize(
    ("argument", "value", "field", "expected"),
    [
        ("no_scale_embedding", True, "scale_embedding", False),
        ("no_scale_embedding", False, "scale_embedding", True),
        ("activation_fn", "gelu", "activation_function", "gelu"),
        ("label_smoothing", 0.3, "label_smoothing", 0.3),
        ("max_target_positions", 2048, "max_position_embeddings", 2048),
    ],
)
def test_each_argument_sets_its_field(checkpoint, argument, value, field, expected):
    state, args = checkpoint
    assert getattr(convert_fairseq(state, args | {argument: value}).config, field) == expected


def test_missing_and_unexpected_keys_are_listed(checkpoint):
    state, args = checkpoint
    del state["encoder.layers.1.fc1.bias"], state["decoder.layers.0.encoder_attn.out_proj.weight"]
    state["decoder.layers.0.adapter.weight"] = torch.ones(1)
    with pytest.raises(ConversionError) as error:
        convert_fairseq(state, args)
    missing, unexpected = str(error.value).split("; unexpected: ")
    assert "model.encoder.layers.1.fc1.bias" in missing
    assert "model.decoder.layers.0.encoder_attn.out_proj.weight" in missing
    assert unexpected == "model.decoder.layers.0.adapter.weight"


def test_missing_arguments_are_named(checkpoint):
    state, args = checkpoint
    del args["dropout"], args["decoder_ffn_embed_dim"]
    with pytest.raises(ConversionError, match="missing arguments: decoder_ffn_embed_dim, dropout"):
        convert_fairseq(state, args)


def test_missing_embedding_is_named(checkpoint):
    state, args = checkpoint
    del state["decoder.embed_tokens.weight"]
    with pytest.raises(ConversionError, match=r"missing keys: decoder\.embed_tokens\.weight"):
        convert_fairseq(state, args)


@pytest.mark.parametrize("name", ["decoder.embed_tokens.weight", "decoder.output_projection.weight"])
def test_tied_embedding_that_differs_is_refused(checkpoint, name):
    state, args = checkpoint
    state[name] = state["decoder.embed_tokens.weight"] + 1e-3
    with pytest.raises(ConversionError, match="tied by the arguments but differ"):
        convert_fairseq(state, args)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_learned_pos", True),
        ("decoder_learned_pos", True),
        ("no_token_positional_embeddings", True),
        ("history_window_size", 3),
        ("normalize_learned_weight", True),
        ("layernorm_embedding", True),
        ("residual_bottom_to_top", True),
        ("dont_use_layernorm", True),
        ("adaptive_softmax_cutoff", "1000,2000"),
        ("no_decoder_final_norm", True),
        ("encoder_layers_to_keep", "0,2"),
        ("init_type", "rezero"),
        ("decoder_embed_dim", 32),
        ("decoder_normalize_before", True),
    ],
)
def test_unsupported_setting_is_named(checkpoint, name, value):
    state, args = checkpoint
    with pytest.raises(ConversionError, match=name):
        convert_fairseq(state, args | {name: value})


@pytest.fixture(scope="module")
def clinic(shared):
    """Folder, model and translations of the checkpoint that the authors' code trained and decoded."""
    folder = shared / "reference" / "clinic-ckpt-admin"
    args = json.loads((folder / "meta.json").read_text())["args"]
    model = convert_fairseq(load_file(folder / "state.safetensors"), args)
    return folder, model, json.loads((folder / "generate.json").read_text())


def symbols(path) -> list[str]:
    """A fairseq dictionary: the symbol of each id."""
    return ["<s>", "<pad>", "</s>", "<unk>", *(line.split(" ")[0] for line in path.read_text().splitlines())]


def translate(model: AdminForConditionalGeneration, source: list[int], kwargs: dict) -> list[int]:
    """`generate` with the settings that make it fairseq's beam search; ids with `</s>`, without the decoder's start."""
    config = GenerationConfig(
        num_beams=kwargs["beam_size"],
        early_stopping=kwargs["beam_size"] > 1,
        length_penalty=kwargs.get("len_penalty", 1.0),
        min_new_tokens=1,
        suppress_tokens=[PAD],
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
    )
    limit = int(kwargs.get("max_len_a", 0) * len(source) + kwargs["max_len_b"])
    config.max_new_tokens = limit + 1
    processors = LogitsProcessorList([SentenceLengthLimit(torch.tensor([limit]), [EOS])])
    ids = torch.tensor([source])
    output = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config, logits_processor=processors
    )
    return output[0, 1:].tolist()


@pytest.mark.shared
@pytest.mark.parametrize("search", ["beam5", "beam4_lp06", "beam5_la12_lb10", "greedy"])
def test_translations_of_a_real_checkpoint(clinic, search):
    """All 20 sentences token for token, also with a length penalty and where the length limit cuts."""
    _, model, reference = clinic
    sentences = reference[search]["one_sentence_per_batch"]
    assert len(sentences) == 20
    for sentence in sentences:
        expected = sentence["nbest"][0]["tokens"]
        assert translate(model, sentence["src_tokens"], reference[search]["kwargs"]) == expected, sentence["id"]


@pytest.mark.shared
def test_text_of_a_real_checkpoint(clinic):
    """The ids of the test above stand for the text that the authors' `fairseq-generate` read and wrote."""
    folder, _, reference = clinic
    source_symbols, target_symbols = symbols(folder / "dict.en.txt"), symbols(folder / "dict.de.txt")
    sources = (folder / "src20.bpe.en").read_text().splitlines()
    hypotheses = [line.split("\t")[2] for line in (folder / "hyp20.beam5.tsv").read_text().splitlines()]
    sentences = reference["beam5"]["one_sentence_per_batch"]
    for sentence, source, hypothesis in zip(sentences, sources, hypotheses, strict=True):
        ids = [source_symbols.index(symbol) if symbol in source_symbols else UNK for symbol in source.split()]
        assert sentence["src_tokens"] == [*ids, EOS]
        assert " ".join(target_symbols[token] for token in sentence["nbest"][0]["tokens"][:-1]) == hypothesis


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_layers", 10**9),
        ("decoder_layers", "many"),
        ("encoder_ffn_embed_dim", 10**9),
        ("encoder_embed_dim", 10**9),
        ("max_source_positions", 10**12),
        ("dropout", "x" * 10**6),
    ],
)
def test_settings_that_the_weights_do_not_have_are_refused_before_a_model_is_built(tiny_model, name, value):
    """A few kilobytes can say that they are a model of any size."""
    state, args = fairseq_checkpoint(tiny_model(**CONVENTIONS))
    if name == "encoder_embed_dim":
        args["decoder_embed_dim"] = value
    with pytest.raises(ConversionError, match=name.removesuffix("_embed_dim") if "embed" in name else name) as told:
        convert_fairseq(state, args | {name: value})
    assert len(str(told.value)) < 1000
