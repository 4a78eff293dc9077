"""What a configuration accepts, refuses and keeps."""

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, MarianConfig

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminModel

TWO_VOCABULARIES = {"vocab_size": 120, "decoder_vocab_size": 100, "share_encoder_decoder_embeddings": False}
NONSENSE = [
    ("variant", {"variant": "post_norm"}),
    ("omega_rule", {"variant": "admin", "omega_rule": None}),
    ("dlcl_weights", {"variant": "dlcl_pre_ln", "dlcl_weights": "fixed"}),
    ("dlcl_dilation", {"variant": "dlcl_pre_ln", "dlcl_dilation": 0}),
    ("positions", {"positions": "learned"}),
    ("activation_function", {"activation_function": "rely"}),
    ("train_omega", {"variant": "deepnorm", "train_omega": True}),
    ("released_init", {"variant": "t_fixup", "released_init": True}),
    ("encoder_layers", {"encoder_layers": 0}),
    ("encoder_attention_heads", {"d_model": 512, "encoder_attention_heads": 7}),
    ("d_model", {"d_model": 15, "encoder_attention_heads": 5, "decoder_attention_heads": 5}),
    ("max_position_embeddings", {"max_position_embeddings": 0}),
    *((field, {field: 10**9}) for field in ("encoder_layers", "d_model", "vocab_size", "max_position_embeddings")),
    ("eos_token_id", {"eos_token_id": []}),
    ("dropout", {"dropout": float("nan")}),
    ("share_encoder_decoder_embeddings", {"vocab_size": 100, "decoder_vocab_size": 90}),
    ("label_smoothing", {"label_smoothing": 1.0}),
    ("pad_token_id", TWO_VOCABULARIES | {"vocab_size": 90, "pad_token_id": 99}),
    ("encoder_layers", {"encoder_layers": 6.5}),
    ("encoder_layer: .* encoder_layers", {"encoder_layer": 18}),
    *((f"set {ours}", {theirs: 3}) for theirs, ours in {"n_layers": "encoder_layers", "hidden_dim": "d_model"}.items()),
    ("encoder_layerdrop", {"encoder_layerdrop": 0.1}),
]


@pytest.mark.parametrize(("named", "fields"), NONSENSE, ids=lambda value: str(value))
def test_nonsense_is_refused_by_name(named, fields):
    with pytest.raises(StrictDataclassError, match=named):
        AdminConfig(**fields)


def test_a_model_validates_again(tiny_config):
    """`AutoConfig.from_pretrained(folder, variant="preln")` sets fields after the construction."""
    config = tiny_config()
    config.variant = "preln"
    for model in (AdminForConditionalGeneration, AdminModel):
        with pytest.raises(StrictDataclassError, match="variant"):
            model(config)


def test_sizes_may_be_set_after_construction():
    """The idioms of transformers: `vocab_size` set later, one id for padding and the end."""
    config = AdminConfig(vocab_size=100, encoder_layers=1, decoder_layers=1)
    config.vocab_size = 60
    config.pad_token_id = config.decoder_start_token_id = 0
    model = AdminForConditionalGeneration(config)
    assert model.lm_head.out_features == model.get_input_embeddings().num_embeddings == 60


@pytest.mark.parametrize(("fields", "pad"), [(TWO_VOCABULARIES, 99), (TWO_VOCABULARIES | {"vocab_size": 80}, 79)])
def test_ids_follow_marians_layout(fields, pad):
    """Two vocabularies pad with the last id of the smaller one."""
    config = AdminConfig(**fields)
    assert (config.eos_token_id, config.pad_token_id, config.decoder_start_token_id) == (0, pad, pad)
    assert config.decoder_vocab_size == 100
    assert AdminConfig(vocab_size=100).pad_token_id == AdminConfig(vocab_size=100).decoder_vocab_size - 1 == 99


def test_round_trip(tmp_path, tiny_config):
    config = tiny_config(variant="dlcl_post_ln", dlcl_weights="average", dlcl_period=3, positions="fairseq")
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, AdminConfig)
    assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()


def test_the_fields_of_a_marian_are_taken():
    """Also what its files on the Hub still hold from older releases."""
    marian = MarianConfig(vocab_size=100, pad_token_id=99, decoder_start_token_id=99, num_beams=4).to_dict()
    assert AdminConfig(**marian | {"static_position_embeddings": True}).vocab_size == 100
