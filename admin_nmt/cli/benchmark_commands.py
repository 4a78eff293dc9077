"""admin-nmt benchmark: what the tables of model_cards/benchmark were measured with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .bundled import find_file
from .options import check_positive, quiet, say


class Parts(TyperGroup):
    """Commands of which each is a part; another one is refused in one sentence that names them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            names = ", ".join(name for name, command in self.commands.items() if not command.hidden)
            ctx.fail(f"there is no part {args[0]!r}; the parts are {names}")
        return super().resolve_command(ctx, args)


benchmark = typer.Typer(cls=Parts, rich_markup_mode=None)

Multi30k = Annotated[Path, typer.Option(help="Folder of Multi30k: train.en.gz, train.de.gz, test_2016_flickr.*.gz.")]
Text = Annotated[
    Path | None,
    typer.Option(
        help="Folder of Multi30k: train.en.gz, train.de.gz, test_2016_flickr.*.gz; by default that "
        "below $ADMIN_NMT_SHARED, where it is, or the built-in phrasebook."
    ),
]
Machines = Annotated[Path, typer.Option(help="Folder of the folders of all machines.")]
Rounds = Annotated[int, typer.Option(min=1, help="Measurements of each system, in turns.")]
Again = Annotated[bool, typer.Option("--again", help="Measure anew what is there.")]
Toy = Annotated[bool, typer.Option("--toy", help="Tiny models, to try the command; the numbers mean nothing.")]
FOLDER = Path("model_cards/benchmark")


def measure(names: Sequence[str], again: Sequence[str], output: Path, **plan: Any) -> None:
    """Measure what is left of these parts of the benchmark, and write the pages."""
    from ..benchmarks.machine.machine_page import write_pages
    from ..benchmarks.machine.machine_parts import PARTS, Plan, check_parts
    from ..benchmarks.machine.part_runner import Session

    quiet()
    check_parts(again)
    whole = Plan(**plan)
    session = Session(output, write_pages)
    session.run([PARTS[name](whole) for name in names or PARTS], again)
    print(session.folder / "README.md")


@benchmark.callback(invoke_without_command=True)
def benchmarks(
    ctx: typer.Context,
    data: Text = None,
    output: Machines = FOLDER,
    rounds: Rounds = 3,
    again: Annotated[
        list[str] | None, typer.Option(metavar="PART", help="Measure this part anew; several by repeating.")
    ] = None,
    toy: Toy = False,
) -> None:
    """Measure speed and memory on this machine.

    Without a part: training, decoding, loss, start, data and growth, half an hour on two cores. The folder of this
    machine below OUTPUT has the results and a page of ratios, and the index beside it all machines. What is there is
    kept: an interrupted call goes on where it stopped. Machines are shared and noisy: compare the ratios.

    \b
    admin-nmt benchmark
    admin-nmt benchmark --data path/to/multi30k --again training
    admin-nmt benchmark training --again
    admin-nmt benchmark translation --data path/to/multi30k --model runs/mine/standard
    admin-nmt benchmark planning path/to/msdocs
    admin-nmt benchmark gpu --data path/to/msdocs
    """
    given = [name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if ctx.invoked_subcommand is None:
        measure((), again or (), output, data=data, rounds=rounds, toy=toy)
    elif given:
        ctx.fail(f"--{given[0]} belongs behind the part: admin-nmt benchmark {ctx.invoked_subcommand} --{given[0]} ...")


@benchmark.command()
def training(
    data: Text = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="6-6, 4-4 or 30-6; several by repeating; by default all.")
    ] = None,
    rounds: Rounds = 3,
    output: Machines = FOLDER,
    again: Again = False,
    toy: Toy = False,
) -> None:
    """Training against stock Marian.

    Target tokens a second, against stock Marian with the stock Seq2SeqTrainer, alternating in one run: the same model
    (post-LN, label smoothing 0.1, dropout 0.1, Adam) and the same token ids.

    \b
    admin-nmt benchmark training
    admin-nmt benchmark training --data path/to/multi30k --shape 4-4 --rounds 5
    """
    plan = {"data": data, "shapes": tuple(shape or ()), "rounds": rounds, "toy": toy}
    measure(["training"], ["training"] * again, output, **plan)


@benchmark.command()
def decoding(
    data: Text = None, rounds: Rounds = 3, output: Machines = FOLDER, again: Again = False, toy: Toy = False
) -> None:
    """Decoding against stock and CTranslate2.

    Random models of two shapes: ours, stock generate, CTranslate2 in float32 and int8. `translation` measures a trained
    model and compares what the systems translate.

    \b
    admin-nmt benchmark decoding
    """
    measure(["decoding"], ["decoding"] * again, output, data=data, rounds=rounds, toy=toy)


@benchmark.command()
def loss(rounds: Rounds = 2, output: Machines = FOLDER, again: Again = False, toy: Toy = False) -> None:
    """The loss of a large vocabulary, and DLCL.

    Time and peak memory of a step: the loss against transformers' LabelSmoother, and DLCL on a deep stack.

    \b
    admin-nmt benchmark loss
    """
    measure(["loss"], ["loss"] * again, output, rounds=rounds, toy=toy)


