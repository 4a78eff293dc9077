"""Measures what is left of a part, case by case, and keeps each result at once: an interrupted call goes on.

A part's results are a file PART.json in the folder of the machine. Each case has its value, and when, with what code
and beside how much other work it was measured.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ...runs.pace import spoken
from ...system.files import json_text, write_text_whole
from .machine_facts import load_average, machine_facts, moment, other_work, same_machine

MACHINE = "machine.json"
BUSY = 0.05  # share of the cores that others may use before a page warns
IDLE = 0.5  # load average of a machine that does nothing else


@dataclass(frozen=True)
class Case:
    """Something that is measured at a time.

    Args:
        name: of its result, unique in the part.
        seconds: that it takes on two cores, about.
        measure: gives what JSON holds.
    """

    name: str
    seconds: float
    measure: Callable[[], Any]


@dataclass(frozen=True)
class Part:
    """A part of the benchmark with what is to be measured.

    Args:
        name: of the part and of its file.
        settings: on which the values depend; they must be those of the results that are there.
        cases: in the order in which they are measured.
    """

    name: str
    settings: dict[str, Any]
    cases: Sequence[Case]


@dataclass
class Results:
    """What is known of a part: its settings, and by the name of each case `value`, `seconds`, `others`, and so on."""

    settings: dict[str, Any]
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def values(self, start: str = "") -> list[Any]:
        """Of the cases whose names begin so, in the order of their measurement."""
        return [case["value"] for name, case in self.cases.items() if name.startswith(start)]


def read_results(folder: Path, part: str) -> Results | None:
    """The results of a part; None where there are none.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / f"{part}.json"
    if not path.is_file():
        return None
    try:
        return Results(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: is damaged ({error}); remove it, and the part is measured anew") from error


class Session:
    """One call of the benchmark on one machine.

    Args:
        output: folder of all machines' folders.
        show: called with the machine's folder when all is measured, or the call is interrupted.

    Attributes:
        folder: of this machine.
    """

    def __init__(self, output: Path, show: Callable[[Path], None]) -> None:
        self.facts, self.show = machine_facts(), show
        self.folder = output / self.facts["slug"]

    def run(self, parts: Sequence[Part], again: Sequence[str] = ()) -> None:
        """Measure what is left of the parts, and all of those in `again`.

        Raises:
            ValueError: the folder is another machine's, another call measures, or results have other settings.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(lock := self.folder / ".lock", blocking=False):
                try:
                    self._check_machine()
                    self._run([(part, self._known(part, part.name in again)) for part in parts])
                finally:
                    lock.unlink(missing_ok=True)
        except Timeout as error:
            raise ValueError(f"{self.folder}: another call measures; wait for its end") from error

    def _check_machine(self) -> None:
        path = self.folder / MACHINE
        if path.is_file() and not same_machine(self.facts, json.loads(path.read_text(encoding="utf-8"))):
            raise ValueError(f"{path}: has other cores, threads or instructions than this machine; choose an --output")

    def _known(self, part: Part, again: bool) -> Results:
        """What is there of a part, without its values if it is measured again."""
        found = None if again else read_results(self.folder, part.name)
        if found is None:
            return Results(part.settings)
        for name in sorted(found.settings.keys() | part.settings.keys()):
            asked, was = json.loads(json_text(part.settings.get(name))), found.settings.get(name)
            if asked != was:
                values = f" ({was!r}, not {asked!r})" if not isinstance(was, dict) else ""
                raise ValueError(
                    f"{self.folder / part.name}.json: was measured with other settings of {name}{values}; "
                    "--again measures the part anew, or choose another --output"
                )
        return found

    def _run(self, parts: Sequence[tuple[Part, Results]]) -> None:
        left = [(part, known, case) for part, known in parts for case in part.cases if case.name not in known.cases]
        seconds = sum(case.seconds for *_, case in left)
        said = f"{len(left)} measurements are left, about {spoken(seconds)}"
        say(said if left else "everything has been measured; --again measures a part anew")
        if left and (load := load_average()) > IDLE:
            say(f"warning: other work is running (load average {load:.1f}); the ratios will vary more")
        write_text_whole(self.folder / MACHINE, json_text(self.facts, indent=1) + "\n")
        try:
            for number, (part, known, case) in enumerate(left, 1):
                say(
                    f"[{number}/{len(left)}] {part.name}: {case.name}, {spoken(case.seconds)} of {spoken(seconds)} left"
                )
                self._measure(part, known, case)
                seconds -= case.seconds
        finally:
            self.show(self.folder)

    def _measure(self, part: Part, known: Results, case: Case) -> None:
        """One case, whose value is kept before anything else is measured."""
        start = time.strftime("%F %T")
        with other_work() as work:
            value = case.measure()
        known.cases[case.name] = {"value": value} | work | moment() | {"date": start}
        text = json_text({"settings": known.settings, "cases": known.cases}, indent=1)
        write_text_whole(self.folder / f"{part.name}.json", text + "\n")
        if work["others"] > BUSY:
            say(f"  other work used {work['others']:.0%} of the cores")


def say(message: str) -> None:
    """A line about the progress."""
    print(message, file=sys.stderr, flush=True)
