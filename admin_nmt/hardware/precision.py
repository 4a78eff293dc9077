"""The precision and the attention of a training on a CPU, where nobody names them: rules of hardware and shape.

A rule and no stopwatch, so that a run that goes on chooses as it did before. Measured on an AMD EPYC with AVX-512's
products of bfloat16, one thread: against float32 an update took 0.85 to 1.2 times as long at d_model 32, 0.6 to 0.85 at
64, and 0.35 to 0.6 from 128 on. Plain attention was the faster in bfloat16 up to 1,024 tokens a sentence, half as long
as fused attention at d_model 128; in float32 the two were within a tenth of each other.
"""

from .cpu_features import cpu_bfloat16_is_fast

NARROWEST = 128  # d_model from which bfloat16 pays in batches of any size
NARROWEST_FUSED = 256  # with fused attention, whose kernel is slower in bfloat16 than in float32
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
