"""admin-nmt benchmark: what the tables of model_cards/benchmark were measured with."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .bundled import find_file
from .options import check_positive, say

benchmark = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Multi30k = Annotated[Path, typer.Option(help="Folder of Multi30k: train.en.gz, train.de.gz, test_2016_flickr.*.gz.")]
Results = Annotated[Path, typer.Option(help="Folder of the results.")]
FOLDER = Path("model_cards/benchmark")


@benchmark.callback()
def benchmarks() -> None:
    """Measure speed and memory on this machine.

    Machines are shared and noisy: compare the ratios.

    \b
    admin-nmt benchmark training --data path/to/multi30k
    admin-nmt benchmark translation --data path/to/multi30k
    admin-nmt benchmark parts
    admin-nmt benchmark data path/to/multi30k
    admin-nmt benchmark planning path/to/msdocs
    admin-nmt benchmark gpu --data path/to/msdocs
    """


@benchmark.command()
def training(
    data: Multi30k,
    shape: Annotated[
        list[str] | None, typer.Option(help="6-6, 4-4 or 30-6; several by repeating; by default all.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Token budget of a batch.")] = 4096,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each system; the table shows their median.")] = 2,
    output: Results = FOLDER,
) -> None:
    """Compare training with stock Marian.

    Target tokens a second, against stock Marian with the stock Seq2SeqTrainer, alternating in one run. The same model
    (post-LN, label smoothing 0.1, dropout 0.1, Adam), the same token ids and the same number of updates in an epoch.

    \b
    admin-nmt benchmark training --data path/to/multi30k
    admin-nmt benchmark training --data path/to/multi30k --shape 4-4 --rounds 3
    """
    from ..benchmarks.training_speed import TrainingBenchmark, run_training_benchmark

    chosen: dict[str, Any] = {"shapes": shape} if shape else {}
    sizes: dict[str, Any] = {"max_tokens": max_tokens, "rounds": rounds}
    run_training_benchmark(TrainingBenchmark(str(data), output=str(output), **sizes, **chosen))


@benchmark.command()
def translation(
    data: Multi30k,
    model: Annotated[str | None, typer.Option(help="Folder of a trained stock model, measured as well.")] = None,
    source: Annotated[str | None, typer.Option(help="Sentences to translate instead of test_2016.")] = None,
    target: Annotated[str | None, typer.Option(help="Their references, for the BLEU of --check.")] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="6-6, 18-6 or none; several by repeating; by default all.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Measurements of each system; 0 to check alone.")] = 3,
    sentences: Annotated[int, typer.Option(min=1, help="So many sentences from the start of the file.")] = 1000,
    num_beams: Annotated[int, typer.Option(min=1, help="Beam size.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Decoder steps of a sentence under random weights.")] = 15,
    max_tokens: Annotated[int, typer.Option(min=1, help="Source positions of a batch.")] = 1024,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each system; by default torch's.")] = None,
    check: Annotated[int, typer.Option(min=0, help="Compare the model's translations of so many sentences.")] = 0,
    output: Results = FOLDER,
) -> None:
    """Compare translation with stock and CTranslate2.

    Four systems, alternating in one run: ours, stock generate, CTranslate2 in float32 and int8. --check compares the
    translations of a trained model with ours, at beam 1 and 5.

    \b
    admin-nmt benchmark translation --data path/to/multi30k
    admin-nmt benchmark translation --data path/to/multi30k --model runs/multi30k/standard --check 500
    """
    from ..benchmarks.translation_speed import TranslationBenchmark, run_translation_benchmark

    chosen: dict[str, Any] = {"threads": threads} if threads else {}
    if shape:
        chosen["shapes"] = [] if shape == ["none"] else shape
    texts: dict[str, Any] = {"model": model, "source": source, "target": target}
    sizes: dict[str, Any] = {"rounds": rounds, "sentences": sentences, "num_beams": num_beams, "steps": steps}
    limits: dict[str, Any] = {"max_tokens": max_tokens, "check": check, "output": str(output)}
    run_translation_benchmark(TranslationBenchmark(str(data), **texts, **sizes, **limits, **chosen))


@benchmark.command()
def parts(output: Results = FOLDER) -> None:
    """Measure the parts that cost most.

    Time and peak memory of the loss of a large vocabulary, and of DLCL on a deep stack. Each case runs alone in a
    process of its own, in turns; the table shows the median step and the growth of the process's peak memory.

    \b
    admin-nmt benchmark parts
    """
    from ..benchmarks.parts import run_parts_benchmark

    run_parts_benchmark(output)


@benchmark.command()
def data(
    multi30k: Annotated[Path, typer.Argument(help="Folder of Multi30k: train.en.gz, train.de.gz.", show_default=False)],
    output: Annotated[Path | None, typer.Option(help="Folder for data.json and data.md.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Sentence pairs of the corpus.")] = 1_000_000,
    copies: Annotated[int, typer.Option(min=1, help="How many times an epoch takes each of them.")] = 36,
    max_words: Annotated[int, typer.Option(min=1, help="Longest sentence.")] = 100,
    vocab_size: Annotated[int, typer.Option(min=1, help="Of the joint vocabulary.")] = 32768,
    num_proc: Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one a core.")] = None,
) -> None:
    """Measure the preparation of training data.

    On made-up text: time and memory of each step, and the start of a training after it.

    \b
    admin-nmt benchmark data path/to/multi30k --output model_cards/benchmark
    """
    from ..benchmarks.data_preparation import PreparationBenchmark, run_preparation_benchmark

    sizes: dict[str, Any] = {"pairs": pairs, "copies": copies, "max_words": max_words, "vocab_size": vocab_size}
    sizes |= {"num_proc": num_proc} if num_proc else {}
    run_preparation_benchmark(PreparationBenchmark(str(multi30k), **sizes), output)


@benchmark.command()
def planning(
    text: Annotated[
        Path, typer.Argument(help="Folder of a corpus, such as msdocs: train.en.gz, train.de.gz.", show_default=False)
    ],
    output: Annotated[Path | None, typer.Option(help="Folder for planning.json.")] = None,
    pairs: Annotated[
        list[int] | None, typer.Option(min=1, help="Size of a corpus; several by repeating; by default 10⁴ to 10⁹.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=256, help="Token budget of a batch.")] = 4096,
    folder: Annotated[
        str | None,
        typer.Option(help="Where the lengths lie meanwhile, 4 GB for 10⁹ pairs; by default where TMPDIR is."),
    ] = None,
) -> None:
    """Measure the planning of batches.

    Time and memory by the number of pairs, whose lengths are drawn from those of a corpus, and padding by the size of a
    window; then the search for duplicates among ten million pairs, and a checksum.

    \b
    admin-nmt benchmark planning path/to/msdocs --output model_cards/benchmark
    admin-nmt benchmark planning path/to/msdocs --pairs 10000 --pairs 1000000
    """
    from ..benchmarks.planning_growth import PlanningBenchmark, run_planning_benchmark

    sizes: dict[str, Any] = {"pairs": pairs} if pairs else {}
    run_planning_benchmark(PlanningBenchmark(str(text), max_tokens=max_tokens, folder=folder, **sizes), output)


@benchmark.command("billion-pairs")
def billion_pairs(
    rates: Annotated[
        Path, typer.Option(help="Folder of data.json and planning.json, and of translation.json.")
    ] = FOLDER,
    output: Annotated[Path | None, typer.Option(help="Folder for README.md and rates.json.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Sentence pairs of the corpus.")] = 10**9,
    machines: Annotated[int, typer.Option(min=1, help="Machines that share the work.")] = 8,
    cores: Annotated[int, typer.Option(min=1, help="Cores of each.")] = 32,
) -> None:
    """Plan a corpus too large to try.

    Time, memory and disk of each step from the rates that the other benchmarks measured, with the arithmetic.

    \b
    admin-nmt benchmark billion-pairs --output model_cards/billion-pairs
    admin-nmt benchmark billion-pairs --machines 1 --cores 2 --pairs 40000000
    """
    from ..planning.billion_pairs import Machines, gather_rates, page, write_plan

    gathered, given = gather_rates(rates), Machines(machines, cores)
    print(page(gathered, pairs, given) if output is None else write_plan(gathered, pairs, given, output))


@benchmark.command()
def gpu(
    data: Annotated[
        Path | None, typer.Option(help="Folder of msdocs: train.en.gz, ...; by default the phrasebook's pairs.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the results, the prepared data and the runs.")] = Path(
        "gpu-results"
    ),
    minutes: Annotated[
        float,
        typer.Option(callback=check_positive, help="Of this call; a training may take half a minute more to stop."),
    ] = 9,
    prepare: Annotated[bool, typer.Option("--prepare", help="Only the steps that need no GPU.")] = False,
    toy: Annotated[bool, typer.Option("--toy", help="Tiny models, to try all steps on a CPU.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only steps whose names begin so; several by repeating.")
    ] = None,
    redo: Annotated[
        list[str] | None, typer.Option(help="Run this step again, or all that `failed`; several by repeating.")
    ] = None,
) -> None:
    """Check and measure on a GPU, in calls of minutes.

    Tests, memory, training speed, attention, decoding speed, and default initialisation against ADMIN and pre-LN by
    depth. Each step is a process of its own and leaves OUTPUT/steps/NAME.json; a call runs steps until its minutes are
    used up, and the same command goes on: exit code 0 says that every step has its result, 1 that some are left.
    README.md, results.json and the pictures in OUTPUT show what is there.

    \b
    admin-nmt benchmark gpu --data path/to/msdocs --prepare
    admin-nmt benchmark gpu --data path/to/msdocs
    admin-nmt benchmark gpu --toy --output /tmp/toy --minutes 1
    """
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is no folder; give that of train.en.gz", param_hint="'--data'")

    from ..benchmarks.gpu.gpu_page import write_page
    from ..benchmarks.gpu.gpu_setup import Setup
    from ..benchmarks.gpu.gpu_steps import all_steps
    from ..benchmarks.gpu.step_runner import Call, check_size, forget

    setup, steps = Setup(output, find_file("gpu-msdocs", "grids"), data, toy), all_steps()
    check_size(setup)
    if redo:
        forget(setup, redo)
    chosen = [step for step in steps if step.on_cpu or not prepare]
    chosen = [step for step in chosen if not only or step.name.startswith(tuple(only))]
    left = Call(setup, chosen, 60 * minutes).run()
    print(write_page(setup, steps))
    if left:
        say(f"{len(left)} steps are left ({left[0].name}, ...); the same command goes on")
        raise typer.Exit(1)
