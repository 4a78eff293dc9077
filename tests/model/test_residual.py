"""Each residual block against its equation."""

import pytest
import torch
from torch.nn.functional import layer_norm

from admin_nmt.model.configuration_admin import PAPERS, VARIANTS
from admin_nmt.model.residual import PostNorm, PreNorm, Residual, ScaledPostNorm, residual_block
from admin_nmt.model.rivals import rival_block
from admin_nmt.model.sublayers import omega_keys, sublayer_names

BLOCKS = {
    "post_ln": PostNorm,
    "admin": ScaledPostNorm,
    "pre_ln": PreNorm,
    "dlcl_pre_ln": PreNorm,
    "dlcl_post_ln": PostNorm,
}
LAST = (2, "ffn")  # the last sublayer of the third layer, where all variants differ


@pytest.fixture
def block(tiny_config):
    """Builds the block of a variant, with random gain, bias and ω."""

    def build(variant: str, **fields) -> Residual:
        build_block = residual_block if variant in PAPERS else rival_block
        block = build_block(tiny_config(variant=variant, **fields), "encoder", *LAST)
        for tensor in (*block.parameters(), *block.buffers()):
            tensor.data.normal_(1, 0.5)
        return block

    return build


@pytest.mark.parametrize("variant", PAPERS)
def test_every_variant_has_its_block(tiny_config, variant):
    assert type(residual_block(tiny_config(variant=variant), "decoder", *LAST)) is BLOCKS[variant]


@pytest.mark.parametrize(
    "variant", ["post_ln", "admin", "pre_ln", "deepnorm", "b2t", "ds_init", "t_fixup", "ln_scaling"]
)
def test_equation(block, variant):
    block = block(variant)
    x, layer_input = torch.randn(2, 3, 5, 16)

    def norm(y: torch.Tensor) -> torch.Tensor:
        return layer_norm(y, (16,), block.layer_norm.weight, block.layer_norm.bias, 1e-5)

    expected = {
        "post_ln": lambda: norm(x + x.sin()),
        "admin": lambda: norm(block.omega * x + x.sin()),
        "pre_ln": lambda: x + norm(x).sin(),
        "deepnorm": lambda: norm(block.omega * x + x.sin()),
        "b2t": lambda: norm(layer_input + x + x.sin()),
        "ds_init": lambda: norm(x + x.sin()),
        "t_fixup": lambda: x + x.sin(),
        "ln_scaling": lambda: x + (norm(x) / 3**0.5).sin(),
    }
    extra = [layer_input] if variant == "b2t" else []
    torch.testing.assert_close(block(x, torch.sin, *extra), expected[variant]())


@pytest.mark.parametrize("variant", ["post_ln", "admin", "pre_ln", "t_fixup", "ln_scaling"])
def test_dropout_falls_on_the_sublayer_alone(block, variant):
    block = block(variant, dropout=0.5)
    block.layer_norm = torch.nn.Identity()
    if variant == "admin":
        block.omega.fill_(1)
    y = block.train()(torch.full((40, 16), 3.0), torch.ones_like)
    assert y.unique().tolist() == [3.0, 5.0]


def test_omega_starts_at_its_closed_form(tiny_config):
    config = tiny_config(variant="admin", encoder_layers=60, decoder_layers=12)
    encoder, decoder = residual_block(config, "encoder", *LAST), residual_block(config, "decoder", *LAST)
    torch.testing.assert_close(encoder.omega, torch.full((16,), 4.922), atol=6e-4, rtol=0)
    torch.testing.assert_close(decoder.omega, torch.full((16,), 3.041), atol=6e-4, rtol=0)


def test_omega_is_constant_unless_trained(block):
    constant, trained = block("admin"), block("admin", train_omega=True)
    for omega in (constant, trained):
        assert "omega" in omega.state_dict()
        x = torch.randn(2, 16)
        omega(x, torch.tanh).square().sum().backward()
    assert "omega" not in dict(constant.named_parameters())
    assert trained.omega.grad.abs().min() > 0


def test_skip_connection_keeps_its_type_beside_half_precision(block):
    x = torch.randn(2, 16)
    for variant in PAPERS:
        assert block(variant)(x, lambda y: y.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("variant", VARIANTS)
def test_omega_is_where_the_table_says(tiny_model, variant):
    model = tiny_model(variant=variant)
    keys = omega_keys(model.config)
    assert sorted(keys.values()) == sorted(name for name in model.state_dict() if name.endswith(".omega"))
    assert list(keys) == (sublayer_names(model.config) if keys else [])


def test_trained_omega_leaves_out_the_first_sublayer_of_each_stack(tiny_model):
    model = tiny_model(variant="admin", train_omega=True)
    constant = {name for name, _ in model.named_buffers() if name.endswith("omega")}
    trained = {name for name, _ in model.named_parameters() if name.endswith("omega")}
    assert constant == {f"model.{stack}.layers.0.self_attn_residual.omega" for stack in ("encoder", "decoder")}
    assert len(trained) == 3 * 2 + 2 * 3 - 2


@pytest.mark.parametrize("variant", ["admin", "pre_ln"])
def test_sublayers_are_listed_as_they_run(tiny_model, batch, variant):
    """In order, each with the matrices that read its input and the one that makes its output."""
    model = tiny_model(variant=variant)
    names = {module: name for name, module in model.named_modules()}
    sublayers = model.model.encoder.sublayers() + model.model.decoder.sublayers()
    ran, calls = [], {}  # blocks in order, with x and f(x); inputs and output of every matrix

    def observe(block, args):
        def f(x):
            ran.append((block, x, args[1](x)))
            return ran[-1][2]

        return args[0], f

    for sublayer in sublayers:
        sublayer.block.register_forward_pre_hook(observe)
    for module in names:
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda module, args, output: calls.update({module: (args[0], output)}))
    model(**batch)

    assert [sublayer.block for sublayer in sublayers] == [block for block, _, _ in ran]
    expected = [name.split() for name in sublayer_names(model.config)]
    assert [names[block] for block, _, _ in ran] == [f"model.{s}.layers.{i}.{name}_residual" for s, i, name in expected]
    assert [sublayer.name for sublayer in sublayers] == [name for _, _, name in expected]
    for sublayer, (_, x, output) in zip(sublayers, ran, strict=True):
        assert all(torch.equal(calls[reader][0], x) for reader in sublayer.readers)
        assert torch.equal(calls[sublayer.output][1], output)
    listed = {matrix for sublayer in sublayers for matrix in (*sublayer.readers, sublayer.output)}
    others = {names[matrix].split(".", 4)[-1] for matrix in calls.keys() - listed}
    assert others == {"encoder_attn.k_proj", "encoder_attn.v_proj", "lm_head"}
