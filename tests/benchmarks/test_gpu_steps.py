"""The steps of the GPU benchmark at toy size on a CPU, and the page that is made of their results."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from admin_nmt.benchmarks.gpu import step_worker, update_speed
from admin_nmt.benchmarks.gpu.checks import test_counts as counts_of
from admin_nmt.benchmarks.gpu.gpu_page import write_page
from admin_nmt.benchmarks.gpu.gpu_setup import Setup
from admin_nmt.benchmarks.gpu.gpu_steps import all_steps
from admin_nmt.benchmarks.gpu.step_runner import Step, read_results
from admin_nmt.benchmarks.gpu.update_speed import UpdateCase
from admin_nmt.experiments.grids import load_grid

GRID = Path(__file__).parents[2] / "training" / "grids" / "gpu-msdocs.yaml"
ELSEWHERE = ("tests", "fetch-conformance", "conformance-")  # these start pytest again, or fetch from PyPI


@pytest.fixture
def setup(tmp_path) -> Setup:
    for folder in ("steps", "logs"):
        (tmp_path / folder).mkdir()
    return Setup(tmp_path, GRID, toy=True)


def test_every_step_has_a_name_of_its_own_and_a_function_that_takes_its_arguments():
    steps = all_steps()
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        module, name = step.function.split(":")
        assert callable(getattr(import_module(f"admin_nmt.benchmarks.gpu.{module}"), name)), step
        json.dumps(step.arguments)
        assert 0 < step.estimate <= step.limit, step
        if module == "update_speed":
            UpdateCase(**step.arguments)
    assert {step.name.partition("-")[0] for step in steps if step.on_cpu} == {"data", "fetch", "predict"}


def test_every_system_of_the_grid_is_trained_and_each_prediction_is_measured():
    arguments = {step.name: step.arguments for step in all_steps()}
    trained = [fields["system"] for name, fields in arguments.items() if name.startswith("train-")]
    assert trained == list(load_grid(GRID).systems)
    predictions = {name.removeprefix("predict-"): fields for name, fields in arguments.items() if "predict-" in name}
    assert predictions and all(arguments[f"updates-{name}"] == fields for name, fields in predictions.items())


def test_a_step_that_raises_leaves_its_error(setup, monkeypatch):
    def out_of_memory(setup: Setup, size: int) -> None:
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} GiB\nand more")

    module = ModuleType("made_up")
    module.fails = out_of_memory
    monkeypatch.setitem(sys.modules, "admin_nmt.benchmarks.gpu.made_up", module)
    step_worker.run(Step("fails", "made_up:fails", {"size": 7}), setup, {"driver": "580.1"})
    result = read_results(setup)["fails"]
    assert result["status"] == "failed" and result["driver"] == "580.1"
    assert result["error"] == "OutOfMemoryError: CUDA out of memory. Tried to allocate 7 GiB"


def test_a_step_that_is_stopped_leaves_nothing(setup, monkeypatch):
    module = ModuleType("made_up")
    module.stopped = lambda setup: step_worker.interrupted(15, None)
    monkeypatch.setitem(sys.modules, "admin_nmt.benchmarks.gpu.made_up", module)
    with pytest.raises(KeyboardInterrupt):
        step_worker.run(Step("stopped", "made_up:stopped"), setup, {})
    assert read_results(setup) == {}


def test_the_page_tells_of_failures_and_of_what_is_left(setup):
    facts = {"device": "NVIDIA H200", "driver": "580.1", "versions": {"torch": "2.13"}, "commit": None, "toy": True}
    results = {"tests": {"passed": 9, "skipped": 1, "failed": {"a::b": "x | y"}}}
    for name, value in results.items():
        text = json.dumps(facts | {"status": "done", "result": value})
        (setup.output / "steps" / f"{name}.json").write_text(text)
    failed = facts | {"status": "failed", "error": "OutOfMemoryError: a | b"}
    (setup.output / "steps" / "updates-6-6-4k.json").write_text(json.dumps(failed))
    page = write_page(setup, all_steps()).read_text()
    assert "Toy size" in page and f"1 of {len(all_steps())} steps done, 1 failed. Left: data, " in page
    assert "| NVIDIA H200 | 580.1 | – | 2.13 | – | – | 2 |" in page
    assert "| tests | 9 | 1 | 1 |" in page and r"| `a::b` | x \| y |" in page
    assert r"| updates-6-6-4k | OutOfMemoryError: a \| b |" in page
    assert set(json.loads((setup.output / "results.json").read_text())) == {"tests", "updates-6-6-4k"}


def test_pytest_is_counted(tmp_path):
    """A report as pytest 9.2 writes it."""
    (tmp_path / "report.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">'
        '<testsuite name="pytest" errors="0" failures="1" skipped="1" tests="3" time="0.1">'
        '<testcase classname="test_x" name="test_one" time="0.0" />'
        '<testcase classname="test_x" name="test_two" time="0.0">'
        '<failure message="assert 1 == 2&#10;more">def</failure></testcase>'
        '<testcase classname="test_x" name="test_three"><skipped type="pytest.skip" message="no" /></testcase>'
        "</testsuite></testsuites>"
    )
    counts = counts_of(tmp_path / "report.xml")
    assert (counts["passed"], counts["skipped"]) == (1, 1)
    assert counts["failed"] == {"test_x::test_two": "assert 1 == 2"}


def test_a_case_changes_torch_and_leaves_it_as_it_was():
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()
    with update_speed.kernels(UpdateCase(1, 1, precision="tf32", cudnn=False)):
        assert (torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()) == ("high", False)
    assert (torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()) == before


@pytest.mark.slow
def test_every_step_at_toy_size(setup):
    """In this process, but for the trainings; the page has a table and a picture of each kind."""
    steps = [step for step in all_steps() if not step.name.startswith(ELSEWHERE)]
    for step in steps:
        step_worker.run(step, setup, {"driver": None})
    results = read_results(setup)
    failed = {name: result["error"] for name, result in results.items() if result["status"] == "failed"}
    on_gpus_alone = {name for name in failed if "flash_attention_2" in name or "CTranslate2-float16" in name}
    assert set(failed) == on_gpus_alone, failed
    measured = results["updates-60-12-4k"]["result"]
    assert measured["updates"] > 0 and measured["shapes"] > 1 and measured["tokens_per_second"] > 0
    assert results["train-admin-60-12"]["result"]["bleu"] is not None
    page = write_page(setup, all_steps()).read_text()
    titles = ("Updates", "One update of 60-12-4k, profiled", "Attention on 20", "Training", "Decoding")
    assert all(f"\n## {title}" in page for title in titles)
    for picture in ("updates", "attention", "curves", "search"):
        assert f"({picture}.png)" in page and (setup.output / f"{picture}.png").stat().st_size > 10_000


@pytest.mark.slow
def test_two_calls_of_the_command(tmp_path):
    """The first runs out of time while it prepares the data, the second goes on and is done."""
    command = [sys.executable, "-m", "admin_nmt", "benchmark", "gpu", "--toy", "--output", str(tmp_path)]
    command += ["--only", "data", "--only", "attention-4k"]
    codes = []
    for minutes in ("0.05", "9", "9"):
        codes.append(subprocess.run([*command, "--minutes", minutes], capture_output=True, check=False).returncode)
    assert codes == [1, 0, 0] and (tmp_path / "attention.png").exists()
    statuses = {name: result["status"] for name, result in read_results(Setup(tmp_path, GRID)).items()}
    assert statuses == {"data": "done", "attention-4k": "done"}
