"""The page without a browser: what it shows, asked as Gradio's client asks it."""

import subprocess
import sys
from pathlib import Path

import pytest
from toy import random_texts
from typer.testing import CliRunner

from admin_nmt.cli.app import app

gradio = pytest.importorskip("gradio", reason="needs Gradio, the extra demo")

from gradio_client import Client  # noqa: E402

from admin_nmt.demo.page import _translate, build_page, serve  # noqa: E402
from admin_nmt.demo.session import ServedModel, Settings  # noqa: E402

PLAIN = (5, 1.0, "PyTorch", 2)  # beam size, length penalty, backend, layer


def test_a_client_gets_the_translation(served):
    page = build_page([served])
    address = serve(page, "127.0.0.1")
    try:
        assert address.startswith("http://127.0.0.1:") and page.share_url is None
        client = Client(address, verbose=False, analytics_enabled=False)
        (text,) = random_texts(1)
        message, translation, speed, details = client.predict(text, 3, 0.5, "PyTorch", 1, api_name="/translate")
        expected = served.translate([text], Settings(3, 0.5))
        assert not message and translation == expected.text and "tokens a second" in speed
        assert details.count('<td data-head="score">') == len(expected.sentences[0]) and "nmt-heat" in details
        with pytest.raises(Exception, match=r"99|greater|maximum"):
            client.predict(text, 99, 0.5, "PyTorch", 1, api_name="/translate")
    finally:
        page.close(verbose=False)


def test_two_models_answer_side_by_side(served, folder):
    other = ServedModel(folder)
    config = build_page([served, other]).get_config_file()
    boxes = [part for part in config["components"] if "nmt-translation" in (part["props"].get("elem_classes") or [])]
    assert len(boxes) == 2 and {box["props"]["label"] for box in boxes} == {str(folder)}
    (text,) = random_texts(1)
    message, *shown = _translate([served, other], text, *PLAIN)
    assert not message and len(shown) == 6 and shown[0] == shown[3] and shown[0]


@pytest.mark.parametrize("text", ["", None, " \n", "a" * 2000, "Bal\n" * 30])
def test_a_text_that_is_refused_gets_a_sentence(served, text):
    message, *rest = _translate([served], text, *PLAIN)
    assert 'role="alert"' in message and rest == ["", "", ""]


def test_what_one_model_cannot_do_is_said_below_it(served, monkeypatch):
    def refuse(engine: str) -> None:
        raise ValueError(f"{served.folder}: cannot run in {engine}")

    monkeypatch.setattr(served, "translator", refuse)
    message, translation, below, details = _translate([served], "Bal.", *PLAIN)
    assert not message and not translation and not details
    assert 'role="alert"' in below and "cannot run in PyTorch" in below


def test_a_bug_is_no_message(served, monkeypatch):
    monkeypatch.setattr(served, "translator", lambda engine: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _translate([served], "Bal.", *PLAIN)


def test_the_page_asks_nobody_else(served):
    """No analytics, no fonts or scripts of other sites, nothing shared, and a queue that ends."""
    page = build_page([served])
    assert not page.analytics_enabled and page._queue.max_size
    (function,) = [one for one in page.fns.values() if one.api_name == "translate"]
    assert function.concurrency_limit


def test_a_port_that_is_taken(served):
    first, second = build_page([served]), build_page([served])
    serve(first, "127.0.0.1")
    try:
        with pytest.raises(OSError, match=f"port {first.server_port}: something else listens there"):
            serve(second, "127.0.0.1", first.server_port)
    finally:
        first.close(verbose=False)


def test_the_command_refuses_what_is_no_model(tmp_path):
    result = CliRunner().invoke(app, ["demo", str(tmp_path)])
    assert result.exit_code == 1 and "has no config.json" in result.stderr
    assert CliRunner().invoke(app, ["demo"]).exit_code == 2


def test_without_gradio(tmp_path: Path):
    (tmp_path / "gradio.py").write_text("raise ModuleNotFoundError('No module named gradio', name='gradio')\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from admin_nmt.cli.app import main; main()"
    result = subprocess.run([sys.executable, "-c", script, "demo", "x"], capture_output=True, text=True, check=False)
    assert result.returncode == 1 and result.stderr.strip().endswith('needs Gradio: pip install "admin_nmt[demo]"')
