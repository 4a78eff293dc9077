"""Modes of a model are as they were before, whatever happens in between."""

import pytest
from torch import nn

from admin_nmt.weights.evaluation_mode import evaluation_mode


@pytest.mark.parametrize("before", [True, False])
def test_the_mode_comes_back(before):
    model = nn.Sequential(nn.Dropout(0.5)).train(before)
    with pytest.raises(KeyError), evaluation_mode(model):
        assert not model[0].training
        raise KeyError
    assert model.training == model[0].training == before
