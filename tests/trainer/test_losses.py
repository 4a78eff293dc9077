"""Virtual adversarial training against its equations, and that it costs nothing when off."""

import pytest
import torch
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.data.batching import Seq2SeqCollator
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.losses import project
from admin_nmt.trainer.sharding import NoSharding
from admin_nmt.weights.exporting import standard_model
from admin_nmt.weights.folding import fold_omega

PAD = 98
WEIGHT, STEP, NOISE = 0.7, 2e-2, 1e-2


@pytest.fixture
def new_trainer(arguments, tiny_model):
    """A trainer of the same tiny model at every call."""

    def build(weight: float = WEIGHT, dropout: float = 0.0, **fields) -> AdminTrainer:
        torch.manual_seed(1)
        own = {"adversarial_weight": weight, "adversarial_step": STEP, "adversarial_noise": NOISE, "max_steps": 4}
        model = tiny_model(variant="admin", label_smoothing=0.1, dropout=dropout)
        return AdminTrainer(model, arguments(**{"max_tokens": 60} | own | fields), train_dataset=random_ids(30))

    return build


@pytest.mark.parametrize("weight", [0.0, WEIGHT])
def test_predicting_is_no_training(new_trainer, weight):
    trainer = new_trainer(weight)
    found = trainer.predict(random_ids(6, seed=4))
    assert found.metrics["test_loss"] > 0
    assert not trainer.meter.nll and not trainer.guard.loss


def batch() -> dict[str, torch.Tensor]:
    return Seq2SeqCollator(PAD, PAD)(random_ids(5, seed=3).to_list())


def plain_penalty(model: AdminForConditionalGeneration, x: dict[str, torch.Tensor], noise: torch.Tensor):
    """Σ over the target tokens of KL(p ‖ q) + KL(q ‖ p), as the equations have it, sentence by sentence."""
    table, total = model.model.encoder.embed_tokens.weight, 0.0
    for source, mask, ids, labels, start in zip(
        x["input_ids"], x["attention_mask"], x["decoder_input_ids"], x["labels"], noise, strict=True
    ):
        width, length = int(mask.sum()), int((labels != -100).sum())

        def predict(embeddings, ids=ids, length=length):
            logits = model(inputs_embeds=embeddings[None], decoder_input_ids=ids[None, :length]).logits[0]
            return torch.cat([logits[:, :PAD], logits[:, PAD + 1 :]], 1).softmax(-1)

        def kl(p, q):
            return (p * (p.log() - q.log())).sum()

        embeddings = table[source[:width]]
        p = predict(embeddings)
        change = start[:width].clone().requires_grad_()
        (slope,) = torch.autograd.grad(kl(p.detach(), predict(embeddings.detach() + change)), change)
        largest = slope.abs().max(-1, keepdim=True).values
        q = predict(embeddings + (start[:width] + STEP * slope / (largest + 1e-6)).detach())
        total = total + kl(p, q) + kl(q, p)
    return total


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("items", [None, 50])
def test_loss_and_gradient_are_those_of_the_equations(new_trainer, items):
    trainer, x = new_trainer(), batch()
    model = trainer.model.double().train()
    tokens = int((x["labels"] != -100).sum()) if items is None else items
    torch.manual_seed(5)
    noise = NOISE * torch.randn(*x["input_ids"].shape, 16, dtype=torch.float64)
    penalty = WEIGHT * plain_penalty(model, x, noise) / tokens
    plain = model(**x, num_items_in_batch=tokens).loss
    (plain + penalty).backward()
    expected = gradients(model)
    model.zero_grad()
    torch.manual_seed(5)
    loss = trainer.compute_loss(model, dict(x), num_items_in_batch=items)
    loss.backward()
    # The losses are float32 and some thousand times the penalty: their difference is rounded at about 1e-6.
    torch.testing.assert_close((loss - plain).detach(), penalty.detach(), rtol=1e-3, atol=2e-6, check_dtype=False)
    torch.testing.assert_close(gradients(model), expected, rtol=1e-3, atol=1e-6)


def test_no_change_of_the_source_no_penalty_under_dropout(new_trainer):
    """All passes drop the same units, so what differs is the perturbation alone."""
    trainer = new_trainer(dropout=0.3, adversarial_noise=0.0, adversarial_step=0.0)
    losses = []
    for weight in (0.0, 1e6):
        trainer.adversary.weight = weight
        torch.manual_seed(2)
        losses.append(trainer.compute_loss(trainer.model.train(), batch()).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    torch.manual_seed(3)
    assert trainer.compute_loss(trainer.model.train(), batch()).item() != pytest.approx(losses[0], rel=1e-5)


def test_projection_has_unit_maximum_at_each_position():
    gradient = torch.randn(2, 3, 4).clamp(-2, 2)
    gradient[..., 1] = -2  # else all may be so small by chance that what guards the division shows
    gradient *= torch.logspace(-3, 3, 3)[:, None]
    torch.testing.assert_close(project(gradient).abs().amax(-1), torch.ones(2, 3), rtol=2e-3, atol=0)
    assert project(torch.zeros(1, 1, 4)).eq(0).all()


def test_stock_models_half_precision_and_sharded_models_are_refused(new_trainer, tiny_model, monkeypatch):
    trainer = new_trainer()
    with pytest.raises(ValueError, match="is for models of this package"):
        AdminTrainer(standard_model(fold_omega(tiny_model())), trainer.args, train_dataset=random_ids(3))
    with monkeypatch.context() as patch:
        patch.setattr(NoSharding, "is_sharded", True)
        with pytest.raises(ValueError, match="FSDP"):
            AdminTrainer(trainer.model, trainer.args, train_dataset=random_ids(3))
    trainer.args.bf16 = True
    with pytest.raises(ValueError, match="needs float32"):
        AdminTrainer(trainer.model, trainer.args, train_dataset=random_ids(3))


def test_the_penalty_weighs_the_same_on_several_processes(new_trainer, monkeypatch):
    """Whose losses are multiplied by their number, as the gradients are a mean over them."""
    losses = []
    for processes in (1, 2):
        for weight in (1e-9, 1e3):
            trainer = new_trainer(weight)
            monkeypatch.setattr(type(trainer.accelerator), "num_processes", processes)
            torch.manual_seed(5)
            losses.append(trainer.compute_loss(trainer.model.train(), batch(), num_items_in_batch=50).item())
    assert losses[1] > 1.2 * losses[0]
    assert losses[2:] == pytest.approx([2 * loss for loss in losses[:2]], rel=1e-4)
