"""Loading without Python's search for garbage, and warnings and bars that are kept away."""

import gc
import subprocess
import sys

import pytest

from admin_nmt.cli.output import loading


@pytest.fixture(autouse=True)
def searching():
    """The search is on as in every program, and what was set apart goes back to the rest."""
    assert gc.isenabled()
    yield
    gc.enable()
    gc.unfreeze()


def test_garbage_is_searched_for_again_and_not_in_what_was_loaded():
    with loading():
        assert not gc.isenabled()
        loaded = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(loaded)
    assert not any(one is loaded for one in gc.get_objects())


def test_the_search_goes_on_behind_an_error():
    with pytest.raises(ValueError, match="damaged"), loading():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_so():
    gc.disable()
    before = gc.get_freeze_count()
    with loading():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() == before


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
