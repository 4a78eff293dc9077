"""The command translate: lines in, translations out.

Which lines go in and out, and which processes translate them, is decided in `translate`; what is written for a line, by
`admin_nmt.decoding.translation_formats`, for which `load_translator` loads the model in each of these processes.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..decoding.options import Engine, Sampling, SearchOptions
from .options import (
    Backend,
    BatchTokens,
    Chunk,
    ComputeType,
    Dtype,
    LengthPenalty,
    OwnNumBeams,
    check_device,
    check_finite,
    check_language,
    check_output,
    check_text,
    loading,
    quiet,
    say,
    write_lines,
)

if TYPE_CHECKING:
    from ..decoding.translation_formats import LineTranslator
    from ..decoding.usual_scores import Unusual

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL",
        help="Folder or Hub repository of a model; several translate as an ensemble.",
        show_default=False,
    ),
]
Text = Annotated[str | None, typer.Option(callback=check_text, help="A text to translate, instead of a file.")]
Input = Annotated[Path | None, typer.Option(help="File of source sentences (.gz too); default stdin.")]
Output = Annotated[Path | None, typer.Option(callback=check_output, help="File of translations; default stdout.")]
SplitSentences = Annotated[
    bool, typer.Option("--split-sentences", help="Translate lines of several sentences sentence by sentence.")
]
SourceLanguage = Annotated[
    str | None,
    typer.Option(
        callback=check_language,
        help="Code of the language that --split-sentences splits; by default what the model's folder tells.",
    ),
]
Latency = Annotated[
    float,
    typer.Option(callback=check_finite, help="Seconds that a line of a terminal or pipe waits for others to join it."),
]
Devices = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, … or cuda:0,cuda:1,…, a process on each; by default a GPU if there is one."),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Processes, each with a model, that share the devices or the cores.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="No warning about sentences unlike those that the model was trained on.")
]
Nbest = Annotated[int, typer.Option(min=1, help="Most translations of a line, best first; at most the beam size.")]
Form = Annotated[
    Literal["text", "nbest", "jsonl"] | None,
    typer.Option(
        "--format",
        help="text: the translation; nbest: number ||| translation ||| score; jsonl: an object with scores and tokens. "
        "By default nbest with --nbest, else text.",
    ),
]
Align = Annotated[
    bool, typer.Option("--alignment", help="Word alignment as 0-0 1-2, source-target, behind ||| or in the object.")
]
AlignmentLayer = Annotated[
    int | None,
    typer.Option(help="Decoder layer whose attention aligns, 0 the first, -1 the last; by default the one before."),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        callback=check_text, help="What translations begin with; its last word may go on, but not after subword-nmt."
    ),
]
Prefixed = Annotated[
    bool, typer.Option("--prefixed-input", help="Lines are source, tab, and what the translation begins with.")
]
Forbid = Annotated[
    list[str] | None, typer.Option(help="Word or phrase that no translation contains; several by repeating.")
]
Draw = Annotated[bool, typer.Option("--sampling", help="Draw translations from the distribution; no search.")]
TopK = Annotated[int | None, typer.Option(min=1, help="With --sampling: among so many tokens; by default all.")]
Temperature = Annotated[
    float | None,
    typer.Option(callback=check_finite, help="With --sampling: what logits are divided by; by default 1."),
]
Seed = Annotated[int | None, typer.Option(help="With --sampling: another one draws others; by default 1.")]


def translate(
    models: Models,
    text: Text = None,
    input: Input = None,
    output: Output = None,
    split_sentences: SplitSentences = False,
    source_language: SourceLanguage = None,
    num_beams: OwnNumBeams = None,
    length_penalty: LengthPenalty = None,
    nbest: Nbest = 1,
    form: Form = None,
    alignment: Align = False,
    alignment_layer: AlignmentLayer = None,
    target_prefix: Prefix = None,
    prefixed_input: Prefixed = False,
    forbid: Forbid = None,
    sampling: Draw = False,
    top_k: TopK = None,
    temperature: Temperature = None,
    seed: Seed = None,
    batch_tokens: BatchTokens = 4096,
    chunk: Chunk = 2000,
    latency: Latency = 0.1,
    backend: Backend = "torch",
    compute_type: ComputeType = None,
    dtype: Dtype = None,
    device: Devices = None,
    processes: Processes = None,
    no_warning: Quiet = False,
) -> None:
    """Translate a file, stdin or one sentence.

    One line in, one line out, in the same order; a blank line stays blank.
    With --output, finished lines are kept in OUTPUT.partial: killed or interrupted, the same command continues there.
    Without, a line from a terminal or pipe is answered as soon as it can be.
    At the end a line on stderr says how many sentences score far below the model's validation text.

    \b
    admin-nmt translate runs/phrasebook/standard --text "Two books cost ten euros."
    admin-nmt translate runs/phrasebook/standard --input test.en --output test.de --processes 2
    admin-nmt translate runs/phrasebook/standard --split-sentences < paragraphs.en > paragraphs.de
    admin-nmt translate runs/phrasebook/standard --nbest 3 --alignment --text "Two books cost ten euros."
    admin-nmt translate runs/seed-1/standard runs/seed-2/standard --input test.en --output test.de
    """
    if text is not None and input is not None:
        raise typer.BadParameter("give --text or --input, not both")
    if input is not None and output is not None and output.exists() and input.samefile(output):
        raise typer.BadParameter("--output is the file of --input; name another one")

    with loading():
        from ..decoding.file_translation import PartialFile, translate_file
        from ..decoding.translation_formats import LineTranslator, numbered
        from ..decoding.usual_scores import Unusual, counting
        from ..decoding.worker_processes import translating
        from ..hub.model_folder import beam_size, local_folder

    if sampling and num_beams is not None:
        raise typer.BadParameter("--num-beams belongs to a search; leave it out, or --sampling")
    if source_language is not None and not split_sentences:
        raise typer.BadParameter("--source-language goes with --split-sentences; add that, or leave it out")
    drawn = _sampling(sampling, top_k=top_k, temperature=temperature, seed=seed)
    engine = Engine(backend=backend, compute_type=compute_type, dtype=dtype)
    writing = _writing(form, nbest, alignment, alignment_layer, target_prefix, prefixed_input)
    if split_sentences and (nbest > 1 or writing != LineTranslator()):
        raise typer.BadParameter("--split-sentences gives one translation a line, as text, without anything besides")
    places = _places(device, processes)
    quiet()
    folders = [local_folder(model) for model in models]
    beams = num_beams or beam_size(folders[0])
    if nbest > beams and not sampling:
        raise typer.BadParameter(f"--nbest {nbest}: the beam has {beams}; give --num-beams {nbest} or more")
    search = SearchOptions(
        num_beams=beams,
        length_penalty=length_penalty,
        nbest=nbest,
        forbidden=tuple(forbid or ()),
        sampling=drawn,
        batch_tokens=batch_tokens,
    )
    language = _language(folders[0], source_language) if split_sentences else None
    lines, is_live = _source(text, input)
    progress = len(places) == 1 and text is None and not (is_live and output is None)
    load = partial(load_translator, folders, language, writing, progress, search, engine)
    unusual = Unusual()
    with ExitStack() as stack:
        if output is not None:
            options = {"split_sentences": language} | search.settings() | engine.settings()
            settings = _settings(folders, writing, options)
            file = stack.enter_context(PartialFile(output, settings))
            if file.lines:
                say(f"continuing after the {file.lines} finished lines of {file.partial}")
        if not no_warning:
            stack.callback(warn, unusual)
        in_order = stack.enter_context(translating([partial(load, **place) for place in places]))
        in_order = counting(in_order, unusual)
        if writing.form == "nbest":
            in_order = numbered(in_order, file.lines if output is not None else 0)
        if output is not None:
            translate_file(in_order, lines, file, chunk_size=chunk, progress=text is None)
        else:
            _answer(in_order, lines, chunk, latency if is_live else None, progress=not progress and text is None)


def warn(unusual: "Unusual") -> None:
    """Say on stderr how many sentences were unlike the training text, if any were."""
    if unusual.count:
        say(f"warning: {unusual.message()}")


@loading()
def load_translator(
    folders: list[Path],
    language: str | None,
    writing: "LineTranslator",
    progress: bool,
    search: SearchOptions,
    engine: Engine,
    *,
    device: str | None = None,
    threads: int | None = None,
) -> Callable[[list[str]], list[str]]:
    """A function that gives what is written for each of some lines; called in the process that translates.

    Args:
        folders: of the model, or of several as an ensemble.
        language: code of the language whose sentences are translated one by one; None for whole lines.
        writing: what is written for whole lines.
        progress: show a progress bar.
        search: what is looked for.
        engine: what computes it, on this `device`.
        threads: of the process; by default as many as it has.
    """
    quiet()
    import torch

    from ..decoding.file_translation import one_line
    from ..decoding.translator import Translator
    from ..decoding.usual_scores import noting

    if threads is not None:
        torch.set_num_threads(threads)
    translator = Translator.from_pretrained(folders, device=device, options=search, **asdict(engine))
    if language is None:
        return noting(translator, partial(writing, translator, progress=progress))
    from ..decoding.paragraphs import translate_paragraphs

    return noting(
        translator, lambda lines: map(one_line, translate_paragraphs(translator, lines, language, progress=progress))
    )


def _sampling(given: bool, **settings: Any) -> Sampling | None:
    """How translations are drawn; None where they are searched."""
    settings = {name: value for name, value in settings.items() if value is not None}
    if not given:
        for name in settings:
            raise typer.BadParameter(f"--{name.replace('_', '-')} goes with --sampling; add that, or leave it out")
        return None
    return Sampling(**settings)


def _writing(
    form: Any, nbest: int, align: bool, layer: int | None, prefix: str | None, prefixed: bool
) -> "LineTranslator":
    """What is written for a line."""
    if form == "text" and nbest > 1:
        raise typer.BadParameter("--format text has one translation a line; leave --nbest out, or --format")
    if prefix is not None and prefixed:
        raise typer.BadParameter("give --target-prefix or --prefixed-input, not both")
    from ..decoding.translation_formats import LineTranslator

    form = form or ("nbest" if nbest > 1 else "text")
    return LineTranslator(form, align or layer is not None, layer, prefix, prefixed)


def _settings(folders: list[Path], writing: "LineTranslator", options: dict[str, Any]) -> dict[str, Any]:
    """What the content of a file of translations depends on, as JSON; without what is as it always was."""
    from ..hub.model_folder import fingerprint

    model = "+".join(fingerprint(folder)[:16] for folder in folders)
    written = {name: value for name, value in asdict(writing).items() if value != getattr(type(writing), name)}
    return {"model": model} | options | written


def _places(device: str | None, processes: int | None) -> list[dict[str, Any]]:
    """The device of each process, and its share of the threads if there are several."""
    import torch

    names: list[str | None] = [name.strip() for name in device.split(",")] if device else []
    for name in names:
        check_device(name)
    if processes and processes < len(names):
        raise typer.BadParameter(f"--processes {processes}: --device names {len(names)}; give as many, or leave it out")
    if processes and processes > 1 and not names:
        names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    count = processes or len(names) or 1
    threads = max(1, torch.get_num_threads() // count) if count > 1 else None
    return [{"device": (names or [None])[number % len(names or [None])], "threads": threads} for number in range(count)]


def _language(folder: Path, given: str | None) -> str:
    """The language to split.

    Raises:
        ValueError: nobody tells.
    """
    from ..hub.source_language import source_language

    if (language := given or source_language(folder)) is None:
        raise ValueError(f"{folder}: does not tell its source language; add --source-language, such as en")
    return language


def _source(text: str | None, path: Path | None) -> tuple[Iterator[str], bool]:
    """The lines to translate, and whether somebody may wait for answers to some before giving the others."""
    from ..data.text_lines import decode_lines, read_lines
    from ..decoding.streaming import is_live

    if text is not None:
        return iter([text]), False
    if path is not None:
        return read_lines(path), is_live(path)
    try:
        descriptor = sys.stdin.fileno()
    except OSError:  # another object was put in its place
        return decode_lines(sys.stdin.buffer, "stdin"), False
    # A thread may be reading when the program ends, which would fail over the lock of sys.stdin.buffer.
    return decode_lines(open(descriptor, "rb", closefd=False), "stdin"), is_live(descriptor)


def _answer(
    in_order: Callable[[Iterable[list[str]]], Iterable[tuple[list[str], Any]]],
    lines: Iterator[str],
    chunk: int,
    latency: float | None,
    *,
    progress: bool,
) -> None:
    """Write translations to stdout as they come; with a `latency`, of what has come by then."""
    from ..decoding.file_translation import chunks
    from ..decoding.streaming import arriving
    from ..system.terminal import progress_bar

    parts = chunks(lines, chunk) if latency is None else arriving(lines, chunk, latency)
    shown = progress and not sys.stdin.isatty() and not sys.stdout.isatty()
    with progress_bar(desc="lines", unit="line", shown=shown) as bar:
        for part, written in in_order(parts):
            write_lines(written)
            bar.update(len(part))
