"""Every figure of `admin-nmt plot`, from made-up runs and tiny models."""

import json
from math import exp
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from finished_run import toy_results
from matplotlib.image import imread
from test_experiment import results
from typer.testing import CliRunner

from admin_nmt.cli.app import app
from admin_nmt.experiments import plots
from admin_nmt.hub.run_folder import Results
from admin_nmt.runs.pictures import curves as figures
from admin_nmt.runs.pictures import dlcl
from admin_nmt.weights.exporting import standard_model


@pytest.fixture
def picture(tmp_path):
    """Draws a figure of these folders; gives the picture's path."""

    def draw(figure: str, *inputs: object) -> Path:
        output = tmp_path / "picture.png"
        assert plots.draw(figure, list(map(Path, inputs)), output, "A title")
        return output

    return draw


def is_blank(path: Path) -> bool:
    return bool(imread(path).std() < 0.05)


@pytest.fixture
def kept(monkeypatch) -> list[plt.Figure]:
    """The figures that are drawn, instead of files."""
    drawn: list[plt.Figure] = []
    for module in (figures, dlcl):
        monkeypatch.setattr(module, "save", lambda figure, path: drawn.append(figure))
    return drawn


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    """One run that finished, one that diverged."""
    folders = [tmp_path / "runs" / name for name in ("admin", "post_ln")]
    for folder, content in zip(folders, (results(), results("post_ln", None, layers=18)), strict=True):
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(content))
    return folders


def crosses(axes: plt.Axes, *, on_axis: bool = False) -> list[tuple[float, float]]:
    """Where the crosses are in the data, those on the axis at height 0 of the frame; or these alone."""
    marks = [line for line in axes.lines if line.get_marker() == "x"]
    if on_axis:
        marks = [line for line in marks if line.get_transform() == axes.get_xaxis_transform()]
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks]


def run_of(*values: float | None, diverged: int | None = None) -> Results:
    """A run whose training NLL was logged at the updates 1, 2 and so on."""
    history = [{"step": step, "nll": value} for step, value in enumerate(values, 1)]
    if diverged is None:
        return Results(**toy_results(history=history))
    reason = {"update": diverged, "reason": "NaN"}
    return Results(**toy_results(status="diverged", diverged=reason, history=history))


def test_a_diverged_run_ends_in_a_cross(kept, tmp_path):
    """Also one that diverged before its first log."""
    figures.plot_perplexity({"wild": run_of(9.0, 8.0, None, diverged=3)}, "", tmp_path / "x.png")
    assert crosses(kept.pop().axes[0]) == [(2, pytest.approx(exp(8)))]
    early = run_of(diverged=7)
    figures.plot_systems({"good": [run_of(3.0)], "early": [early]}, "t", tmp_path / "x.png")
    figures.plot_perplexity({"good": run_of(3.0), "early": early}, "", tmp_path / "x.png")
    for figure in kept:
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["good", "early (diverged at update 7)"]
        assert figures.CROSS in legend.get_title().get_text()
        assert crosses(figure.axes[0], on_axis=True) == [(7, 0.0)]


def test_what_is_not_finite_or_does_not_fit_is_marked_whatever_the_status(kept, tmp_path):
    nan = float("nan")
    figures.plot_systems({"gap": [run_of(3.0, nan, nan, 2.0)], "never": [run_of(nan)]}, "t", tmp_path / "x.png")
    assert crosses(kept[0].axes[0]) == [(1, 3.0), (1, 0.0)]
    assert crosses(kept[0].axes[0], on_axis=True) == [(1, 0.0)]
    assert kept[0].axes[0].lines[0].get_markevery() == [0, 3]  # no line goes through these two
    assert "not finite" in kept.pop().legends[0].get_title().get_text()
    figures.plot_perplexity({"too large": run_of(1.0, 25.0, 800.0)}, "", tmp_path / "x.png")
    assert crosses(kept[0].axes[0]) == [(1, pytest.approx(exp(1)))]


def test_runs_of_other_settings_are_lines_of_their_own():
    profiled = results() | {"model": results()["model"] | {"config": {"omega_rule": "profile", "train_omega": True}}}
    expected = ["admin", "admin, omega_rule=profile, train_omega=True"]
    assert [plots.line(Results(**run)) for run in (results(), profiled)] == expected


