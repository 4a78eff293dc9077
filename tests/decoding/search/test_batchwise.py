"""Batches beside each other on the threads of a CPU: the same results in the same order, whatever happens."""

import threading
import time

import pytest
import torch
from toy import random_ids

from admin_nmt.decoding.search.batchwise import batchwise
from admin_nmt.decoding.search.generation import search_ids

OPTIONS = {"max_tokens": 12, "progress": False, "desc": "x", "unit": "x"}


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def where(batch: list[int]) -> list[tuple[int, str, int, bool]]:
    """Of each sentence: itself, and the thread that computes it, with its threads and whether it keeps gradients."""
    name = threading.current_thread().name
    return [(index, name, torch.get_num_threads(), torch.is_grad_enabled()) for index in batch]


def test_translations_are_those_of_one_thread(tiny_model, two_threads):
    model, sources = tiny_model(), random_ids(40)["input_ids"][:]
    options = {"num_beams": 3, "batch_tokens": 60, "max_new_tokens": 8}
    together = search_ids(model, sources, **options)
    torch.set_num_threads(1)
    alone = search_ids(model, sources, **options)
    assert [rows[0].ids for rows in together] == [rows[0].ids for rows in alone]
    scores = [[rows[0].score for rows in found] for found in (together, alone)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_a_narrow_model_computes_a_batch_on_each_thread(tiny_model, two_threads):
    both = threading.Barrier(2, timeout=60)

    def meet(batch: list[int]) -> list[tuple[int, str, int, bool]]:
        both.wait()
        return where(batch)

    found = batchwise(tiny_model(), [4] * 12, meet, **OPTIONS)  # four batches of three
    assert [row[0] for row in found] == list(range(12))
    assert len({row[1] for row in found}) == 2
    assert {row[2:] for row in found} == {(1, False)}
    assert torch.get_num_threads() == 2


def test_an_error_comes_through_and_frees_the_cores(tiny_model, two_threads):
    model, begun = tiny_model(), []

    def fail(batch: list[int]) -> list[int]:
        begun.append(batch)
        time.sleep(0.01)  # for the one who waits to hear of it on a busy machine
        raise ValueError("no number")

    with pytest.raises(ValueError, match="no number"):
        batchwise(model, [4] * 300, fail, **OPTIONS)
    assert len(begun) < 100  # what waits is not begun
    assert torch.get_num_threads() == 2
    assert len({row[1] for row in batchwise(model, [4] * 300, where, **OPTIONS)}) <= 2
