"""The sections of a machine's page, made from the results of the parts: ratios, and absolute numbers beside them."""

from collections.abc import Callable
from statistics import median

from ...system.markdown import table_text
from .. import training_speed
from ..start_time import TRANSLATE
from .growth_section import growing
from .page_section import Section, of_systems, paragraph, ratios, rounds_of, spread
from .part_runner import Results

STOCK = "translation with transformers alone"  # a program of the start


def training(results: Results) -> Section:
    """Speed of the trainers."""
    table, index = [], {}
    for shape, values in rounds_of(results).items():
        sizes = training_speed.Shape(**results.settings["shapes"][shape])
        speeds = [of_systems(value, "tokens_per_second") for value in values]
        title = f"{shape} d {sizes.d_model}, {sizes.max_tokens:,} tokens"
        for system, chosen in values[-1].items():
            ratio = spread(ratios(speeds, system, training_speed.BASE))
            speed = f"{median(one[system] for one in speeds):,.0f}"
            table.append([title, system, ratio, speed, f"{chosen['precision']}, {chosen['attention']}"])
        for other in ("ours float32", "stock grouped", "stock grouped bf16", "stock random"):
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
        memory = [of_systems(one, "memory_mb") for one in rounds]
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
    return Section("Decoding", "\n\n".join([text, table_text(head, table), *time_of_ours(results)]), index)


def time_of_ours(results: Results) -> list[str]:
    """What the CPU time of our search goes into, where that was measured."""
    profiled = {}
    for title, systems in {name: runs for value in results.values() for name, runs in value.items()}.items():
        if rounds := [run["shares"] for run in systems["ours"] if "shares" in run]:
            profiled[title] = {what: median(one[what] for one in rounds) for what in rounds[0]}
    if not profiled:
        return []
    works = list(next(iter(profiled.values())))
    rows = [
        [title, *(f"{one[what]:.0%}" for what in works), f"{1 - sum(one.values()):.0%}"]
        for title, one in profiled.items()
    ]
    text = paragraph("""What limits our search: the share of each kind of work in the CPU time of all operators, by
        PyTorch's profiler, on one thread. The rest are small operators, which the profiler makes seem slower.""")
    return [text, table_text(["model", *works, "the rest"], rows)]


def loss(results: Results) -> Section:
    """Time and memory of the loss, and of DLCL."""
    table, index = [], {}
    for name, values in rounds_of(results).items():
        title, systems = results.settings[name]["title"], list(values[-1])
        for system in systems:
            cells = []
            for measure in ("seconds", "gigabytes"):
                own = [of_systems(value, measure) for value in values]
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


def start(results: Results) -> Section:
    """From launch to what a program answers."""
    (rounds,), table = results.values(), []
    answers, used = ([of_systems(one, key) for one in rounds] for key in ("answer_seconds", "cpu_seconds"))
    for name in rounds[0]:
        times = [spread(ratios(answers, name, STOCK)), f"{median(one[name] for one in answers):.2f}"]
        table.append([name, *times, spread(ratios(used, name, STOCK)), f"{median(one[name] for one in used):.2f}"])
    layers, width, words = (results.settings[name] for name in ("layers", "d_model", "vocab_size"))
    text = paragraph(f"""From the launch of Python to the first line of the answer, with a {layers}-{layers} model of
        width {width} and {words:,} words, random weights; less is better. *{STOCK}* is a program of six lines that
        loads the same model with `AutoModelForSeq2SeqLM` and translates the same text.""")
    head = ["program", f"time, times {STOCK}", "seconds", f"CPU time, times {STOCK}", "CPU seconds"]
    index = {f"start: {TRANSLATE} / {STOCK}": spread(ratios(answers, TRANSLATE, STOCK))}
    return Section("Start", f"{text}\n\n{table_text(head, table)}", index)


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
    imports, planning = (start[name] / start["first update"] for name in ("imports", "planning"))
    after = paragraph(f"""A training on {start["pairs"]:,} pairs (the same ones {value["copies"]} times) ends its first
        update {start["first update"]:.1f} s after the launch; imports took {imports:.0%} of that, and planning
        {start["batches"]:,} batches {planning:.0%}.""")
    return Section("Data", f"{text}\n\n{table_text(head, table)}\n\n{after}")


SECTIONS: dict[str, Callable[[Results], Section]] = {
    "training": training,
    "decoding": decoding,
    "loss": loss,
    "start": start,
    "data": data,
    "growth": growing,
}
