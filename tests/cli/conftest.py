"""A model folder and two files of text for the commands."""

from pathlib import Path

import pytest
from toy import random_texts


@pytest.fixture
def model(model_folder) -> Path:
    """The folder of an unfolded ADMIN model."""
    return model_folder


@pytest.fixture
def files(tmp_path) -> list[object]:
    """The options that name two files of 7 lines."""
    for name, seed in (("source", 1), ("target", 2)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in random_texts(7, seed)))
    return ["--source", tmp_path / "source", "--target", tmp_path / "target"]