benchmark.command("parts", hidden=True)(loss)  # its former name


@benchmark.command("data")
def preparation(
    multi30k: Annotated[
        Path | None, typer.Argument(help="Folder of Multi30k, as --data names it.", show_default=False)
    ] = None,
    data: Text = None,
    output: Machines = FOLDER,
    pairs: Annotated[int, typer.Option(min=1, help="Sentence pairs of the corpus.")] = 1_000_000,
    copies: Annotated[int, typer.Option(min=1, help="How many times an epoch takes each of them.")] = 36,
    max_words: Annotated[int, typer.Option(min=1, help="Longest sentence.")] = 100,
    vocab_size: Annotated[int, typer.Option(min=1, help="Of the joint vocabulary.")] = 32768,
    num_proc: Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one a core.")] = None,
    again: Again = False,
    toy: Toy = False,
) -> None:
    """Preparing a large corpus, and starting on it.

    On made-up text: time and memory of each step, and the start of a training after it.

    \b
    admin-nmt benchmark data
    admin-nmt benchmark data path/to/multi30k --pairs 100000 --output /tmp/benchmark
    """
    sizes: dict[str, int] = {"pairs": pairs, "copies": copies, "max_words": max_words, "vocab_size": vocab_size}
    sizes |= {"num_proc": num_proc} if num_proc else {}
    measure(["data"], ["data"] * again, output, data=data or multi30k, toy=toy, preparation=sizes)


@benchmark.command()
def start(rounds: Rounds = 3, output: Machines = FOLDER, again: Again = False, toy: Toy = False) -> None:
    """From launch to translation.

    Time of `admin-nmt translate --text` with a 6-6 model of width 512, beside a stock program, imports and --help.

    \b
    admin-nmt benchmark start
    """
    measure(["start"], ["start"] * again, output, rounds=rounds, toy=toy)


@benchmark.command()
def growth(
    data: Text = None, rounds: Rounds = 3, output: Machines = FOLDER, again: Again = False, toy: Toy = False
) -> None:
    """How cost grows, beside the ideal.

    Tokens a second of training by depth, width, vocabulary and batch, and time and memory of planning 10⁴ to 10⁹ pairs:
    tables and pictures. A billion pairs take 4 GB of disk meanwhile, where TMPDIR is.

    \b
    admin-nmt benchmark growth
    """
    measure(["growth"], ["growth"] * again, output, data=data, rounds=rounds, toy=toy)


@benchmark.command()
def translation(
    data: Multi30k,
    model: Annotated[str | None, typer.Option(help="Folder of a trained stock model, measured as well.")] = None,
    source: Annotated[str | None, typer.Option(help="Sentences to translate instead of test_2016.")] = None,
    target: Annotated[str | None, typer.Option(help="Their references, for the BLEU of --check.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="6-6, 18-6, 4-4, 30-6, 1-1 or none; several by repeating; default: the first two."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Measurements of each system; 0 to check alone.")] = 3,
    sentences: Annotated[int, typer.Option(min=1, help="So many sentences from the start of the file.")] = 1000,
    num_beams: Annotated[int, typer.Option(min=1, help="Beam size.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Decoder steps of a sentence under random weights.")] = 15,
    max_tokens: Annotated[int, typer.Option(min=1, help="Source positions of a batch.")] = 1024,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each system; by default torch's.")] = None,
    check: Annotated[int, typer.Option(min=0, help="Compare the model's translations of so many sentences.")] = 0,
    output: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("translation-results"),
) -> None:
    """Compare the translations of a trained model.

    Alternating in one run: ours in the precision of the machine and in float32, stock generate, CTranslate2 in float32,
    int8 and, where the machine has it, bfloat16. --check compares the translations of a trained model with ours, at
    beam 1 and 5.

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
        Path | None,
        typer.Option(
            help="Folder of a machine, or of data.json, planning.json and translation.json; by default that of the one "
            "machine below model_cards/benchmark."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for README.md and rates.json.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Sentence pairs of the corpus.")] = 10**9,
    machines: Annotated[int, typer.Option(min=1, help="Machines that share the work.")] = 8,
    cores: Annotated[int, typer.Option(min=1, help="Cores of each.")] = 32,
) -> None:
    """Plan a corpus too large to try.

    Time, memory and disk of each step from the rates that the other benchmarks measured, with the arithmetic.

    \b
    admin-nmt benchmark billion-pairs --output model_cards/billion-pairs
    admin-nmt benchmark billion-pairs --rates gathered --machines 1 --cores 2 --pairs 40000000
    """
    from ..benchmarks.billion_pairs import Machines, gather_rates, page, write_plan

    if rates is None:
        measured = [path.parent for path in FOLDER.glob("*/machine.json")]
        if len(measured) != 1:
            raise typer.BadParameter(f"{FOLDER} has {len(measured)} machines; name a folder by --rates")
        (rates,) = measured
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
