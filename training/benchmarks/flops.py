"""Floating-point operations of an update, and how many a GPU can do a second."""

from collections.abc import Iterable

from admin_nmt import AdminConfig

# Dense products in bfloat16, accumulated in float32, in 10¹² operations a second, from NVIDIA's data sheets, whose
# larger figures are for sparse matrices. A name that holds another comes first.
PEAKS = {
    "H200 NVL": 835.5, "H200": 989.4, "H100 PCIe": 756.5, "H100 NVL": 835.5, "H100": 989.4, "GH200": 989.4,
    "A100": 311.9, "L40S": 362.0, "L40": 181.0, "L4": 121.0, "A10": 125.0, "RTX 4090": 165.2, "RTX 3090": 71.0,
}  # fmt: skip


def peak_flops(device: str) -> float | None:
    """Operations a second that a GPU can do at most in bfloat16, by its name; None where the table lacks it.

    Args:
        device: as `torch.cuda.get_device_name` gives it, such as "NVIDIA H100 80GB HBM3".
    """
    words = f" {device} ".replace("-", " ")
    return next((peak * 1e12 for name, peak in PEAKS.items() if f" {name} " in words), None)


def forward_flops(config: AdminConfig, sentences: int, source: int, target: int) -> int:
    """Floating-point operations of the matrix products of one forward pass, a multiply-add as two.

    For B pairs padded to S source and T target positions, width d, feed-forward widths f, V words, with N encoder
    and M decoder layers:

        encoder layer     8·S·d² + 4·S²·d + 4·S·d·f        q, k, v, output; scores and their sums; feed-forward
        decoder layer     8·T·d² + 4·T²·d                  self-attention
                          + 4·T·d² + 4·S·d² + 4·S·T·d      cross-attention: q and output, k and v, scores and sums
                          + 4·T·d·f                        feed-forward
        output layer      2·T·d·V
        F = B · (N · encoder layer + M · decoder layer + output layer)

    Transparent attention adds 2·S·d·(N+1) a decoder layer, its memory's sum over the encoder's states.

    Causal attention counts whole, as in PaLM (Chowdhery et al. 2022, appendix B), which defines model FLOP utilisation.
    Padding counts: it is computed. LayerNorms, softmax, dropout, embeddings and the optimizer do not.
    """
    d, s, t = config.d_model, source, target
    encoder = 8 * s * d * d + 4 * s * s * d + 4 * s * d * config.encoder_ffn_dim
    own = 8 * t * d * d + 4 * t * t * d
    cross = 4 * t * d * d + 4 * s * d * d + 4 * s * t * d
    decoder = own + cross + 4 * t * d * config.decoder_ffn_dim
    decoder += 2 * s * d * (config.encoder_layers + 1) * config.variant.startswith("transparent")
    output = 2 * t * d * (config.decoder_vocab_size or config.vocab_size)
    return sentences * (config.encoder_layers * encoder + config.decoder_layers * decoder + output)


def update_flops(config: AdminConfig, shapes: Iterable[tuple[int, int, int]]) -> int:
    """Operations of the forward and backward passes over batches: 3·F each, whatever checkpointing computes again."""
    return sum(3 * forward_flops(config, *shape) for shape in shapes)
