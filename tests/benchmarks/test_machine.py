"""The benchmark of a machine at toy size: every part runs, its page is whole, and what was measured is kept."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import admin_nmt
from admin_nmt.benchmarks import data_preparation, parts, planning_growth, start_time, training_speed, translation_speed
from admin_nmt.benchmarks.machine import growth, machine_parts, part_runner
from admin_nmt.benchmarks.machine.machine_facts import slug
from admin_nmt.benchmarks.machine.machine_page import index_page, machine_page
from admin_nmt.benchmarks.machine.machine_page import warnings as machine_warnings
from admin_nmt.benchmarks.machine.machine_parts import PARTS, Plan
from admin_nmt.benchmarks.machine.page_section import spread
from admin_nmt.benchmarks.machine.part_runner import Case, Part, Session, read_results
from admin_nmt.cli.app import app
from admin_nmt.model import dlcl

CPU = {"name": "AMD EPYC", "flags": ["avx2", "avx512_bf16"], "used": "AVX512", "fast_bfloat16": True}
CPU |= {"cores": 2, "threads": 2}
PREPARED = {  # as `data_preparation.measure` gives it
    "pairs": 200, "copies": 2, "vocab_size": 400, "num_proc": 1, "text_gb": 0.1, "cache_gb": 0.1,
    "steps": [{"step": "reading", "pairs": 200, "seconds": 1.0, "pairs_per_second": 200.0, "cpu_seconds": 2.0,
               "peak_memory_gb": 0.5},
              {"step": "tokenising", "pairs": 200, "seconds": 3.0, "pairs_per_second": 66.0, "cpu_seconds": 3.0,
               "peak_memory_gb": 0.5}],
    "start": {"imports": 1.0, "first update": 4.0, "planning": 2.0, "batches": 10, "pairs": 400},
}  # fmt: skip
PLANNED = [{"pairs": 10**power, "seconds": 10.0 ** (power - 6), "peak_mb": float(power)} for power in (4, 6, 9)]
TIMES = ("answer_seconds", "seconds", "cpu_seconds")


def here(function, *arguments):
    """Instead of `alone`: a process of its own takes seconds to import the library."""
    return function(*arguments)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """The folder of this machine after the whole benchmark at toy size, one round of each comparison."""
    root = tmp_path_factory.mktemp("benchmark")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.delenv("ADMIN_NMT_SHARED", raising=False)
        for module in (training_speed, translation_speed, parts, growth):
            patch.setattr(module, "alone", here)
        patch.setattr(dlcl, "_sum_in_one_buffer", dlcl._sum_in_one_buffer)  # `parts` replaces it, in its own process
        patch.setattr(data_preparation, "measure", lambda args: PREPARED)
        patch.setattr(planning_growth, "measure", lambda args: {"growth": PLANNED})
        patch.setattr(start_time, "launch", lambda arguments: dict.fromkeys(TIMES, float(len(arguments))))
        result = CliRunner().invoke(app, ["benchmark", "--toy", "--rounds", "1", "--output", str(root / "machines")])
    assert result.exit_code == 0, result.output
    (page,) = (root / "machines").glob("*/README.md")
    assert str(page) in result.stdout
    return page.parent


def test_the_page_has_every_part(measured):
    page = (measured / "README.md").read_text(encoding="utf-8")
    assert "1-1 d 16, 256 tokens | ours |" in page and "CTranslate2 int8" in page
    (shares,) = re.findall(r"^\| random, 1-1 d 16 \|((?: \d+% \|){6})$", page, re.MULTILINE)
    assert 98 <= sum(map(int, re.findall(r"\d+", shares))) <= 102
    assert "dlcl_stacked" in page and "tokenising | 0.75 | 3.0 |" in page
    assert "| 10,000 | 1.00 | 0.01 | 66.67 | 4 |" in page and "| admin-nmt translate --text | 1.50 | 6.00 |" in page
    for name in PARTS:
        assert f"admin-nmt benchmark {name} --again" in page
        assert read_results(measured, name).cases
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", page):
        assert (measured / picture).read_bytes().startswith(b"\x89PNG")
    assert len(re.findall(r"!\[", page)) >= len(growth.TOY)
    facts = json.loads((measured / "machine.json").read_text(encoding="utf-8"))
    assert {"python", "torch", "transformers", "tokenizers"} <= facts["versions"].keys()
    assert facts["cpu"]["threads"] > 0 and facts["memory_gb"] > 0 and facts["slug"] == measured.name


def test_an_absolute_number_has_its_ratio_beside_it(measured):
    """Of the tables that compare, each row begins with what is compared; a ratio comes before any other number."""
    page = (measured / "README.md").read_text(encoding="utf-8")
    absolute = ("a second", "seconds", "MB", "GB", "pairs a second")
    heads = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ") and "times" in line]
    assert len(heads) >= 6
    for head in heads:
        first = next(place for place, name in enumerate(head) if name.endswith(absolute))
        assert any("times" in name for name in head[:first]), head
    index = (measured.parent / "README.md").read_text(encoding="utf-8")
    assert f"]({measured.name}/README.md)" in index
    for line in index.splitlines():
        if line.startswith("| ") and "](" not in line:
            assert re.fullmatch(r"\| .+ \| (\d+\.\d\d( \(\d+\.\d\d–\d+\.\d\d\))?|–) \|", line), line


def test_what_is_measured_is_kept(measured, monkeypatch):
    """The same command measures nothing more, and with --again that part alone."""
    asked = []
    monkeypatch.chdir(measured.parent.parent)
    monkeypatch.delenv("ADMIN_NMT_SHARED", raising=False)
    for name in ("training_speed", "translation_speed", "parts", "growth"):
        module = getattr(machine_parts, name)
        monkeypatch.setattr(module, "alone", lambda function, *arguments: asked.append(function) or {})
    before = {path.name: path.read_bytes() for path in measured.glob("*.json") if path.name != "machine.json"}
    command = ["benchmark", "--toy", "--rounds", "1", "--output", str(measured.parent)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0 and "everything has been measured" in result.stderr
    assert asked == []
    assert before == {path.name: path.read_bytes() for path in measured.glob("*.json") if path.name != "machine.json"}
    result = CliRunner().invoke(app, ["benchmark", "--rounds", "1", "--output", str(measured.parent)])
    assert result.exit_code == 1 and "other settings of" in result.stderr  # a trial is not mixed with a measurement


@pytest.mark.slow
def test_every_part_runs_in_its_own_processes(tmp_path):
    """As the command does it: with the preparation, the planning and the programs that the other tests leave out."""
    command = [sys.executable, "-m", "admin_nmt", "benchmark", "--toy", "--rounds", "1", "--output", "machines"]
    variables = {name: value for name, value in os.environ.items() if name != "ADMIN_NMT_SHARED"}
    variables["PYTHONPATH"] = str(Path(admin_nmt.__file__).parents[1])
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / done.stdout.splitlines()[-1]).read_text(encoding="utf-8")
    assert "| tokenising |" in page and "| admin-nmt translate --text |" in page and "| 1,000 |" in page


@pytest.mark.parametrize("arguments", [["speed"], ["--again", "speed"]])
def test_an_unknown_part_is_refused_with_the_names(arguments, tmp_path):
    result = CliRunner().invoke(app, ["benchmark", "--output", str(tmp_path), *arguments])
    assert result.exit_code != 0
    assert "there is no part 'speed'; the parts are training, decoding, loss" in result.stderr
    assert not [*tmp_path.iterdir()]


def test_options_of_a_part_come_behind_it(tmp_path):
    result = CliRunner().invoke(app, ["benchmark", "--toy", "--output", str(tmp_path), "loss"])
    assert result.exit_code == 2
    assert "belongs behind the part: admin-nmt benchmark loss --" in result.stderr
    assert not [*tmp_path.iterdir()]


def test_a_shape_and_a_folder_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--shape: '9-9' is not one of 6-6, 4-4, 30-6"):
        PARTS["training"](Plan(tmp_path, shapes=["9-9"]))
    with pytest.raises(ValueError, match=r"has no train\.en\.gz; give the folder of Multi30k"):
        PARTS["training"](Plan(tmp_path))


def test_the_folder_is_named_by_processor_and_instructions():
    assert slug(CPU) == slug(CPU | {"cores": 64}) == "amd-epyc-avx512-bf16"
    limited = CPU | {"used": "AVX2", "fast_bfloat16": False}
    assert slug(limited) == "amd-epyc-avx2"
    intel = {"name": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "flags": ["avx512_bf16", "amx_bf16"]}
    assert slug(CPU | intel) == "intel-xeon-platinum-8481c-amx"
    assert slug(CPU | {"name": "AMD EPYC 9B14 96-Core Processor"}) == "amd-epyc-9b14-avx512-bf16"
    assert slug(CPU, "NVIDIA H100") == "amd-epyc-avx512-bf16-nvidia-h100"


def test_a_machine_that_emulates_bfloat16_leaves_stock_bf16_out():
    assert training_speed.systems(True) == training_speed.SYSTEMS
    assert set(training_speed.SYSTEMS) - set(training_speed.systems(False)) == {"stock grouped bf16"}


def one_part(values: dict, settings: dict | None = None) -> Part:
    """A part whose cases give these values; one that is an exception raises it."""

    def measure(name: str):
        if isinstance(values[name], BaseException):
            raise values[name]
        return values[name]

    cases = [Case(name, 1.0, lambda name=name: measure(name)) for name in values]
    return Part("some", settings or {"size": 1}, cases)


def test_an_interrupted_call_goes_on(tmp_path, capsys):
    shown = []
    session = Session(tmp_path, shown.append)
    with pytest.raises(KeyboardInterrupt):
        session.run([one_part({"a": 1, "b": KeyboardInterrupt(), "c": 3})])
    assert shown == [session.folder]  # the page of what is there
    assert read_results(session.folder, "some").values() == [1]
    capsys.readouterr()
    session.run([one_part({"a": AssertionError(), "b": 2, "c": 3})])
    assert read_results(session.folder, "some").values() == [1, 2, 3]
    assert "2 measurements are left, about 2 s" in capsys.readouterr().err
    session.run([one_part({"a": 4, "b": 5, "c": 6})], again=["some"])
    assert read_results(session.folder, "some").values() == [4, 5, 6]
    assert not [*session.folder.glob(".lock")]


def test_what_cannot_stand_on_one_page_is_refused(tmp_path, monkeypatch):
    session = Session(tmp_path, lambda folder: None)
    session.run([one_part({"a": 1})])
    with pytest.raises(ValueError, match=r"some.json: was measured with other settings of size \(1, not 2\); --again"):
        session.run([one_part({"a": 1}, {"size": 2})])
    session.facts["cpu"]["threads"] += 1
    with pytest.raises(ValueError, match=r"machine\.json: has other cores, threads or instructions"):
        session.run([one_part({"a": 1})])
    (session.folder / "some.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        read_results(session.folder, "some")


def test_other_work_is_told(tmp_path, monkeypatch, capsys):
    clock = iter([0.0, 100.0])
    monkeypatch.setattr("admin_nmt.benchmarks.machine.machine_facts.busy_seconds", lambda: next(clock))
    monkeypatch.setattr(part_runner, "load_average", lambda: 3.0)
    session = Session(tmp_path, lambda folder: None)
    session.run([Part("training", {"corpus": "x", "shapes": {}}, [Case("a", 1.0, dict)])])
    assert "load average 3.0" in (said := capsys.readouterr().err) and "other work used" in said
    results = read_results(session.folder, "training")
    assert results.cases["a"]["others"] > part_runner.BUSY
    (told,) = machine_warnings({"training": results})
    assert "Other work ran during training:" in told
    (session.folder / "training.json").unlink()
    assert "Other work ran during" not in machine_page(session.folder)
    assert "No machine" not in index_page(tmp_path) and "No machine" in index_page(tmp_path / "empty")


def test_ratios_have_their_range():
    assert spread([2.0]) == "2.00"
    assert spread([1.0, 3.0, 2.0]) == "2.00 (1.00–3.00)"


def test_growth_goes_from_both_ends_and_keeps_its_order(monkeypatch):
    seen = []

    def fake(function, points, seed):
        seen.append([point.width for point in points])
        return [{"tokens_per_second": 1000 / point.width} for point in points]

    monkeypatch.setattr(growth, "alone", fake)
    rounds = [growth.measure_axis(growth.AXES["width"], number) for number in range(2)]
    assert seen == [[128, 256, 384, 512], [512, 384, 256, 128]]
    assert [row["width"] for row in rounds[1]] == [128, 256, 384, 512]
    assert growth.relative(rounds)[3] == [0.25, 0.25]
    depth, batch = (growth.AXES[name].ideal() for name in ("depth", "batch"))
    assert batch == [1.0] * 6
    assert depth == sorted(depth, reverse=True) and depth[0] == 1.0 and 0.15 < depth[-1] < 0.3
