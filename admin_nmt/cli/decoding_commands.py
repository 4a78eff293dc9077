"""Commands that use a model besides translate: score, evaluate, synthesize, demo."""

import math
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import (
    Chunk,
    Device,
    Devices,
    EngineArguments,
    Model,
    OnCluster,
    Processes,
    SearchArguments,
    Source,
    Target,
    check_device,
    check_language,
    check_output,
)
from .output import print_json, quiet, say, write_lines
from .parsing import expanded


def score(
    model: Model,
    source: Source,
    target: Target = None,
    output: Annotated[Path | None, typer.Option(callback=check_output, help="File of scores; default: stdout.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Print JSON lines with the log-probability of each token.")
    ] = False,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Batch size in tokens, padding included.")] = 4096,
    device: Device = None,
) -> None:
    """Score given translations by log-probability.

    One line a pair: natural logarithm of the sentence's probability, tab, number of its tokens, end of sentence
    included. The perplexity per token of all pairs goes to stderr.

    \b
    admin-nmt score runs/phrasebook/standard --source test.en --target test.de > scores.tsv
    admin-nmt score runs/phrasebook/standard --source pairs.tsv --tokens --output scores.jsonl
    """
    from ..data.parallel_text import load_parallel
    from ..decoding.scoring import encode_pairs, score_pairs
    from ..decoding.translator import Translator
    from ..system.files import json_text

    check_device(device)
    quiet()
    pairs = load_parallel(source, target)
    translator = Translator.from_pretrained(model, device=device, dtype="float32")
    sides = encode_pairs(pairs, translator.tokenizer, translator.target_tokenizer)
    scores = score_pairs(translator.model, *sides, max_tokens=batch_tokens, progress=True)
    if tokens:
        names = map(translator.target_tokenizer.convert_ids_to_tokens, sides[1])
        rows = ({"log_prob": sum(s), "tokens": n, "token_log_probs": s} for n, s in zip(names, scores, strict=True))
        write_lines(map(json_text, rows), output)
    else:
        write_lines((f"{sum(row):.4f}\t{len(row)}" for row in scores), output)
    count, total = sum(map(len, scores)), sum(map(sum, scores))
    say(f"perplexity {math.exp(min(-total / count, 700)):.4f} over {count} tokens of {len(scores)} pairs")


@expanded
def evaluate(
    model: Model,
    source: Source,
    target: Target = None,
    language: Annotated[
        str | None,
        typer.Option(callback=check_language, help="Target language code, for tokenisation; default: the model's."),
    ] = None,
    more_references: Annotated[
        list[Path] | None, typer.Option(help="File of further references besides TARGET; repeatable.")
    ] = None,
    output: Annotated[Path | None, typer.Option(callback=check_output, help="File of the translations.")] = None,
    *,
    search: SearchArguments,
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="torch's dtype; float32 gives the same numbers on every machine."),
    ] = "float32",
    device: Device = None,
) -> None:
    """Measure BLEU, chrF and likelihood on a test set.

    Prints JSON: scores with sacreBLEU's signatures, lower-cased tokenised BLEU, NLL per target token. References are
    taken as they are, translations are detokenised text; the numbers are those of sacreBLEU's command. NLL is that of
    the first references.

    \b
    admin-nmt evaluate runs/phrasebook/standard --source test.en --target test.de
    admin-nmt evaluate runs/zh-en/standard --source mt03.zh --target mt03.en0 --more-references mt03.en1 \\
        --more-references mt03.en2 --more-references mt03.en3 --language en
    """
    from ..data.parallel_text import load_parallel, read_more_references
    from ..decoding.file_translation import one_line
    from ..decoding.translator import Translator
    from ..hub.model_folder import local_folder
    from ..hub.model_info import model_languages
    from ..trainer.evaluation import evaluate_translator

    check_device(device)
    quiet()
    folder = local_folder(model)
    language = language or model_languages(folder)[1]
    if language is None:
        raise ValueError(f"{folder}: does not tell its target language; add --language, such as de")
    pairs = load_parallel(source, target)
    others = read_more_references(more_references or [], len(pairs))
    translator = Translator.from_pretrained(folder, device=device, dtype=dtype, options=search.options(folder))
    translations, results = evaluate_translator(translator, pairs, language, more_references=others, progress=True)
    results["precision"] = translator.precision
    if output:
        write_lines(map(one_line, translations), output)
    print_json(results)