def test_a_line_is_the_mean_of_the_finite_values_of_all_seeds(kept, tmp_path):
    runs = [run_of(2.0, 2.0), run_of(4.0, float("nan"))]
    figures.plot_systems({"a": runs}, "t", tmp_path / "x.png", unigram=6.0)
    line, *_, level = kept[0].axes[0].lines
    assert list(line.get_ydata()) == [3.0, 2.0]
    assert set(level.get_ydata()) == {6.0}


def test_figures_of_models_and_by_depth(picture, tiny_model, runs, tmp_path):
    for variant in ("admin", "deepnorm", "dlcl_post_ln"):
        tiny_model(variant=variant).save_pretrained(tmp_path / variant / "final")
    assert not is_blank(picture("omega", tmp_path / "admin" / "final", tmp_path / "deepnorm" / "final"))
    assert not is_blank(picture("dlcl", tmp_path / "dlcl_post_ln" / "final"))
    assert not is_blank(picture("depth", *runs))


def test_dlcl_weights_are_masked_and_rows_normalised(kept, tiny_model, tmp_path):
    """Hidden are weights that do not exist, are below 0.1, or below 5 % of the largest in their row."""
    model = tiny_model(variant="dlcl_pre_ln")
    with torch.no_grad():
        model.model.encoder.history.weight.copy_(
            torch.tensor([[1.0, 9, 9, 9], [0.05, -0.5, 9, 9], [8.0, 0.3, -0.5, 9], [-1.0, 0.2, 0.09, 0.11]])
        )
    dlcl.plot_history_weights(model, tmp_path / "x.png")
    shown, _, relative, *_ = [a.images[0].get_array() for a in kept[0].axes if a.images and a.get_title()]
    expected = [[1, 0, 0, 0], [0, -0.5, 0, 0], [8, 0, -0.5, 0], [-1, 0.2, 0, 0.11]]
    assert shown.filled(0) == pytest.approx(torch.tensor(expected).numpy())
    assert abs(relative.filled(0)).sum(1) == pytest.approx(1.0, abs=1e-5)


def test_what_has_no_such_picture_is_refused(picture, tiny_model, tmp_path, capsys):
    """from_pretrained would draw the weights of a standard model at random, and they would be plotted."""
    tiny_model(variant="pre_ln").save_pretrained(tmp_path / "final")
    standard_model(tiny_model(variant="admin")).save_pretrained(tmp_path / "standard")
    (tmp_path / "results.json").write_text('{"model": {}, "status": ""}')
    with pytest.raises(ValueError, match="'pre_ln'"):
        picture("dlcl", tmp_path / "final")
    for figure, folder, named in (
        ("omega", tmp_path / "final", "'pre_ln'"),
        ("omega", tmp_path / "standard", "marian"),
        ("curves", tmp_path, "results.json"),
    ):
        with pytest.raises(ValueError, match="nothing is left to draw"):
            picture(figure, folder)
        assert named in capsys.readouterr().err


def test_a_bad_input_is_named_and_the_rest_is_drawn(runs, tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "README.md").write_text("")  # skipped, as `runs/grids/x/*` finds it
    inputs = [*runs, *(tmp_path / name for name in ("nowhere", "unfinished", "README.md"))]
    command = ["plot", "curves", *map(str, inputs), "--title", "Two runs", "--output", str(tmp_path / "picture.png")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert not is_blank(tmp_path / "picture.png")
    left_out = [line for line in result.stderr.splitlines() if line.startswith("left out: ")]
    assert len(left_out) == 2 and "nowhere" in left_out[0] and "unfinished" in left_out[1]


def test_runs_of_one_name_are_all_drawn(picture, monkeypatch, runs, kept):
    """And one that is given twice is drawn once."""
    twins = [runs[0].parent / grid / "admin" for grid in ("gridA", "gridB")]
    for twin in twins:
        twin.mkdir(parents=True)
        (twin / "results.json").write_text((runs[0] / "results.json").read_text())
    picture("curves", *twins, twins[0])
    assert [text.get_text() for text in kept[0].legends[0].get_texts()] == ["gridA/admin", "gridB/admin"]


def test_curves_by_hours_leave_out_a_run_without_speeds(runs, tmp_path, capsys):
    timed, old = runs
    values = json.loads((timed / "results.json").read_text())
    for row in values["history"]:
        row |= {"target_tokens": 1000.0, "target_tokens_per_second": 10.0}
    (timed / "results.json").write_text(json.dumps(values))
    assert not plots.draw("curves", [timed, old], tmp_path / "hours.png", by="hours")
    assert f"left out: {old / 'results.json'}" in capsys.readouterr().err
    assert not is_blank(tmp_path / "hours.png")
