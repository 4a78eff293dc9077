"""Loading without Python's search for garbage, and warnings and bars that are kept away."""

import gc
import subprocess
import sys
from contextlib import suppress

import pytest

from admin_nmt.cli.output import loading


@pytest.fixture(autouse=True)
def searching():
    """The search is on as in every program, and what was set apart goes back to the rest."""
    assert gc.isenabled()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("problem", [None, ValueError("damaged")])
def test_garbage_is_searched_for_again_and_not_in_what_was_loaded(problem):
    loaded: list[list] = []
    with suppress(ValueError), loading():
        assert not gc.isenabled()
        loaded.extend([] for _ in range(1000))
        if problem:
            raise problem
    assert gc.isenabled()
    assert problem or gc.get_freeze_count() > len(loaded)
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()  # whoever has switched it off finds it so


BARS = """
import sys
from admin_nmt.cli.output import quiet
quiet()
assert "datasets" not in sys.modules
from datasets import are_progress_bars_disabled
print(are_progress_bars_disabled())
"""


def test_bars_of_datasets_are_kept_away_without_loading_it():
    done = subprocess.run([sys.executable, "-c", BARS], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
