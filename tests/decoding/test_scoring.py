"""Log-probabilities of given pairs against plain logits, beam search's own scores and the loss."""

import math

import pytest
import torch
from toy import random_ids, text_pairs, toy_tokenizer
from transformers import MarianMTModel, PegasusForConditionalGeneration

from admin_nmt.decoding.scoring import encode_pairs, score_pairs
from admin_nmt.trainer.evaluation import mean_nll
from admin_nmt.weights.exporting import standard_model

STOCK = {"post_ln": MarianMTModel, "pre_ln": PegasusForConditionalGeneration}


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


@pytest.mark.parametrize("variant", ["admin", "pre_ln", "dlcl_pre_ln", "transparent_pre_ln"])
def test_equals_the_definition(tiny_model, pairs, variant):
    model = tiny_model(variant=variant)
    scores = score_pairs(model, *pairs, max_tokens=50)
    expected = [plain_log_probs(model, source, target) for source, target in zip(*pairs, strict=True)]
    assert [len(row) for row in scores] == [len(target) for target in pairs[1]]
    torch.testing.assert_close(flat(scores), flat(expected), atol=1e-5, rtol=1e-5)


def test_does_not_depend_on_the_batch(tiny_model, pairs):
    model = tiny_model().train()
    one_by_one, together = (flat(score_pairs(model, *pairs, max_tokens=size)) for size in (1, 10_000))
    torch.testing.assert_close(one_by_one, together, atol=1e-5, rtol=1e-5)
    assert model.training


def test_keeps_the_order(tiny_model, pairs):
    model = tiny_model()
    forwards = score_pairs(model, *pairs)
    backwards = score_pairs(model, *(side[::-1] for side in pairs))
    torch.testing.assert_close(flat(forwards), flat(backwards[::-1]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", STOCK)
def test_a_stock_export_gives_the_same(tiny_model, pairs, variant):
    model = tiny_model(variant=variant)
    stock = standard_model(model)
    assert type(stock) is STOCK[variant]
    torch.testing.assert_close(flat(score_pairs(stock, *pairs)), flat(score_pairs(model, *pairs)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("ending", [-1.0, 0.3])
def test_equals_the_scores_of_beam_search(tiny_model, pairs, ending):
    """Of translations that run into the limit, and of such that end."""
    model, sources = tiny_model(tie_word_embeddings=False), pairs[0]
    with torch.no_grad():
        model.model.decoder.layers[-1].ffn_residual.layer_norm.bias.fill_(1.0)
        model.lm_head.weight[0] = ending  # the end's logit is about 16 times that, whatever the decoder says
    settings = {
        "num_beams": 4,
        "length_penalty": 0.0,
        "early_stopping": True,
        "min_new_tokens": 4,
        "max_new_tokens": 12,
    }
    settings |= {"return_dict_in_generate": True, "output_scores": True}
    targets, expected = [], []
    for source in sources:
        result = model.generate(torch.tensor([source]), **settings)
        ids = result.sequences[0, 1:].tolist()
        targets.append(ids[: ids.index(0) + 1] if 0 in ids else ids)
        expected.append(result.sequences_scores[0].item())
    assert sum(0 in target for target in targets) == (len(targets) if ending > 0 else 0)
    assert [sum(row) for row in score_pairs(model, sources, targets)] == pytest.approx(expected, abs=1e-4)


def test_mean_nll_is_the_loss(tiny_model, batch):
    model, data = tiny_model(), random_ids(17)
    scores = score_pairs(model, data["input_ids"][:], data["labels"][:])
    assert mean_nll(model, data, max_tokens=20) == pytest.approx(-flat(scores).double().mean().item(), rel=1e-5)
    source = [ids[: sum(mask)] for ids, mask in zip(batch["input_ids"].tolist(), batch["attention_mask"], strict=True)]
    target = [[token for token in row if token >= 0] for row in batch["labels"].tolist()]
    loss = model(**batch).loss.item()
    assert -flat(score_pairs(model, source, target)).mean().item() == pytest.approx(loss, rel=1e-5)


def test_probabilities_of_all_continuations_sum_to_one(tiny_model):
    model = tiny_model()
    scores = score_pairs(model, [[5, 6, 0]] * 98, [[7, token] for token in range(98)])
    assert sum(math.exp(row[1]) for row in scores) == pytest.approx(1.0, rel=1e-5)
    assert len({round(row[0], 4) for row in scores}) == 1


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([[2, 0]], [], "1 sources but 0 targets"),
        ([[2, 0], []], [[0], [0]], "pair 2 has no source token"),
        ([[2, 0], [3, 0]], [[0], []], "pair 2 has no target token"),
        ([[2, 0], [2] * 65], [[0], [0]], "pair 2 has a side of 65 tokens, more than the model's 64 positions"),
    ],
)
def test_what_cannot_be_scored_is_named(tiny_model, source, target, message):
    with pytest.raises(ValueError, match=message):
        score_pairs(tiny_model(), source, target)


def test_pairs_are_encoded_whole(tiny_model):
    tokenizer = toy_tokenizer()
    data = text_pairs(tokenizer, 5)
    long = data.select_columns(["source", "target"]).map(lambda row: {"source": row["source"] * 300})
    sources, targets = encode_pairs(long, tokenizer, tokenizer)
    assert targets == data["labels"][:]
    assert all(
        tokenizer.decode(ids, skip_special_tokens=True) == text
        for ids, text in zip(sources, long["source"][:], strict=True)
    )
    assert all(ids[-1] == 0 for ids in sources + targets)
