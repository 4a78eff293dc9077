"""Training: gradients, resume, profiling, evaluation, and the stop at divergence."""

import gc
import math
import weakref
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from toy import StopAfter, budget_for, poison, random_ids, text_pairs, toy_tokenizer, with_lengths
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.data.batching import Seq2SeqCollator
from admin_nmt.data.tokenization.tokenizer_folder import load_tokenizers
from admin_nmt.data.tokenized_pairs import random_pairs, similar_pairs
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.metrics.scores import corpus_scores
from admin_nmt.trainer import admin_trainer, callbacks, evaluation
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.divergence import MAX_OVERFLOWS, DivergedError, DivergenceGuard, diverged, write_pairs
from admin_nmt.trainer.evaluation import mean_nll
from admin_nmt.trainer.precision import precision
from admin_nmt.weights.exporting import standard_model
from admin_nmt.weights.profiling import profile_omega

Arguments = Callable[..., AdminTrainingArguments]
NewModel = Callable[..., AdminForConditionalGeneration]


@pytest.fixture
def arguments(tmp_path) -> Arguments:
    def build(**fields) -> AdminTrainingArguments:
        small = {"output_dir": str(tmp_path / "run"), "max_tokens": 40, "profile_tokens": 60, "max_steps": 6}
        schedule = {"learning_rate": 1e-2, "warmup_steps": 2, "save_strategy": "no", "logging_steps": 1}
        quiet = {"eval_bleu": False, "generation_num_beams": 2, "disable_tqdm": True, "use_cpu": True}
        return AdminTrainingArguments(**small | schedule | quiet | fields)

    return build


@pytest.fixture
def new_model(tiny_config) -> NewModel:
    """Builds a model that is the same at every call, and profiled in training if not told otherwise."""

    def build(**fields) -> AdminForConditionalGeneration:
        torch.manual_seed(1)
        return AdminForConditionalGeneration(tiny_config(**({"omega_rule": "profile"} | fields)))

    return build


class KeepGradient(TrainerCallback):
    """Keeps the gradient of the last update."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_identical(first: torch.nn.Module, second: torch.nn.Module) -> None:
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def whole_batch(dataset: Dataset) -> dict[str, torch.Tensor]:
    return Seq2SeqCollator(98)(dataset.to_list())


def gradient_of_update(build: Callable[[list], Seq2SeqTrainer]) -> dict[str, torch.Tensor]:
    keep = KeepGradient()
    build([keep]).train()
    return keep.gradient


def exact_gradient(model: AdminForConditionalGeneration, dataset: Dataset) -> dict[str, torch.Tensor]:
    model.train()(**whole_batch(dataset)).loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_gradient_is_that_of_the_whole_batch_under_accumulation(new_model, arguments, accumulation):
    data = random_ids(24)
    args = arguments(max_tokens=budget_for(data, accumulation), gradient_accumulation_steps=accumulation, max_steps=1)
    model = new_model(omega_rule="log_n")
    gradient = gradient_of_update(lambda keep: AdminTrainer(model, args, train_dataset=data, callbacks=keep))
    torch.testing.assert_close(gradient, exact_gradient(new_model(omega_rule="log_n"), data), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 2, 4])
@pytest.mark.parametrize("variant", ["post_ln", "pre_ln"])
def test_stock_model_gets_the_gradient_of_the_model_it_came_from(new_model, arguments, variant, accumulation):
    """A stock model's own loss weighs batches, whatever their size, equally. (GELU has no kink to round across.)"""
    data = random_ids(24)
    budget = budget_for(data, accumulation)
    args = arguments(
        max_tokens=budget, gradient_accumulation_steps=accumulation, max_steps=1, label_smoothing_factor=0.1
    )
    stock = standard_model(new_model(variant=variant, activation_function="gelu"))
    gradient = gradient_of_update(lambda keep: AdminTrainer(stock, args, train_dataset=data, callbacks=keep))
    expected = exact_gradient(new_model(variant=variant, activation_function="gelu", label_smoothing=0.1), data)
    expected = {name: grad for name, grad in expected.items() if name in gradient}
    assert {"model.shared.weight", "model.decoder.layers.1.fc2.weight"} <= set(expected)
    shared = {name: gradient[name] for name in expected}
    torch.testing.assert_close(shared, expected, rtol=1e-4, atol=1e-6)


