"""ω stands upright wherever it labels a picture: turned by a quarter it reads as ε."""

from matplotlib.figure import Figure
from matplotlib.text import Text

from admin_nmt.hub.run_folder import OmegaFacts
from admin_nmt.runs.pictures.weights import plot_mean_omega, plot_omega


def test_omega_stands_upright(tiny_model, tmp_path, monkeypatch):
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    plot_omega({"a": tiny_model(variant="admin")}, tmp_path / "models.png")
    plot_mean_omega(OmegaFacts(origin="n", encoder=[1.0, 2.0], decoder=[1.0, 1.5]), tmp_path / "card.png")
    for figure in drawn:
        labels = [text for text in figure.findobj(Text) if "ω" in text.get_text()]
        assert labels
        assert all(text.get_rotation() == 0 for text in labels)
    assert len(drawn) == 2
