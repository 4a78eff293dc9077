"""Log-probabilities of given pairs against plain logits, beam search's own scores and the loss."""

import pytest
import torch
from toy import random_ids, text_pairs

from admin_nmt.decoding.scoring import encode_pairs, score_pairs
from admin_nmt.trainer.evaluation import mean_nll
from admin_nmt.weights.exporting import standard_model


@pytest.fixture
def pairs() -> tuple[list[list[int]], list[list[int]]]:
    data = random_ids(23)
    return data["input_ids"][:], data["labels"][:]


def plain_log_probs(model, source: list[int], target: list[int]) -> list[float]:
    """A pair on its own, token by token as the definition says."""
    rows = []
    for position, token in enumerate(target):
        prefix = torch.tensor([[model.config.decoder_start_token_id, *target[:position]]])
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=prefix).logits
        rows.append(logits[0, -1].log_softmax(-1)[token].item())
    return rows


def flat(scores: list[list[float]]) -> torch.Tensor:
    return torch.tensor([x for row in scores for x in row])


@pytest.mark.parametrize(
    ("variant", "standard"),
    [("admin", True), ("pre_ln", True), ("dlcl_pre_ln", False)],
)
def test_equals_the_definition(tiny_model, pairs, variant, standard):
    model = tiny_model(variant=variant)
    if standard:
        model = standard_model(model)
    scores = score_pairs(model, *pairs, max_tokens=50)
    expected = [plain_log_probs(model, source, target) for source, target in zip(*pairs, strict=True)]
    assert [len(row) for row in scores] == [len(target) for target in pairs[1]]
    torch.testing.assert_close(flat(scores), flat(expected), atol=1e-5, rtol=1e-5)


def test_depends_on_no_batch_and_order(tiny_model, pairs):
    model = tiny_model().train()
    together = score_pairs(model, *pairs, max_tokens=10_000)
    backwards = score_pairs(model, *(side[::-1] for side in pairs), max_tokens=1)
    torch.testing.assert_close(flat(backwards[::-1]), flat(together), atol=1e-5, rtol=1e-5)
    assert model.training


def test_mean_nll_is_the_loss(tiny_model, batch):
    model, data = tiny_model(), random_ids(17)
    scores = score_pairs(model, data["input_ids"][:], data["labels"][:])
    assert mean_nll(model, data, max_tokens=20) == pytest.approx(-flat(scores).double().mean().item(), rel=1e-5)
    source = [ids[: sum(mask)] for ids, mask in zip(batch["input_ids"].tolist(), batch["attention_mask"], strict=True)]
    target = [[token for token in row if token >= 0] for row in batch["labels"].tolist()]
    loss = model(**batch).loss.item()
    assert -flat(score_pairs(model, source, target)).mean().item() == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    ("source", "target", "named"),
    [
        ([[2, 0]], [], "targets"),
        ([[2, 0], []], [[0], [0]], "pair 2"),
        ([[2, 0], [3, 0]], [[0], []], "pair 2"),
        ([[2, 0], [2] * 65], [[0], [0]], "pair 2"),
    ],
)
def test_pairs_that_have_no_score_are_named(tiny_model, source, target, named):
    with pytest.raises(ValueError, match=named):
        score_pairs(tiny_model(), source, target)


def test_pairs_are_encoded_whole(tokenizer):
    data = text_pairs(tokenizer, 5)
    long = data.select_columns(["source", "target"]).map(lambda row: {"source": row["source"] * 300})
    sources, targets = encode_pairs(long, tokenizer, tokenizer)
    assert targets == data["labels"][:]
    assert tokenizer.batch_decode(sources, skip_special_tokens=True) == long["source"][:]
    assert all(ids[-1] == 0 for ids in sources + targets)
