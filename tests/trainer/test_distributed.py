"""Two processes do what one does, whether each has all weights (DDP) or a part of them (FSDP2)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed_worker import SAVED, train_and_evaluate
from torch.torch_version import TorchVersion
from toy import random_ids
from transformers import MarianConfig, MarianMTModel

from admin_nmt.trainer.sharding import check_torch, load_weights, read_weights

WORKER = Path(__file__).parents[1] / "distributed_worker.py"


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> dict:
    """A run of one process that accumulates two batches where two processes take one each, and a checkpoint of it."""
    folder = tmp_path_factory.mktemp("one_process")
    return train_and_evaluate(folder, accumulation=2) | {"checkpoint": folder / f"checkpoint-{SAVED}"}


@pytest.fixture(scope="module")
def two_processes(one_process, tmp_path_factory) -> tuple[Path, list[dict]]:
    """Where each of two gloo processes wrote, and what it found."""
    folder = tmp_path_factory.mktemp("two_processes")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", WORKER]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    launch += [one_process["checkpoint"], folder]
    done = subprocess.run(launch, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


@pytest.fixture(params=["ddp", "fsdp2"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def ranks(two_processes, kind) -> list[dict]:
    return [found[kind] for found in two_processes[1]]


def assert_same_run(found: dict, expected: dict) -> None:
    # Without the biases of the keys: softmax takes their gradient away, and Adam scales what rounding leaves of it.
    weights = [
        {name: weight for name, weight in run["weights"].items() if not name.endswith("k_proj.bias")}
        for run in (found, expected)
    ]
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.tensor(found["log"]), torch.tensor(expected["log"]), rtol=1e-4, atol=1e-5)
    assert found["nll"] == pytest.approx(expected["nll"], rel=1e-4)
    assert found["translations"] == expected["translations"]


def test_trains_the_same_weights_and_evaluates_every_pair_once(one_process, ranks):
    """From the beginning, and from the checkpoint of one process."""
    for found in ranks:
        assert_same_run(found, one_process)
        assert_same_run(found["continued"], one_process)
        assert found["takes other weights"]


def test_fsdp2_shards_the_weights(one_process, two_processes):
    parts = [found["fsdp2"]["local_size"] for found in two_processes[1]]
    weights = one_process["weights"].items()
    assert sum(parts) == sum(weight.numel() for name, weight in weights if not name.endswith("omega"))
    assert min(parts) > 0.4 * sum(parts)


def test_one_process_goes_on_from_a_checkpoint_of_shards(one_process, two_processes, tmp_path):
    checkpoint = two_processes[0] / "fsdp2" / "run" / f"checkpoint-{SAVED}"
    assert_same_run(train_and_evaluate(tmp_path, accumulation=2, resume=checkpoint), one_process)


def test_resumes_in_the_middle_of_an_epoch_bit_for_bit(ranks):
    for found in ranks:
        torch.testing.assert_close(found["resumed"], found["straight"], rtol=0, atol=0)


def test_all_processes_stop_when_one_diverges(two_processes):
    first, second = (found["divergence"] for found in two_processes[1])
    assert first == second
    assert "diverged at update 4: loss nan, gradient norm nan" in first
    assert "diverged-update-4-process*.tsv." in first


def test_all_processes_stop_after_the_update_that_follows_the_signal(ranks):
    first, second = (found["stop"] for found in ranks)
    assert first == second
    assert "after update 6 of 9" in first


def test_bfloat16_is_what_autocast_makes_of_it_though_the_weights_are_sharded(two_processes):
    """The skip connections and the loss stay float32, as in DDP, and the numbers are DDP's."""
    for found in two_processes[1]:
        assert found["fsdp2"]["bfloat16"]["dtypes"] == {torch.float32}
        sharded, whole = (torch.tensor(found[kind]["bfloat16"]["log"]) for kind in ("fsdp2", "ddp"))
        torch.testing.assert_close(sharded, whole, rtol=2e-3, atol=0)  # products and sums in another order


def test_predictions_are_those_of_the_dataset(two_processes):
    """Without what fills up the last batches of two processes."""
    for found in two_processes[1]:
        labels, count = found["predicted"]
        assert [[token for token in row if token != -100] for row in labels] == random_ids(5, seed=2)["labels"][:]
        assert count == 5


def test_the_log_counts_the_tokens_of_all_processes(two_processes):
    """Though each divides its loss by its own: batches differ by a token or two."""
    for found in two_processes[1]:
        for loss, nll in found["own tokens"]:
            assert nll == pytest.approx(loss, rel=0.1)


def test_a_second_training_with_master_weights_is_one_of_all_processes(two_processes):
    first, second = (found["twice"] for found in two_processes[1])
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize(
    "missing", ["model.encoder.layers.0.fc1.bias", "model.decoder.layers.1.ffn_residual.omega"], ids=["bias", "omega"]
)
def test_refuses_weights_that_are_not_all(tiny_model, missing):
    """A constant ω is a buffer, not a parameter: the model would keep its own and translate otherwise."""
    model = tiny_model(variant="admin")
    weights = {name: weight for name, weight in model.state_dict().items() if name != missing}
    with pytest.raises(ValueError, match=missing):
        load_weights(model, weights)


def test_takes_saved_weights_of_a_stock_marian(tmp_path):
    """Which come without its sinusoids."""
    config = MarianConfig(
        vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32,
        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32, pad_token_id=59,
        decoder_start_token_id=59,
    )  # fmt: skip
    saved, other = MarianMTModel(config), MarianMTModel(config)
    saved.save_pretrained(tmp_path)
    load_weights(other, read_weights(tmp_path))
    torch.testing.assert_close(dict(other.named_parameters()), dict(saved.named_parameters()), rtol=0, atol=0)


def test_torch_may_be_too_old_for_fsdp2():
    check_torch(TorchVersion("2.10.0+cpu"))
    with pytest.raises(ValueError, match=r"torch 2\.9\.1"):
        check_torch(TorchVersion("2.9.1"))
