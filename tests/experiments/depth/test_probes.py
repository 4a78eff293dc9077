"""Probes of states: against a discriminant written out, on labels known to be there or not, and as a command."""

import json

import torch
from toy import SHIFT, invoke, text_pairs

from admin_nmt.experiments.depth.probes import (
    SHRINKAGE,
    accuracies,
    fit_probe,
    layer_states,
    neighbours,
    tokens_of,
)


def test_the_probe_is_the_highest_gaussian_posterior():
    """Written out with Gaussians of one covariance, class by class."""
    torch.manual_seed(1)
    tokens = torch.randint(4, (200,))
    states = torch.randn(200, 3) @ torch.randn(3, 3) + torch.randn(4, 3)[tokens]
    shares, means = [], []
    for token in range(4):
        chosen = states[tokens == token].double()
        shares.append(len(chosen) / 200)
        means.append(chosen.mean(0))
    within = torch.stack([x - means[token] for x, token in zip(states.double(), tokens, strict=True)])
    covariance = within.T @ within / 200 + SHRINKAGE * states.double().var(0, correction=0).mean() * torch.eye(3)
    gaussians = [torch.distributions.MultivariateNormal(m, covariance.double()) for m in means]
    x = torch.randn(50, 3) * 2
    posterior = torch.stack(
        [g.log_prob(x.double()) + torch.tensor(p).log() for g, p in zip(gaussians, shares, strict=True)]
    )
    torch.testing.assert_close(fit_probe(states, tokens, 4)(x), posterior.argmax(0))


def test_a_class_without_examples_is_never_guessed():
    states, tokens = torch.randn(40, 2), torch.arange(40) % 2 * 2
    assert set(fit_probe(states, tokens, 4)(torch.randn(99, 2)).tolist()) <= {0, 2}


def test_neighbours_stop_at_the_ends_of_a_sentence():
    ids, mask = torch.tensor([[5, 6, 7, 8], [3, 4, 9, 9]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    found = neighbours(ids, mask)
    assert found["this token"].tolist() == [5, 6, 7, 8, 3, 4]
    assert found["token before"].tolist() == [-1, 5, 6, 7, -1, 3]
    assert found["token after"].tolist() == [6, 7, 8, -1, 4, -1]


def test_the_decoder_is_asked_about_what_it_reads_and_predicts(tiny_model, batch):
    found = tokens_of(tiny_model(), batch)["decoder"]
    labels = batch["labels"][batch["labels"] != -100]
    assert found["token after"].tolist() == labels.tolist()
    assert found["this token"][0] == 98 and found["this token"][1:7].tolist() == labels[:6].tolist()


def test_states_are_those_of_the_model(tiny_model, batch):
    model = tiny_model(variant="pre_ln")
    states = layer_states(model, batch)
    outputs = model(**batch, output_hidden_states=True)
    mask = batch["attention_mask"].bool()
    for mine, theirs in zip(states["encoder"][:-1], outputs.encoder_hidden_states, strict=False):
        torch.testing.assert_close(mine, theirs[mask])
    torch.testing.assert_close(states["encoder"][-1], outputs.encoder_last_hidden_state[mask])
    assert len(states["encoder"]) == 4 and len(states["decoder"]) == 3


def test_a_probe_finds_the_token_and_no_token_that_is_not_there(tiny_model):
    """In random text the embedding holds its token, and nothing of its neighbours beyond their frequency."""
    torch.manual_seed(3)
    source, labels = torch.randint(2, 12, (2, 300, 8))
    batch = {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": labels}
    found = accuracies(tiny_model(variant="post_ln"), [batch])
    assert found["encoder"]["this token"]["layers"][0] > 0.99
    assert found["encoder"]["token after"]["layers"][0] < 0.2
    assert found["decoder"]["token after"]["layers"][-1] < 0.2
    assert found["encoder"]["token before"]["tokens"] == 60 * 7


def test_the_command_probes_a_folder_and_a_new_model(tmp_path, model_folder, tokenizer):
    pairs = text_pairs(tokenizer, 30, seed=SHIFT)
    for side in ("source", "target"):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in pairs[side]))
    texts = f"--source {tmp_path}/source --target {tmp_path}/target"
    result = invoke(*f"analyse probe {model_folder} {texts} --output {tmp_path}/out".split())
    assert (tmp_path / "out" / "table.md").read_text() == result.stdout
    (facts,) = json.loads((tmp_path / "out" / "probes.json").read_text())["models"].values()
    assert facts["model"].startswith("admin") and facts["trained"] != facts["new"]
    assert (tmp_path / "out" / "probes.png").exists()
