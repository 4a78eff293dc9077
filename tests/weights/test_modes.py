"""Modes of a model are as they were before, whatever happens in between."""

import pytest
import torch
from torch import nn

from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.weights.exporting import check_same_outputs
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


def test_a_failure_leaves_a_model_in_training(tiny_model):
    model = tiny_model().train()
    with pytest.raises(ValueError, match="sampling: does not work with repetition_penalty"):
        generate_ids(model, [[5, 6, 0]], sampling=Sampling(seed=1), repetition_penalty=2.0)
    assert model.training
    with pytest.raises(TypeError):
        check_same_outputs(model, torch.nn.Identity())
    assert model.training
