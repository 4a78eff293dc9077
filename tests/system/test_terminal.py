"""Bars and lines on a pseudo-terminal and without one."""

import io
import os
import sys
from types import SimpleNamespace

import pytest

from admin_nmt.system.terminal import LoggedBar, PlainLines, StyledLines, is_terminal, lines_for, progress_bar


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


def test_no_bar_is_drawn_where_nobody_looks(terminal, monkeypatch):
    written = terminal()
    assert progress_bar(desc="work", unit="pair", shown=False).disable
    monkeypatch.setenv("TERM", "dumb")
    assert list(progress_bar([1, 2], desc="work", unit="pair")) == [1, 2]
    assert written() == ""
    monkeypatch.setenv("TERM", "xterm")
    assert not is_terminal(io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert list(progress_bar([1, 2], desc="work", unit="pair")) == [1, 2]
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("iterates", [True, False])
def test_a_log_has_a_line_a_minute(monkeypatch, iterates):
    """By a clock that goes on by 25 seconds a pair; short work leaves no line."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(LoggedBar, "__init__", with_clock(LoggedBar.__init__, lambda: clock.now))

    def work(pairs: int) -> list[str]:
        if iterates:
            for _ in progress_bar(range(pairs), desc="work", unit="pair"):
                clock.now += 25
        else:
            with progress_bar(desc="work", unit="pair", total=pairs, mininterval=0.1) as bar:
                for _ in range(pairs):
                    clock.now += 25
                    bar.update()
        lines = sys.stderr.getvalue().splitlines()
        sys.stderr.truncate(sys.stderr.seek(0))
        return lines

    assert work(2) == []
    first, second = work(7)
    assert first.startswith("work:") and " 3/7 [01:15<01:40, 25.00s/ pair]" in first
    assert " 6/7 [02:30<00:25, 25.00s/ pair]" in second


def with_clock(init, clock):
    """A constructor of tqdm whose bars go by another clock."""

    def made(self, *args, **options):
        init(self, *args, **options)
        self._time = clock
        self.start_t = self.last_print_t = clock()

    return made


def test_a_line_stands_above_the_bar(terminal):
    written = terminal()
    with progress_bar(desc="work", unit="pair", total=3, mininterval=0) as bar:
        bar.update(1)
        lines_for(sys.stdout).write("a line")
        before, _, after = written().partition("a line\r\n")
        *_, blank, start = before.split("\r")
        assert start == "" and not blank.strip()  # the bar was overwritten with spaces
        assert "work" in after


def test_colours_on_a_terminal_unless_they_are_not_wanted(terminal, monkeypatch):
    written = terminal()
    lines_for(sys.stdout).write("[bold] :smile: 12 green", "green")
    assert written() == "\x1b[32m[bold] :smile: 12 green\x1b[0m\r\n"
    monkeypatch.setenv("NO_COLOR", "1")
    lines_for(sys.stdout).write("12 plain", "green")
    assert written() == "12 plain\r\n"
    monkeypatch.setenv("TERM", "dumb")
    assert type(lines_for(sys.stdout)) is PlainLines


def test_plain_lines_elsewhere(capsys):
    lines_for(sys.stdout).write("x" * 300, "bold")
    assert capsys.readouterr().out == "x" * 300 + "\n"


def test_a_styled_line_is_never_broken():
    """A terminal breaks it itself, and puts it together again when it is made wider."""
    stream = io.StringIO()
    StyledLines(file=stream, width=20, force_terminal=True).write("word " * 30)
    assert stream.getvalue().count("\n") == 1
