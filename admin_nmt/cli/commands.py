"""The command line `admin-nmt`: thin commands around functions of the library.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 failed (one line on stderr says why),
2 wrong usage, 130 interrupted, 141 nobody reads stdout any more.
"""

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from errno import ENOSPC
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import transformers
import typer
from datasets import disable_progress_bars
from huggingface_hub.errors import HfHubHTTPError, StrictDataclassError
from safetensors import SafetensorError
from typer.core import TyperGroup

from ..averaging import average_checkpoints
from ..conversion.fairseq_folder import convert_checkpoint
from ..data.parallel_text import decode_lines, load_parallel, read_lines
from ..decoding.file_translation import PartialFile, chunks, one_line, translate_file
from ..decoding.scoring import encode_pairs, score_pairs
from ..decoding.translator import Translator
from ..exporting import export_standard
from ..files import new_folder, whole_file
from ..folding import fold_omega
from ..fresh_profiling import profile_fresh_model
from ..model_folder import fingerprint, load_admin_model, load_model, local_folder
from ..model_info import model_info
from ..profiling import Mode
from ..runs.cards import write_card
from ..tokenization.byte_bpe import load_tokenizers, save_tokenizers
from ..trainer.checkpoints import complete_checkpoints
from ..trainer.evaluation import evaluate_translator

USER_ERRORS = (
    ValueError,
    OSError,
    ImportError,
    SafetensorError,
    StrictDataclassError,
    HfHubHTTPError,
    torch.OutOfMemoryError,
)


def describe(error: BaseException) -> str:
    """What went wrong, as one line."""
    safetensors_full = isinstance(error, SafetensorError) and "No space left" in str(error)  # it has no errno
    if safetensors_full or getattr(error, "errno", None) == ENOSPC:
        where = getattr(error, "filename", None)
        full = f"the disk of {where} is full" if where else "the disk is full"
        return f"{full}: make room, or choose another folder, and give the same command again"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, torch.OutOfMemoryError):
        return "the GPU has too little memory for this batch; lower --max-tokens"
    if isinstance(error, StrictDataclassError) and error.__cause__:
        error = error.__cause__
    return " ".join(str(error).split())


class OneLineErrors(TyperGroup):
    """Turns what the user can mend into one line on stderr; anything else is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # Python would complain about the rest of its buffer, which nobody wants, while it shuts down.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except USER_ERRORS as error:
            typer.echo(f"error: {describe(error)}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=OneLineErrors,
    help="Very deep translation models: translate, score, evaluate, fold, export, inspect.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def check_device(name: str | None) -> str | None:
    """A device that is there."""
    if name is None:
        return None
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise typer.BadParameter(f"there is no device {name!r} here") from error
    return name


def check_output(path: Path | None) -> Path | None:
    """A file that can be written, told before hours of work and not after."""
    if path is None:
        return None
    folder = path.absolute().parent
    if (path.exists() and not path.is_file()) or folder == Path("/dev"):
        raise typer.BadParameter(f"{path} is no ordinary file; name one, or leave the option out")
    if not folder.is_dir():
        raise typer.BadParameter(f"{path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise typer.BadParameter(f"{path}: {folder} may not be written; choose another folder")
    return path


def check_language(code: str) -> str:
    """A code, not a name, which the scores' tokenisers would not know and silently treat as another language."""
    if not re.fullmatch("[a-z]{2,3}", code):
        raise typer.BadParameter(f"{code!r} is no language code; give one such as de or zh")
    return code