def with_padding(dataset: Dataset, pad: int) -> Dataset:
    """The same pairs, with labels as a tokenizer leaves them that was asked to pad."""
    longest = max(dataset["target_length"]) + 1
    return dataset.map(lambda row: {"labels": row["labels"] + [pad] * (longest - len(row["labels"]))})


@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_padding_in_labels_changes_nothing(new_model, arguments, kind):
    data, losses, gradients, counts = random_ids(24), [], [], []
    fields = {"variant": "post_ln", "label_smoothing": 0.1}
    args = arguments(
        max_tokens=budget_for(data, 2),
        gradient_accumulation_steps=2,
        max_steps=1,
        label_smoothing_factor=0.1 if kind == "stock" else 0.0,
    )
    for pairs in (data, with_padding(data, 98)):
        model = new_model(**fields) if kind == "ours" else standard_model(new_model(**fields))
        run, keep = AdminTrainer(model, args, train_dataset=pairs, eval_dataset=pairs), KeepGradient()
        run.add_callback(keep)
        losses.append(run.evaluate()["eval_loss"])
        run.train()
        gradients.append(keep.gradient)
        (entry,) = (entry for entry in run.state.log_history if "loss" in entry)
        losses += [entry["loss"], entry["nll"]]
        counts.append(entry["target_tokens"])
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-6)
    assert counts[0] == counts[1] == sum(data["target_length"])
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_padding_in_labels_that_another_collator_leaves_is_refused(new_model, arguments, kind, tokenizer):
    size = len(tokenizer)
    model = new_model(variant="post_ln", vocab_size=size)
    pairs = with_padding(text_pairs(tokenizer, 6), size - 1).select_columns(
        ["input_ids", "labels", "source_length", "target_length"]
    )
    run = AdminTrainer(
        model if kind == "ours" else standard_model(model),
        arguments(max_steps=1),
        train_dataset=pairs,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )
    with pytest.raises(ValueError, match="labels: hold <pad>"):
        run.train()


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_plain_seq2seq_trainer_makes_the_same_gradient(new_model, tmp_path, accumulation):
    data = random_ids(24)
    args = Seq2SeqTrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=24 // accumulation,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        max_grad_norm=0,
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    model, collator = new_model(omega_rule="log_n"), Seq2SeqCollator(98)
    gradient = gradient_of_update(
        lambda keep: Seq2SeqTrainer(model, args, collator, train_dataset=data, callbacks=keep)
    )
    torch.testing.assert_close(gradient, exact_gradient(new_model(omega_rule="log_n"), data), rtol=1e-4, atol=1e-6)


def test_every_target_token_counts_whatever_the_release_leaves_out(new_model, arguments):
    """In some releases the Trainer leaves out the first label of models whose class it takes for a causal one."""
    data = random_ids(24)
    args = arguments(max_tokens=budget_for(data, 1), max_steps=1)

    def shifting(keep):
        trainer = AdminTrainer(new_model(omega_rule="log_n"), args, train_dataset=data, callbacks=keep)
        trainer._loss_shifts_labels = True
        return trainer

    expected = exact_gradient(new_model(omega_rule="log_n"), data)
    torch.testing.assert_close(gradient_of_update(shifting), expected, rtol=1e-4, atol=1e-6)
    labels = [[[5, 6, 0], [7, 0, -100]], [[-100, 8, 0], [-100, -100, 0]]]
    batches = [{"labels": torch.tensor(rows)} for rows in labels]
    trainer = shifting([])
    found, tokens = trainer.get_batch_samples(iter(batches), 2, args.device)
    assert found == batches and tokens == 8 and trainer.meter.tokens == 8
    assert trainer.get_batch_samples(iter([]), 2, args.device) == ([], None)


