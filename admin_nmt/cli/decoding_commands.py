"""Commands that use a model: translate, score, evaluate, synthesize."""

import math
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .options import (
    Backend,
    Chunk,
    ComputeType,
    Device,
    LengthPenalty,
    MaxTokens,
    Model,
    NumBeams,
    Source,
    Target,
    check_device,
    check_finite,
    check_language,
    check_output,
    check_text,
    print_json,
    quiet,
    say,
    write_lines,
)


def translate(
    model: Model,
    text: Annotated[
        str | None, typer.Option(callback=check_text, help="A sentence to translate, instead of a file.")
    ] = None,
    input: Annotated[Path | None, typer.Option(help="File of source sentences (.gz too); default stdin.")] = None,
    output: Annotated[
        Path | None, typer.Option(callback=check_output, help="File of translations; default stdout.")
    ] = None,
    num_beams: NumBeams = 5,
    length_penalty: LengthPenalty = None,
    max_tokens: MaxTokens = 4096,
    chunk: Chunk = 2000,
    backend: Backend = "torch",
    compute_type: ComputeType = None,
    device: Device = None,
) -> None:
    """Translate a file, stdin or one sentence.

    One line in, one line out, in the same order; a blank line stays blank.
    With --output, finished lines are kept in OUTPUT.partial: killed or interrupted, the same command continues there.

    \b
    admin-nmt translate runs/phrasebook/standard --text "Two books cost ten euros."
    admin-nmt translate runs/phrasebook/standard --input test.en --output test.de
    admin-nmt translate runs/phrasebook/standard < test.en > test.de
    """
    if text is not None and input is not None:
        raise typer.BadParameter("give --text or --input, not both")
    if input is not None and output is not None and output.exists() and input.samefile(output):
        raise typer.BadParameter("--output is the file of --input; name another one")

    from ..data.parallel_text import decode_lines, read_lines
    from ..decoding.file_translation import PartialFile, chunks, one_line, translate_file
    from ..decoding.translator import Translator
    from ..folders.model_folder import fingerprint, local_folder

    check_device(device)
    quiet()
    folder = local_folder(model)
    search: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty}
    engine: dict[str, Any] = {"backend": backend, "compute_type": compute_type}
    load = partial(Translator.from_pretrained, folder, device=device, max_tokens=max_tokens, **search, **engine)

    if text is not None:
        lines: Iterator[str] = iter([text])
    else:
        lines = read_lines(input) if input else decode_lines(sys.stdin.buffer, "stdin")
    progress = text is None
    if output is None:
        translator = load()
        for part in chunks(lines, chunk):
            write_lines(map(one_line, translator.translate(part, progress=progress)))
        return
    with PartialFile(output, {"model": fingerprint(folder)[:16], **search, **engine}) as file:
        if file.lines:
            say(f"continuing after the {file.lines} finished lines of {file.partial}")
        translator = load()
        translate_file(
            lambda part: translator.translate(part, progress=progress), lines, file, chunk_size=chunk, progress=progress
        )


def score(
    model: Model,
    source: Source,
    target: Target = None,
    output: Annotated[Path | None, typer.Option(callback=check_output, help="File of scores; default stdout.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="JSON lines with the log-probability of each token.")
    ] = False,
    summary: Annotated[
        Path | None, typer.Option(callback=check_output, help="JSON file for the perplexity of all pairs.")
    ] = None,
    max_tokens: MaxTokens = 4096,
    device: Device = None,
) -> None:
    """Log-probabilities of given translations.

    One line a pair: natural logarithm of the sentence's probability, tab, number of its tokens, end of sentence
    included. The perplexity per token of all pairs goes to stderr.

    \b
    admin-nmt score runs/phrasebook/standard --source test.en --target test.de > scores.tsv
    admin-nmt score runs/phrasebook/standard --source pairs.tsv --tokens --output scores.jsonl --summary all.json
    """
    from ..data.parallel_text import load_parallel
    from ..decoding.scoring import encode_pairs, score_pairs
    from ..decoding.translator import Translator
    from ..files import json_text

    check_device(device)
    quiet()
    pairs = load_parallel(source, target)
    translator = Translator.from_pretrained(model, device=device)
    sides = encode_pairs(pairs, translator.tokenizer, translator.target_tokenizer)
    scores = score_pairs(translator.model, *sides, max_tokens=max_tokens, progress=True)
    if tokens:
        names = map(translator.target_tokenizer.convert_ids_to_tokens, sides[1])
        rows = ({"log_prob": sum(s), "tokens": n, "token_log_probs": s} for n, s in zip(names, scores, strict=True))
        write_lines(map(json_text, rows), output)
    else:
        write_lines((f"{sum(row):.4f}\t{len(row)}" for row in scores), output)
    count, total = sum(map(len, scores)), sum(map(sum, scores))
    perplexity = math.exp(min(-total / count, 700))  # of which the exponential is still a number
    say(f"perplexity {perplexity:.4f} over {count} tokens of {len(scores)} pairs")
    if summary:
        facts = {"pairs": len(scores), "tokens": count, "log_prob": total, "nll": -total / count}
        write_lines([json_text(facts | {"perplexity": perplexity}, indent=2)], summary)


def evaluate(
    model: Model,
    source: Source,
    language: Annotated[
        str, typer.Option(callback=check_language, help="Code of the target language, for its tokenisation.")
    ],
    target: Target = None,
    more_references: Annotated[
        list[Path] | None, typer.Option(help="File of further references, beside TARGET; several by repeating.")
    ] = None,
    output: Annotated[Path | None, typer.Option(callback=check_output, help="File for the translations.")] = None,
    num_beams: NumBeams = 5,
    length_penalty: LengthPenalty = None,
    max_tokens: MaxTokens = 4096,
    device: Device = None,
) -> None:
    """BLEU, chrF and likelihood on a test set.

    Prints JSON: scores with sacreBLEU's signatures, lower-cased tokenised BLEU, NLL per target token. References are
    taken as they are, translations are detokenised text; the numbers are those of sacreBLEU's command. NLL is that of
    the first references.

    \b
    admin-nmt evaluate runs/phrasebook/standard --source test.en --target test.de --language de
    admin-nmt evaluate runs/zh-en/standard --source mt03.zh --target mt03.en0 --more-references mt03.en1 \\
        --more-references mt03.en2 --more-references mt03.en3 --language en
    """
    from ..data.parallel_text import load_parallel, read_more_references
    from ..decoding.file_translation import one_line
    from ..decoding.translator import Translator
    from ..trainer.evaluation import evaluate_translator

    check_device(device)
    quiet()
    pairs = load_parallel(source, target)
    others = read_more_references(more_references or [], len(pairs))
    search: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty}
    translator = Translator.from_pretrained(model, device=device, max_tokens=max_tokens, **search)
    translations, results = evaluate_translator(translator, pairs, language, more_references=others, progress=True)
    if output:
        write_lines(map(one_line, translations), output)
    print_json(results)


