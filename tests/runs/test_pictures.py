"""Pictures of runs: the x axis of learning curves, and labels that can be read."""

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from admin_nmt.hub.run_folder import OmegaFacts
from admin_nmt.runs.pictures.curves import band, has_speeds, positions, series
from admin_nmt.runs.pictures.omega import plot_mean_omega, plot_omega

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


def test_a_history_without_speeds_is_drawn_by_updates_alone():
    history = [{"step": 3, "nll": 1.0}]
    assert series(history, "nll") == ([3], [1.0]) and not has_speeds(history)
    with pytest.raises(ValueError, match="hours"):
        positions(history, "hours")


def test_the_mean_of_seeds_stands_at_their_mean_time():
    """Seeds of unequal speed are averaged by update, not by hour."""
    slow = [row | {"target_tokens_per_second": 500.0} if "nll" in row else row for row in HISTORY]
    points = list(band([HISTORY, slow], "nll", "hours"))
    assert [round(hours * 3.6, 6) for hours, *_ in points] == [1.5, 6.0, 7.5]
    assert [values for _, *values in points] == [[9.0] * 3, [8.0] * 3, [7.0] * 3]


def test_omega_stands_upright(tiny_model, tmp_path, monkeypatch):
    """Turned by a quarter ω reads as ε."""
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    plot_omega({"a": tiny_model(variant="admin")}, tmp_path / "models.png")
    plot_mean_omega(OmegaFacts(origin="n", encoder=[1.0, 2.0], decoder=[1.0, 1.5]), tmp_path / "card.png")
    for figure in drawn:
        labels = [text for text in figure.findobj(Text) if "ω" in text.get_text()]
        assert labels
        assert all(text.get_rotation() == 0 for text in labels)
    assert len(drawn) == 2
