"""The whole model: its size, its initialisation, what must not change its results, and its loss."""

import math

import pytest
import torch
from accelerate import cpu_offload
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.model.cache_name import CACHE
from admin_nmt.model.configuration_admin import PAPERS, VARIANTS
from admin_nmt.model.modeling_admin import padding_mask
from admin_nmt.trainer.arguments import enable_checkpointing

PAD = 98
# One variant for each way in which the layers of a stack are joined: where nothing else matters, four stand for all.
SHAPES = ("admin", "dlcl_pre_ln", "rezero", "transparent_post_ln")
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(params=SHAPES)
def variant(request):
    return request.param


def sentences(count: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded random sources of 2 to `longest` tokens, `</s>` included, and their mask."""
    lengths = torch.randint(2, longest + 1, (count,))
    lengths[0] = longest
    mask = (torch.arange(longest) < lengths[:, None]).long()
    ids = torch.randint(2, PAD, (count, longest)).masked_fill(mask == 0, PAD)
    return ids.scatter(1, lengths[:, None] - 1, 0), mask


def training_gradients(model: AdminForConditionalGeneration, batch: dict) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model.train()(**batch).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


# Size


BIG = {"d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096}
# Wang et al. do not give their vocabulary. From 33,645 to 34,046 types fit every row of their table.
WANG = 33_800


@pytest.mark.parametrize(
    ("millions", "vocab_size", "fields"),
    [
        (67, 44_512, {"variant": "admin"}),
        (61, 32_768, {"variant": "admin"}),
        (262, 44_512, {"variant": "admin", "encoder_layers": 60, "decoder_layers": 12}),
        (256, 32_768, {"variant": "admin", "encoder_layers": 60, "decoder_layers": 12}),
        (106, WANG, {"variant": "pre_ln", "encoder_layers": 20}),
        (121, WANG, {"variant": "dlcl_post_ln", "encoder_layers": 25}),
        (137, WANG, {"variant": "dlcl_pre_ln", "encoder_layers": 30}),
        (211, WANG, {"variant": "post_ln", **BIG}),
    ],
)
def test_parameter_counts_of_the_papers(millions, vocab_size, fields):
    with torch.device("meta"):
        model = AdminForConditionalGeneration(AdminConfig(vocab_size=vocab_size, **fields))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == millions


# Initialisation


@pytest.fixture
def fresh(tiny_config, variant):
    wide = {"encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
    return AdminForConditionalGeneration(tiny_config(variant=variant, d_model=64, vocab_size=500, **wide))


@pytest.mark.parametrize("variant", ["admin"])
def test_embeddings(fresh):
    weight, pad = fresh.model.shared.weight, fresh.config.pad_token_id
    assert weight[:pad].std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert not weight[pad].any()
    assert fresh.lm_head.weight is weight


@every_variant
def test_linear_layers(fresh):
    """Xavier, uniform but for DeepNorm, with the papers' gains; those of the rivals are in test_rivals.py."""
    papers = fresh.config.variant in PAPERS
    for name, module in fresh.named_modules():
        if not isinstance(module, nn.Linear) or name == "lm_head":
            continue
        gain = (2**-0.5 if name.endswith(("q_proj", "k_proj", "v_proj")) else 1.0) if papers else module.gain
        expected, largest = gain * math.sqrt(2 / sum(module.weight.shape)), module.weight.abs().max() / math.sqrt(3)
        assert not module.bias.any()
        assert module.weight.std().item() == pytest.approx(expected, rel=0.05), name
        normal = fresh.config.variant == "deepnorm"
        assert largest > 1.2 * expected if normal else 0.99 * expected < largest <= expected * (1 + 1e-6), name


# Independence of how a batch is laid out


@torch.no_grad()
def test_batch_of_one_equals_batch_of_64(tiny_model, variant):
    """Logits, and the output of beam search."""
    model, (ids, mask) = tiny_model(variant=variant), sentences(64, 10)
    target, options = torch.randint(2, PAD, (64, 6)), {"num_beams": 5, "max_new_tokens": 6}
    logits = model(ids, mask, target).logits
    together = model.generate(input_ids=ids, attention_mask=mask, **options)
    for row in range(64):
        source = ids[row : row + 1, : mask[row].sum()]
        alone = model(source, decoder_input_ids=target[row : row + 1]).logits
        torch.testing.assert_close(alone[0], logits[row], atol=1e-5, rtol=1e-5)
        if row < 8:
            found = model.generate(input_ids=source, **options)[0]
            assert found.tolist() == together[row, : len(found)].tolist()
            assert (together[row, len(found) :] == PAD).all()


def test_side_of_the_padding(tiny_model, variant):
    model, (ids, mask) = tiny_model(variant=variant), sentences(5, 9)
    order = torch.stack([torch.arange(9).roll(9 - int(length)) for length in mask.sum(1)])
    left_ids, left_mask = ids.gather(1, order), mask.gather(1, order)
    assert left_mask[:, -1].all() and not left_mask[:, 0].all()
    right = model.model.encoder(ids, mask).last_hidden_state[mask.bool()]
    left = model.model.encoder(left_ids, left_mask).last_hidden_state[left_mask.bool()]
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    options = {"num_beams": 2, "max_new_tokens": 8}
    generated = model.generate(input_ids=ids, attention_mask=mask, **options)
    assert torch.equal(model.generate(input_ids=left_ids, attention_mask=left_mask, **options), generated)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_both_names_of_the_cache(tiny_model, batch, name, recwarn):
    model, target = tiny_model(), batch.pop("labels").clamp(min=0)
    for part in (model, model.model):
        whole = part(**batch, decoder_input_ids=target)[0]
        cache = getattr(part(**batch, decoder_input_ids=target[:, :-1], use_cache=True), CACHE)
        last = part(**batch, decoder_input_ids=target[:, -1:], **{name: cache})
        torch.testing.assert_close(last[0][:, 0], whole[:, -1], atol=1e-5, rtol=1e-5)
        assert getattr(last, CACHE) is cache and cache.get_seq_length() == target.shape[1]
    assert not recwarn.list


def test_cache(tiny_model, variant):
    model, (ids, mask) = tiny_model(variant=variant), sentences(5, 9)
    options = {"max_new_tokens": 8, "output_logits": True, "return_dict_in_generate": True}
    inputs = {"input_ids": ids, "attention_mask": mask}
    runs = [model.generate(**inputs, **options, use_cache=use_cache) for use_cache in (True, False)]
    assert getattr(runs[0], CACHE) is not None and getattr(runs[1], CACHE) is None
    assert torch.equal(runs[0].sequences, runs[1].sequences)
    torch.testing.assert_close(torch.stack(runs[0].logits), torch.stack(runs[1].logits), atol=1e-5, rtol=1e-5)


def test_attention_implementations(tiny_model, variant, batch):
    model = tiny_model(variant=variant).double()
    logits = {}
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            logits[implementation] = model(**batch).logits
    torch.testing.assert_close(logits["eager"], logits["sdpa"], atol=1e-12, rtol=1e-12)


def test_the_mask_of_a_gpu_masks_the_same(tiny_model):
    model = tiny_model()
    states, mask = torch.randn(2, 4, 16), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    unasked = padding_mask(model.config, states.to("meta"), mask.to("meta"))
    assert unasked.shape == (2, 1, 1, 4) and unasked.dtype == torch.bool
    attention = model.model.encoder.layers[0].self_attn
    expected = attention(states, attention_mask=create_bidirectional_mask(model.config, states, mask))[0]
    found = attention(states, attention_mask=mask[:, None, None].bool())[0]
    torch.testing.assert_close(found, expected)


def test_padding_is_never_predicted(tiny_model):
    model, (ids, mask) = tiny_model(), sentences(4, 8)
    logits = model(ids, mask, decoder_input_ids=ids).logits
    assert logits.argmin(-1).eq(PAD).all()
    assert tiny_model(score_padding=True)(ids, mask, decoder_input_ids=ids).logits[..., PAD].abs().max() < 100


# Gradients


@pytest.mark.parametrize(("every", "checkpointed"), [(1, [0, 1, 2, 3, 4]), (3, [0, 3])])
def test_gradient_checkpointing(tiny_model, variant, batch, every, checkpointed):
    """Of the layers of both stacks, counted through, every n-th runs twice, and no gradient changes."""
    model = tiny_model(variant=variant, dropout=0.2, attention_dropout=0.2, activation_dropout=0.2)
    layers, calls = [*model.model.encoder.layers, *model.model.decoder.layers], []
    for index, layer in enumerate(layers):
        layer.fc1.register_forward_hook(lambda *_, index=index: calls.append(index))
    torch.manual_seed(7)
    expected = training_gradients(model, batch)
    enable_checkpointing(model, {"every_n_layers": every})
    assert calls == list(range(5))
    torch.manual_seed(7)
    gradients = training_gradients(model, batch)
    assert sorted(calls[5:]) == sorted([*range(5), *checkpointed])
    torch.testing.assert_close(gradients, expected)


def test_accumulation(tiny_model, variant, batch):
    """Microbatches divided by the tokens of the whole batch add up to its gradient."""
    model = tiny_model(variant=variant)
    items = (batch["labels"] != -100).sum()
    expected = training_gradients(model, batch)
    model.zero_grad()
    losses = []
    for row in range(3):
        part = {name: tensor[row : row + 1] for name, tensor in batch.items()}
        losses.append(model(**part, num_items_in_batch=items).loss)
        losses[-1].backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(sum(losses), model(**batch).loss)


def test_loss_is_smoothed_in_training_alone(tiny_model, batch):
    model = tiny_model(label_smoothing=0.2)
    with torch.no_grad():
        evaluated, trained = model(**batch), model.train()(**batch)
    log_p = evaluated.logits[..., :PAD].log_softmax(-1)
    kept = batch["labels"] != -100
    nll = -log_p.gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0][kept]
    smoothed = 0.8 * nll - 0.2 * log_p.mean(-1)[kept]
    torch.testing.assert_close(evaluated.loss, nll.mean())
    torch.testing.assert_close(trained.loss, smoothed.mean())
    for output in (evaluated, trained):
        torch.testing.assert_close(output.nll, nll.sum())
    assert trained.logits is None


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "fields", [{}, {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "score_padding": True}], ids=str
)
def test_padding_in_labels_is_no_target(tiny_model, batch, fields, training):
    """Also where `<pad>` is scored, as by the models of fairseq, whose loss leaves it out likewise."""
    model = tiny_model(label_smoothing=0.1, **fields).train(training)
    pad, labels = model.config.pad_token_id, batch.pop("labels").clamp(min=-100)
    found = []
    for given in (labels, labels.masked_fill(labels == -100, pad)):
        model.zero_grad()
        output = model(**batch, labels=given)
        output.loss.backward()
        found.append((output.loss, output.nll, *(p.grad for p in model.parameters() if p.grad is not None)))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_without_targets_costs_nothing(tiny_model, batch, training):
    model = tiny_model(label_smoothing=0.1).train(training)
    output = model(**batch | {"labels": torch.full_like(batch["labels"], -100)})
    output.loss.backward()
    assert (output.loss.item(), output.nll.item()) == (0, 0)
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)