@pytest.mark.parametrize(
    ("update", "fields"),
    [(1, {}), (5, {}), (7, {}), (9, {}), (4, {"gradient_accumulation_steps": 2}), (6, {"optimizer": "adam"})],
)
def test_interrupted_run_ends_like_the_straight_one_bit_for_bit(new_model, arguments, update, fields):
    data = random_ids(14)
    args = arguments(max_tokens=budget_for(data, 5), max_steps=9, **fields)  # so 5 updates an epoch, or 3
    straight, first, second = (new_model(dropout=0.1) for _ in range(3))
    AdminTrainer(straight, args, train_dataset=data).train()
    AdminTrainer(first, args, train_dataset=data, callbacks=[StopAfter(update)]).train()
    torch.manual_seed(12345)
    AdminTrainer(second, args, train_dataset=data).train(resume_from_checkpoint=True)
    assert_identical(second, straight)


@pytest.mark.parametrize(("batches", "accumulation"), [(5, 2), (2, 1)])
def test_refuses_a_checkpoint_that_stands_elsewhere_in_the_epoch(new_model, arguments, batches, accumulation):
    data = random_ids(14)
    args = arguments(max_tokens=budget_for(data, 5), max_steps=9)
    fields = {"max_tokens": budget_for(data, batches), "gradient_accumulation_steps": accumulation}
    AdminTrainer(new_model(), args, train_dataset=data, callbacks=[StopAfter(4)]).train()
    expected = r"checkpoint-4: was saved at epoch 0\.80 after 4 updates, but here these are (1\.33|2\.00)"
    with pytest.raises(ValueError, match=expected):
        AdminTrainer(new_model(), arguments(max_steps=9, **fields), train_dataset=data).train(
            resume_from_checkpoint=True
        )
    args = arguments(max_steps=9, ignore_data_skip=True, **fields)
    resumed = AdminTrainer(new_model(), args, train_dataset=data)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 9


def test_profiles_once_and_not_on_resume(new_model, arguments, monkeypatch):
    calls = []

    def profile(*args, **kwargs):
        calls.append(kwargs)
        return profile_omega(*args, **kwargs)

    monkeypatch.setattr(admin_trainer, "profile_omega", profile)
    args, data = arguments(), random_ids(14)
    first, resumed = new_model(), new_model()
    run = AdminTrainer(first, args, train_dataset=data, callbacks=[StopAfter(2)])
    run.train()
    run.train()
    assert calls == [{"mode": "unit"}]
    AdminTrainer(resumed, args, train_dataset=data).train(resume_from_checkpoint=f"{args.output_dir}/checkpoint-2")
    assert len(calls) == 1
    assert resumed.config.omega_profiled
    name = "model.encoder.layers.2.ffn_residual.omega"
    assert torch.equal(resumed.state_dict()[name], first.state_dict()[name])
    assert not torch.equal(resumed.state_dict()[name], new_model().state_dict()[name])


@pytest.mark.parametrize("fields", [{"variant": "post_ln"}, {"omega_rule": "log_n"}])
def test_does_not_profile_what_needs_no_profile(new_model, arguments, fields, monkeypatch):
    monkeypatch.setattr(admin_trainer, "profile_omega", None)
    args, data, resumed = arguments(max_steps=2), random_ids(14), new_model(**fields)
    AdminTrainer(new_model(**fields), args, train_dataset=data, callbacks=[StopAfter(1)]).train()
    AdminTrainer(resumed, args, train_dataset=data).train(resume_from_checkpoint=True)
    assert not resumed.config.omega_profiled


def test_a_loaded_model_keeps_the_omega_that_its_weights_were_trained_with(new_model, arguments, tmp_path, monkeypatch):
    """A plain trainer trains with the closed form, and leaves a model that was never profiled."""
    monkeypatch.setattr(admin_trainer, "profile_omega", None)
    new_model().save_pretrained(tmp_path)
    model = AdminForConditionalGeneration.from_pretrained(tmp_path)
    AdminTrainer(model, arguments(max_steps=1), train_dataset=random_ids(14)).train()
    assert not model.config.omega_profiled


