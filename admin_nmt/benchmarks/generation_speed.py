"""Generation speed by depth, measured on new models of random weights."""

import time
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import torch

from admin_nmt import AdminConfig, AdminForConditionalGeneration

from ..decoding.search.generation import generate_ids
from ..model.sublayers import of_both_stacks
from ..runs.results import device_name
from ..system.terminal import progress_bar
from .stopwatch import synchronize

LENGTH = 20  # tokens of every source and every translation


@dataclass
class SpeedTest:
    """What is measured.

    Args:
        depths: layers of the stack that varies; the other one has `others`.
        d_model: width; the feed-forward is four times that, heads have 64 units.
        sentences: of `LENGTH` tokens each; every translation has `LENGTH` tokens too, whatever the random model says.
        rounds: measurements of each model, all models in turn, so that a busy machine slows all of them.
    """

    depths: list[int] = field(default_factory=lambda: [2, 6, 12, 24, 36])
    others: int = 6
    d_model: int = 256
    vocab_size: int = 8000
    sentences: int = 64
    num_beams: int = 4
    max_tokens: int = 1280
    rounds: int = 3


def measure(test: SpeedTest) -> dict[str, Any]:
    """Target tokens a second by depth of the encoder and of the decoder, the median of the rounds."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shapes = {"encoder": [(d, test.others) for d in test.depths], "decoder": [(test.others, d) for d in test.depths]}
    torch.manual_seed(1)
    sources = torch.randint(2, test.vocab_size - 1, (test.sentences, LENGTH))
    sources[:, -1] = 0
    seconds: dict[tuple[int, int], list[float]] = {shape: [] for shapes_of in shapes.values() for shape in shapes_of}
    for _ in range(test.rounds):
        for shape in progress_bar(seconds, desc="depths", unit="shape"):
            seconds[shape].append(generation_seconds(new_model(test, *shape).to(device), sources.tolist(), test))
    tokens = test.sentences * LENGTH
    rows = [
        {"varied": varied, "encoder_layers": shape[0], "decoder_layers": shape[1]}
        | {"tokens_per_second": tokens / median(seconds[shape]), "seconds": seconds[shape]}
        for varied, shapes_of in shapes.items()
        for shape in shapes_of
    ]
    facts = {"device": device_name(device), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"settings": asdict(test)} | facts | {"rows": rows}


def new_model(test: SpeedTest, encoder_layers: int, decoder_layers: int) -> AdminForConditionalGeneration:
    """A post-LN model, which is what a trained ADMIN model is folded into."""
    shape = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers, "d_model": test.d_model}
    shape |= of_both_stacks(ffn_dim=4 * test.d_model, attention_heads=max(1, test.d_model // 64))
    return AdminForConditionalGeneration(AdminConfig(variant="post_ln", vocab_size=test.vocab_size, **shape)).eval()


def generation_seconds(model: AdminForConditionalGeneration, sources: list[list[int]], test: SpeedTest) -> float:
    """Time of the beam search over all sources, after one batch to warm up."""
    options: dict[str, Any] = {"num_beams": test.num_beams, "min_new_tokens": LENGTH, "max_new_tokens": LENGTH}
    generate_ids(model, sources[:1], **options)
    synchronize(model.device)
    start = time.perf_counter()
    generate_ids(model, sources, batch_tokens=test.max_tokens, **options)
    synchronize(model.device)
    return time.perf_counter() - start
