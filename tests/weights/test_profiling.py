"""ω of ADMIN: equality with a plain recomputation, and what profiling must leave alone."""

from collections.abc import Callable, Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.weights.profiling import needs_profiling, profile_omega

HEADS = 4
Function = Callable[[Tensor], Tensor]


@pytest.fixture
def fresh_model(tiny_config):
    """Builds an untrained model; keyword arguments override fields of `tiny_config`."""
    return lambda **fields: AdminForConditionalGeneration(tiny_config(**fields))


def written(model: AdminForConditionalGeneration) -> dict[str, list[Tensor]]:
    """The ω vectors of the model's sublayers, in order."""
    stacks = {"encoder": model.model.encoder, "decoder": model.model.decoder}
    return {name: [block.omega.detach() for block in stack.residual_blocks()] for name, stack in stacks.items()}


class PlainModel:
    """The sublayers' functions f_i without dropout, from the weights of a model alone."""

    def __init__(self, weights: Mapping[str, Tensor]):
        self.weights = weights
        self.embedding = weights["model.shared.weight"]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def attention(self, name: str, x: Tensor, y: Tensor, allowed: Tensor) -> Tensor:
        inputs = (("q", x), ("k", y), ("v", y))
        q, k, v = (self.linear(f"{name}.{p}_proj", z).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p, z in inputs)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
        return self.linear(f"{name}.out_proj", (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.fc2", self.linear(f"{name}.fc1", x).relu())

    def embed(self, ids: Tensor) -> Tensor:
        d = self.embedding.shape[1]
        frequencies = 10000 ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
        angles = torch.arange(ids.shape[1])[:, None] * frequencies
        return self.embedding[ids] * d**0.5 + torch.cat([angles.sin(), angles.cos()], 1)

    def functions(self, stack: str, layers: int, own: Tensor, memory: Tensor | None = None, allowed=None):
        """The f_i of a stack in order; `own` and `allowed` are the masks of its self- and cross-attention."""
        found: list[Function] = []
        for name in (f"model.{stack}.layers.{layer}" for layer in range(layers)):
            found.append(lambda x, name=name: self.attention(f"{name}.self_attn", x, x, own))
            if memory is not None:
                found.append(lambda x, name=name: self.attention(f"{name}.encoder_attn", x, memory, allowed))
            found.append(lambda x, name=name: self.feed_forward(name, x))
        return found


def unit_profile(x: Tensor, functions: list[Function], mask: Tensor) -> tuple[list[float], Tensor]:
    """ω_i = sqrt(Var[x_0] + Σ_{j<i} Var[f_j]) while ω is 1, and the output of the stack."""
    variances = [x[mask].var(correction=0)]
    for f in functions:
        variances.append(f(x)[mask].var(correction=0))
        x = F.layer_norm(x + f(x), x.shape[-1:])
    return [1.0, *(sum(variances[:i]).sqrt().item() for i in range(2, len(variances)))], x


def reference_profile(x: Tensor, functions: list[Function], mask: Tensor) -> tuple[list[float], Tensor]:
    """ω_{i+1} = sqrt(Var[ω_i ⊙ x_{i−1}] + Var[f_i]) with ω assigned on the way, padding included."""
    omega = [1.0]
    for f in functions:
        skip, y = omega[-1] * x, f(x)
        omega.append((skip.var(correction=0) + y.var(correction=0)).sqrt().item())
        x = F.layer_norm(skip + y, x.shape[-1:])
    return omega[:-1], x


@pytest.mark.parametrize(("mode", "profile"), [("unit", unit_profile), ("reference", reference_profile)])
@pytest.mark.parametrize("train_omega", [False, True])
def test_equals_a_plain_recomputation(fresh_model, batch, mode, profile, train_omega):
    model = fresh_model(train_omega=train_omega).double()
    plain = PlainModel(model.state_dict())
    source, target = batch["attention_mask"].bool(), batch["labels"] != -100
    decoder_ids = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    allowed = source[:, None, None]
    embedded = plain.embed(batch["input_ids"]) * source[..., None]  # padding has neither embedding nor position
    encoder, memory = profile(embedded, plain.functions("encoder", 3, allowed), source)
    causal = torch.ones(2 * decoder_ids.shape[1:], dtype=torch.bool).tril()
    decoder, _ = profile(plain.embed(decoder_ids), plain.functions("decoder", 2, causal, memory, allowed), target)

    omega = profile_omega(model, batch, mode=mode)
    assert omega["encoder"] == pytest.approx(encoder, rel=1e-6)
    assert omega["decoder"] == pytest.approx(decoder, rel=1e-6)
    for stack, vectors in written(model).items():
        for vector, value in zip(vectors, omega[stack], strict=True):
            torch.testing.assert_close(vector, torch.full_like(vector, value))


@pytest.mark.parametrize("mode", ["unit", "reference"])
def test_every_call_measures_the_same(fresh_model, batch, mode):
    """Dropout is on, from a seed of its own: the ranks of a run agree, and so does a second call."""
    model = fresh_model(dropout=0.3)
    omega = profile_omega(model, batch, mode=mode)
    torch.manual_seed(1234)
    assert profile_omega(model, batch, mode=mode) == omega
    model.model.encoder.embed_dropout.p = 0.0
    assert profile_omega(model, batch, mode=mode)["encoder"][1] != omega["encoder"][1]


@pytest.mark.parametrize("training", [False, True])
def test_leaves_random_numbers_and_mode_alone(fresh_model, batch, training):
    model = fresh_model(dropout=0.3).train(training)
    before = torch.get_rng_state()
    profile_omega(model, batch)
    assert torch.equal(torch.get_rng_state(), before) and model.training == training


def test_omega_stays_where_a_batch_cannot_be_run(fresh_model):
    """It would be 1: a model of plain post-LN under another name."""
    model, ids = fresh_model(max_position_embeddings=8, omega_rule="profile"), torch.full((1, 9), 5)
    with pytest.raises(ValueError, match="max_position_embeddings"):
        profile_omega(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids})
    assert needs_profiling(model) and not model.config.omega_profiled


def test_padding_does_not_count(fresh_model, batch):
    """Nor do padded targets, be they filled up by a collator or by a tokenizer."""
    model = fresh_model()
    padded = {
        "input_ids": F.pad(batch["input_ids"], (0, 5), value=98),
        "attention_mask": F.pad(batch["attention_mask"], (0, 5)),
        "labels": F.pad(batch["labels"], (0, 8), value=-100),
    }
    omega = profile_omega(model, batch)
    for stack, values in profile_omega(model, padded).items():
        assert values == pytest.approx(omega[stack], rel=1e-5)
    filled = batch | {"labels": batch["labels"].masked_fill(batch["labels"] == -100, model.config.pad_token_id)}
    assert profile_omega(model, filled) == omega


@pytest.mark.parametrize("train_omega", [False, True])
def test_saved_with_the_checkpoint(fresh_model, batch, tmp_path, train_omega):
    """ω of a stack's first sublayer is never trained, so that the model can be folded."""
    model = fresh_model(train_omega=train_omega)
    assert not model.config.omega_profiled
    omega = profile_omega(model, batch)
    model.save_pretrained(tmp_path)
    reloaded = AdminForConditionalGeneration.from_pretrained(tmp_path)
    assert reloaded.config.omega_profiled
    for stack, vectors in written(reloaded).items():
        assert [vector[0].item() for vector in vectors] == pytest.approx(omega[stack], rel=1e-6)
    for each in (model, reloaded):
        trained = [name for name, tensor in each.named_parameters() if name.endswith("omega") and tensor.requires_grad]
        assert len(trained) == (2 * 3 + 3 * 2 - 2 if train_omega else 0)
        assert not any("layers.0.self_attn" in name for name in trained)


@pytest.mark.parametrize(
    ("fields", "mode", "change", "named"),
    [
        ({}, "unit", lambda batch: batch.pop("labels"), "labels"),
        ({}, "unit", lambda batch: batch["attention_mask"].fill_(0), "no token"),
        ({}, "unit", lambda batch: batch["labels"].fill_(-100), "no token"),
        ({"variant": "deepnorm"}, "unit", lambda batch: None, "deepnorm"),
        ({}, "units", lambda batch: None, "units"),
    ],
)
def test_batches_without_tokens_and_other_variants_and_modes_are_refused(
    fresh_model, batch, fields, mode, change, named
):
    change(batch)
    with pytest.raises(ValueError, match=named):
        profile_omega(fresh_model(**fields), batch, mode=mode)
