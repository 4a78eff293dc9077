"""A model of twelve tokens and its sources, small enough for the plain searches to compare with."""

import pytest
from plain_search import VOCABULARY
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration


@pytest.fixture
def model(tiny_model) -> AdminForConditionalGeneration:
    return tiny_model(vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=1)


@pytest.fixture
def sources() -> list[list[int]]:
    return random_ids(12, vocabulary=VOCABULARY, longest=6)["input_ids"][:]
