"""Time that the rest of a training run takes, from the updates and evaluations it has made."""

import math
import time
from collections import deque
from collections.abc import Callable

WARM_UP = 5  # first updates of a process, in which memory is allocated and kernels are chosen
WINDOW = 500  # updates that the mean is taken over: a machine may become slower or faster


class Pace:
    """Seconds an update, without what lies between updates, and seconds an evaluation.

    Args:
        now: a clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.updates = 0  # of this process
        self.evaluation: float | None = None  # seconds of the last one, if there was one
        self._durations: deque[float] = deque(maxlen=WINDOW)
        self._since = now()

    def update_ended(self) -> None:
        """Takes the time since the update before, or since `resume`."""
        self.updates += 1
        if self.updates > WARM_UP:
            self._durations.append(self.now() - self._since)
        self.resume()

    def resume(self) -> None:
        """Leaves the time until now out: it was an evaluation's, or a checkpoint's."""
        self._since = self.now()

    @property
    def update(self) -> float | None:
        """Mean seconds of an update; None before any was measured."""
        return sum(self._durations) / len(self._durations) if self._durations else None

    def left(self, updates: int, evaluations: int) -> float | None:
        """Seconds that so many updates and evaluations take; evaluations count once one was made."""
        return None if self.update is None else updates * self.update + evaluations * (self.evaluation or 0.0)


def evaluations_left(update: int, last: int, every: int, delay: float = 0) -> int:
    """Evaluations of a run behind an update: after each `every` updates, not before `delay`, and after the last."""
    first = max(update + 1, math.ceil(delay))
    regular = last // every - (first - 1) // every if first <= last else 0
    return regular + (last % every != 0 and first <= last)


def spoken(seconds: float) -> str:
    """A time as a person says it: `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`; 11 characters at most below 1,000 days."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"
