"""DenseFormer (Pagliardini et al. 2024) as a start, a dilation and a period of DLCL's weights."""

import json
from pathlib import Path

import pytest
import torch

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.model.building import new_history
from admin_nmt.model.rivals import PartialHistory

DENSEFORMER = {"dlcl_weights": "identity", "dlcl_normalize_history": False}
# The file's "source" says whose they are.
CASES = json.loads(Path(__file__).with_name("denseformer.json").read_text())["cases"]


@pytest.fixture
def new(tiny_config):
    """Builds the history of a number of layers, by default DenseFormer's."""

    def build(layers: int, **fields) -> PartialHistory:
        return new_history(tiny_config(variant="dlcl_pre_ln", encoder_layers=layers, **DENSEFORMER | fields), "encoder")

    return build


@pytest.mark.parametrize("case", CASES, ids=lambda case: "{layers}-{dilation}x{period}".format(**case))
def test_equals_the_released_code(new, case):
    """Also its gradients, and the entries of W for which it has no weight have none."""
    layers, dilation, period = case["layers"], case["dilation"], case["period"]
    fields = {"dlcl_dilation": dilation, "dlcl_period": period}
    history = new(layers, **fields).double()
    expected = torch.zeros(layers + 1, layers + 1, dtype=torch.float64)
    for row, (weights, gradients) in enumerate(zip(case["weights"], case["weight_gradients"], strict=True), start=1):
        if weights is not None:
            columns = range(row % dilation, row + 1, dilation)
            history.weight.data[row, columns] = torch.tensor(weights, dtype=torch.float64)
            expected[row, columns] = torch.tensor(gradients, dtype=torch.float64)
    embedding = torch.tensor(case["embedding"], dtype=torch.float64, requires_grad=True)
    next_input = history()
    x = next_input(embedding)
    for layer in range(layers):
        x = next_input(torch.sin(x + layer))
    x.square().sum().backward()
    torch.testing.assert_close(x.tolist(), case["output"], atol=1e-11, rtol=0)
    torch.testing.assert_close(embedding.grad.tolist(), case["embedding_gradient"], atol=1e-11, rtol=0)
    torch.testing.assert_close(history.weight.grad, expected, atol=1e-11, rtol=0)


@pytest.mark.parametrize("pattern", [{}, {"dlcl_dilation": 2, "dlcl_period": 3}], ids=str)
@pytest.mark.parametrize("variant", ["pre_ln", "post_ln"])
def test_a_new_model_computes_what_one_without_history_does(tiny_model, batch, variant, pattern):
    plain = tiny_model(variant=variant)
    dense = tiny_model(variant=f"dlcl_{variant}", **DENSEFORMER | pattern)
    missing, unexpected = dense.load_state_dict(plain.state_dict(), strict=False)
    assert (missing, unexpected) == ([f"model.{stack}.history.weight" for stack in ("encoder", "decoder")], [])
    torch.testing.assert_close(dense(**batch).logits, plain(**batch).logits)


def trained(model: AdminForConditionalGeneration, batch: dict, **optimizer) -> AdminForConditionalGeneration:
    adam = torch.optim.AdamW(model.parameters(), lr=0.01, **optimizer)
    for _ in range(3):
        adam.zero_grad()
        model.train()(**batch).loss.backward()
        adam.step()
    return model.eval()


@pytest.mark.parametrize("weights", ["identity", "learned"])
@pytest.mark.parametrize(("dilation", "period"), [(2, 1), (1, 2), (2, 3)])
def test_training_keeps_the_pattern(tiny_model, batch, weights, dilation, period):
    """Outside it W stays the identity to the bit, under weight decay too; inside every weight is trained."""
    fields = {"dlcl_weights": weights, "dlcl_dilation": dilation, "dlcl_period": period, "encoder_layers": 6}
    model = tiny_model(variant="dlcl_pre_ln", **fields)
    before = model.model.encoder.history.current_weight().detach().clone()
    after = trained(model, batch, weight_decay=0.1).model.encoder.history.current_weight().detach()
    for row in range(7):
        summed = range(row % dilation, row + 1, dilation) if row % period == 0 else []
        for column in range(7):
            if column not in summed or (row == 0 and weights == "identity"):
                assert after[row, column] == float(row == column)
            else:
                assert after[row, column] != before[row, column]


def test_saved_and_loaded(tmp_path, tiny_model, batch):
    """The pattern is not stored: it is the configuration's, and loading makes it anew."""
    fields = {"dlcl_dilation": 2, "dlcl_period": 2, "encoder_layers": 4}
    model = trained(tiny_model(variant="dlcl_post_ln", **DENSEFORMER, **fields), batch)
    model.save_pretrained(tmp_path)
    loaded = AdminForConditionalGeneration.from_pretrained(tmp_path)
    gradients = [trained(copy, batch).model.encoder.history.weight.grad for copy in (model, loaded)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)
