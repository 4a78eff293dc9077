"""A folded model is a standard Transformer with the same outputs."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_outputs import outputs
from toy import randomised
from transformers import MarianMTModel

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.model.configuration_admin import VARIANTS
from admin_nmt.weights.exporting import standard_model
from admin_nmt.weights.folding import FoldingError, fold_checked, fold_omega
from admin_nmt.weights.omega import omega_keys, sublayer_names

FOLDED = ("post_ln", "admin", "deepnorm", "ds_init")
DEPTHS = [(1, 1), (18, 18), pytest.param(60, 12, marks=pytest.mark.slow)]
TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-9}


@pytest.fixture
def inputs(batch) -> dict[str, torch.Tensor]:
    decoder_ids = torch.randint(2, 98, (3, 7))
    decoder_ids[:, 0] = 98
    return {name: batch[name] for name in ("input_ids", "attention_mask")} | {"decoder_input_ids": decoder_ids}


@torch.no_grad()
def logits(model, inputs) -> torch.Tensor:
    return model(**inputs).logits


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("encoder", "decoder"), DEPTHS)
def test_stock_marian_computes_the_same(tiny_model, inputs, tmp_path, encoder, decoder, dtype):
    """At every depth, for any ω; test_exporting.py does so where this package was never imported."""
    model = tiny_model(encoder_layers=encoder, decoder_layers=decoder).to(dtype)
    standard_model(model).save_pretrained(tmp_path)
    ours, stock = outputs(model, None, **inputs), outputs(MarianMTModel.from_pretrained(tmp_path), None, **inputs)
    assert stock["logits"].dtype == dtype
    assert (ours["logits"] - stock["logits"]).abs().max() < TOLERANCES[dtype]
    assert ours["beams"] == stock["beams"]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0, 2), sign=st.sampled_from([1.0, -1.0]), trained=st.booleans())
@torch.no_grad()
def test_any_omega_folds(tiny_model, inputs, seed, spread, sign, trained):
    """ω_i = ±exp(spread · N(0, 1)) in every sublayer but the first."""
    model = tiny_model(train_omega=trained).double()
    generator = torch.Generator().manual_seed(seed)
    for name, omega in model.state_dict().items():
        if name.endswith("omega") and "layers.0.self_attn" not in name:
            omega.copy_(sign * (spread * torch.randn(omega.shape, generator=generator)).exp().clamp(min=1e-2))
    torch.testing.assert_close(logits(fold_omega(model), inputs), logits(model, inputs), atol=1e-9, rtol=0)


@pytest.mark.parametrize("fields", [{"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False}])
def test_folded_model_is_saved_and_loaded(tiny_model, inputs, tmp_path, fields):
    model = tiny_model(**fields)
    fold_omega(model).save_pretrained(tmp_path)
    reloaded = AdminForConditionalGeneration.from_pretrained(tmp_path)
    torch.testing.assert_close(logits(reloaded, inputs), logits(model, inputs), atol=1e-5, rtol=0)
    untied = model.lm_head.weight is not model.model.decoder.embed_tokens.weight
    assert (reloaded.lm_head.weight is not reloaded.model.decoder.embed_tokens.weight) == untied


@pytest.mark.parametrize(
    ("fields", "first_omega"),
    [
        *(({}, scale) for scale in (0.5, 6.0)),
        *(
            ({"encoder_layers": 18, "decoder_layers": 18} | closed_form, None)
            for closed_form in ({"variant": "deepnorm"}, {"omega_rule": "log_n"}, {"omega_rule": "n"})
        ),
    ],
    ids=str,
)
def test_a_uniform_first_omega_folds_up_to_epsilon(tiny_config, inputs, fields, first_omega):
    """ε of the first LayerNorm is not scaled along."""
    model = AdminForConditionalGeneration(tiny_config(**fields))
    if first_omega is not None:
        model = randomised(model, first_omega)
    model = model.double().eval()
    expected = logits(model, inputs)[..., :-1]
    error = (logits(fold_omega(model), inputs)[..., :-1] - expected).abs().max()
    assert 0 < error < 5e-5 * expected.abs().max()


def test_layernorm_scaling_becomes_pre_ln(tiny_model, inputs):
    model = tiny_model(variant="ln_scaling").double()
    plain = fold_checked(model)
    assert plain.config.variant == "pre_ln"
    torch.testing.assert_close(logits(plain, inputs), logits(model, inputs), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"variant": "deepnorm"},
        {"variant": "ds_init", "released_init": True},
        {"train_omega": True},
        {"variant": "ln_scaling"},
    ],
    ids=str,
)
def test_leaves_the_model_alone(tiny_model, fields):
    model = tiny_model(**fields).train()
    model.generation_config.num_beams = 5
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain = fold_checked(model)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.config.variant == fields.get("variant", "admin")
    assert plain.training and plain.generation_config.num_beams == 5
    assert not any("omega" in name for name in plain.state_dict())


@pytest.mark.parametrize(
    ("stack", "layer", "sublayer", "omega"),
    [
        ("encoder", 0, "self_attn", torch.linspace(1, 2, 16)),
        ("decoder", 0, "self_attn", torch.full((16,), -1.0)),
        *(("decoder", 1, "encoder_attn", torch.ones(16).index_fill(0, torch.tensor(5), x)) for x in (9e-4, torch.nan)),
    ],
    ids=["first, not uniform", "first, negative", "near zero", "nan"],
)
@torch.no_grad()
def test_omega_that_cannot_be_folded_is_named(tiny_model, stack, layer, sublayer, omega):
    model = tiny_model()
    model.get_buffer(f"model.{stack}.layers.{layer}.{sublayer}_residual.omega").copy_(omega)
    with pytest.raises(FoldingError, match=f"{stack} {layer} {sublayer}: "):
        fold_omega(model)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in FOLDED])
def test_other_variants_are_refused_by_name(tiny_model, variant):
    with pytest.raises(FoldingError, match=variant):
        fold_omega(tiny_model(variant=variant))


@pytest.mark.parametrize("variant", ["admin", "ln_scaling"])
def test_half_precision_is_refused(tiny_model, variant):
    with pytest.raises(FoldingError, match="bfloat16"):
        fold_checked(tiny_model(variant=variant).bfloat16())


@pytest.mark.parametrize("variant", VARIANTS)
def test_omega_of_every_sublayer_has_a_name(tiny_model, variant):
    model = tiny_model(variant=variant)
    keys = omega_keys(model.config)
    assert sorted(keys.values()) == sorted(name for name in model.state_dict() if name.endswith(".omega"))
    assert list(keys) == (sublayer_names(model.config) if keys else [])
