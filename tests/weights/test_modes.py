"""Modes of a model are as they were before, whatever happens in between."""

import pytest
from torch import nn

from admin_nmt.weights.modes import evaluation_mode, training_mode


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("context", "inside"), [(training_mode, True), (evaluation_mode, False)])
def test_the_mode_comes_back(before, context, inside):
    model = nn.Sequential(nn.Dropout(0.5)).train(before)
    with context(model):
        assert model[0].training == inside
    assert model.training == model[0].training == before
    with pytest.raises(KeyError), context(model):
        raise KeyError
    assert model.training == model[0].training == before
