"""One of two processes is killed: the job ends with an error, the next one with the result of a straight run."""

import os
import shutil
import time
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from campaign import Running, assert_done, assert_same, contents, trials
from distributed_worker import FSDP2

pytestmark = pytest.mark.campaign

SETTINGS: dict[str, dict[str, str]] = {"DDP": {}, "FSDP2": FSDP2}
COMMAND = ["train", "recipe.yaml"]
SECONDS = 60  # from the death of one process to the end of the job


def two_processes(settings: dict[str, str]) -> None:
    """What `accelerate launch` does with two processes, which are forked instead of started anew."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.update(settings)
    rendezvous = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": str(os.getpid())}
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=0, start_method="fork", **rendezvous)
    elastic_launch(config, one_of_them)()


def one_of_them() -> None:
    from admin_nmt.cli.app import main

    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def start(kind: str, folder: Path) -> Running:
    return Running(COMMAND, folder, main=partial(two_processes, SETTINGS[kind]))


@pytest.fixture(scope="session")
def straight(inputs: Path, tmp_path_factory: pytest.TempPathFactory):
    """What two processes leave that nobody kills, and the seconds from their start."""

    @cache
    def get(kind: str) -> tuple[dict[str, Any], float]:
        work = Path(shutil.copytree(inputs, tmp_path_factory.mktemp("two") / kind))
        job = start(kind, work)
        both_processes(job)
        begun = time.monotonic()
        assert_done(job.wait())
        return contents(work), time.monotonic() - begun

    return get


def both_processes(job: Running) -> list[psutil.Process]:
    """The two, once they are there."""
    while job.process.is_alive():
        children = psutil.Process(job.process.pid).children()
        if len(children) == 2:
            return children
        time.sleep(0.01)
    raise AssertionError(job.wait().tail)


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("number", trials(10))
def test_one_of_two_is_killed(number, kind, straight, inputs: Path, folder: Path, draw: Random):
    expected, seconds = straight(kind)
    work = folder / "work"
    shutil.copytree(inputs, work)
    job = start(kind, work)
    both = both_processes(job)
    print("rank", rank := draw.randrange(2), "after", moment := draw.random())
    time.sleep(moment * seconds)
    was_running = both[rank].is_running()
    if was_running:
        both[rank].kill()
    ended = job.wait(SECONDS)
    assert ended.code or not was_running or "[5/5]" in ended.out.decode(), "the job does not say that a process died"
    assert not any(process.is_running() for process in both)
    if ended.code:
        assert_done(start(kind, work).wait())
    assert_same(expected, work)
