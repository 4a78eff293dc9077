"""Makes terminal-run.svg, the picture of a run in training/README.md, from what a command draws on a terminal.

python training/images/terminal_run.py terminal-run.svg --until "325 of 400 updates" -- \
    admin-nmt train phrasebook --training.max_steps 400 --training.eval_steps 100 --training.save_steps 100

The picture is that of the moment at which the text of --until was drawn; without it, of the end.
"""

import argparse
import io
import os
import pty
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
    """The lines as they are when all has been written: of each, what came behind the last return to its start."""
    return "\n".join(line.removesuffix("\r").rpartition("\r")[2] for line in text.split("\n"))


def main() -> None:
    """Run the command and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--until", help="the text at which the picture is taken")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    text = drawn(given.command)
    if given.until is not None:
        before, found, after = text.partition(given.until)
        text = before + found + after.partition("\r")[0]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {shlex.join(given.command)}\n{left_standing(text)}"))
    given.picture.write_text(console.export_svg(title="admin-nmt train"), encoding="utf-8")


if __name__ == "__main__":
    main()
