"""The sections of a machine's page, made from the results of the parts: ratios, and absolute numbers beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from ...figures.growth_plots import Growth, plot_growth
from ...reports.markdown import table_text
from .. import training_speed
from . import growth
from .part_runner import Results

Rounds = Sequence[Mapping[str, float]]


@dataclass
class Section:
    """A part on the page.

    Args:
        title: of the section.
        text: Markdown: what the rows mean, tables, pictures.
        rows: of the index, which has the machines beside each other: by name a ratio.
    """

    title: str
    text: str
    rows: dict[str, str] = field(default_factory=dict)


def spread(ratios: Sequence[float]) -> str:
    """The median, and the lowest and highest if there are several; a dash where there is none."""
    if not ratios:
        return "–"
    middle = f"{median(ratios):.2f}"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}–{max(ratios):.2f})"


def ratios(rounds: Rounds, system: str, base: str) -> list[float]:
    """Of each round: its system's rate beside its base's, so that what slows a whole round does not count."""
    return [one[system] / one[base] for one in rounds if one.get(base) and system in one]


def paragraph(text: str) -> str:
    """Text in lines of one width, however long what was put into it is."""
    return fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def rounds_of(results: Results) -> dict[str, list[Any]]:
    """The values of all rounds, by what they are of: the name of a case up to its comma."""
    found: dict[str, list[Any]] = {}
    for name, case in results.cases.items():
        found.setdefault(name.partition(",")[0], []).append(case["value"])
    return found


def training(results: Results) -> Section:
    """Speed of the trainers."""
    table, index = [], {}
    for shape, values in rounds_of(results).items():
        sizes = training_speed.Shape(**results.settings["shapes"][shape])
        speeds = [{system: one["tokens_per_second"] for system, one in value.items()} for value in values]
        title = f"{shape} d {sizes.d_model}, {sizes.max_tokens:,} tokens"
        for system, chosen in values[-1].items():
            ratio = spread(ratios(speeds, system, training_speed.BASE))
            speed = f"{median(one[system] for one in speeds):,.0f}"
            table.append([title, system, ratio, speed, f"{chosen['precision']}, {chosen['attention']}"])
        for other in ("stock grouped", "stock grouped bf16", "stock random"):
            if other in speeds[-1]:
                index[f"training {title}: ours / {other}"] = spread(ratios(speeds, "ours", other))
    head = ["shape", "system", "times stock grouped", "target tokens a second", "precision, attention"]
    text = paragraph(f"""Target tokens a second without padding, {results.settings["corpus"]}, post-LN, dropout 0.1,
        label smoothing 0.1, Adam. *ours* says nothing about precision or attention and gets what the package chooses;
        *ours float32* asks for float32. *stock* is `MarianMTModel` under `Seq2SeqTrainer` with as many pairs a batch as
        ours hold on average: *random* pairs, pairs *grouped* by length, and those with `bf16=True`, which is left out
        where the processor would emulate it.""")
    return Section("Training", f"{text}\n\n{table_text(head, table)}", index)


def decoding(results: Results) -> Section:
    """Speed of the searches."""
    table, index = [], {}
    count = results.settings["sentences"]
    for title, systems in {name: runs for value in results.values() for name, runs in value.items()}.items():
        rounds = [dict(zip(systems, runs, strict=True)) for runs in zip(*systems.values(), strict=False)]
        speeds = [{system: count / run["seconds"] for system, run in one.items()} for one in rounds]
        memory = [{system: run["memory_mb"] for system, run in one.items()} for one in rounds]
        for system in systems:
            speed = [spread(ratios(speeds, system, "stock")), f"{median(one[system] for one in speeds):.1f}"]
            held = [spread(ratios(memory, system, "stock")), f"{median(one[system] for one in memory):,.0f}"]
            table.append([title, system, *speed, *held])
        for other in (system for system in systems if system != "ours"):
            index[f"decoding {title}: ours / {other}"] = spread(ratios(speeds, "ours", other))
    head = ["model", "system", "times stock", "sentences a second", "memory, times stock", "MB"]
    text = paragraph(f"""{count:,} sentences of {results.settings["corpus"]}, beam {results.settings["num_beams"]}. The
        models have random weights and take {results.settings["steps"]} steps for every sentence. *stock* is
        `MarianMTModel.generate` at batch 32 in the order of the file; *ours* and CTranslate2 take the same batches of
        sorted sentences. Memory is the growth of the process's peak.""")
    return Section("Decoding", f"{text}\n\n{table_text(head, table)}", index)


def loss(results: Results) -> Section:
    """Time and memory of the loss, and of DLCL."""
    table, index = [], {}
    for name, values in rounds_of(results).items():
        title, systems = results.settings[name]["title"], list(values[-1])
        for system in systems:
            cells = []
            for measure in ("seconds", "gigabytes"):
                own = [{key: one[measure] for key, one in value.items()} for value in values]
                cells += [spread(ratios(own, system, systems[0])), f"{median(one[system] for one in own):.2f}"]
            table.append([title, system, *cells])
            if system in ("chunked", "dlcl_pre_ln"):
                index[f"{title}: time of {system} / {systems[0]}"] = cells[0]
                index[f"{title}: memory of {system} / {systems[0]}"] = cells[2]
    head = ["comparison", "system", "time, times the first", "seconds", "memory, times the first", "GB"]
    text = paragraph("""One step, forward and backward, in float32 with plain attention; less is better. *LabelSmoother*
        is stock `MarianMTModel` with what `Seq2SeqTrainer` does for label smoothing, under the allocator's settings
        that our trainer makes, and without them (*plain malloc*); *chunked* is our model with its loss. *pre_ln* is the
        stack without DLCL, *dlcl_pre_ln* ours with it, *dlcl_stacked* one that stacks all outputs at every layer.
        Memory is the growth of the process's peak.""")
    return Section("Loss and DLCL", f"{text}\n\n{table_text(head, table)}", index)