@pytest.mark.parametrize("profiled", [True, False])
def test_a_new_model_with_the_configuration_of_a_saved_one_is_profiled(new_model, arguments, tmp_path, profiled):
    """Its weights are new, whatever the configuration says of the model that it was saved with."""
    new_model(omega_profiled=profiled).save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.from_pretrained(tmp_path))
    AdminTrainer(model, arguments(max_steps=1), train_dataset=random_ids(14)).train()
    assert model.config.omega_profiled
    block = model.model.encoder.layers[2].ffn_residual
    assert not torch.equal(block.omega, torch.full_like(block.omega, block.initial_omega))


def test_omega_that_was_loaded_into_a_new_model_is_kept(new_model, arguments, monkeypatch):
    monkeypatch.setattr(admin_trainer, "profile_omega", None)
    profiled, model = new_model(), new_model()
    profile_omega(profiled, whole_batch(random_ids(14)))
    model.load_state_dict(profiled.state_dict())
    AdminTrainer(model, arguments(max_steps=1), train_dataset=random_ids(14)).train()
    for (name, omega), (_, loaded) in zip(model.named_buffers(), profiled.named_buffers(), strict=True):
        assert torch.equal(omega, loaded), name


def test_profiling_takes_the_mode_of_the_rule_and_leaves_random_numbers_alone(new_model, arguments):
    model = new_model(omega_rule="profile_reference", dropout=0.1)
    run = AdminTrainer(model, arguments(), train_dataset=random_ids(14))
    before = torch.get_rng_state()
    run.measure_omega()
    assert torch.equal(torch.get_rng_state(), before)
    assert model.config.omega_profiled


@pytest.mark.parametrize("budget", [1, 30, 60, 10_000])
def test_profiling_batch_fills_its_budget_with_distinct_pairs(budget):
    data = random_ids(14)
    indices = random_pairs(data, budget, seed=3)
    lengths = [data[index]["target_length"] for index in indices]
    assert indices == random_pairs(data, budget, seed=3)
    assert len(set(indices)) == len(indices) >= 1
    assert sum(lengths) <= budget or len(indices) == 1
    if len(indices) < 14:
        assert sum(lengths) + max(data["target_length"]) > budget


@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_the_authors_profiling_batch_is_one_of_similar_pairs(new_model, arguments, monkeypatch, budget):
    """As a batch of training, which their code measures; random pairs would be mostly padding, which it counts."""
    data, seen = random_ids(40), []
    monkeypatch.setattr(admin_trainer, "profile_omega", lambda model, batch, mode: seen.append(batch) or {})
    model = new_model(omega_rule="profile_reference")
    AdminTrainer(model, arguments(profile_tokens=budget), train_dataset=data).measure_omega()
    (batch,) = seen
    indices = similar_pairs(data, budget, arguments().seed)
    assert batch["labels"].ne(-100).sum(1).tolist() == [data[index]["target_length"] for index in indices]
    longest = max(*data["source_length"], *data["target_length"])
    assert max(batch["labels"].numel(), batch["input_ids"].numel()) <= max(budget, longest)


def reference_nll(model: AdminForConditionalGeneration, dataset: Dataset) -> float:
    """Mean NLL per token, one pair at a time, from the logits."""
    model.eval()
    nll, tokens = 0.0, 0
    for pair in dataset:
        batch = whole_batch(dataset.from_list([pair]))
        log_p = model(**batch).logits.double().log_softmax(-1)
        nll -= log_p.gather(-1, batch["labels"][..., None]).sum().item()
        tokens += len(pair["labels"])
    return nll / tokens


@pytest.mark.parametrize("max_tokens", [12, 50, 4096])
def test_evaluation_weighs_every_token_alike(tiny_model, max_tokens):
    model, data = tiny_model(label_smoothing=0.1).train(), random_ids(9)
    expected = reference_nll(model, data)
    model.train()
    assert mean_nll(model, data, max_tokens=max_tokens) == pytest.approx(expected, rel=1e-5)
    assert model.training


