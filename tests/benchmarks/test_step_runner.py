"""Steps run one after the other, each call goes on where the last one stopped, and no step stops another."""

import json
import sys
import time
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from admin_nmt.benchmarks.gpu import step_runner
from admin_nmt.benchmarks.gpu.gpu_setup import Setup
from admin_nmt.benchmarks.gpu.step_runner import RESULTS, Call, Step, Worker, check_size, forget, read_results

STUB = Path(__file__).parent / "step_stub.py"
LONG = 600.0  # seconds that no test waits for
SHORT = 60.0  # likewise: see `hanging`


@pytest.fixture
def setup(tmp_path, monkeypatch) -> Setup:
    """A folder for results, and steps whose processes start at once."""
    monkeypatch.setattr(step_runner, "WORKER", [sys.executable, str(STUB)])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(step_runner.signal, "signal", lambda number, handler: None)
    return Setup(tmp_path, tmp_path / "grid.yaml")


@pytest.fixture
def hanging(setup, monkeypatch) -> None:
    """The step "hangs" is found to take too long as soon as it hangs, wherever its limit is shorter than `LONG`."""
    wait = Worker.wait

    def until_it_hangs(worker: Worker, seconds: float) -> int | None:
        while seconds <= SHORT and worker.process.poll() is None and not (setup.output / "child").exists():
            time.sleep(0.02)
        return wait(worker, seconds if seconds > SHORT or seconds == step_runner.PATIENCE else 0.0)

    monkeypatch.setattr(Worker, "wait", until_it_hangs)


def steps(*names: str, **fields) -> list[Step]:
    return [Step(name, "a:b", **{"estimate": 0.0, "limit": LONG} | fields) for name in names]


def statuses(setup: Setup) -> dict[str, str]:
    return {name: result["status"] for name, result in read_results(setup).items()}


def test_a_second_call_has_nothing_to_do(setup):
    assert Call(setup, steps("one", "two"), LONG).run() == []
    assert statuses(setup) == {"one": "done", "two": "done"}
    assert Call(setup, steps("one", "two"), LONG).run() == []
    assert (setup.output / "runs-one").read_text() == "x"


def test_a_step_that_dies_leaves_its_error_and_the_next_one_runs(setup):
    assert Call(setup, steps("dies", "two"), LONG).run() == []
    assert statuses(setup) == {"dies": "failed", "two": "done"}
    assert read_results(setup)["dies"]["error"] == "ended with exit code 3: Segmentation fault"


def test_a_step_that_takes_too_long_is_stopped_with_all_that_it_started(setup, hanging):
    assert Call(setup, steps("hangs", limit=SHORT), LONG).run() == []
    assert read_results(setup)["hangs"]["error"] == "stopped after 60 s"
    child = int((setup.output / "child").read_text())
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.02)


def test_a_step_that_the_end_of_a_call_stopped_is_done_again(setup, hanging):
    hangs = steps("hangs", resumes=True)
    assert Call(setup, hangs, SHORT).run() == hangs
    assert statuses(setup) == {}
    assert Call(setup, hangs, LONG).run() == []
    assert read_results(setup)["hangs"]["result"] == {"runs": 2}


def test_a_step_that_a_whole_call_is_too_short_for_does_not_run_for_ever(setup, hanging):
    assert Call(setup, steps("hangs"), SHORT).run() == []
    assert statuses(setup) == {"hangs": "failed"}


def test_what_does_not_fit_is_left_for_the_next_call(setup):
    first, large, small = steps("first"), steps("large", estimate=1e6), steps("small")
    assert Call(setup, [*first, *large, *small], LONG).run() == large
    assert statuses(setup) == {"first": "done", "small": "done"}
    assert Call(setup, large, LONG).run() == []  # alone it is the first, and runs


def test_the_results_alone_are_enough_to_go_on(setup, tmp_path):
    Call(setup, steps("one", "dies"), LONG).run()
    elsewhere = Setup(tmp_path / "elsewhere", setup.grid)
    elsewhere.output.mkdir()
    (elsewhere.output / RESULTS).write_text(json.dumps(read_results(setup)))
    call = Call(elsewhere, steps("one", "dies", "two"), LONG)
    assert [step.name for step in call.pending()] == ["two"]


def test_a_step_whose_files_did_not_come_with_the_results_is_done_again(setup):
    made = steps("one", leaves="made"), steps("dies", leaves="made")
    Call(setup, [*made[0], *made[1]], LONG).run()
    assert Call(setup, [*made[0], *made[1]], LONG).pending() == made[0]
    (setup.output / "made").touch()
    assert Call(setup, [*made[0], *made[1]], LONG).pending() == []


def test_two_calls_do_not_work_on_one_folder(setup):
    with FileLock(setup.output / "lock"), pytest.raises(ValueError, match="another call runs there"):
        Call(setup, steps("one"), LONG).run()
    assert statuses(setup) == {}


def test_toy_results_are_not_mixed_with_others(setup):
    Call(setup, steps("one"), LONG).run()
    check_size(setup)
    with pytest.raises(ValueError, match=r"results without --toy; choose another --output"):
        check_size(Setup(setup.output, setup.grid, toy=True))


def test_forgotten_steps_run_again(setup):
    Call(setup, steps("one", "dies", "two"), LONG).run()
    forget(setup, ["failed", "two"])
    assert statuses(setup) == {"one": "done"}
    with pytest.raises(ValueError, match="--redo three: there is no such result"):
        forget(setup, ["three"])


def test_a_process_that_cannot_start_is_no_failure_of_the_step(setup, monkeypatch):
    monkeypatch.setattr(step_runner, "WORKER", [sys.executable, "-c", "raise SystemExit('no torch')"])
    with pytest.raises(RuntimeError, match="did not start: no torch"):
        Call(setup, steps("one"), LONG).run()
    assert statuses(setup) == {}
