"""Compiled layers: the number of graphs, the same loss, and none where an evaluation decodes."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration, AdminTrainer
from admin_nmt.trainer import admin_trainer, compilation
from admin_nmt.trainer.arguments import enable_checkpointing
from admin_nmt.trainer.compilation import compiled_layers, without_compilation

SHAPES = [(7, 10, 6), (3, 9, 4), (2, 3, 7), (5, 8, 12)]
KINDS = 2  # of layers, encoder's and decoder's


def gradient(model: AdminForConditionalGeneration, shape: tuple[int, int, int]) -> list[torch.Tensor]:
    sentences, source, target = shape
    torch.manual_seed(source)
    ids, labels = torch.randint(2, 97, (sentences, source)), torch.randint(2, 97, (sentences, target))
    mask = torch.ones_like(ids)
    mask[0, 2:] = 0
    labels[0, 2:] = -100
    model.zero_grad()
    loss = model(ids, mask, labels=labels).loss
    loss.backward()
    return [loss.detach(), model.model.encoder.layers[0].fc1.weight.grad]


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
def test_few_graphs_for_any_depth_and_shape(tiny_config, checkpointing):
    model = AdminForConditionalGeneration._from_config(
        tiny_config(encoder_layers=4), attn_implementation="sdpa"
    ).train()
    if checkpointing:
        enable_checkpointing(model, {"use_reentrant": False})
    expected = [gradient(model, shape) for shape in SHAPES]
    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("eager")
    with compiled_layers(model, graphs):
        found = [gradient(model, SHAPES[0]), gradient(model, SHAPES[1])]
        first = graphs.frame_count
        found += [gradient(model, shape) for shape in SHAPES[2:]]
        with without_compilation():
            model.eval()(torch.full((1, 5), 3), decoder_input_ids=torch.full((1, 2), 3), use_cache=True)
    assert KINDS <= first == graphs.frame_count <= 2 * KINDS
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not any(layer._compiled_call_impl for layer in model.model.encoder.layers)


def test_a_run_compiles_its_layers_and_evaluates_without(new_model, arguments, monkeypatch):
    compiled, data = [], random_ids(24)
    monkeypatch.setattr(compilation.GradientCheckpointingLayer, "compile", lambda layer, **_: compiled.append(layer))
    stances = []
    monkeypatch.setattr(admin_trainer, "without_compilation", lambda: stances.append(1) or without_compilation())
    args = arguments(max_steps=2, compile_layers=True, eval_strategy="epoch")
    trainer = AdminTrainer(new_model(), args, train_dataset=data, eval_dataset=data)
    trainer.train()
    assert len(compiled) == 3
    trainer.evaluate()
    assert stances