def test_log_has_plain_nll_beside_the_smoothed_loss(new_model, arguments):
    model, data = new_model(omega_rule="log_n"), random_ids(9)
    expected = reference_nll(model, data)
    args = arguments(max_tokens=budget_for(data, 2), gradient_accumulation_steps=2, max_steps=1)
    run = AdminTrainer(model, args, train_dataset=data, eval_dataset=data)
    smoothed = run.model.train()(**whole_batch(data)).loss.item()
    run.evaluate()
    run.train()
    entry = run.state.log_history[0]
    assert entry["nll"] == pytest.approx(expected, rel=1e-5)
    assert entry["loss"] == pytest.approx(smoothed, rel=1e-5)
    assert entry["target_tokens_per_second"] > 0
    metrics = run.evaluate()
    assert metrics["eval_perplexity"] == pytest.approx(math.exp(reference_nll(run.model, data)), rel=1e-5)


def test_the_speed_of_training_leaves_evaluations_out(new_model, arguments, monkeypatch):
    """By a clock that moves in an evaluation by a day, and by a second from one look at it to the next."""
    looks, days = count(), [0]

    def evaluation(*args, **kwargs):
        days.append(1)
        return {"loss": 1.0}

    monkeypatch.setattr(callbacks, "time", SimpleNamespace(perf_counter=lambda: 86_400 * sum(days) + next(looks)))
    monkeypatch.setattr(admin_trainer, "validation_scores", evaluation)
    data = random_ids(30)
    args = arguments(eval_strategy="steps", eval_steps=2, logging_steps=3)
    run = AdminTrainer(new_model(), args, train_dataset=data, eval_dataset=data)
    run.train()
    assert sum(days) == 3
    logged = [row for row in run.state.log_history if "target_tokens_per_second" in row]
    assert [row["target_tokens"] / row["target_tokens_per_second"] < 10 for row in logged] == [True, True]


def test_translations_are_scored_as_plain_text(tiny_model, arguments, tokenizer):
    model, data = tiny_model(vocab_size=len(tokenizer)), text_pairs(tokenizer, 6)
    ids = generate_ids(model, data["input_ids"][:4], num_beams=2, length_penalty=0.6)
    expected = corpus_scores(tokenizer.batch_decode(ids, skip_special_tokens=True), data["target"][:4], with_ter=False)
    args = arguments(eval_bleu=True, generation_length_penalty=0.6, eval_bleu_sentences=4)
    metrics = AdminTrainer(model, args, eval_dataset=data, processing_class=tokenizer).evaluate()
    assert {name: metrics[f"eval_{name}"] for name in expected} == expected
    assert metrics["eval_bleu_signature"].startswith("nrefs:1|case:mixed")


def test_bleu_takes_the_tokeniser_of_the_target_language(tiny_model, arguments, tokenizer):
    args, data = arguments(eval_bleu=True, target_language="zh"), text_pairs(tokenizer, 2)
    model = tiny_model(vocab_size=len(tokenizer))
    metrics = AdminTrainer(model, args, eval_dataset=data, processing_class=tokenizer).evaluate()
    assert "|tok:zh|" in metrics["eval_bleu_signature"]


def test_bleu_takes_the_raw_references(tiny_model, arguments, tokenizer, monkeypatch):
    data = text_pairs(tokenizer, 6)
    shouted = data.map(lambda pair: {"target": pair["target"].upper()})
    monkeypatch.setattr(evaluation, "generate_ids", lambda *args, **options: [ids[:-1] for ids in data["labels"]])
    model = tiny_model(vocab_size=len(tokenizer))
    run = AdminTrainer(model, arguments(eval_bleu=True), processing_class=tokenizer)
    metrics = run.evaluate({"same": data, "shouted": shouted})
    assert metrics["eval_same_bleu"] == pytest.approx(100)
    assert metrics["eval_shouted_bleu"] < 50


def test_early_stopping_and_best_checkpoint_follow_bleu(new_model, arguments, tokenizer):
    data = text_pairs(tokenizer, 6)
    steps = {f"{name}_strategy": "steps" for name in ("eval", "save")} | {"eval_steps": 1, "save_steps": 1}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "bleu", "max_steps": 50, "learning_rate": 0.0}
    run = AdminTrainer(
        new_model(vocab_size=len(tokenizer)),
        arguments(eval_bleu=True, **steps, **best),
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    run.train()
    assert run.state.global_step == 3
    assert run.state.best_global_step == 1
    assert run.state.best_metric == run.state.log_history[1]["eval_bleu"]


def test_patience_counts_on_across_a_resume(new_model, arguments):
    data = random_ids(6)
    steps = {f"{name}_strategy": "steps" for name in ("eval", "save")} | {"eval_steps": 1, "save_steps": 1}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "learning_rate": 0.0, "max_steps": 50}

    def run(*callbacks: TrainerCallback) -> AdminTrainer:
        patience = EarlyStoppingCallback(early_stopping_patience=4)
        args, datasets = arguments(**steps, **best), {"train_dataset": data, "eval_dataset": data}
        return AdminTrainer(new_model(), args, **datasets, callbacks=[patience, *callbacks])

    run(StopAfter(3)).train()
    resumed = run()
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 5


