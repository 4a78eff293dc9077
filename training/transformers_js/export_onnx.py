"""Write a stock Marian model as transformers.js reads it: the encoder and the decoder in ONNX, and the tokenizer.

    python training/transformers_js/export_onnx.py runs/mine/standard web/model

The decoder takes the keys and values of earlier tokens and gives them back with one more, so that each step computes
one token. Needs pip install "admin_nmt[onnx]".
"""

import shutil
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, DynamicCache, EncoderDecoderCache, MarianMTModel

FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
Past = list[tuple[Tensor, Tensor]]


class Encoder(nn.Module):
    """States [B, S, d] of source ids [B, S]."""

    def __init__(self, model: MarianMTModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states: Tensor = self.model.model.encoder(input_ids, attention_mask).last_hidden_state
        return states


class Decoder(nn.Module):
    """Logits [B, T, V] of target ids [B, T] behind those whose keys and values, [B, heads, P, d/heads], are given."""

    def __init__(self, model: MarianMTModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, states: Tensor, mask: Tensor, past: Past) -> tuple[Tensor, Past]:
        cache = EncoderDecoderCache(DynamicCache(past), DynamicCache())
        # By its place: the name of the cache depends on the release of transformers.
        output = self.model.model.decoder(input_ids, None, states, mask, cache, use_cache=True)
        logits = self.model.lm_head(output.last_hidden_state) + self.model.final_logits_bias
        return logits, [(layer.keys, layer.values) for layer in cache.self_attention_cache.layers]


def export(model: MarianMTModel, folder: Path) -> None:
    """Write `encoder_model.onnx` and `decoder_model_merged.onnx`, named and made as transformers.js wants them."""
    config = model.config
    layers, heads = range(config.decoder_layers), config.decoder_attention_heads
    # Sizes are free; the sample's differ from each other, and no tensor is given twice, or it would become one input.
    ids, mask, target = (torch.ones(2, length, dtype=torch.long) for length in (5, 5, 4))
    past = [
        (torch.zeros(2, heads, 3, config.d_model // heads), torch.zeros(2, heads, 3, config.d_model // heads))
        for _ in layers
    ]
    batch, source = {0: "batch_size"}, {0: "batch_size", 1: "source"}
    torch.onnx.export(
        Encoder(model).eval(),
        (ids, mask),
        folder / "encoder_model.onnx",
        input_names=["input_ids", "attention_mask"],
        output_names=["last_hidden_state"],
        dynamic_shapes=(source, source),
        dynamo=True,
        external_data=False,
    )
    names = [f"{layer}.decoder.{kind}" for layer in layers for kind in ("key", "value")]
    torch.onnx.export(
        Decoder(model).eval(),
        (target, torch.zeros(2, 5, config.d_model), mask, past),
        folder / "decoder_model_merged.onnx",
        input_names=[
            "input_ids",
            "encoder_hidden_states",
            "encoder_attention_mask",
            *(f"past_key_values.{name}" for name in names),
        ],
        output_names=["logits", *(f"present.{name}" for name in names)],
        dynamic_shapes=(
            batch | {1: "target"},
            source,
            source,
            [(batch | {2: "past"}, batch | {2: "past"}) for _ in layers],
        ),
        dynamo=True,
        external_data=False,
    )


def main(source: Path, output: Path) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(source)
    if not isinstance(model, MarianMTModel):
        sys.exit(f"{source}: holds a {type(model).__name__}, and this writes a MarianMTModel; give a folder `standard`")
    if not model.config.share_encoder_decoder_embeddings:
        sys.exit(f"{source}: has two vocabularies, and transformers.js reads one; train with tokenizer.joint: true")
    (output / "onnx").mkdir(parents=True, exist_ok=True)
    export(model, output / "onnx")
    for name in FILES:
        shutil.copy(source / name, output)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: export_onnx.py FOLDER OUTPUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
