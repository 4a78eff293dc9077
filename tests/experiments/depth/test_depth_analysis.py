"""Dependency on residual branches and change of the output, against plain recursions."""

import json

import pytest
import torch
from toy import invoke

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.experiments.depth.depth_analysis import (
    branch_deviations,
    dependencies,
    output_change,
    perturbed,
    updated,
)
from admin_nmt.weights.profiling import profile_omega

STACKS = ("encoder", "decoder")
ADMINS = ("admin", "admin:profile_reference", "admin:n")


@pytest.fixture
def new_model(tiny_config):
    """Builds a model as training begins with it, on `tiny_config`."""

    def build(**fields) -> AdminForConditionalGeneration:
        return AdminForConditionalGeneration(tiny_config(**fields)).eval()

    return build


@pytest.mark.parametrize("variant", ["post_ln", "admin", "deepnorm"])
def test_a_post_norm_chain(new_model, batch, variant):
    """β_ij² = b_j Π_{j<k≤i} (1 − b_k) with b_i = Var[f_i] / (ω_i² Var[x_{i−1}] + Var[f_i])."""
    model = new_model(variant=variant)
    if variant == "admin":
        profile_omega(model, batch)
    deviations, beta = branch_deviations(model, batch), dependencies(model, batch)
    for name in STACKS:
        blocks = getattr(model.model, name).residual_blocks()
        shares, skip = [1.0], deviations[name][0] ** 2
        for block, deviation in zip(blocks, deviations[name][1:], strict=True):
            omega = float(block.omega[0]) if variant != "post_ln" else 1.0
            shares.append(deviation**2 / (omega**2 * skip + deviation**2))
            skip = 1.0
        for i in range(1, len(blocks) + 1):
            for j in range(i + 1):
                expected = shares[j]
                for k in range(j + 1, i + 1):
                    expected *= 1 - shares[k]
                assert float(beta[name][i - 1, j] ** 2) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("variant", ["pre_ln", "t_fixup", "rezero"])
def test_without_layernorm_after_a_sum(tiny_model, batch, variant):
    """β_ij² = Var[f_j] / Σ_{k≤i} Var[f_k], the embedding among them; the branches of ReZero are those after α."""
    model = tiny_model(variant=variant)
    deviations, beta = branch_deviations(model, batch), dependencies(model, batch)
    for name in STACKS:
        variances = torch.tensor(deviations[name], dtype=torch.float64).square()
        expected = torch.stack([row / row.sum() for row in variances.expand(len(variances), -1).tril()])[1:]
        torch.testing.assert_close(beta[name].square(), expected)


def test_b2t_adds_the_input_of_the_layer_once_more(new_model, batch):
    """LN(x_in + x + f): on coefficients, (c_in + c + f) / |c_in + c + f| at the end of each layer."""
    model = new_model(variant="b2t")
    deviations, beta = branch_deviations(model, batch)["encoder"], dependencies(model, batch)["encoder"]
    branches = torch.diag(torch.tensor(deviations, dtype=torch.float64))
    x, rows = branches[0], []
    for layer in range(3):
        inner = x + branches[2 * layer + 1]
        inner = inner / inner.norm()
        x = x + inner + branches[2 * layer + 2]
        x = x / x.norm()
        rows += [inner, x]
    torch.testing.assert_close(beta, torch.stack(rows))


def test_branch_deviations_ignore_padding(new_model, batch):
    """The embedding's deviation is that of the tokens alone, also where the padding holds something else."""
    model = new_model(variant="post_ln")
    encoder = model.model.encoder
    x = encoder.token_embeddings(batch["input_ids"], None)
    states = (x + encoder.embed_positions(x, batch["attention_mask"]))[batch["attention_mask"].bool()]
    measured = branch_deviations(model, batch)["encoder"]
    assert measured[0] == pytest.approx(states.double().std(correction=0).item())
    assert len(measured) == 1 + len(encoder.residual_blocks())