class KeepWeights(TrainerCallback):
    """Keeps the weights of the last update."""

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_stops_before_an_update_that_is_not_finite(new_model, arguments):
    model, keep = new_model(), KeepWeights()
    args = arguments(save_strategy="steps", save_steps=2)
    run = AdminTrainer(model, args, train_dataset=random_ids(14), callbacks=[keep])
    poison(model, run, update=4)
    with pytest.raises(DivergedError, match="at update 4: loss nan, gradient norm nan, learning rate 0") as error:
        run.train()
    assert str(Path(args.output_dir) / "checkpoint-2") in str(error.value)
    torch.testing.assert_close(model.state_dict(), keep.weights, rtol=0, atol=0)


def test_the_pairs_of_a_diverged_update_are_kept(new_model, arguments, tokenizer):
    """Those of both of its batches, as text."""
    data = text_pairs(tokenizer, 14)
    given = {(pair["source"], pair["target"]) for pair in data}
    args = arguments(gradient_accumulation_steps=2, eval_bleu=False)
    model = new_model(vocab_size=len(tokenizer))
    run = AdminTrainer(model, args, train_dataset=data, processing_class=tokenizer)
    poison(model, run, update=2)
    with pytest.raises(DivergedError) as error:
        run.train()
    file = Path(args.output_dir) / "diverged-update-2.tsv"
    assert f"Its pairs are in {file}." in str(error.value)
    kept = [tuple(line.split("\t")) for line in file.read_text().splitlines()]
    sizes = [len(batch["labels"]) for batch in run.guard.batches]
    assert len(kept) == sum(sizes) > max(sizes)
    assert set(kept) <= given


def test_pairs_without_a_tokenizer_are_kept_as_ids(tmp_path):
    batch = Seq2SeqCollator(9)([{"input_ids": [5, 0], "labels": [6, 7, 0]}, {"input_ids": [4, 3, 0], "labels": [8, 0]}])
    file = tmp_path / "pairs.tsv"
    assert write_pairs([batch], file, None, None)
    assert file.read_text() == "5 0\t6 7 0\n4 3 0\t8 0\n"
    assert not write_pairs([batch], tmp_path / "absent" / "pairs.tsv", None, None)


def test_a_checkpoint_that_was_cut_off_is_not_the_last_good_one(tmp_path):
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text("{}")
    error = diverged(5, math.nan, math.nan, 0.1, str(tmp_path))
    assert str(error).endswith(f"The last good checkpoint is {tmp_path / 'checkpoint-2'}.")


def test_divergence_before_the_first_checkpoint_says_so(new_model, arguments):
    model = new_model()
    run = AdminTrainer(model, arguments(), train_dataset=random_ids(14))
    poison(model, run, update=1)
    with pytest.raises(DivergedError, match="No checkpoint had been saved yet"):
        run.train()


def test_a_gradient_scaler_may_overflow_but_not_for_ever():
    guard = DivergenceGuard()
    norms = [math.inf] * (MAX_OVERFLOWS - 1) + [1.0] + [math.nan] * MAX_OVERFLOWS
    verdicts = [guard.is_diverged(norm, MAX_OVERFLOWS) for norm in norms]
    assert verdicts == [False] * (len(norms) - 1) + [True]


