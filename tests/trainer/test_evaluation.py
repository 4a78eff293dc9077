"""Scores of an evaluation, of the log, and of a test set of which some pairs are longer than the model's positions."""

import math
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from toy import budget_for, random_ids, text_pairs, toy_tokenizer

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, Translator
from admin_nmt.data.batching import Seq2SeqCollator
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.metrics.scores import corpus_scores
from admin_nmt.trainer import callbacks
from admin_nmt.trainer.callbacks import TokenMeter
from admin_nmt.trainer.evaluation import encoder_variance, evaluate_translator, mean_nll


def reference_nll(model: AdminForConditionalGeneration, dataset: Dataset) -> float:
    """Mean NLL per token, one pair at a time, from the logits."""
    model.eval()
    nll, tokens = 0.0, 0
    for pair in dataset:
        batch = Seq2SeqCollator(98)([pair])
        log_p = model(**batch).logits.double().log_softmax(-1)
        nll -= log_p.gather(-1, batch["labels"][..., None]).sum().item()
        tokens += len(pair["labels"])
    return nll / tokens


@pytest.mark.parametrize("max_tokens", [12, 4096])
def test_evaluation_weighs_every_token_alike(tiny_model, max_tokens):
    model, data = tiny_model(label_smoothing=0.1), random_ids(9)
    expected = reference_nll(model, data)
    assert mean_nll(model.train(), data, max_tokens=max_tokens) == pytest.approx(expected, rel=1e-5)
    assert model.training


def test_log_has_plain_nll_beside_the_smoothed_loss(new_model, arguments):
    model, data = new_model(omega_rule="log_n"), random_ids(9)
    expected = reference_nll(model, data)
    args = arguments(max_tokens=budget_for(data, 2), gradient_accumulation_steps=2, max_steps=1)
    run = AdminTrainer(model, args, train_dataset=data, eval_dataset=data)
    smoothed = run.model.train()(**Seq2SeqCollator(98)(data.to_list())).loss.item()
    run.evaluate()
    run.train()
    entry = run.state.log_history[0]
    assert entry["nll"] == pytest.approx(expected, rel=1e-5)
    assert entry["loss"] == pytest.approx(smoothed, rel=1e-5)
    assert entry["target_tokens_per_second"] > 0
    metrics = run.evaluate()
    assert metrics["eval_perplexity"] == pytest.approx(math.exp(reference_nll(run.model, data)), rel=1e-5)


def test_the_meter_leaves_pauses_out_and_sums_in_float32(monkeypatch):
    clock = iter([0.0, 10.0, 86_410.0, 86_420.0])
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    meter, accelerator = TokenMeter(), SimpleNamespace(reduce=lambda tensor, _: tensor)
    for _ in range(100):
        meter.add_tokens(torch.tensor(1))
        meter.add_nll(torch.tensor(12_352, dtype=torch.bfloat16))
    with meter.paused():  # for a day
        pass
    found = meter.read(accelerator)
    assert found == {"nll": 12_352, "target_tokens": 100, "target_tokens_per_second": 5}


def test_translations_are_scored_as_plain_text(tiny_model, arguments, tokenizer):
    """By the tokeniser of the target language."""
    model, data = tiny_model(vocab_size=len(tokenizer)), text_pairs(tokenizer, 6)
    ids = generate_ids(model, data["input_ids"][:4], num_beams=2, length_penalty=0.6)
    translations = tokenizer.batch_decode(ids, skip_special_tokens=True)
    expected = corpus_scores(translations, data["target"][:4], "zh", with_ter=False)
    options = {"generation_length_penalty": 0.6, "eval_bleu_sentences": 4, "target_language": "zh"}
    trainer = AdminTrainer(model, arguments(eval_bleu=True, **options), eval_dataset=data, processing_class=tokenizer)
    metrics = trainer.evaluate()
    assert {name: metrics[f"eval_{name}"] for name in expected} == expected
    assert "|tok:zh|" in metrics["eval_bleu_signature"]


@pytest.mark.parametrize("side", ["source", "target"])
def test_pairs_beyond_the_positions_are_translated_but_left_out_of_the_likelihood(tiny_model, side):
    tokenizer = toy_tokenizer()
    model = tiny_model(vocab_size=len(tokenizer), max_position_embeddings=48)
    data = text_pairs(tokenizer, 6)
    pairs = data.select_columns(["source", "target"])
    longer = pairs.map(lambda row, index: {side: row[side] * (99 if index == 2 else 1)}, with_indices=True)
    translator = Translator(model, tokenizer, num_beams=1)
    translations, found = evaluate_translator(translator, longer, "de")
    assert (len(translations), found["sentences"], found["nll_sentences"]) == (6, 6, 5)
    assert found["nll"] == pytest.approx(mean_nll(model, data.select([0, 1, 3, 4, 5])), rel=1e-5)


def test_the_variance_of_the_encoder_is_that_between_tokens(tiny_model):
    """Of a batch as of its sources one by one, and near 0 where all states are alike."""
    data, model = random_ids(5), tiny_model()
    one_by_one = [
        model.get_encoder()(torch.tensor([row])).last_hidden_state[0].double() for row in data["input_ids"][:]
    ]
    states = torch.cat(one_by_one).detach()
    expected = 1 - states.mean(0).square().sum() * len(states) / states.square().sum()
    assert encoder_variance(model.train(), data) == pytest.approx(float(expected), rel=1e-4)
    assert model.training
    with torch.no_grad():
        model.get_encoder().layers[-1].ffn_residual.layer_norm.weight.mul_(1e-4)
        model.get_encoder().layers[-1].ffn_residual.layer_norm.bias.add_(1)
    assert encoder_variance(model, data) < 1e-6
