"""Two processes do what one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed_worker import train_and_evaluate

from admin_nmt.distributed import gather_objects, rank_and_size

WORKER = Path(__file__).with_name("distributed_worker.py")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> list[dict]:
    """What each of two gloo processes found."""
    folder = tmp_path_factory.mktemp("two_processes")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", WORKER, folder]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> dict:
    """The same with one process that accumulates two batches where two processes take one each."""
    return train_and_evaluate(tmp_path_factory.mktemp("one_process"), accumulation=2)


def moved_weights(found: dict) -> dict[str, torch.Tensor]:
    """All but the biases of the keys: softmax takes their gradient away, and Adam scales what rounding leaves of it."""
    return {name: weight for name, weight in found["weights"].items() if not name.endswith("k_proj.bias")}


def test_trains_the_same_weights(one_process, two_processes):
    for found in two_processes:
        torch.testing.assert_close(moved_weights(found), moved_weights(one_process), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.tensor(found["log"]), torch.tensor(one_process["log"]), rtol=1e-4, atol=1e-5)


def test_evaluates_every_pair_once(one_process, two_processes):
    for found in two_processes:
        assert found["nll"] == pytest.approx(one_process["nll"], rel=1e-4)
        assert found["translations"] == one_process["translations"]


def test_resumes_in_the_middle_of_an_epoch_bit_for_bit(two_processes):
    for found in two_processes:
        torch.testing.assert_close(found["resumed"], found["straight"], rtol=0, atol=0)


def test_all_processes_stop_when_one_diverges(two_processes):
    first, second = (found["divergence"] for found in two_processes)
    assert first == second
    assert first.startswith("training diverged at update 4: loss nan, gradient norm nan")


def test_gathers_in_the_order_of_ranks(two_processes):
    assert [found["gathered"] for found in two_processes] == [[(0, 2), (1, 2)]] * 2
    assert gather_objects(rank_and_size()) == [(0, 1)]