def synthesize(
    model: Model,
    input: Annotated[
        list[str], typer.Option(help="File of text, one sentence a line (.gz too); several by repeating.")
    ],
    generates: Annotated[Literal["source", "target"], typer.Option(help="Side of the pairs that the model writes.")],
    output: Annotated[str, typer.Option(help="File to write, .tsv: source, tab, target.")],
    method: Annotated[
        Literal["beam", "sampling"],
        typer.Option(help="Search for the best translation, or draw one from the distribution."),
    ] = "beam",
    num_beams: NumBeams = 5,
    length_penalty: LengthPenalty = None,
    top_k: Annotated[int | None, typer.Option(help="Draw among so many tokens; by default among all.")] = None,
    temperature: Annotated[
        float, typer.Option(callback=check_finite, help="What logits are divided by before drawing.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the drawing; another one gives other translations.")] = 1,
    max_words: Annotated[int, typer.Option(help="Drop pairs with a side of more words.")] = 250,
    max_ratio: Annotated[
        float, typer.Option(callback=check_finite, help="Drop pairs of more unequal numbers of words; 0 for none.")
    ] = 1.5,
    chunk: Chunk = 2000,
    max_tokens: MaxTokens = 4096,
    backend: Backend = "torch",
    compute_type: ComputeType = None,
) -> None:
    """Make synthetic training pairs.

    Translates text with a trained model and filters what comes out, as back-translation (a model of the reverse
    direction draws sources for text of the target language) or sequence-level distillation (the teacher's best
    translations of the sources that it was trained on). The output is a corpus for a recipe. A line of more tokens than
    the model has positions is left out. Killed, the same command continues after the finished lines, on any number of
    processes.

    \b
    admin-nmt synthesize runs/multi30k-de-en-short/standard --input mono.de.gz --generates source \\
        --method sampling --output runs/back-translated.tsv
    admin-nmt synthesize runs/teacher/standard --input train.en.gz --generates target \\
        --output runs/distilled.tsv
    accelerate launch --multi_gpu --num_processes 2 -m admin_nmt synthesize ...
    """
    if not output.endswith(".tsv"):
        raise typer.BadParameter(f"{output}: give a name that ends in .tsv, as recipes know such files")

    from ..data.cleaning import CleaningOptions, format_counts
    from ..decoding.pair_synthesis import search_options, write_synthetic_pairs
    from ..distributed import start_processes

    quiet()
    beam: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty, "compute_type": compute_type}
    drawing: dict[str, Any] = {"seed": seed, "top_k": top_k, "temperature": temperature}
    options = search_options(method, backend=backend, **beam, **drawing)
    filters = CleaningOptions(max_words=max_words, max_ratio=max_ratio or None, drop_held_out=None)
    start_processes()
    limits = {"chunk": chunk, "max_tokens": max_tokens}
    counts = write_synthetic_pairs(model, input, output, generates, options, filters=filters, **limits)
    if counts:  # the first process has them
        print(f"{format_counts(counts)}\n{output}", flush=True)
