"""Loading reads no weight twice and copies none."""

import sys
from pathlib import Path

import pytest

from admin_nmt.hub.model_folder import load_model
from admin_nmt.weights.exporting import standard_model

COMPUTED = ".embed_positions."  # of stock Marian; no file holds them


def mapped(path: Path) -> list[range]:
    """The addresses at which this process sees a file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    starts_and_ends = [line[0].split("-") for line in lines if line[-1] == str(path)]
    return [range(int(start, 16), int(end, 16)) for start, end in starts_and_ends]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_weights_stay_in_the_file_until_they_are_used(tiny_model, tmp_path, kind):
    model = tiny_model()
    (standard_model(model) if kind == "stock" else model).save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    file = mapped((tmp_path / "model.safetensors").resolve())
    elsewhere = [
        name for name, weight in loaded.named_parameters() if not any(weight.data_ptr() in part for part in file)
    ]
    assert not [name for name in elsewhere if COMPUTED not in name]
