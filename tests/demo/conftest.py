"""Models to serve and runs to publish."""

import pytest
from finished_run import make_run, publish  # noqa: F401 (fixtures)

from admin_nmt.demo.session import ServedModel


@pytest.fixture
def served(model_folder) -> ServedModel:
    """A model of random weights behind a page."""
    return ServedModel(model_folder)
