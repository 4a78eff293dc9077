"""Fixtures of the tests of data."""

import pytest

from admin_nmt.data import arrow_cache


@pytest.fixture
def small_shards(monkeypatch):
    """Steps write shards of 100 rows, in batches of 40."""
    monkeypatch.setattr(arrow_cache, "SHARD", 100)
    monkeypatch.setattr(arrow_cache, "BATCH", 40)
