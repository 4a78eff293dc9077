"""Steps in shards: nothing half written, nothing finished lost."""

import errno
import multiprocessing
import os
import signal
from functools import partial

import pytest
from toy import DAMAGES, double, doubled, removed, truncated


def killed_at_500(batch):
    if 500 in batch["n"].to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    return double(batch)


def full_at_500(batch):
    if 500 in batch["n"].to_pylist():
        raise OSError(errno.ENOSPC, "No space left on device")
    return double(batch)


@pytest.fixture
def double_all(tmp_path, small_shards):
    return partial(doubled, tmp_path / "step")


@pytest.mark.parametrize("num_proc", [1, 3])
def test_the_order_is_that_of_the_dataset(double_all, num_proc, tmp_path):
    doubled = double_all(num_proc=num_proc)
    assert doubled["n"][:] == list(range(0, 2000, 2))
    assert doubled._fingerprint == "f"
    assert len(list((tmp_path / "step").glob("*.arrow"))) == 10


@pytest.mark.parametrize(
    ("fault", "message"),
    [(killed_at_500, "doubling: a worker process was killed"), (full_at_500, r"the disk of .*step is full")],
)
def test_a_fault_is_reported_and_the_rest_is_kept(double_all, tmp_path, fault, message):
    with pytest.raises(OSError, match=message):
        double_all(fault, num_proc=2)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "step").glob("*.arrow")}
    assert tmp_path / "step" / "00005.arrow" not in before
    assert double_all(num_proc=2)["n"][:] == list(range(0, 2000, 2))
    assert all(path.stat().st_mtime_ns == date for path, date in before.items())


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_shards_are_named_and_made_again(double_all, tmp_path, damage, caplog):
    double_all()
    before = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "step").glob("*.arrow"))}
    for number in ("00002", "00009"):
        damage(tmp_path / "step" / f"{number}.arrow")
    assert double_all()["n"][:] == list(range(0, 2000, 2))
    named = [record.getMessage() for record in caplog.records]
    made = [f"{tmp_path}/step/{number}.arrow is damaged; it is made again" for number in ("00002", "00009")]
    assert named == ([] if damage is removed else made)
    assert sum(path.stat().st_mtime_ns != date for path, date in before.items()) == 2


def test_processes_that_find_the_same_damage_all_read_whole_shards(double_all, tmp_path):
    """They start at once, three times over, on a folder of which every other shard is damaged."""
    context = multiprocessing.get_context("fork")
    start, sums = context.Barrier(4), context.Queue()

    def work():
        start.wait()
        sums.put(sum(double_all(num_proc=1)["n"][:]))

    for _ in range(3):
        double_all(num_proc=1)
        for path in sorted((tmp_path / "step").glob("*.arrow"))[::2]:
            truncated(path)
        workers = [context.Process(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        assert [sums.get(timeout=60) for _ in workers] == [sum(range(0, 2000, 2))] * 4
        for worker in workers:
            worker.join()
