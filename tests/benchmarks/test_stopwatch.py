"""What is counted of a training: the updates behind the warm-up, all of their batches and no other."""

import pytest
import torch
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.benchmarks import stopwatch, training_speed
from admin_nmt.benchmarks.stopwatch import Stopwatch


def new_trainer(tiny_config, folder, **fields) -> AdminTrainer:
    args = AdminTrainingArguments(
        str(folder), max_tokens=40, max_steps=4, use_cpu=True, save_strategy="no", disable_tqdm=True, **fields
    )
    return AdminTrainer(AdminForConditionalGeneration(tiny_config()), args, train_dataset=random_ids(24))


@pytest.mark.parametrize("warm_up", [0, 3])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_counts_what_is_trained_after_the_warm_up(tiny_config, tmp_path, warm_up, accumulation):
    trainer, seen = new_trainer(tiny_config, tmp_path, gradient_accumulation_steps=accumulation), []
    step = trainer.training_step
    trainer.training_step = lambda model, inputs, *rest: seen.append(inputs) or step(model, inputs, *rest)
    watch = Stopwatch(trainer, warm_up)
    trainer.train()
    measured = seen[warm_up * accumulation :]
    assert len(seen) == 4 * accumulation
    assert watch.shapes == [(*inputs["input_ids"].shape, inputs["labels"].shape[1]) for inputs in measured]
    assert watch.tokens == sum(int((inputs["labels"] != -100).sum()) for inputs in measured)


def test_waits_for_the_device_at_both_ends(tiny_config, tmp_path, monkeypatch):
    """A GPU is still computing when Python goes on: each reading of the clock comes after a synchronisation."""
    events, trainer = [], new_trainer(tiny_config, tmp_path)
    monkeypatch.setattr(stopwatch, "synchronize", lambda device: events.append("wait"))
    clock = iter(range(100))
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: events.append("read") or next(clock))
    watch = Stopwatch(trainer, warm_up=2)
    trainer.training_step = lambda *args: events.append("update") or torch.tensor(0.0, requires_grad=True)
    trainer.train()
    own = [e for e in events if e == "update" or e == "wait"]
    assert own == ["wait", "update", "update", "wait", "update", "update", "wait"]
    assert watch.seconds > 0 and watch.first_seconds > 0


def test_a_gpu_warms_up_for_longer_than_a_cpu(monkeypatch):
    monkeypatch.setattr(training_speed.torch.cuda, "is_available", lambda: False)
    cpu = training_speed.warm_up()
    monkeypatch.setattr(training_speed.torch.cuda, "is_available", lambda: True)
    assert training_speed.warm_up() > cpu > 0


def test_batches_are_taken_evenly_from_the_smallest_to_the_largest():
    """The rounds of one measurement take others, and together every size."""
    lengths = [[length] for length in (5, 1, 4, 2, 6, 3)]
    batches = [[index] for index in range(6)]
    sides = [torch.tensor(lengths).flatten().numpy()] * 2
    rounds = [training_speed.evenly(batches, sides, 2, (seed + 0.5) / 3) for seed in range(3)]
    assert [[lengths[index][0] for (index,) in batch] for batch in rounds] == [[1, 4], [2, 5], [3, 6]]
