"""Training: gradients, resume, ω, and what ends a run."""

import gc
import math
import weakref
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from toy import StopAfter, budget_for, last_gradient, poison, random_ids, text_pairs, toy_tokenizer, with_lengths
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from admin_nmt import AdminForConditionalGeneration, AdminTrainer
from admin_nmt.data.batching import Seq2SeqCollator
from admin_nmt.data.tokenization.tokenizer_folder import load_tokenizers
from admin_nmt.data.tokenized_pairs import random_pairs, similar_pairs
from admin_nmt.trainer import admin_trainer
from admin_nmt.trainer.divergence import MAX_OVERFLOWS, DivergedError, DivergenceGuard, write_pairs
from admin_nmt.weights.exporting import standard_model
from admin_nmt.weights.profiling import profile_omega


def whole_batch(dataset: Dataset) -> dict[str, torch.Tensor]:
    return Seq2SeqCollator(98)(dataset.to_list())


def exact_gradient(model: AdminForConditionalGeneration, dataset: Dataset) -> dict[str, torch.Tensor]:
    model.train()(**whole_batch(dataset)).loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("accumulation", [1, 4])
def test_gradient_is_that_of_the_whole_batch_under_accumulation(new_model, arguments, tmp_path, accumulation):
    """The plain trainer of transformers makes the same."""
    data = random_ids(24)
    expected = exact_gradient(new_model(omega_rule="log_n"), data)
    args = arguments(max_tokens=budget_for(data, accumulation), gradient_accumulation_steps=accumulation, max_steps=1)
    ours = AdminTrainer(new_model(omega_rule="log_n"), args, train_dataset=data)
    batches = {"per_device_train_batch_size": 24 // accumulation, "gradient_accumulation_steps": accumulation}
    quiet = {"max_grad_norm": 0, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    args = Seq2SeqTrainingArguments(str(tmp_path), max_steps=1, **batches, **quiet)
    plain = Seq2SeqTrainer(new_model(omega_rule="log_n"), args, Seq2SeqCollator(98), train_dataset=data)
    for trainer in (ours, plain):
        torch.testing.assert_close(last_gradient(trainer), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variant", ["post_ln", "pre_ln"])
def test_stock_model_gets_the_gradient_of_the_model_it_came_from(new_model, arguments, variant):
    """A stock model's own loss weighs batches, whatever their size, equally. (GELU has no kink to round across.)"""
    data = random_ids(24)
    batches = {"max_tokens": budget_for(data, 4), "gradient_accumulation_steps": 4}
    stock = standard_model(new_model(variant=variant, activation_function="gelu"))
    args = arguments(max_steps=1, label_smoothing_factor=0.1, **batches)
    gradient = last_gradient(AdminTrainer(stock, args, train_dataset=data))
    expected = exact_gradient(new_model(variant=variant, activation_function="gelu", label_smoothing=0.1), data)
    expected = {name: grad for name, grad in expected.items() if name in gradient}
    assert {"model.shared.weight", "model.decoder.layers.0.fc2.weight"} <= set(expected)
    torch.testing.assert_close({name: gradient[name] for name in expected}, expected, rtol=1e-4, atol=1e-6)


def with_padding(dataset: Dataset, pad: int) -> Dataset:
    """The same pairs, with labels as a tokenizer leaves them that was asked to pad."""
    longest = max(dataset["target_length"]) + 1
    return dataset.map(lambda row: {"labels": row["labels"] + [pad] * (longest - len(row["labels"]))})


@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_padding_in_labels_changes_nothing(new_model, arguments, kind):
    data, found = random_ids(24), []
    own_smoothing = 0.0 if kind == "ours" else 0.1
    batches = {"max_tokens": budget_for(data, 2), "gradient_accumulation_steps": 2}
    args = arguments(max_steps=1, label_smoothing_factor=own_smoothing, **batches)
    for pairs in (data, with_padding(data, 98)):
        model = new_model(variant="post_ln", label_smoothing=0.1)
        model = model if kind == "ours" else standard_model(model)
        run = AdminTrainer(model, args, train_dataset=pairs, eval_dataset=pairs)
        nll, gradient = run.evaluate()["eval_loss"], last_gradient(run)
        (entry,) = (entry for entry in run.state.log_history if "loss" in entry)
        assert entry["target_tokens"] == sum(data["target_length"])
        found.append(({"eval": nll, "loss": entry["loss"], "nll": entry["nll"]}, gradient))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_padding_in_labels_that_another_collator_leaves_is_refused(new_model, arguments, kind, tokenizer):
    size = len(tokenizer)
    model = new_model(variant="post_ln", vocab_size=size)
    columns = ["input_ids", "labels", "source_length", "target_length"]
    pairs = with_padding(text_pairs(tokenizer, 6), size - 1).select_columns(columns)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    model = model if kind == "ours" else standard_model(model)
    run = AdminTrainer(model, arguments(max_steps=1), train_dataset=pairs, data_collator=collator)
    with pytest.raises(ValueError, match="<pad>"):
        run.train()


def test_a_dataset_as_tokenizers_make_it_trains_alike(new_model, arguments):
    """Without columns of lengths, and with attention_mask; padding in it is refused."""
    data = random_ids(24)
    usual = data.remove_columns(["source_length", "target_length"])
    usual = usual.add_column("attention_mask", [[1] * len(ids) for ids in data["input_ids"]])
    models = [new_model(omega_rule="profile") for _ in range(2)]
    for model, pairs in zip(models, (data, usual), strict=True):
        args = arguments(max_tokens=budget_for(data, 5), max_steps=2)
        AdminTrainer(model, args, train_dataset=pairs, eval_dataset=pairs).train()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)
    padded = {"attention_mask": lambda row: {"attention_mask": [0, *row["attention_mask"][1:]]}}
    padded["labels"] = lambda row: {"labels": [*row["labels"], -100]}
    for column, change in padded.items():
        with pytest.raises(ValueError, match=f"padding, by its column '{column}'"):
            AdminTrainer(models[0], arguments(max_steps=1), train_dataset=usual.map(change)).train()


def test_every_target_token_counts_whatever_the_release_leaves_out(new_model, arguments):
    """In some releases the Trainer leaves out the first label of models whose class it takes for a causal one."""
    trainer = AdminTrainer(new_model(), arguments())
    trainer._loss_shifts_labels = True
    labels = [[[5, 6, 0], [7, 0, -100]], [[-100, 8, 0], [-100, -100, 0]]]
    batches = [{"labels": torch.tensor(rows)} for rows in labels]
    assert trainer.get_batch_samples(iter(batches), 2, trainer.args.device) == (batches, 8)
    assert trainer.get_batch_samples(iter([]), 2, trainer.args.device) == ([], None)


@pytest.mark.parametrize(
    ("update", "fields"), [(7, {}), (4, {"gradient_accumulation_steps": 2}), (6, {"optimizer": "adam"})]
)
def test_interrupted_run_ends_like_the_straight_one_bit_for_bit(new_model, arguments, update, fields):
    """In the middle of an epoch; at other moments: test_stop_request.py."""
    data = random_ids(14)
    args = arguments(max_tokens=budget_for(data, 5), max_steps=9, **fields)  # so 5 updates an epoch, or 3
    straight, first, second = (new_model(dropout=0.1) for _ in range(3))
    AdminTrainer(straight, args, train_dataset=data).train()
    AdminTrainer(first, args, train_dataset=data, callbacks=[StopAfter(update)]).train()
    torch.manual_seed(12345)
    AdminTrainer(second, args, train_dataset=data).train(resume_from_checkpoint=True)
    torch.testing.assert_close(second.state_dict(), straight.state_dict(), rtol=0, atol=0)


def test_refuses_a_checkpoint_that_stands_elsewhere_in_the_epoch(new_model, arguments):
    data = random_ids(14)
    args = arguments(max_tokens=budget_for(data, 5), max_steps=9)
    AdminTrainer(new_model(), args, train_dataset=data, callbacks=[StopAfter(4)]).train()
    args = arguments(max_tokens=budget_for(data, 5), max_steps=9, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match=r"checkpoint-4: was saved at epoch 0\.80 .* here these are 1\.33"):
        AdminTrainer(new_model(), args, train_dataset=data).train(resume_from_checkpoint=True)
    args.ignore_data_skip = True
    resumed = AdminTrainer(new_model(), args, train_dataset=data)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 9


def test_profiles_once_and_not_on_resume(new_model, arguments, monkeypatch):
    calls = []

    def profile(*args):
        calls.append(args)
        return profile_omega(*args)

    monkeypatch.setattr(admin_trainer, "profile_omega", profile)
    args, data = arguments(), random_ids(14)
    first, resumed = new_model(), new_model()
    run = AdminTrainer(first, args, train_dataset=data, callbacks=[StopAfter(2)])
    run.train()
    run.train()
    assert len(calls) == 1
    AdminTrainer(resumed, args, train_dataset=data).train(resume_from_checkpoint=f"{args.output_dir}/checkpoint-2")
    assert len(calls) == 1
    assert resumed.config.omega_profiled
    name = "model.encoder.layers.1.ffn_residual.omega"
    assert torch.equal(resumed.state_dict()[name], first.state_dict()[name])
    assert not torch.equal(resumed.state_dict()[name], new_model().state_dict()[name])


def test_profiling_leaves_random_numbers_alone(new_model, arguments):
    model = new_model(omega_rule="profile_reference", dropout=0.1)
    run = AdminTrainer(model, arguments(), train_dataset=random_ids(14))
    before = torch.get_rng_state()
    run.settle_omega()
    assert model.config.omega_profiled and torch.equal(torch.get_rng_state(), before)


def settled(model: AdminForConditionalGeneration, args) -> AdminForConditionalGeneration:
    """The model as a training of it begins."""
    AdminTrainer(model, args, train_dataset=random_ids(14)).settle_omega()
    return model


def test_a_new_model_is_profiled_and_no_other(new_model, arguments, tmp_path):
    """A plain trainer trains with the closed form, and leaves a model that was never profiled."""
    for fields in ({"variant": "post_ln"}, {"omega_rule": "log_n"}):
        assert not settled(new_model(**fields), arguments()).config.omega_profiled
    profiled, filled = new_model(), new_model()
    profile_omega(profiled, whole_batch(random_ids(14)))
    filled.load_state_dict(profiled.state_dict())
    settled(filled, arguments())
    for (name, omega), (_, loaded) in zip(filled.named_buffers(), profiled.named_buffers(), strict=True):
        assert torch.equal(omega, loaded), name
    for number, is_profiled in enumerate((True, False)):
        new_model(omega_profiled=is_profiled).save_pretrained(tmp_path / str(number))
    assert not settled(AdminForConditionalGeneration.from_pretrained(tmp_path / "1"), arguments()).config.omega_profiled
    for number in range(2):  # new weights, whatever the configuration says of those that it was saved with
        made = AutoModelForSeq2SeqLM.from_config(AutoConfig.from_pretrained(tmp_path / str(number)))
        block = settled(made, arguments()).model.encoder.layers[1].ffn_residual
        assert made.config.omega_profiled and block.omega.ne(block.initial_omega).all()


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
    monkeypatch.setattr(admin_trainer, "profile_omega", lambda model, batch: seen.append(batch) or {})
    args = arguments(profile_tokens=budget)
    AdminTrainer(new_model(omega_rule="profile_reference"), args, train_dataset=data).measure_omega()
    (batch,) = seen
    indices = similar_pairs(data, budget, args.seed)
    assert batch["labels"].ne(-100).sum(1).tolist() == [data[index]["target_length"] for index in indices]
    longest = max(*data["source_length"], *data["target_length"])
    assert max(batch["labels"].numel(), batch["input_ids"].numel()) <= max(budget, longest)


class KeepWeights(TrainerCallback):
    """Keeps the weights of the last update."""

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("fields", [{}, {"optimizer": "adam"}, {"master_weights": True}], ids=str)
def test_stops_before_an_update_that_is_not_finite(new_model, arguments, tokenizer, fields):
    """With the weights before it; the pairs of both of its batches are kept as text."""
    data, keep = text_pairs(tokenizer, 14), KeepWeights()
    args = arguments(gradient_accumulation_steps=2, save_strategy="steps", save_steps=2, **fields)
    model = new_model(vocab_size=len(tokenizer))
    run = AdminTrainer(model, args, train_dataset=data, processing_class=tokenizer, callbacks=[keep])
    poison(model, run, update=4)
    with pytest.raises(DivergedError, match="at update 4: loss nan, gradient norm nan, learning rate 0") as error:
        run.train()
    for place in ("checkpoint-2", "diverged-update-4.tsv"):
        assert str(Path(args.output_dir) / place) in str(error.value)
    if not fields.get("master_weights"):  # of which the copies were kept
        torch.testing.assert_close(model.state_dict(), keep.weights, rtol=0, atol=0)
    assert all(p.isfinite().all() and p.dtype == torch.float32 for p in model.parameters())
    lines = (Path(args.output_dir) / "diverged-update-4.tsv").read_text().splitlines()
    sizes = [len(batch["labels"]) for batch in run.guard.batches]
    assert len(lines) == sum(sizes) > max(sizes)
    assert {tuple(line.split("\t")) for line in lines} <= {(pair["source"], pair["target"]) for pair in data}


def test_pairs_without_a_tokenizer_are_kept_as_ids(tmp_path):
    batch = Seq2SeqCollator(9)([{"input_ids": [5, 0], "labels": [6, 7, 0]}, {"input_ids": [4, 3, 0], "labels": [8, 0]}])
    file = tmp_path / "pairs.tsv"
    assert write_pairs([batch], file, None, None)
    assert file.read_text() == "5 0\t6 7 0\n4 3 0\t8 0\n"
    assert not write_pairs([batch], tmp_path / "absent" / "pairs.tsv", None, None)


def test_a_gradient_scaler_may_overflow_but_not_for_ever():
    guard = DivergenceGuard()
    norms = [math.inf] * (MAX_OVERFLOWS - 1) + [1.0] + [math.nan] * MAX_OVERFLOWS
    verdicts = [guard.is_diverged(norm, MAX_OVERFLOWS) for norm in norms]
    assert verdicts == [False] * (len(norms) - 1) + [True]


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_the_norm_and_the_clipping_are_the_trainers(new_model, arguments, monkeypatch, limit):
    args, runs = arguments(max_grad_norm=limit), []
    for patch in (False, True):
        if patch:
            monkeypatch.setattr("admin_nmt.trainer.hooks.gradient_norm", lambda parameters: None)
        run = AdminTrainer(new_model(omega_rule="log_n"), args, train_dataset=random_ids(40))
        run.train()
        runs.append(run)
    norms = [[row["grad_norm"] for row in run.state.log_history if "grad_norm" in row] for run in runs]
    assert norms[0] == norms[1] and max(norms[0]) > limit
    torch.testing.assert_close(*(run.model.state_dict() for run in runs), rtol=0, atol=0)


@pytest.mark.parametrize("fields", [{"train_omega": True}, {"variant": "dlcl_pre_ln"}, {"variant": "rezero"}], ids=str)
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


@pytest.mark.parametrize("split", ["train", "eval"])
def test_a_sentence_that_is_too_long_is_told_before_the_training(arguments, new_model, tiny_config, split):
    """And not when its batch comes."""
    positions = tiny_config().max_position_embeddings
    datasets = {f"{name}_dataset": random_ids(8) for name in ("train", "eval")}
    datasets[f"{split}_dataset"] = with_lengths([{"input_ids": [5] * positions + [0], "labels": [5, 0]}])
    args = arguments(max_tokens=4 * positions, eval_strategy="steps", eval_steps=3)
    trainer = AdminTrainer(new_model(), args, **datasets)
    with pytest.raises(ValueError, match=f"{split}_dataset: .*{positions + 1} tokens"):
        trainer.train()
    assert trainer.state.global_step == 0
