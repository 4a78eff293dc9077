"""Configuration of very deep NMT Transformers: post-LN, ADMIN, pre-LN, DLCL, and their rivals."""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.utils import logging

logger = logging.get_logger(__name__)

PAPERS = ("post_ln", "admin", "pre_ln", "dlcl_pre_ln", "dlcl_post_ln")
TRANSPARENT = ("transparent_post_ln", "transparent_pre_ln")
RIVALS = ("deepnorm", "b2t", "ds_init", "rezero", "t_fixup", "ln_scaling", *TRANSPARENT)
VARIANTS = (*PAPERS, *RIVALS)
OMEGA_RULES = ("profile", "profile_reference", "log_n", "n")
DLCL_WEIGHTS = ("learned", "identity", "ones", "average")
POSITIONS = ("marian", "fairseq")
# Greatest sizes: whatever a file says, its model is built in a moment, or refused by the name of the field.
LARGEST = {
    "vocab_size": 2**24, "decoder_vocab_size": 2**24, "d_model": 2**16, "encoder_ffn_dim": 2**20,
    "decoder_ffn_dim": 2**20, "encoder_attention_heads": 2**16, "decoder_attention_heads": 2**16,
    "encoder_layers": 10_000, "decoder_layers": 10_000, "dlcl_dilation": 10_000, "dlcl_period": 10_000,
    "max_position_embeddings": 2**17,
}  # fmt: skip
# Of MarianConfig and of its older releases, in whose files they stand: neither is a misspelt field of ours.
LAYERDROP = ("encoder_layerdrop", "decoder_layerdrop")
OTHERS = (*LAYERDROP, "static_position_embeddings")
OF_OTHER_MODELS = {
    **dict.fromkeys(("n_layer", "n_layers", "num_layers"), "encoder_layers and decoder_layers"),
    **dict.fromkeys(("n_head", "n_heads", "num_heads"), "encoder_attention_heads and decoder_attention_heads"),
    **dict.fromkeys(("ffn_dim", "d_ff", "intermediate_size"), "encoder_ffn_dim and decoder_ffn_dim"),
    **dict.fromkeys(("dim", "hidden_dim", "embed_dim", "n_embd"), "d_model"),
    **dict.fromkeys(("norm_type", "normalize_before"), "variant"),
    **dict.fromkeys(("vocab", "n_vocab"), "vocab_size"),
}
"""Names that other models have for such fields, and what they are called here."""


def check_shape(config: PreTrainedConfig) -> None:
    """Refuse sizes and functions with which no model can be built, of this configuration or a stock one.

    Raises:
        ValueError: naming the field.
    """
    for field, largest in LARGEST.items():
        smallest = 0 if field == "encoder_layers" else 1
        if not smallest <= getattr(config, field, 1) <= largest:
            raise ValueError(f"{field}: must lie in [{smallest}, {largest}], not {getattr(config, field)}")
    for field in ("encoder_attention_heads", "decoder_attention_heads"):
        if getattr(config, "d_model", 0) % getattr(config, field, 1):
            raise ValueError(f"{field}: {getattr(config, field)} heads do not divide d_model {config.d_model}")
    if getattr(config, "activation_function", "relu") not in ACT2FN:
        raise ValueError(f"activation_function: {config.activation_function!r} is none of transformers")


