"""Bars and lines on a pseudo-terminal and without one."""

import io
import os
import sys

import pytest

from admin_nmt.system.terminal import PlainLines, is_terminal, lines_for, progress_bar


@pytest.fixture
def terminal(monkeypatch):
    """Called in a test, makes stdout and stderr a pseudo-terminal and gives a function that reads what came there."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 80))
    stream = os.fdopen(writer, "w")

    def written() -> str:
        stream.write("\0")  # what was written before is there when this is
        stream.flush()
        found = b""
        while not found.endswith(b"\0"):
            found += os.read(reader, 65536)
        return found[:-1].decode()

    def attach():
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, stream)
        return written

    yield attach
    stream.close()
    os.close(reader)


def test_a_bar_is_drawn_on_a_terminal_and_goes_when_it_is_done(terminal):
    written = terminal()
    with progress_bar(desc="work", unit="pair", total=3) as bar:
        bar.update(3)
        assert "work" in written()
    last = written().replace("\r\n", "\n").split("\r")
    assert last[-1] == "" and not last[-2].strip()  # overwritten with spaces


def test_a_line_stands_above_the_bar(terminal):
    written = terminal()
    with progress_bar(desc="work", unit="pair", total=3, mininterval=0) as bar:
        bar.update(1)
        lines_for(sys.stdout).write("a line")
        before, _, after = written().partition("a line\r\n")
        *_, blank, start = before.split("\r")
        assert start == "" and not blank.strip()  # the bar was overwritten with spaces
        assert "work" in after


def test_no_bar_is_drawn_where_nobody_looks(terminal, monkeypatch):
    written = terminal()
    assert progress_bar(desc="work", unit="pair", shown=False).disable
    monkeypatch.setenv("TERM", "dumb")
    assert list(progress_bar([1, 2], desc="work", unit="pair")) == [1, 2]
    assert written() == "" and not is_terminal(io.StringIO())


def test_a_log_has_a_line_for_each_interval(monkeypatch):
    """Short work leaves none."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert list(progress_bar(range(7), desc="work", unit="pair")) == [*range(7)]
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr("admin_nmt.system.terminal.LOG_INTERVAL", 0.0)
    with progress_bar(desc="work", unit="pair", total=7) as bar:
        for _ in range(7):
            bar.update()
    assert " 3/7 [" in sys.stderr.getvalue()
    assert all(line.startswith("work:") for line in sys.stderr.getvalue().splitlines())


def test_lines_are_in_colours_on_a_terminal_unless_they_are_not_wanted(terminal, monkeypatch, capsys):
    """And never broken: a terminal does that itself, and puts them together again when it is made wider."""
    lines_for(sys.stdout).write("x" * 300, "bold")
    assert capsys.readouterr().out == "x" * 300 + "\n"
    written = terminal()
    lines_for(sys.stdout).write("[bold] :smile: 12 green" + "x" * 300, "green")
    assert written() == "\x1b[32m[bold] :smile: 12 green" + "x" * 300 + "\x1b[0m\r\n"
    monkeypatch.setenv("NO_COLOR", "1")
    lines_for(sys.stdout).write("12 plain", "green")
    assert written() == "12 plain\r\n"
    monkeypatch.setenv("TERM", "dumb")
    assert type(lines_for(sys.stdout)) is PlainLines
