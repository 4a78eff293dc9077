"""The time that is left, by a clock that the tests turn."""

from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState
from transformers.trainer_callback import DefaultFlowCallback

from admin_nmt.runs.pace import WARM_UP, WINDOW, Pace, evaluations_left, spoken


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def updates(pace: Pace, clock: Clock, count: int, seconds: float) -> None:
    for _ in range(count):
        clock.time += seconds
        pace.update_ended()


def test_the_first_updates_and_what_lies_between_updates_do_not_count():
    clock = Clock()
    pace = Pace(clock)
    updates(pace, clock, WARM_UP, 100.0)
    assert pace.update is None and pace.left(10, 0) is None
    updates(pace, clock, 3, 2.0)
    clock.time += 1000.0
    pace.resume()
    updates(pace, clock, 3, 4.0)
    assert pace.update == pytest.approx(3.0)
    assert pace.left(10, 2) == pytest.approx(30.0)
    pace.evaluation = 7.0
    assert pace.left(10, 2) == pytest.approx(44.0)


def test_an_old_speed_is_forgotten():
    clock = Clock()
    pace = Pace(clock)
    updates(pace, clock, WARM_UP + WINDOW, 9.0)
    updates(pace, clock, WINDOW, 1.0)
    assert pace.update == pytest.approx(1.0)


@pytest.mark.parametrize("delay", [0, 7, 7.5, 10, 99])
@pytest.mark.parametrize("every", [1, 3, 5, 40])
@pytest.mark.parametrize("last", [1, 15, 20])
def test_as_many_evaluations_are_left_as_the_trainer_makes(last, every, delay):
    args = SimpleNamespace(
        logging_first_step=False, logging_strategy="no", save_strategy="no", eval_strategy="steps", eval_delay=delay
    )
    state, made = TrainerState(max_steps=last, eval_steps=every), []
    for step in range(1, last + 1):
        state.global_step, control = step, TrainerControl()
        made.append(DefaultFlowCallback().on_step_end(args, state, control).should_evaluate)
    for step in range(last + 1):
        assert evaluations_left(step, last, every, delay) == sum(made[step:]), step


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (59 * 60 + 40, "1 h 0 min"),
        (3 * 3600 + 299, "3 h 5 min"),
        (86_399, "1 d 0 h"),
        (999 * 86_400 + 82_800, "999 d 23 h"),
    ],
)
def test_times_are_spoken(seconds, text):
    assert spoken(seconds) == text and len(text) <= 11
