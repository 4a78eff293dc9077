"""Every figure of plot.py, from made-up runs and tiny models."""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.image import imread
from test_experiment import results

import figures
import model_figures
import plot
from admin_nmt.exporting import standard_model
from speed import LENGTH, SpeedTest, measure


@pytest.fixture
def picture(monkeypatch, tmp_path):
    """Runs plot.py with arguments; gives the picture's path."""

    def draw(*arguments: object) -> Path:
        output = tmp_path / "picture.png"
        monkeypatch.setattr(sys, "argv", ["plot.py", *map(str, arguments), "--output", str(output)])
        plot.main()
        return output

    return draw


def is_blank(path: Path) -> bool:
    return bool(imread(path).std() < 0.05)


@pytest.fixture
def kept(monkeypatch) -> list[plt.Figure]:
    """The figures that are drawn, instead of files."""
    drawn: list[plt.Figure] = []
    for module in (figures, model_figures):
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


@pytest.mark.parametrize("figure", ["curves", "depth"])
def test_figures_of_runs(picture, runs, figure):
    assert not is_blank(picture(figure, *runs))


def test_a_diverged_run_ends_in_a_cross(kept, tmp_path):
    history = [{"step": 1, "nll": 9.0}, {"step": 2, "nll": 8.0}, {"step": 3, "nll": float("nan")}]
    run = results("post_ln", None) | {"history": history}
    figures.plot_perplexity({"wild": run}, tmp_path / "x.png")
    crosses = [line for line in kept[0].axes[0].lines if line.get_marker() == "x"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in crosses] == [(2, pytest.approx(2.718281828**8))]


def test_seeds_are_averaged(kept, tmp_path):
    runs = [{"status": "finished", "history": [{"step": 10, "nll": value}]} for value in (2.0, 4.0)]
    figures.plot_cells({"a": runs}, "t", tmp_path / "x.png", unigram=6.0)
    line, level = kept[0].axes[0].lines
    assert list(line.get_ydata()) == [3.0]
    assert set(level.get_ydata()) == {6.0}


@pytest.mark.parametrize("figure", ["omega", "sizes"])
def test_figures_of_models(picture, tiny_model, tmp_path, figure):
    for variant, fields in (("admin", {"train_omega": True}), ("deepnorm", {})):
        tiny_model(variant=variant, **fields).save_pretrained(tmp_path / variant / "final")
    assert not is_blank(picture(figure, tmp_path / "admin" / "final", tmp_path / "deepnorm" / "final"))


@pytest.mark.parametrize("variant", ["dlcl_pre_ln", "dlcl_post_ln"])
def test_dlcl_weights(picture, tiny_model, tmp_path, variant):
    tiny_model(variant=variant).save_pretrained(tmp_path / "final")
    assert not is_blank(picture("dlcl", tmp_path / "final"))


def test_dlcl_weights_are_masked_and_rows_normalised(kept, tiny_model, tmp_path):
    """Hidden are weights that do not exist, are below 0.1, or below 5 % of the largest in their row."""
    model = tiny_model(variant="dlcl_pre_ln")
    with torch.no_grad():
        model.model.encoder.history.weight.copy_(
            torch.tensor([[1.0, 9, 9, 9], [0.05, -0.5, 9, 9], [8.0, 0.3, -0.5, 9], [-1.0, 0.2, 0.09, 0.11]])
        )
    model_figures.plot_history_weights(model, tmp_path / "x.png")
    shown, _, relative, *_ = [a.images[0].get_array() for a in kept[0].axes if a.images and a.get_title()]
    expected = [[1, 0, 0, 0], [0, -0.5, 0, 0], [8, 0, -0.5, 0], [-1, 0.2, 0, 0.11]]
    assert shown.filled(0) == pytest.approx(torch.tensor(expected).numpy())
    assert abs(relative.filled(0)).sum(1) == pytest.approx(1.0, abs=1e-5)


def test_wrong_variants_are_refused(picture, tiny_model, tmp_path):
    tiny_model(variant="pre_ln").save_pretrained(tmp_path / "final")
    for figure, message in (("dlcl", "'pre_ln' has no DLCL weights"), ("omega", "'pre_ln' has no ω")):
        with pytest.raises(ValueError, match=message):
            picture(figure, tmp_path / "final")


def test_models_and_runs_of_another_kind_are_refused(picture, tiny_model, tmp_path):
    """from_pretrained would draw the weights of a stock model at random, and they would be plotted."""
    standard_model(tiny_model(variant="admin")).save_pretrained(tmp_path / "standard")
    with pytest.raises(ValueError, match="standard: is a marian model; give the one as trained"):
        picture("omega", tmp_path / "standard")
    (tmp_path / "results.json").write_text('{"model": {}}')
    with pytest.raises(ValueError, match=r"results\.json: lacks history, training"):
        picture("curves", tmp_path)


def test_parts_add_up(tiny_model):
    model = tiny_model(variant="dlcl_pre_ln")
    parts = plot.parts(model)
    assert sum(parts.values()) == model.num_parameters()
    assert parts["embeddings"] == 99 * 16


def test_speed(picture, tmp_path):
    facts = measure(SpeedTest(depths=[1, 2], others=1, d_model=16, vocab_size=50, sentences=3, num_beams=2, rounds=1))
    assert [(row["encoder_layers"], row["decoder_layers"]) for row in facts["rows"]] == [(1, 1), (2, 1), (1, 1), (1, 2)]
    row = facts["rows"][1]
    assert row["tokens_per_second"] == pytest.approx(3 * LENGTH / row["seconds"][0])
    path = tmp_path / "speed.json"
    path.write_text(json.dumps(facts))
    assert not is_blank(picture("speed", path))


def test_speed_needs_one_source(picture):
    with pytest.raises(ValueError, match="either a JSON of earlier measurements or --measure"):
        picture("speed")