Model = Annotated[str, typer.Argument(help="Folder or Hub repository of a model.", show_default=False)]
New = Annotated[Path, typer.Argument(help="Folder to write; must not exist, or be empty.", show_default=False)]
Source = Annotated[str, typer.Option(help="Source sentences (.gz too), or a .tsv, .jsonl or .parquet file of pairs.")]
Target = Annotated[str | None, typer.Option(help="Their translations, line by line, if SOURCE holds no pairs.")]
NumBeams = Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")]
LengthPenalty = Annotated[
    float | None, typer.Option(help="Scores are divided by length to this power; by default what the model has.")
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Positions of a batch, padding included: lower saves memory.")]
Device = Annotated[
    str | None, typer.Option(callback=check_device, help="cpu, cuda, cuda:1, …; by default a GPU if there is one.")
]
Backend = Annotated[Literal["torch", "ctranslate2"], typer.Option(help="What runs the model.")]
ComputeType = Annotated[str | None, typer.Option(help="For CTranslate2: int8, float16, …; by default float32.")]


@app.callback(invoke_without_command=True)
def settings(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Very deep translation models: translate, score, evaluate, fold, export, inspect."""
    if show_version:
        print(version("admin_nmt"))
        raise typer.Exit()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()


def write_lines(lines: Iterable[str], output: Path | None = None) -> None:
    """Write UTF-8 lines to a file, which appears when it is complete, or to stdout."""
    data = "".join(f"{line}\n" for line in lines).encode()
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        with whole_file(output) as temporary:
            temporary.write_bytes(data)


def print_json(value: Any) -> None:
    """Print indented JSON."""
    write_lines([json.dumps(value, indent=2, ensure_ascii=False)])


def say(message: str) -> None:
    """Tell something on stderr."""
    typer.echo(message, err=True)


@app.command()
def translate(
    model: Model,
    text: Annotated[str | None, typer.Option(help="A sentence to translate, instead of a file.")] = None,
    input: Annotated[Path | None, typer.Option(help="File of source sentences (.gz too); default stdin.")] = None,
    output: Annotated[
        Path | None, typer.Option(callback=check_output, help="File of translations; default stdout.")
    ] = None,
    num_beams: NumBeams = 5,
    length_penalty: LengthPenalty = None,
    max_tokens: MaxTokens = 4096,
    chunk: Annotated[int, typer.Option(min=1, help="Lines that are sorted, translated and saved together.")] = 2000,
    backend: Backend = "torch",
    compute_type: ComputeType = None,
    device: Device = None,
) -> None:
    """Translate a file, stdin or one sentence.

    One line in, one line out, in the same order; a blank line stays blank.
    With --output, finished lines are kept in OUTPUT.partial: killed or interrupted, the same command goes on there.

    \b
    admin-nmt translate runs/phrasebook/standard --text "Two books cost ten euros."
    admin-nmt translate runs/phrasebook/standard --input test.en --output test.de
    admin-nmt translate runs/phrasebook/standard < test.en > test.de
    """
    if text is not None and input is not None:
        raise typer.BadParameter("give --text or --input, not both")
    if input is not None and output is not None and output.exists() and input.samefile(output):
        raise typer.BadParameter("--output is the file of --input; name another one")
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
            say(f"going on behind the {file.lines} finished lines of {file.partial}")
        translator = load()
        translate_file(
            lambda part: translator.translate(part, progress=progress), lines, file, chunk_size=chunk, progress=progress
        )


@app.command()
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
    pairs = load_parallel(source, target)
    translator = Translator.from_pretrained(model, device=device)
    sides = encode_pairs(pairs, translator.tokenizer, translator.target_tokenizer)
    scores = score_pairs(translator.model, *sides, max_tokens=max_tokens, progress=True)
    if tokens:
        names = map(translator.target_tokenizer.convert_ids_to_tokens, sides[1])
        rows = ({"log_prob": sum(s), "tokens": n, "token_log_probs": s} for n, s in zip(names, scores, strict=True))
        write_lines((json.dumps(row, ensure_ascii=False) for row in rows), output)
    else:
        write_lines((f"{sum(row):.4f}\t{len(row)}" for row in scores), output)
    count, total = sum(map(len, scores)), sum(map(sum, scores))
    perplexity = math.exp(-total / count)
    say(f"perplexity {perplexity:.4f} over {count} tokens of {len(scores)} pairs")
    if summary:
        facts = {"pairs": len(scores), "tokens": count, "log_prob": total, "nll": -total / count}
        write_lines([json.dumps(facts | {"perplexity": perplexity}, indent=2)], summary)


@app.command()
def evaluate(
    model: Model,
    source: Source,
    language: Annotated[
        str, typer.Option(callback=check_language, help="Code of the target language, for its tokenisation.")
    ],
    target: Target = None,
    output: Annotated[Path | None, typer.Option(callback=check_output, help="File for the translations.")] = None,
    num_beams: NumBeams = 5,
    length_penalty: LengthPenalty = None,
    max_tokens: MaxTokens = 4096,
    device: Device = None,
) -> None:
    """BLEU, chrF and likelihood on a test set.

    Prints JSON: scores with sacreBLEU's signatures, lower-cased tokenised BLEU, NLL per target token. References are
    taken as they are, translations are detokenised text; the numbers are those of sacreBLEU's command.

    \b
    admin-nmt evaluate runs/phrasebook/standard --source test.en --target test.de --language de
    """
    pairs = load_parallel(source, target)
    search: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty}
    translator = Translator.from_pretrained(model, device=device, max_tokens=max_tokens, **search)
    translations, results = evaluate_translator(translator, pairs, language, progress=True)
    if output:
        write_lines(map(one_line, translations), output)
    print_json(results)


@app.command()
def profile(
    model: Model,
    source: Source,
    target: Target = None,
    mode: Annotated[Mode, typer.Option(help="unit as in the paper; reference as in the authors' code.")] = "unit",
    max_tokens: Annotated[int, typer.Option(min=1, help="Target tokens of the batch, drawn at random.")] = 8000,
    seed: Annotated[int, typer.Option(help="Of the new weights and of the choice of pairs.")] = 42,
    output: Annotated[Path | None, typer.Option(help="Folder for the new model with its ω.")] = None,
) -> None:
    """Measure ω of a new, untrained model.

    Draws weights for MODEL's configuration, measures ω on a batch of text and prints it, a sublayer a line. Of MODEL
    only config.json and the tokenizer are read. Training does this by itself; here one sees it beforehand, or gets a
    model to train in a loop of one's own. The ω of a trained model is what `admin-nmt info` shows.

    \b
    admin-nmt profile runs/phrasebook/final --source train.en --target train.de
    admin-nmt profile runs/phrasebook/final --source train.en --target train.de --mode reference --output fresh
    """
    folder, pairs = local_folder(model), load_parallel(source, target)
    fresh, omega = profile_fresh_model(folder, pairs, mode, max_tokens=max_tokens, seed=seed)
    if output:
        with new_folder(output) as temporary:
            fresh.save_pretrained(temporary)
            save_tokenizers(temporary, *load_tokenizers(folder))
    write_lines(f"{name}\t{value:.6f}" for name, value in omega.items())


@app.command()
def fold(model: Model, out: New) -> None:
    """Fold ω into the weights, in this package's class.

    The result computes the same as a plain post-LN Transformer, and can be trained on.

    \b
    admin-nmt fold runs/phrasebook/final folded
    """
    folder = local_folder(model)
    folded = fold_omega(load_admin_model(folder))
    with new_folder(out) as temporary:
        folded.save_pretrained(temporary)
        save_tokenizers(temporary, *load_tokenizers(folder))


@app.command()
def export(model: Model, out: New) -> None:
    """Write the stock model, which every tool runs.

    ω is folded; post-LN becomes Marian, pre-LN becomes Pegasus. The folder appears when the stock model was reloaded
    and gave the same logits and beams.

    \b
    admin-nmt export runs/phrasebook/final standard
    """
    folder = local_folder(model)
    source, target = load_tokenizers(folder)
    export_standard(load_admin_model(folder), source, out, target)


@app.command("convert-fairseq")
def convert_fairseq_checkpoint(
    checkpoint: Annotated[Path, typer.Argument(help="File that fairseq wrote.", show_default=False)],
    out: New,
    dicts: Annotated[list[Path], typer.Option(help="dict.txt of both sides, or twice: source, then target.")],
    bpe_codes: Annotated[list[Path], typer.Option(help="Codes of subword-nmt, likewise.")],
    moses_source: Annotated[str | None, typer.Option(help="Source language, if Moses tokenised the text.")] = None,
    moses_target: Annotated[str | None, typer.Option(help="Target language, if Moses tokenised the text.")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="The text was lower-cased.")] = False,
    length_penalty: Annotated[float, typer.Option(help="fairseq-generate's --lenpen.")] = 1.0,
) -> None:
    """Convert a checkpoint of fairseq.

    Reads stock transformers, those of Transformer-Clinic (ADMIN, pre-LN) and the authors' DLCL, with their dictionaries
    and BPE codes. The model translates text as fairseq-generate did; no code in the file is run.

    \b
    admin-nmt convert-fairseq checkpoint.pt converted --dicts dict.txt --bpe-codes codes --moses-source en \\
        --moses-target de
    """
    if (moses_source is None) != (moses_target is None):
        raise typer.BadParameter("--moses-source and --moses-target go together")
    moses = {"source": moses_source, "target": moses_target} if moses_source else None
    convert_checkpoint(
        checkpoint,
        dicts=dicts,
        bpe_codes=bpe_codes,
        output=out,
        moses=moses,
        lowercase=lowercase,
        length_penalty=length_penalty,
    )


@app.command()
def average(
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoints, or with --last one run.", show_default=False)],
    out: New,
    last: Annotated[int | None, typer.Option(min=1, help="Take this many last checkpoints of a run.")] = None,
) -> None:
    """Average checkpoints of one run.

    \b
    admin-nmt average runs/phrasebook/checkpoint-1050 runs/phrasebook/checkpoint-1400 averaged
    admin-nmt average runs/phrasebook --last 5 averaged
    """
    if last is not None:
        if len(checkpoints) != 1:
            raise typer.BadParameter("--last takes the checkpoints of one run; name that run alone")
        run, checkpoints = checkpoints[0], complete_checkpoints(checkpoints[0])[-last:]
        if len(checkpoints) < last:
            raise ValueError(f"{run}: has {len(checkpoints)} complete checkpoints, not {last}; lower --last")
    with new_folder(out) as temporary:
        model = load_model(checkpoints[-1])
        model.load_state_dict(average_checkpoints(checkpoints), strict=False)
        model.save_pretrained(temporary)
        save_tokenizers(temporary, *load_tokenizers(checkpoints[-1]))


@app.command()
def card(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)],
    repo: Annotated[
        str | None, typer.Option(help="Where the stock model will be published; default: what the recipe says.")
    ] = None,
) -> None:
    """Write the model cards of a finished run.

    They hold what the run has measured and go into its final/ and standard/.

    \b
    admin-nmt card runs/phrasebook
    admin-nmt card runs/phrasebook --repo user/phrasebook-en-de
    """
    folders = [run / name for name in ("final", "standard") if (run / name).is_dir()]
    if not folders:
        raise ValueError(f"{run}: has neither final/ nor standard/, so it is no finished run")
    for folder in folders:
        write_card(run, folder, repo)


@app.command()
def info(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell what a model folder holds.

    Variant, sizes, vocabulary, ω by sublayer, and the stock class that it becomes.

    \b
    admin-nmt info runs/phrasebook/final
    admin-nmt info runs/phrasebook/standard --json
    """
    facts = model_info(local_folder(model))
    if as_json:
        print_json(facts)
        return
    omega = facts.pop("omega")
    width = max(map(len, facts))
    rows = [
        f"{name:{width}}  {', '.join(value) if isinstance(value, list) else value}" for name, value in facts.items()
    ]
    if omega:
        rows.append(f"ω (smallest, mean, largest){'':{max(0, width - 25)}}")
        rows += [f"  {name:24} {low:9.4f} {mean:9.4f} {high:9.4f}" for name, low, mean, high in omega]
    write_lines(rows)


def main() -> None:
    """Run the command line."""
    app(prog_name="admin-nmt")


if __name__ == "__main__":
    main()
