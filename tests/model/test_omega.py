"""Closed forms of ω and DeepNorm's constants against published numbers."""

import pytest

from admin_nmt.model.omega import initial_omega
from admin_nmt.model.rivals import deepnorm_alpha, deepnorm_beta, rival_block

# ω of encoder and decoder (admin-torch), then α and β of encoder and decoder (DeepNet, table 1 and its formulas).
GOLDEN = {
    (6, 6): ((2.017, 2.335), (1.418, 0.497), (2.060, 0.343)),
    (18, 18): ((3.041, 3.567), (1.999, 0.353), (2.711, 0.261)),
    (60, 12): ((4.922, 3.041), (2.633, 0.268), (2.449, 0.289)),
    (100, 100): ((6.075, 7.193), (3.416, 0.206), (4.162, 0.170)),
}


@pytest.fixture(params=GOLDEN, ids=lambda depth: f"{depth[0]}-{depth[1]}")
def depth(request):
    return request.param


def fields(depth: tuple[int, int]) -> dict:
    return {"encoder_layers": depth[0], "decoder_layers": depth[1]}


@pytest.mark.parametrize("rule", ["profile", "profile_reference", "log_n"])
def test_log_n(tiny_config, depth, rule):
    config = tiny_config(variant="admin", omega_rule=rule, **fields(depth))
    omega = initial_omega(config, "encoder"), initial_omega(config, "decoder")
    assert omega == pytest.approx(GOLDEN[depth][0], abs=6e-4)


def test_n(tiny_config, depth):
    config = tiny_config(variant="admin", omega_rule="n", **fields(depth))
    assert initial_omega(config, "encoder") ** 2 == pytest.approx(2 * depth[0])
    assert initial_omega(config, "decoder") ** 2 == pytest.approx(3 * depth[1])


def test_deepnorm(tiny_config, depth):
    config = tiny_config(variant="deepnorm", **fields(depth))
    for stack, golden in zip(("encoder", "decoder"), GOLDEN[depth][1:], strict=True):
        assert (deepnorm_alpha(config, stack), deepnorm_beta(config, stack)) == pytest.approx(golden, abs=6e-4)
        assert rival_block(config, stack, 0, "ffn").omega[0].item() == pytest.approx(deepnorm_alpha(config, stack))
