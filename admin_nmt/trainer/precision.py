"""The precision and the attention of a training on a CPU, where nobody names them: rules of hardware and shape.

A rule and no stopwatch, so that a run that goes on chooses as it did before. Measured on an AMD EPYC with AVX-512's
products of bfloat16, one thread, forward and backward pass in CPU seconds: against float32, bfloat16 took 0.7 to 1.2
times as long at d_model 32, 0.6 to 0.85 at 64, and 0.35 to 0.6 from 128 on, the most in batches of 512 tokens. Plain
attention in bfloat16 took 0.65 to 0.85 of the time of fused attention with sentences of 16 to 1,024 tokens; in float32
the two were within a tenth of each other.
"""

from ..system.cpu_features import cpu_bfloat16_is_fast

NARROWEST = 128  # d_model from which bfloat16 pays in batches of any size
NARROWEST_FUSED = 256  # with fused attention, whose kernel is the slower in bfloat16 where sentences are short
LONGEST_PLAIN = 512  # tokens of a sentence up to which the weights of plain attention are a small part of the memory


def bfloat16_pays(d_model: int, attention: str | None) -> bool:
    """Whether products of bfloat16 make a training on this machine's CPU faster.

    Args:
        d_model: width of the model.
        attention: its implementation, "eager" or another.
    """
    return cpu_bfloat16_is_fast() and d_model >= (NARROWEST if attention == "eager" else NARROWEST_FUSED)


def cpu_attention(longest: int) -> str:
    """The implementation of attention for a training on a CPU whose longest sentence has so many tokens."""
    return "eager" if longest <= LONGEST_PLAIN else "sdpa"
