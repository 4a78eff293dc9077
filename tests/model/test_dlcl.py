"""DLCL: the buffered sum, its special cases, and what it costs."""

import pytest
import torch
from torch import nn
from toy import hooked

from admin_nmt.model import dlcl
from admin_nmt.model.building import new_history
from admin_nmt.model.configuration_admin import DLCL_WEIGHTS
from admin_nmt.model.dlcl import LayerHistory
from admin_nmt.model.modeling_admin import AdminEncoder

LAYERS, WIDTH = 5, 16
DLCL = ["dlcl_pre_ln", "dlcl_post_ln"]
no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
on_cuda = pytest.param("cuda", marks=[pytest.mark.gpu, no_cuda])


@pytest.fixture(params=DLCL)
def variant(request):
    return request.param


@pytest.fixture
def network(tiny_config, variant):
    """Builds a history and as many layers, in float64 and with random weights."""

    def build(**fields) -> nn.ModuleDict:
        history = new_history(tiny_config(variant=variant, encoder_layers=LAYERS, **fields), "encoder")
        layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        for parameter in history.parameters():
            parameter.data.normal_(0.5, 0.5)
        return nn.ModuleDict({"history": history, "layers": layers}).double()

    return build


def run(network: nn.ModuleDict, embedding: torch.Tensor) -> torch.Tensor:
    next_input = network["history"]()
    x = next_input(embedding)
    for layer in network["layers"]:
        x = next_input(layer(x).tanh())
    return x


def value_and_gradients(network: nn.ModuleDict, embedding: torch.Tensor) -> dict[str, torch.Tensor | None]:
    network.zero_grad()
    leaf = embedding.detach().clone().requires_grad_(embedding.requires_grad)
    x = run(network, leaf)
    x.sin().sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    return {"value": x.detach(), "embedding": leaf.grad, **gradients}


@pytest.mark.parametrize("frozen", [False, True], ids=["embedding", "frozen embedding"])
@pytest.mark.parametrize("normalize", [True, False], ids=["normalised", "plain"])
@pytest.mark.parametrize("weights", DLCL_WEIGHTS)
def test_buffer_computes_the_equation(network, monkeypatch, weights, normalize, frozen):
    """Also its gradients; backward passes keep their order where the embedding has none."""
    network = network(dlcl_weights=weights, dlcl_normalize_history=normalize)
    embedding = torch.randn(3, 4, WIDTH, dtype=torch.float64, requires_grad=not frozen)
    buffered = value_and_gradients(network, embedding)
    monkeypatch.setattr(dlcl, "_sum_in_one_buffer", dlcl._plain_sum)
    stacked = value_and_gradients(network, embedding)
    assert ("history.weight" in buffered) == (weights in ("learned", "identity"))
    torch.testing.assert_close(buffered, stacked, rtol=0, atol=1e-12)


def test_two_passes_before_their_backward_do_not_meet(network):
    network, embeddings = network(), torch.randn(2, 3, 4, WIDTH, dtype=torch.float64)
    apart = [value_and_gradients(network, embedding)["history.weight"].clone() for embedding in embeddings]
    network.zero_grad()
    sum(run(network, embedding).sin().sum() for embedding in embeddings).backward()
    torch.testing.assert_close(network["history"].weight.grad, apart[0] + apart[1])


def test_backward_runs_once_and_from_the_output(network):
    """The buffer holds gradients afterwards."""
    network, embedding = network(), torch.randn(2, 3, WIDTH, dtype=torch.float64)
    loss = run(network, embedding).sum()
    loss.backward(retain_graph=True)
    for wrong in (loss, network["history"]()(embedding).sum()):
        with pytest.raises(RuntimeError, match="DLCL"):
            wrong.backward()


@pytest.mark.parametrize("device", ["cpu", on_cuda])
@pytest.mark.parametrize("combination", ["_sum_in_one_buffer", "_plain_sum"])
def test_autocast_changes_nothing(network, monkeypatch, combination, device):
    """Of the plain sum, the value; its backward pass is PyTorch's."""
    monkeypatch.setattr(dlcl, "_sum_in_one_buffer", getattr(dlcl, combination))
    network = network()
    network["layers"] = nn.ModuleList(nn.Identity() for _ in range(LAYERS))
    network, embedding = network.float().to(device), torch.randn(3, 4, WIDTH, device=device, requires_grad=True)
    expected = value_and_gradients(network, embedding)
    with torch.autocast(device, torch.bfloat16):
        found = value_and_gradients(network, embedding)
    names = ["value"] if combination == "_plain_sum" else expected.keys()
    for name in names:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)


def test_initial_weights(tiny_config, variant):
    configs = {kind: tiny_config(variant=variant, dlcl_weights=kind) for kind in DLCL_WEIGHTS}
    rows = {kind: new_history(config, "encoder").weight for kind, config in configs.items()}
    average = torch.tensor([[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [1 / 4] * 4])
    expected = {"learned": average, "average": average, "identity": torch.eye(4), "ones": torch.ones(4, 4).tril()}
    torch.testing.assert_close({kind: weight.data for kind, weight in rows.items()}, expected)
    assert {kind for kind, weight in rows.items() if isinstance(weight, nn.Parameter)} == {"learned", "identity"}


def test_ones_are_the_dense_residual_network(tiny_model):
    """Wang et al. 2019, figure 2; another special case is in test_transparent.py."""
    fields = {"dlcl_weights": "ones", "dlcl_normalize_history": False}
    encoder = tiny_model(variant="dlcl_pre_ln", **fields).model.encoder
    ids, writers = torch.tensor([[5, 6, 7, 8, 9, 0]]), [encoder.embed_dropout, *encoder.layers]
    writes, reads = hooked(lambda: encoder(ids), writers, readers=[*encoder.layers, encoder.layer_norm])
    assert len(reads) == len(writes) == 4
    for layer, read in enumerate(reads):
        torch.testing.assert_close(read, torch.stack(writes[: layer + 1]).sum(0))


def saved_bytes(encoder: AdminEncoder, ids: torch.Tensor) -> int:
    """Bytes that a forward pass keeps for its backward pass: saved tensors without parameters, and the buffer."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    saved = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = storage  # kept alive, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        states = encoder(ids).last_hidden_state
    total = sum(storage.nbytes() for storage in saved.values())
    rows = len(encoder.layers) + 1 if isinstance(encoder.history, LayerHistory) else 0
    return total + rows * states.nbytes


def test_memory_of_thirty_layers(tiny_config, variant):
    fields = {"encoder_layers": 30, "encoder_ffn_dim": 64, "dropout": 0.1}
    ids = torch.randint(2, 90, (4, 16))
    plain = saved_bytes(AdminEncoder(tiny_config(variant="pre_ln", **fields)).train(), ids)
    combining = saved_bytes(AdminEncoder(tiny_config(variant=variant, **fields)).train(), ids)
    assert combining <= 1.2 * plain
