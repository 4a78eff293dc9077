"""Write a trained model as a folder of a stock transformers class, which other tools run without this package."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..data.tokenization.tokenizer_folder import check_tokenizer, save_tokenizers
from ..model.configuration_admin import AdminConfig
from ..model.loss import shift_right
from ..model.modeling_admin import NEVER, AdminForConditionalGeneration
from ..model.sublayers import NORM_NAMES
from ..system.files import new_folder
from .evaluation_mode import evaluation_mode
from .folding import AS_IT_IS, check_foldable, fold_checked, refuse_adapters
from .omega import omega_by_sublayer

SHARED_FIELDS = (
    "vocab_size", "max_position_embeddings", "encoder_layers", "encoder_ffn_dim", "encoder_attention_heads",
    "decoder_layers", "decoder_ffn_dim", "decoder_attention_heads", "activation_function", "d_model", "dropout",
    "attention_dropout", "activation_dropout", "scale_embedding", "tie_word_embeddings", "pad_token_id", "eos_token_id",
    "decoder_start_token_id", "use_cache",
)  # fmt: skip
PEGASUS = ("pre_ln", "ln_scaling")
TOLERANCE = 1e-4
TWO_SIZES = "5.18.0"  # of transformers; before, beams took the size of the source vocabulary for that of the target


class ExportError(ValueError):
    """The model cannot be written as a stock class, or what was written does not compute the same."""


def stock_class(config: AdminConfig, omega: Mapping[str, Tensor]) -> type[PreTrainedModel]:
    """Choose the stock class from configuration and ω alone: `MarianMTModel`, pre-LN `PegasusForConditionalGeneration`.

    Args:
        omega: ω [d] by sublayer, as [`omega_by_sublayer`] names them.

    Raises:
        FoldingError, ExportError: naming what stands in the way.
    """
    if config.positions != "marian" or config.score_padding:
        raise ExportError(
            f"positions: stock classes have Marian's sinusoids and never score <pad>, unlike fairseq's; {AS_IT_IS}"
        )
    last = min(config.vocab_size, config.decoder_vocab_size) - 1
    if config.pad_token_id != last or config.decoder_start_token_id != config.pad_token_id:
        raise ExportError(
            f"pad_token_id: is {config.pad_token_id}; stock tools need <pad> to be the last id, here {last}, and to "
            f"start the decoder, unlike a model whose vocabulary was extended; {AS_IT_IS}"
        )
    if config.vocab_size != config.decoder_vocab_size and Version(transformers.__version__) < Version(TWO_SIZES):
        raise ExportError(
            f"decoder_vocab_size: stock `generate` searches with beams in vocabularies of two sizes from transformers "
            f"{TWO_SIZES} on, and this is {transformers.__version__}; upgrade it, or {AS_IT_IS}"
        )
    if config.variant not in PEGASUS:
        check_foldable(config, omega)
        return MarianMTModel
    if not config.share_encoder_decoder_embeddings:
        raise ExportError(
            f"share_encoder_decoder_embeddings: a stock Pegasus has one vocabulary, this model has two; {AS_IT_IS}"
        )
    return PegasusForConditionalGeneration


def standard_model(model: AdminForConditionalGeneration) -> PreTrainedModel:
    """The stock model that computes what `model` does, of the class that [`stock_class`] names.

    Raises:
        FoldingError, ExportError: as there, for adapters, and for half precision where ω or 1/√l is to be folded.
    """
    refuse_adapters(model)
    stock = _empty(stock_class(model.config, omega_by_sublayer(model)), model)
    stock.load_state_dict(_renamed(fold_checked(model), stock), strict=False, assign=True)
    stock.tie_weights()
    stock.generation_config = _generation_config(model)
    return stock.eval()


def _empty(kind: type[PreTrainedModel], model: AdminForConditionalGeneration) -> PreTrainedModel:
    config = model.config
    fields = {field: getattr(config, field) for field in SHARED_FIELDS} | {"forced_eos_token_id": None}
    if kind is MarianMTModel:
        fields |= {name: getattr(config, name) for name in ("decoder_vocab_size", "share_encoder_decoder_embeddings")}
        stock: Any = MarianMTModel(MarianConfig(**fields))
    else:  # CTranslate2 reads these two, which stock Pegasus does not have as fields
        fields |= {"normalize_before": True, "normalize_embedding": False}
        stock = PegasusForConditionalGeneration(PegasusConfig(**fields))
    stock.final_logits_bias[:, config.pad_token_id] = NEVER
    return stock.to(device=model.device, dtype=model.dtype)


def _renamed(model: AdminForConditionalGeneration, stock: PreTrainedModel) -> dict[str, Tensor]:
    """The parameters of `model` under the stock names, all of which must be there."""
    state = {}
    for name, tensor in model.state_dict().items():
        for theirs, ours in NORM_NAMES.items():
            name = name.replace(ours, theirs)
        state[name] = tensor.detach().clone()  # saving drops all but one of tensors that share memory
    # An output layer that is not tied has a row for <pad>, which our model never reads.
    state["lm_head.weight"][model.config.pad_token_id] = 0
    frozen = {"final_logits_bias", "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
    missing, unexpected = set(stock.state_dict()) - set(state) - frozen, set(state) - set(stock.state_dict())
    if missing or unexpected:
        raise ExportError(f"keys do not match: missing {sorted(missing)}, unexpected {sorted(unexpected)}")
    return state


def _generation_config(model: AdminForConditionalGeneration) -> GenerationConfig:
    settings = model.generation_config.to_dict()
    settings.pop("_from_model_config", None)  # it would have these settings made anew from config.json
    config = GenerationConfig.from_dict(settings)
    if config.max_new_tokens is not None:  # as Marian's folders have it, and as Seq2SeqTrainer's argument overrides it
        config.max_length, config.max_new_tokens = config.max_new_tokens + 1, None
    padding = [model.config.pad_token_id]
    config.bad_words_ids = [*(ids for ids in config.bad_words_ids or [] if ids != padding), padding]
    config.eos_token_id = model.config.eos_token_id
    config.pad_token_id = config.decoder_start_token_id = model.config.pad_token_id
    return config


def export_standard(
    model: AdminForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> PreTrainedModel:
    """Write a stock folder (weights, config, generation config, tokenizer, export.json) and check what was written.

    The folder appears only when the reloaded stock model gives the same logits and the same beam-5 output as `model`.
    A model in half precision is written in float32, in which it is folded and compared.

    Args:
        model: of variant `admin`, `deepnorm`, `post_ln`, `ds_init` (become Marian), `pre_ln` or `ln_scaling` (become
            Pegasus).
        tokenizer: its joint tokenizer, or that of the source.
        folder: where to write; must not exist, or be empty.
        target_tokenizer: that of the target, if the model does not share its embeddings; it goes to the subfolder
            `target_tokenizer`. Such a folder runs in transformers; CTranslate2's converter knows one vocabulary only.

    Returns:
        The stock model, reloaded from `folder`.

    Raises:
        FoldingError, ExportError: when there is no such stock model, or the check fails; nothing is left behind.
        ValueError: when a tokenizer does not fit the model, or `folder` is not empty.
    """
    if target_tokenizer is None and not model.config.share_encoder_decoder_embeddings:
        raise ExportError("target_tokenizer: this model has two vocabularies, so give the tokenizer of the target too")
    check_tokenizer(tokenizer, model.config)
    check_tokenizer(target_tokenizer or tokenizer, model.config, target=True)
    refuse_adapters(model)
    with new_folder(folder) as temporary:
        alone = _alone(model)
        stock = standard_model(alone)
        stock.save_pretrained(temporary)
        save_tokenizers(temporary, tokenizer, target_tokenizer, positions=model.config.max_position_embeddings)
        reloaded = type(stock).from_pretrained(temporary, dtype=alone.dtype)
        error = check_same_outputs(alone, reloaded)
        facts = {"variant": model.config.variant, "max_logit_error": error}
        (temporary / "export.json").write_text(json.dumps(facts))
    reloaded.name_or_path = reloaded.config.name_or_path = str(folder)
    return reloaded


def _alone(model: AdminForConditionalGeneration) -> AdminForConditionalGeneration:
    """A copy in the memory of the CPU, without the `forward` that accelerate may have put before the model's own.

    That computes in bfloat16, and a GPU in TF32: both round more than the check forgives, as a model in half precision
    does, whose copy is in float32.
    """
    copied = type(model)(copy.deepcopy(model.config)).to(torch.promote_types(model.dtype, torch.float32))
    copied.set_attn_implementation("eager")  # others may need a GPU
    copied.load_state_dict({name: tensor.cpu() for name, tensor in model.state_dict().items()})
    copied.generation_config = model.generation_config
    return copied


@torch.no_grad()
def check_same_outputs(
    model: AdminForConditionalGeneration, stock: PreTrainedModel, tolerance: float = TOLERANCE
) -> float:
    """Compare logits and beam-5 output on random sentences; returns the largest difference of logits.

    Raises:
        ExportError: when they differ by more than `tolerance`, or a beam does.
    """
    config = model.config
    generator = torch.Generator().manual_seed(0)
    length = min(12, config.max_position_embeddings)
    ids = torch.randint(2, config.pad_token_id, (4, length), generator=generator)
    ids[0, 8:] = config.pad_token_id
    mask = ids.ne(config.pad_token_id).long()
    inputs = {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}
    stock = stock.to(model.device)
    decoder_ids = shift_right(inputs["input_ids"], config.decoder_start_token_id, config.pad_token_id)
    # None takes the place of what a model's own configuration may have, which would go before `max_length`.
    settings: Any = inputs | {"num_beams": 5, "max_length": length + 1, "max_new_tokens": None, "early_stopping": True}
    settings |= {"do_sample": False, "num_return_sequences": 1, "return_dict_in_generate": False}
    with evaluation_mode(model):
        ours, theirs = (m(**inputs, decoder_input_ids=decoder_ids).logits for m in (model, stock))
        beams = [m.generate(**settings).tolist() for m in (model, stock)]
    error = (ours - theirs).abs().max().item()
    if not error <= tolerance:
        raise ExportError(f"the stock model's logits differ by {error:.2e}, more than {tolerance:.0e}")
    if beams[0] != beams[1]:
        raise ExportError("the stock model's beam-5 output differs from the model's")
    return error


__all__ = ["ExportError", "check_same_outputs", "export_standard", "standard_model"]
