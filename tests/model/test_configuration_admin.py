"""What a configuration accepts, refuses and keeps."""

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, MarianConfig

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminModel
from admin_nmt.model.configuration_admin import VARIANTS

TWO_VOCABULARIES = {"vocab_size": 120, "decoder_vocab_size": 100, "share_encoder_decoder_embeddings": False}
NONSENSE = [
    ("variant", {"variant": "post_norm"}),
    ("omega_rule", {"variant": "admin", "omega_rule": None}),
    ("omega_rule", {"variant": "admin", "omega_rule": "log"}),
    ("dlcl_weights", {"variant": "dlcl_pre_ln", "dlcl_weights": "fixed"}),
    ("dlcl_dilation", {"variant": "dlcl_pre_ln", "dlcl_dilation": 0}),
    ("dlcl_period", {"variant": "dlcl_pre_ln", "dlcl_period": -1}),
    ("encoder_layers", {"variant": "transparent_pre_ln", "encoder_layers": 0}),
    ("decoder_layers", {"variant": "transparent_post_ln", "decoder_layers": 0}),
    ("positions", {"positions": "learned"}),
    ("activation_function", {"activation_function": "rely"}),
    ("train_omega", {"variant": "pre_ln", "train_omega": True}),
    ("train_omega", {"variant": "deepnorm", "train_omega": True}),
    ("released_init", {"variant": "t_fixup", "released_init": True}),
    ("encoder_layers", {"variant": "t_fixup", "encoder_layers": 0}),
    ("encoder_layers", {"variant": "dlcl_pre_ln", "encoder_layers": 0}),
    ("decoder_layers", {"variant": "dlcl_post_ln", "decoder_layers": 0}),
    ("encoder_layers", {"variant": "admin", "encoder_layers": 0}),
    ("decoder_layers", {"variant": "post_ln", "decoder_layers": -1}),
    ("decoder_layers", {"variant": "post_ln", "decoder_layers": 0}),
    ("encoder_attention_heads", {"d_model": 512, "encoder_attention_heads": 7}),
    ("decoder_attention_heads", {"d_model": 512, "decoder_attention_heads": 12}),
    ("decoder_attention_heads", {"decoder_attention_heads": 0}),
    ("d_model", {"d_model": 15, "encoder_attention_heads": 5, "decoder_attention_heads": 5}),
    ("encoder_ffn_dim", {"encoder_ffn_dim": 0}),
    ("vocab_size", {"vocab_size": 0}),
    ("max_position_embeddings", {"max_position_embeddings": 0}),
    ("share_encoder_decoder_embeddings", {"vocab_size": 100, "decoder_vocab_size": 90}),
    ("dropout", {"dropout": 1.5}),
    ("attention_dropout", {"attention_dropout": -0.1}),
    ("activation_dropout", {"activation_dropout": 1}),
    ("label_smoothing", {"label_smoothing": 1.0}),
    ("pad_token_id", {"vocab_size": 100, "pad_token_id": 100}),
    ("pad_token_id", TWO_VOCABULARIES | {"vocab_size": 90, "pad_token_id": 99}),
    ("d_model", {"d_model": "512"}),
    ("encoder_layers", {"encoder_layers": 6.5}),
    ("train_omega", {"train_omega": "yes"}),
    ("label_smoothing", {"label_smoothing": None}),
    (r"encoder_layer: .* did you mean encoder_layers\?", {"encoder_layer": 18}),
    (r"varient: .* did you mean variant\?", {"varient": "pre_ln"}),
    ("encoder_layerdrop: 0.1, but no layer is ever left out", {"encoder_layerdrop": 0.1}),
]


@pytest.mark.parametrize(("named", "fields"), NONSENSE, ids=lambda value: str(value))
def test_nonsense_is_refused_by_name(named, fields):
    with pytest.raises(StrictDataclassError, match=named):
        AdminConfig(**fields)


def test_what_computes_is_built_though_it_may_not_be_meant():
    """The idioms of transformers: `vocab_size` set after construction, one id for padding and the end."""
    config = AdminConfig(vocab_size=100, encoder_layers=1, decoder_layers=1)
    config.vocab_size = 60
    config.pad_token_id = config.decoder_start_token_id = 59
    model = AdminForConditionalGeneration(config)
    assert model.lm_head.out_features == model.get_input_embeddings().num_embeddings == 60
    assert AdminForConditionalGeneration(AdminConfig(vocab_size=100, pad_token_id=0)).config.pad_token_id == 0


def test_ids_follow_marians_layout():
    config = AdminConfig(vocab_size=100)
    assert (config.eos_token_id, config.pad_token_id, config.decoder_start_token_id) == (0, 99, 99)
    assert config.decoder_vocab_size == 100


@pytest.mark.parametrize(("source", "pad"), [(120, 99), (100, 99), (80, 79)])
def test_two_vocabularies_pad_with_the_last_id_of_the_smaller_one(source, pad):
    config = AdminConfig(**TWO_VOCABULARIES | {"vocab_size": source})
    assert (config.pad_token_id, config.decoder_start_token_id) == (pad, pad)


def test_a_rule_for_omega_is_asked_of_admin_alone():
    assert AdminConfig(variant="post_ln", omega_rule=None).omega_rule is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_round_trip(tmp_path, tiny_config, variant):
    config = tiny_config(
        variant=variant,
        train_omega=variant == "admin",
        omega_profiled=variant == "admin",
        omega_rule="profile_reference",
        dlcl_weights="average",
        dlcl_normalize_history=False,
        dlcl_dilation=2,
        dlcl_period=3,
        label_smoothing=0.2,
        positions="fairseq",
        score_padding=True,
    )
    config.save_pretrained(tmp_path)
    for loaded in (AdminConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert isinstance(loaded, AdminConfig)
        assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()


@pytest.mark.parametrize("field", ["variant", "positions", "encoder_attention_heads"])
def test_a_model_validates_again(tmp_path, tiny_config, field):
    """`AutoConfig.from_pretrained(folder, variant="preln")` sets fields after the construction."""
    wrong = {"variant": "preln", "positions": "fairsec", "encoder_attention_heads": 3}[field]
    tiny_config().save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    setattr(config, field, wrong)
    for model in (AdminForConditionalGeneration, AdminModel):
        with pytest.raises(StrictDataclassError, match=field):
            model(config)


def test_the_fields_of_a_marian_are_taken(tmp_path):
    """Also what its files on the Hub still hold from older releases."""
    marian = MarianConfig(vocab_size=100, pad_token_id=99, decoder_start_token_id=99, num_beams=4).to_dict()
    config = AdminConfig(**marian | {"static_position_embeddings": True})
    assert (config.vocab_size, config.encoder_layerdrop) == (100, 0.0)


def test_a_misspelt_field_that_was_set_later_is_found(tiny_config):
    config = tiny_config()
    config.omega_rules = "n"
    with pytest.raises(StrictDataclassError, match="did you mean omega_rule"):
        AdminModel(config)


def test_saving_validates_again(tmp_path, tiny_config):
    config = tiny_config()
    config.variant = "post_norm"
    with pytest.raises(StrictDataclassError, match="variant"):
        config.save_pretrained(tmp_path)