@strict
class AdminConfig(PreTrainedConfig):
    """Configuration of [`AdminModel`] and [`AdminForConditionalGeneration`].

    The fields that `MarianConfig` also has carry its names and mean the same. Token ids follow Marian's layout: `</s>`
    is 0 and `<pad>`, the last id of the vocabulary, or of the smaller one of two, also starts the decoder. Encoder and
    decoder have one width, d_model; their feed-forward layers and heads are apart.

    Args:
        variant: what a sublayer computes, by the papers: `post_ln`, `admin`, `pre_ln`, `dlcl_pre_ln` or `dlcl_post_ln`;
            or by one of their rivals: `deepnorm`, `b2t`, `ds_init`, `rezero`, `t_fixup`, `ln_scaling`, or
            `transparent_post_ln` and `transparent_pre_ln`, which are transparent attention (Bapna et al. 2018).
        omega_rule: where ω of `admin` comes from: `log_n` is ω² = (n+1)/ln(n+1) − 1 and `n` is ω² = n for a stack of n
            sublayers; `profile`, the rule of Liu, Duh et al. 2020, and `profile_reference` measure it on one batch.
            Until [`profile_omega`] has run, ω has the value of `log_n`: with these two rules `AdminTrainer` runs it on
            a new model, a plain Trainer trains with that value.
        omega_profiled: whether ω was measured; set, with the rule, by [`profile_omega`]. It is for cards and pictures;
            whether a model is still to be measured is decided by [`needs_profiling`].
        train_omega: train ω as a vector of width `d_model` instead of keeping it constant, except that of the first
            sublayer of each stack, which must stay uniform for folding.
        dlcl_weights: `learned` from the row average; learned from the `identity`, as DenseFormer's are (Pagliardini et
            al. 2024); or fixed to `ones` or to the row `average` (ablations of Wang et al. 2019, table 6).
        dlcl_normalize_history: whether DLCL applies its LayerNorms; DenseFormer has none.
        dlcl_dilation: a sum over the history takes every k-th output, counted from the latest (DenseFormer's k).
        dlcl_period: only every p-th layer's output is replaced by a sum (DenseFormer's p).
        released_init: initialise `ds_init` and `b2t` as their released code does, by l^{−1/4} and 1/√N, instead of by
            the paper's 1/√l and as post-LN.
        label_smoothing: ε of the training loss (1−ε)·NLL + ε·mean over the vocabulary of −log p.
        positions: sinusoids of `marian`, or of `fairseq` for imported checkpoints.
        score_padding: whether `<pad>` is scored by the output layer. Only checkpoints of fairseq need that.
        vocab_size: tokens of the source's vocabulary, or of the joint one.
        decoder_vocab_size: tokens of the target's vocabulary; None: the same as `vocab_size`.
        max_position_embeddings: most tokens of a sentence.
        encoder_layers: depth of the encoder.
        encoder_ffn_dim: inner width of the encoder's feed-forward layers.
        encoder_attention_heads: attention heads of each encoder layer.
        decoder_layers: depth of the decoder.
        decoder_ffn_dim: inner width of the decoder's feed-forward layers.
        decoder_attention_heads: attention heads of each decoder layer.
        d_model: width of the model.
        activation_function: of the feed-forward layers, by transformers' name.
        dropout: of embeddings and of the output of each sublayer.
        attention_dropout: of attention weights.
        activation_dropout: behind the activation function.
        scale_embedding: whether embeddings are multiplied by √d_model.
        share_encoder_decoder_embeddings: whether source and target have one embedding matrix.
        tie_word_embeddings: whether the output layer has the weights of the target's embeddings.

    Raises:
        StrictDataclassError: (of huggingface_hub) at construction, naming the field that makes no sense.
    """

    model_type = "admin"
    keys_to_ignore_at_inference: ClassVar = ["cache", "past_key_values", "nll"]
    attribute_map: ClassVar = {
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    }

    variant: str = "admin"
    omega_rule: str | None = "log_n"
    omega_profiled: bool = False
    train_omega: bool = False
    dlcl_weights: str = "learned"
    dlcl_normalize_history: bool = True
    dlcl_dilation: int = 1
    dlcl_period: int = 1
    released_init: bool = False
    label_smoothing: float | int = 0.1
    positions: str = "marian"
    score_padding: bool = False

    vocab_size: int = 32768
    decoder_vocab_size: int | None = None
    max_position_embeddings: int = 1024
    encoder_layers: int = 6
    encoder_ffn_dim: int = 2048
    encoder_attention_heads: int = 8
    decoder_layers: int = 6
    decoder_ffn_dim: int = 2048
    decoder_attention_heads: int = 8
    d_model: int = 512
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = None
    eos_token_id: int | list[int] | None = 0
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.pad_token_id is None:
            self.pad_token_id = min(self.vocab_size, self.decoder_vocab_size) - 1
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.pad_token_id
        super().__post_init__(**kwargs)

    @property
    def has_omega(self) -> bool:
        """True where the skip connection is scaled: ω of ADMIN, α of DeepNorm."""
        return self.variant in ("admin", "deepnorm")

    @property
    def is_folded_on_export(self) -> bool:
        """True where the standard model has the scale of a block in its weights: ω, α, or 1/√l of `ln_scaling`."""
        return self.has_omega or self.variant == "ln_scaling"

    @property
    def normalizes_before(self) -> bool:
        """True where LayerNorm stands before the sublayer's function."""
        return self.variant in ("pre_ln", "dlcl_pre_ln", "ln_scaling", "transparent_pre_ln")

    @property
    def has_history(self) -> bool:
        """True where each layer reads a combination of all earlier ones (DLCL)."""
        return self.variant.startswith("dlcl_")

    # `@strict` calls the methods named `validate_…`, in alphabetical order, when a configuration is made.
    def validate_names(self) -> None:
        # transformers keeps whatever it is given, so that a misspelt field would leave its default in place.
        known = {field.name for field in fields(self)}
        for name in vars(self).keys() - known - {*OTHERS}:
            if name in OF_OTHER_MODELS:
                raise ValueError(f"{name}: there is no such field; set {OF_OTHER_MODELS[name]}")
            if similar := get_close_matches(name, AdminConfig.__annotations__, 1, cutoff=0.8):
                raise ValueError(f"{name}: there is no such field; did you mean {similar[0]}?")
        for name in LAYERDROP:
            if dropped := getattr(self, name, 0):
                raise ValueError(f"{name}: {dropped}, but no layer is ever left out here; remove it, or give 0")

    def validate_choices(self) -> None:
        choices = {
            "variant": VARIANTS,
            "dlcl_weights": DLCL_WEIGHTS,
            "positions": POSITIONS,
        }
        if self.variant == "admin":
            choices["omega_rule"] = OMEGA_RULES
        for field, allowed in choices.items():
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field}: {getattr(self, field)!r} is not one of {', '.join(allowed)}")

    def validate_shapes(self) -> None:
        check_shape(self)
        if self.d_model % 2:
            raise ValueError(f"d_model: must be even for sinusoidal positions, not {self.d_model}")
        if self.share_encoder_decoder_embeddings and self.vocab_size != self.decoder_vocab_size:
            raise ValueError(
                f"share_encoder_decoder_embeddings: vocab_size {self.vocab_size} and decoder_vocab_size "
                f"{self.decoder_vocab_size} differ; set it to False for two vocabularies"
            )

    def validate_variant(self) -> None:
        if not self.encoder_layers and (
            self.has_history or self.has_omega or self.variant in (*TRANSPARENT, "t_fixup")
        ):
            raise ValueError(f"encoder_layers: variant {self.variant!r} needs at least 1 layer")
        if self.released_init and self.variant not in ("b2t", "ds_init"):
            raise ValueError(f"released_init: variant {self.variant!r} has one initialisation; leave it out")
        if self.train_omega and self.variant != "admin":
            raise ValueError(f"train_omega: variant {self.variant!r} has no ω to train; use variant 'admin'")

    def validate_probabilities(self) -> None:
        for field in ("dropout", "attention_dropout", "activation_dropout", "label_smoothing"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(f"{field}: must lie in [0, 1), not {getattr(self, field)}")

    def validate_token_ids(self) -> None:
        if not 0 <= self.pad_token_id < min(self.vocab_size, self.decoder_vocab_size):
            raise ValueError(
                f"pad_token_id: {self.pad_token_id} is outside the vocabularies of {self.vocab_size} (source) and "
                f"{self.decoder_vocab_size} (target) tokens"
            )
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        if not ends:
            raise ValueError("eos_token_id: is an empty list; no translation would end")
        if self.pad_token_id in ends and not self.score_padding:
            logger.warning_once(
                f"eos_token_id: {self.eos_token_id} is also pad_token_id, which is never scored: no translation ends "
                "before its greatest length; give <pad> an id of its own"
            )


__all__ = ["AdminConfig"]