@expanded
def synthesize(
    model: Model,
    input: Annotated[list[str], typer.Option(help="Monolingual text, one sentence a line (.gz too); repeatable.")],
    generates: Annotated[Literal["source", "target"], typer.Option(help="Side of the pairs to generate.")],
    output: Annotated[Path, typer.Option(help="File of the pairs, .tsv: source, tab, target.")],
    search: SearchArguments,
    engine: EngineArguments,
    max_words: Annotated[int, typer.Option(min=1, help="Maximum number of words on a side.")] = 250,
    max_ratio: Annotated[float, typer.Option(help="Maximum length ratio of the sides, in words; 0 for none.")] = 1.5,
    chunk: Chunk = 2000,
    device: Devices = None,
    processes: Processes = None,
    cluster: OnCluster = None,
) -> None:
    """Make synthetic training pairs.

    Translates text with a trained model and filters what comes out, as back-translation (a model of the reverse
    direction draws sources for text of the target language) or sequence-level distillation (the teacher's best
    translations of the sources that it was trained on). The output is a corpus for a recipe. A line of more tokens than
    the model has positions is left out. Killed, the same command continues after the finished lines, on any number of
    processes.

    \b
    admin-nmt synthesize runs/multi30k-de-en-short/standard --input mono.de.gz --generates source \\
        --sampling --output runs/back-translated.tsv
    admin-nmt synthesize runs/teacher/standard --input train.en.gz --generates target \\
        --output runs/distilled.tsv
    """
    if output.suffix != ".tsv":
        raise typer.BadParameter(f"{output}: give a name that ends in .tsv, as recipes know such files")

    from ..data.cleaning import CleaningOptions, format_counts
    from ..data.dask_cluster import Cluster
    from ..decoding import synthesis
    from ..decoding.translation_job import TranslationJob, places
    from ..decoding.worker_processes import translating
    from ..hub.model_folder import local_folder

    if cluster is not None and (device or processes):
        raise typer.BadParameter("--cluster gives the work to its workers; leave out --device and --processes")
    where = places(device, processes)
    quiet()
    filters = CleaningOptions(max_words=max_words, max_ratio=max_ratio or None, drop_held_out=None)
    folder = local_folder(model)
    job = TranslationJob([folder], synthesis.translate_whole, None, search.options(folder), engine, quiet)
    output.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if cluster is None:
            in_order = stack.enter_context(translating([partial(job.load, **place) for place in where]))
        else:
            in_order = stack.enter_context(Cluster(cluster, [folder])).in_order(job.load)
        counts = synthesis.synthesize(
            in_order,
            input,
            output,
            generates=generates,
            settings=job.settings() | {"generates": generates},
            filters=filters,
            chunk_size=chunk,
            progress=True,
        )
    print(f"{format_counts(counts)}\n{output}", flush=True)


def demo(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Folders or Hub repositories; several are shown side by side.", show_default=False
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines, without a password.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on; default: the first free one from 7860 on.")
    ] = None,
    device: Device = None,
) -> None:
    """Translate in the browser.

    A page with the translation, the best alternatives with their scores, the attention as a heat map, and time. Nothing
    leaves this machine. Needs Gradio: pip install "admin_nmt[demo]". Ctrl-C stops it.

    \b
    admin-nmt demo runs/phrasebook/standard
    admin-nmt demo runs/admin/standard runs/pre_ln/standard --port 8000
    """
    try:
        from ..demo.page import build_page, serve
    except ModuleNotFoundError as error:
        if error.name != "gradio":
            raise
        raise ImportError('the page needs Gradio: pip install "admin_nmt[demo]"') from error
    from threading import Event

    from ..demo.session import ServedModel

    check_device(device)
    quiet()
    page = build_page([ServedModel(model, device) for model in models])
    say(f"{serve(page, host, port)} shows the page; Ctrl-C stops it")
    try:
        Event().wait()
    except KeyboardInterrupt:
        page.close(verbose=False)
