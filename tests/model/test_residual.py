"""Each residual block against its equation."""

import pytest
import torch
from torch.nn.functional import layer_norm

from admin_nmt.model.configuration_admin import PAPERS
from admin_nmt.model.residual import Residual, residual_block
from admin_nmt.model.rivals import rival_block

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


EQUATIONS = {
    "post_ln": lambda x, norm, omega, layer_input: norm(x + x.sin()),
    "admin": lambda x, norm, omega, layer_input: norm(omega * x + x.sin()),
    "pre_ln": lambda x, norm, omega, layer_input: x + norm(x).sin(),
    "deepnorm": lambda x, norm, omega, layer_input: norm(omega * x + x.sin()),
    "b2t": lambda x, norm, omega, layer_input: norm(layer_input + x + x.sin()),
    "ds_init": lambda x, norm, omega, layer_input: norm(x + x.sin()),
    "t_fixup": lambda x, norm, omega, layer_input: x + x.sin(),
    "ln_scaling": lambda x, norm, omega, layer_input: x + (norm(x) / 3**0.5).sin(),
}


@pytest.mark.parametrize("variant", EQUATIONS)
def test_equation(block, variant):
    block = block(variant)
    x, layer_input = torch.randn(2, 3, 5, 16)

    def norm(y: torch.Tensor) -> torch.Tensor:
        return layer_norm(y, (16,), block.layer_norm.weight, block.layer_norm.bias, 1e-5)

    extra = [layer_input] if variant == "b2t" else []
    expected = EQUATIONS[variant](x, norm, getattr(block, "omega", None), layer_input)
    torch.testing.assert_close(block(x, torch.sin, *extra), expected)


@pytest.mark.parametrize("variant", ["post_ln", "admin", "pre_ln", "t_fixup", "ln_scaling"])
def test_dropout_falls_on_the_sublayer_alone(block, variant):
    block = block(variant, dropout=0.5)
    block.layer_norm = torch.nn.Identity()
    if variant == "admin":
        block.omega.fill_(1)
    y = block.train()(torch.full((40, 16), 3.0), torch.ones_like)
    assert y.unique().tolist() == [3.0, 5.0]


def test_skip_connection_keeps_its_type_beside_half_precision(block):
    x = torch.randn(2, 16)
    for variant in PAPERS:
        assert block(variant)(x, lambda y: y.bfloat16()).dtype == torch.float32
