"""Generation speed by depth of the encoder and of the decoder, as in figure 4 of Wang et al. 2019.

Beam search on new post-LN models of random weights, which is what a trained ADMIN model is folded into; every source
and translation has 20 tokens. All models in turns, so that a busy machine slows all of them.

    python -m training.benchmarks.generation_speed --output depth-speed
    python -m training.benchmarks.generation_speed --toy --rounds 1 --output /tmp/depth-speed
"""

import argparse
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import torch

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.model.sublayers import of_both_stacks
from admin_nmt.runs.pictures.curves import MARKERS, line_style, save
from admin_nmt.runs.results import device_name
from admin_nmt.system.files import json_text, write_text_whole
from training.benchmarks.common import DEVICE, seconds

LENGTH = 20  # tokens of every source and every translation
SETTINGS = {"depths": [2, 6, 12, 24, 36], "others": 6, "d_model": 256, "vocab_size": 8000, "sentences": 64}
TOY = {"depths": [1, 2], "others": 1, "d_model": 64, "vocab_size": 100, "sentences": 2}
NUM_BEAMS, BATCH_TOKENS = 4, 1280


def measure(settings: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Target tokens a second by depth of either stack, the median of the rounds."""
    depths, others = settings["depths"], settings["others"]
    shapes = [("encoder", depth, others) for depth in depths] + [("decoder", others, depth) for depth in depths]
    torch.manual_seed(1)
    sources = torch.randint(2, settings["vocab_size"] - 1, (settings["sentences"], LENGTH))
    sources[:, -1] = 0  # </s>
    found: dict[tuple[str, int, int], list[float]] = {shape: [] for shape in shapes}
    for _ in range(rounds):
        for shape, times in found.items():
            times.append(generation_seconds(settings, *shape[1:], sources.tolist()))
    rows = [
        {"varied": varied, "encoder_layers": encoder, "decoder_layers": decoder}
        | {"tokens_per_second": sources.numel() / median(times), "seconds": times}
        for (varied, encoder, decoder), times in found.items()
    ]
    facts = {"device": device_name(DEVICE), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"settings": settings | {"num_beams": NUM_BEAMS, "rounds": rounds}} | facts | {"rows": rows}


def generation_seconds(settings: dict[str, Any], encoder: int, decoder: int, sources: list[list[int]]) -> float:
    """Time of the beam search over all sources, after one sentence to warm up."""
    width = settings["d_model"]
    shape = {"encoder_layers": encoder, "decoder_layers": decoder, "d_model": width}
    shape |= of_both_stacks(ffn_dim=4 * width, attention_heads=max(1, width // 64))
    config = AdminConfig(variant="post_ln", vocab_size=settings["vocab_size"], **shape)
    model = AdminForConditionalGeneration(config).eval().to(DEVICE)
    options: dict[str, Any] = {"num_beams": NUM_BEAMS, "min_new_tokens": LENGTH, "max_new_tokens": LENGTH}
    generate_ids(model, sources[:1], **options)
    return seconds(generate_ids, model, sources, batch_tokens=BATCH_TOKENS, **options)


def draw(facts: dict[str, Any], path: Path) -> None:
    """Target tokens a second by depth, a line a stack."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    settings = facts["settings"]
    for index, (varied, other) in enumerate((("encoder", "decoder"), ("decoder", "encoder"))):
        rows = [row for row in facts["rows"] if row["varied"] == varied]
        label = f"{varied} (with {settings['others']} {other} layers)"
        depths, speeds = [row[f"{varied}_layers"] for row in rows], [row["tokens_per_second"] for row in rows]
        axes.plot(depths, speeds, label=label, marker=MARKERS[index], **line_style(index))
    axes.set(xlabel="layers", ylabel="target tokens per second", ylim=(0, None))
    axes.set_title(f"beam {settings['num_beams']}, d {settings['d_model']}, {facts['device']}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(title="depth of the")
    save(figure, path)


def main(arguments: list[str] | None = None) -> None:
    """Measure, and leave OUTPUT.json and OUTPUT.png."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("depth-speed"), help="path without an ending")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each model, in turns")
    parser.add_argument("--toy", action="store_true", help="tiny models; the numbers mean nothing")
    args = parser.parse_args(arguments)
    facts = measure(TOY if args.toy else SETTINGS, args.rounds)
    write_text_whole(args.output.with_suffix(".json"), json_text(facts, indent=1) + "\n")
    draw(facts, args.output.with_suffix(".png"))
    print(args.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
