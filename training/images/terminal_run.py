"""Makes terminal-run.svg, the picture of a run in training/README.md, from what a command draws on a terminal.

python training/images/terminal_run.py terminal-run.svg --until "325 of 400 updates" -- \
    admin-nmt train phrasebook --training.max_steps 400 --training.eval_steps 100 --training.save_steps 100

The picture is that of the moment at which the text of --until was drawn; without it, of the end.
"""

import argparse
import io
import os
import pty
import re
import shlex
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 80, 40


def drawn(command: list[str]) -> str:
    """All that a command writes to a terminal of 80 columns."""
    process, terminal = pty.fork()
    if process == 0:
        termios.tcsetwinsize(1, (ROWS, COLUMNS))
        os.environ |= {"TERM": "xterm-256color"}
        os.execvp(command[0], command)
    chunks: list[bytes] = []
    try:
        while chunk := os.read(terminal, 65536):
            chunks.append(chunk)
    except OSError:  # Linux says so that the other side is closed
        pass
    os.waitpid(process, 0)
    return b"".join(chunks).decode()


def left_standing(text: str) -> str:
    """The lines as they stand when all has been written: what comes behind a return to the start replaces a line."""
    lines, row, at_start = [""], 0, False
    for part in re.split(r"(\r\n|\r|\x1b\[A)", text):
        if part == "\r\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[A":
            row -= 1
        elif part == "\r":
            at_start = True
        elif part:
            lines[row], at_start = part if at_start else lines[row] + part, False
    return "\n".join(lines).rstrip()


def picture(command: list[str], text: str, until: str | None) -> str:
    """An SVG of the terminal at the moment at which `until` was drawn, or at the end."""
    if until is not None:
        before, found, after = text.partition(until)
        text = before + found + after.partition("\r")[0]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {shlex.join(command)}\n{left_standing(text)}"))
    return console.export_svg(title="admin-nmt train")


def main() -> None:
    """Run the command and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("output", type=Path)
    parser.add_argument("--until", help="the text at which the picture is taken")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    given.output.write_text(picture(given.command, drawn(given.command), given.until), encoding="utf-8")


if __name__ == "__main__":
    main()