@pytest.mark.parametrize("variant", ["pre_ln", "post_ln"])
def test_dlcl_with_the_weights_of_a_residual_network(new_model, batch, variant):
    """With W the identity and no LayerNorms of its own, DLCL is the network without it."""
    plain = new_model(variant=variant)
    dlcl = new_model(variant=f"dlcl_{variant}", dlcl_normalize_history=False)
    for name in STACKS:
        getattr(dlcl.model, name).history.weight.data.copy_(
            torch.eye(dlcl.config.num_hidden_layers + 1 - (name == "decoder"))
        )
    dlcl.load_state_dict(plain.state_dict(), strict=False)
    expected = dependencies(plain, batch)
    for name, beta in dependencies(dlcl, batch).items():
        torch.testing.assert_close(beta, expected[name])


@pytest.mark.parametrize("variant", ["dlcl_pre_ln", "dlcl_post_ln"])
def test_dlcl_rows_have_norm_one(tiny_model, batch, variant):
    for beta in dependencies(tiny_model(variant=variant), batch).values():
        torch.testing.assert_close(beta.square().sum(1), torch.ones(len(beta), dtype=torch.float64))
        assert not beta.triu(2).any()


def test_small_steps_change_the_output_with_their_square(new_model, batch):
    model = new_model(variant="admin")
    before = [p.clone() for p in model.parameters()]
    full, half = (output_change(model, perturbed(model, scale, seed=1), batch) for scale in (1e-3, 5e-4))
    for name in STACKS:
        assert full[name] == pytest.approx(4 * half[name], rel=0.05)
    assert output_change(model, model, batch) == {"encoder": 0.0, "decoder": 0.0}
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_update_is_the_first_step_of_adam(new_model, batch):
    model = new_model(variant="post_ln")
    changed = updated(model, batch, 1e-3)
    model(**batch).loss.backward()
    torch.optim.Adam(model.parameters(), lr=1e-3).step()
    for (name, expected), tensor in zip(model.named_parameters(), changed.parameters(), strict=True):
        if name.endswith(("proj.weight", "fc1.weight", "fc2.weight")):
            torch.testing.assert_close(tensor, expected)
    assert not torch.equal(changed.model.encoder.layers[0].fc1.weight, model.model.encoder.layers[0].fc2.weight.t())


def test_growth_with_depth(new_model, batch):
    """Σ β_ii² of post-LN grows with the number of layers, that of ADMIN and pre-LN with its logarithm."""

    def total(variant: str, layers: int) -> float:
        model = new_model(variant=variant, encoder_layers=layers)
        if variant == "admin":
            profile_omega(model, batch)
        return float(dependencies(model, batch)["encoder"].diagonal(1).square().sum())

    assert total("post_ln", 24) > 3.5 * total("post_ln", 6)
    assert total("admin", 24) < 2.2 * total("admin", 6)
    assert total("pre_ln", 24) < 2.2 * total("pre_ln", 6)


def test_the_command_writes_what_it_promises(tmp_path):
    sizes = "--depth 1 --depth 2 --shown-depth 2 --decoder-layers 1 --d-model 16 --seed 1"
    variants = " ".join(f"--variant {name}" for name in ("post_ln", "rezero", *ADMINS))
    result = invoke(*f"analyse depth --output {tmp_path} {variants} {sizes} --part steps".split())
    assert {file.name for file in tmp_path.iterdir()} == {"growth.png", "dependencies.png", "results.json", "table.md"}
    assert (tmp_path / "table.md").read_text() == result.stdout
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert "| rezero | 0 | – | 0 | – | 0 | – |" in result.stdout  # nothing reaches a branch before the first update
    own = {row["variant"]: row["own"]["encoder"] for row in rows if row["encoder_layers"] == 2}
    # ω² = n = 4 of unit variance beside a branch of b: b/(4 + b); without ω it is b/(1 + b).
    ratio = {name: share[0] / (1 - share[0]) for name, share in own.items()}
    assert ratio["post_ln"] == pytest.approx(4 * ratio["admin:n"], rel=1e-4)
    assert own["admin"] != own["admin:profile_reference"]