def test_padding_in_labels_that_were_counted_is_refused(tiny_model, batch):
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] == -100, PAD)
    model = tiny_model()
    assert model(**batch, num_items_in_batch=21).loss == model(**batch).loss  # an evaluation counts by itself
    with pytest.raises(ValueError, match="labels"):
        model.train()(**batch, num_items_in_batch=21)


def test_embedding_of_padding_stays_zero(tiny_model, variant, batch):
    model = tiny_model(variant=variant)
    embeddings = model.model.shared.weight
    before = embeddings.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(4):
        training_gradients(model, batch)
        optimizer.step()
    assert not embeddings[PAD].any()
    assert (embeddings != before)[:PAD].all()


# Embeddings: tied or not, one vocabulary or two

TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "vocab_size": 120, "decoder_vocab_size": 99}


@pytest.mark.parametrize("tied", [True, False], ids=["output tied", "output apart"])
@pytest.mark.parametrize("fields", [{}, {"share_encoder_decoder_embeddings": False}, TWO_VOCABULARIES], ids=str)
def test_embeddings_survive_saving(tmp_path, tiny_model, batch, fields, tied):
    model = tiny_model(tie_word_embeddings=tied, **fields)
    model.save_pretrained(tmp_path)
    loaded = AdminForConditionalGeneration.from_pretrained(tmp_path)
    shared = model.config.share_encoder_decoder_embeddings
    for copy in (model, loaded):
        source, target = copy.model.encoder.embed_tokens.weight, copy.model.decoder.embed_tokens.weight
        assert (source is target) == shared
        assert (copy.lm_head.weight is target) == tied
        assert len(source) == model.config.vocab_size
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits, atol=0, rtol=0)
    for copy in (model, loaded):
        training_gradients(copy, batch)
        torch.optim.SGD(copy.parameters(), lr=0.1).step()
    torch.testing.assert_close(dict(loaded.named_parameters()), dict(model.named_parameters()))


