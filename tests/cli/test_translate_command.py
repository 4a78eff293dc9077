"""Lines that go into the command translate and come out of it: paragraphs, several processes, and lines that wait."""

import signal
import subprocess
import sys
from subprocess import PIPE

import pytest
import torch
from toy import ENVIRONMENT, error, invoke, random_texts, started_translation

from admin_nmt import Translator
from admin_nmt.decoding import translation_job

LOADED = """
import sys
from typer.testing import CliRunner
from admin_nmt.cli.app import app
result = CliRunner().invoke(app, ["translate", *sys.argv[1:]], catch_exceptions=False)
assert result.exit_code == 0, result.stderr
print(*sys.modules)
"""
# Of data and training; transformers itself imports accelerate.
NEVER_NEEDED = {
    "admin_nmt.data.parallel_text", "admin_nmt.metrics.scores", "admin_nmt.runs.recipe", "admin_nmt.trainer",
    "ctranslate2", "datasets", "matplotlib", "pyarrow", "sacrebleu", "sacremoses", "transformers.trainer",
}  # fmt: skip


@pytest.mark.slow  # a process
def test_a_translation_loads_nothing_for_data_and_training(model, tmp_path):
    """Imports are most of the time from launch to translation."""
    (tmp_path / "in").write_text("A line.\n")
    command = [sys.executable, "-c", LOADED, model, "--input", tmp_path / "in"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "admin_nmt.decoding.translator" in loaded
    assert NEVER_NEEDED & loaded == set()


def test_processes_take_the_devices_in_turn_and_share_the_threads(monkeypatch):
    def places(device: str | None, processes: int | None) -> list[tuple]:
        return [(place["device"], place["threads"]) for place in translation_job.places(device, processes)]

    monkeypatch.setattr(translation_job, "checked_device", lambda name: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert places(None, None) == [(None, None)]
    assert places("cpu", 3) == [("cpu", 2)] * 3
    assert places("cuda:0, cpu", None) == [("cuda:0", 4), ("cpu", 4)]
    assert places("cuda:1,cuda:0", 3) == [("cuda:1", 2), ("cuda:0", 2), ("cuda:1", 2)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert places(None, 4) == [("cuda:0", 2), ("cuda:1", 2)] * 2


def test_paragraphs(model, tmp_path):
    pytest.importorskip("sentencex")
    sentences = random_texts(5)
    first, second, third, fourth, fifth = Translator.from_pretrained(model, num_beams=2).translate(sentences)
    paragraphs = f"{sentences[0]} {sentences[1]}\n\n{sentences[2]}\n \n{sentences[3]}\t{sentences[4]}\n"
    (tmp_path / "in").write_text(paragraphs)
    command = ["translate", model, "--num-beams", 2, "--split-sentences"]
    assert "--source-language" in error(*command)
    (model / "README.md").write_text("---\nlanguage: [en, de]\ntags: [admin_nmt]\n---\n")
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    invoke(*command, *files)
    lines = [f"{first} {second}", "", third, "", f"{fourth}\t{fifth}"]
    assert (tmp_path / "out").read_text() == "".join(f"{line}\n" for line in lines)
    assert invoke(*command, stdin=paragraphs).stdout == (tmp_path / "out").read_text()


@pytest.mark.slow  # tests/decoding/test_streaming.py has the parts, in one process
@pytest.mark.parametrize("processes", [1, 2])
def test_a_line_is_answered_while_others_are_not_there_yet(model, processes):
    """One line, its answer, then many at once, the last of them without its line feed."""
    source = [*random_texts(20), "", *random_texts(10, 1)]
    expected = Translator.from_pretrained(model, num_beams=1).translate(source)
    options = ["--num-beams", 1, "--chunk", 8, "--processes", processes]
    with started_translation(model, *options, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        process.stdin.write(f"{source[0]}\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{expected[0]}\n"
        rest, stderr = process.communicate("\n".join(source[1:]))
    assert process.returncode == 0, stderr
    assert rest == "".join(f"{line}\n" for line in expected[1:])


@pytest.mark.slow
def test_an_interrupt_ends_a_command_that_waits_for_lines(model):
    with started_translation(model, "--num-beams", 1, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        process.stdin.write("Ba.\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read().splitlines()[-1].startswith("interrupted")