def data(results: Results) -> Section:
    """Preparation of a corpus, and the start of a training on it."""
    (value,) = results.values()
    total = sum(step["seconds"] for step in value["steps"])
    table = [
        [
            step["step"],
            f"{step['seconds'] / total:.2f}",
            f"{step['seconds']:.1f}",
            f"{step['pairs_per_second']:,.0f}",
            f"{step['cpu_seconds'] / step['seconds']:.2f}",
            f"{step['peak_memory_gb']:.2f}",
        ]
        for step in value["steps"]
    ]
    head = ["step", "share of the time", "seconds", "pairs a second", "cores busy", "peak memory, GB"]
    start = value["start"]
    text = paragraph(f"""{value["pairs"]:,} made-up pairs of the words of {results.settings["corpus"]},
        {value["text_gb"]:.2f} GB of text, joint vocabulary of {value["vocab_size"]:,}, {value["num_proc"]} processes.
        *cores busy* is CPU seconds a second; memory is that of all processes together, without mapped files.""")
    after = paragraph(f"""A training on {start["pairs"]:,} pairs (the same ones {value["copies"]} times) ends its first
        update {start["first update"]:.1f} s after the launch, {start["imports"] / start["first update"]:.2f} of that
        imports and {start["planning"] / start["first update"]:.2f} the planning of {start["batches"]:,} batches.""")
    return Section("Data", f"{text}\n\n{table_text(head, table)}\n\n{after}")


IDEALS = {True: "ideal: time as\nthe operations", False: "ideal: as the\nsmallest batch"}  # by `by_flops` of the axis


def growing(results: Results) -> Section:
    """A picture and a table of each size that grows."""
    parts, index = [about_growth(results)], {}
    for name, rounds in rounds_of(results).items():
        axis, speeds = results.settings[name], growth.relative(rounds)
        head = [axis["label"], "speed, times the smallest's", "ideal", "measured / ideal", "target tokens a second"]
        head.append("precision, attention")
        table = []
        for number, (size, ratios) in enumerate(zip(axis["values"], speeds, strict=True)):
            row = rounds[-1][number]
            speed = median(rows[number]["tokens_per_second"] for rows in rounds)
            own = [spread(ratios), f"{row['ideal']:.2f}", f"{median(ratios) / row['ideal']:.2f}"]
            table.append([f"{size:,}", *own, f"{speed:,.0f}", f"{row['precision']}, {row['attention']}"])
        parts += [f"![target tokens a second by {name}]({picture(name)})", table_text(head, table)]
        index[f"growth, {name} {axis['values'][0]:,} to {axis['values'][-1]:,}: measured / ideal"] = table[-1][3]
    return Section("Growth", "\n\n".join(parts), index)


def picture(name: str) -> str:
    """The file of a size's picture."""
    return f"growth-{name}.png"


def draw_growth(results: Results, folder: Path) -> None:
    """A picture of each size that grows; points and bars are relative to the smallest's median speed."""
    for name, rounds in rounds_of(results).items():
        axis, speeds = results.settings[name], growth.relative(rounds)
        first = median(rows[0]["tokens_per_second"] for rows in rounds)
        low, middle, high = ([first * function(own) for own in speeds] for function in (min, median, max))
        ideal = [first * row["ideal"] for row in rounds[-1]]
        panel = Growth(axis["label"], "target tokens a second", axis["values"], middle, ideal, low, high)
        panel.ideal_name = IDEALS[axis["by_flops"]]
        plot_growth([panel], f"Training by {name}", folder / picture(name))


def about_growth(results: Results) -> str:
    """What was trained, and what the dashed lines are."""
    axis = next(iter(results.settings.values()))
    base = growth.Point(**axis["base"])
    return paragraph(f"""Updates of `AdminTrainer` after a first one, ADMIN with the closed form of ω, Adam, sentences
        of {growth.LENGTH} tokens, precision and attention as the package chooses. One size
        grows at a time from {base.encoder_layers}-{base.decoder_layers} layers, width {base.width},
        {base.vocabulary:,} words and {base.batch:,} tokens a batch. The bars are the range over the rounds, each
        relative to its own smallest point. Dashed is the ideal: that time grows with the floating-point operations of
        the model's products of matrices, from the smallest point on; for the batch, that tokens a second stay those of
        the smallest. A point above it uses the processor better than the smallest does.""")


SECTIONS: dict[str, Callable[[Results], Section]] = {
    "training": training,
    "decoding": decoding,
    "loss": loss,
    "data": data,
    "growth": growing,
}
