"""The x axis of learning curves: updates, target tokens, hours."""

import pytest

from admin_nmt.runs.pictures.curves import band, series
from admin_nmt.runs.pictures.x_axis import has_speeds, positions

HISTORY = [
    {"step": 10, "nll": 9.0, "target_tokens": 1e6, "target_tokens_per_second": 1000.0},
    {"step": 20, "nll": 8.0, "target_tokens": 3e6, "target_tokens_per_second": 100.0},  # the machine did something else
    {"step": 20, "eval_loss": 7.0},
    {"step": 30, "nll": 7.0, "target_tokens": 1e6, "target_tokens_per_second": 1000.0},
]


def test_tokens_add_up():
    assert series(HISTORY, "nll", "tokens") == ([1.0, 4.0, 5.0], [9.0, 8.0, 7.0])
    assert series(HISTORY, "eval_loss", "tokens") == ([4.0], [7.0])
    assert positions(HISTORY, "tokens")(15) == 2.5  # an update between two lines of the log
    assert positions(HISTORY, "tokens")(0) == 0.0


def test_hours_are_those_of_the_median_speed():
    assert series(HISTORY, "nll", "hours")[0] == pytest.approx([1e6 / 3.6e6, 4e6 / 3.6e6, 5e6 / 3.6e6])


def test_updates_need_no_speeds():
    assert series([{"step": 3, "nll": 1.0}], "nll") == ([3], [1.0])


def test_a_history_without_speeds_is_refused():
    assert not has_speeds([{"step": 3, "nll": 1.0}])
    with pytest.raises(ValueError, match="no target tokens and speeds, so its curve cannot be drawn by hours"):
        positions([{"step": 3, "nll": 1.0}], "hours")


def test_the_mean_of_seeds_stands_at_their_mean_time():
    """Seeds of unequal speed are averaged by update, not by hour."""
    slow = [row | {"target_tokens_per_second": 500.0} if "nll" in row else row for row in HISTORY]
    points = list(band([HISTORY, slow], "nll", "hours"))
    assert [round(hours * 3.6, 6) for hours, *_ in points] == [1.5, 6.0, 7.5]
    assert [values for _, *values in points] == [[9.0] * 3, [8.0] * 3, [7.0] * 3]