@pytest.mark.parametrize(
    "fields", [{"train_omega": True}, *({"variant": v} for v in ("dlcl_pre_ln", "dlcl_post_ln", "rezero"))]
)
def test_weight_decay_acts_on_matrices_alone(new_model, arguments, fields):
    model = new_model(**fields)
    decayed, spared = AdminTrainer(model, arguments(weight_decay=0.1)).create_optimizer().param_groups
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    matrices = ("proj.weight", "fc1.weight", "fc2.weight", "shared.weight")
    assert {p for p, name in names.items() if name.endswith(matrices)} == set(decayed["params"])
    assert set(names) - set(decayed["params"]) == set(spared["params"])


def test_checkpoint_has_tokenizers_and_says_that_a_cache_may_be_used(new_model, arguments, tokenizer):
    model = new_model(vocab_size=len(tokenizer), decoder_vocab_size=len(tokenizer))
    target_tokenizer = toy_tokenizer(seed=1)
    run = AdminTrainer(
        model,
        arguments(max_steps=1, save_strategy="steps"),
        train_dataset=text_pairs(tokenizer, 6),
        processing_class=tokenizer,
        target_tokenizer=target_tokenizer,
    )
    run.train()
    folder = f"{run.args.output_dir}/checkpoint-1"
    assert AutoConfig.from_pretrained(folder).use_cache
    source, target = load_tokenizers(folder)
    assert (source.get_vocab(), target.get_vocab()) == (tokenizer.get_vocab(), target_tokenizer.get_vocab())
    assert source.model_max_length == target.model_max_length == 64


def test_smoothing_twice_is_refused(new_model, arguments):
    with pytest.raises(ValueError, match="set label_smoothing in the model's configuration"):
        AdminTrainer(new_model(), arguments(label_smoothing_factor=0.1))


def test_several_gpus_in_one_process_are_refused(new_model, arguments):
    args = arguments()
    args._n_gpu = 2
    with pytest.raises(ValueError, match="one process has 2 GPUs; start one process a GPU: accelerate launch"):
        AdminTrainer(new_model(), args)


def test_the_allocator_is_set_where_training_begins(new_model, arguments, monkeypatch):
    calls = []
    monkeypatch.setattr(admin_trainer, "keep_freed_memory", lambda: calls.append("set"))
    run = AdminTrainer(new_model(), arguments(max_steps=1), train_dataset=random_ids(14))
    assert not calls
    run.train()
    assert calls == ["set"]


def test_a_model_goes_with_the_last_reference_to_its_trainer(new_model, arguments):
    run = AdminTrainer(new_model(), arguments(max_steps=1), train_dataset=random_ids(14))
    run.train()
    model = weakref.ref(run.model)
    gc.disable()
    try:
        del run
        assert model() is None
    finally:
        gc.enable()


def test_missing_pairs_are_named(new_model, arguments):
    with pytest.raises(ValueError, match="train_dataset is missing"):
        AdminTrainer(new_model(), arguments()).train()


@pytest.mark.parametrize("split", ["train", "eval"])
def test_a_sentence_that_is_too_long_is_told_before_the_training(arguments, new_model, tiny_config, split):
    """And not when its batch comes."""
    positions = tiny_config().max_position_embeddings
    datasets = {f"{name}_dataset": random_ids(8) for name in ("train", "eval")}
    datasets[f"{split}_dataset"] = with_lengths([{"input_ids": [5] * positions + [0], "labels": [5, 0]}])
    args = arguments(max_tokens=4 * positions, eval_strategy="steps", eval_steps=3)
    trainer = AdminTrainer(new_model(), args, **datasets)
    with pytest.raises(
        ValueError, match=rf"{split}_dataset: a sentence has {positions + 1} tokens, .* max_length={positions}\)"
    ):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_lower_perplexity_is_better(arguments):
    for name, better in (("eval_perplexity", False), ("perplexity", False), ("eval_loss", False), ("eval_bleu", True)):
        assert arguments(metric_for_best_model=name).greater_is_better is better
    assert arguments(metric_for_best_model="eval_perplexity", greater_is_better=True).greater_is_better


def test_the_precision_of_accelerates_configuration_is_taken_for_what_it_is(arguments, tiny_config, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert precision(arguments(), tiny_config()) == "bfloat16"
    refused = arguments(bf16=False)
    assert precision(refused, tiny_config()) == "float32" and refused.mixed_precision == "no"