@every_variant
def test_every_tensor_survives_saving(tmp_path, tiny_model, variant, batch):
    model = tiny_model(variant=variant)
    model.save_pretrained(tmp_path)
    loaded = AdminForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), atol=0, rtol=0)


# The compiler


@pytest.mark.slow
def test_checkpointed_layers_compile_without_graph_breaks_and_keep_no_cache(tiny_model, batch):
    torch.compiler.reset()
    model = tiny_model().train()
    enable_checkpointing(model, {})
    inputs = [batch["input_ids"], batch["attention_mask"], batch["input_ids"]]
    outputs = torch.compile(model.model, fullgraph=True, backend="eager")(*inputs)
    assert getattr(outputs, CACHE) is None
    torch.testing.assert_close(outputs.last_hidden_state, model.model(*inputs).last_hidden_state)
    loss = torch.compile(model, fullgraph=True, backend="eager")(**batch).loss
    torch.testing.assert_close(loss, model(**batch).loss)


@pytest.mark.parametrize(
    "variant", ["dlcl_pre_ln", *(pytest.param(v, marks=pytest.mark.slow) for v in ("admin", "transparent_pre_ln"))]
)
def test_compiled_model_equals_eager(tiny_model, variant, batch):
    """Without graph breaks, in evaluation and in training."""
    torch.compiler.reset()
    model = tiny_model(variant=variant, encoder_layers=2, decoder_layers=1)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits)
    expected = training_gradients(model, batch)
    model.zero_grad()
    compiled(**batch).loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_resizing_two_vocabularies_resizes_the_sources(tiny_model, tmp_path, tied):
    sizes = {"vocab_size": 40, "decoder_vocab_size": 50}
    model = tiny_model(share_encoder_decoder_embeddings=False, tie_word_embeddings=tied, **sizes)
    inputs = {"input_ids": torch.tensor([[3, 4, 0]]), "decoder_input_ids": torch.tensor([[39, 48]])}
    before = model(**inputs).logits
    model.resize_token_embeddings(44)
    assert model.lm_head.out_features == 50
    model.save_pretrained(tmp_path)
    again = AdminForConditionalGeneration.from_pretrained(tmp_path)
    assert (again.config.vocab_size, again.config.decoder_vocab_size) == (44, 50)
    torch.testing.assert_close(again(**inputs).logits, before, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_offloaded_weights_are_brought_to_where_they_are_needed(tiny_model, batch, variant):
    """As `from_pretrained(device_map="auto")` does with what a GPU does not hold."""
    model = tiny_model(variant=variant)
    expected = model(**batch).logits
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in model.parameters())
    torch.testing.assert_close(model(**batch).logits, expected, rtol=0, atol=0)
