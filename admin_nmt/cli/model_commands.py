"""Commands on the folder of a model: profile, fold, export, average, info, convert-fairseq, card, publish."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import (
    Model,
    New,
    RunFolder,
    Source,
    Target,
    check_finite,
    check_repository,
    print_json,
    quiet,
    say,
    write_lines,
)


def profile(
    model: Model,
    source: Source,
    target: Target = None,
    mode: Annotated[
        Literal["unit", "reference"], typer.Option(help="unit as in the paper; reference as in the authors' code.")
    ] = "unit",
    max_tokens: Annotated[int, typer.Option(min=1, help="Budget of the batch, which is drawn at random.")] = 8000,
    seed: Annotated[int, typer.Option(help="Of the new weights and of the choice of pairs.")] = 42,
    output: Annotated[Path | None, typer.Option(help="Folder for the new model with its ω.")] = None,
) -> None:
    """Measure ω of a new, untrained model.

    Draws weights for MODEL's configuration, measures ω on a batch of text and prints it, a sublayer a line. Of MODEL
    only config.json and the tokenizer are read. Training with `omega_rule: profile` does this by itself; this command
    shows it beforehand, or writes a new model for a training loop of your own. The ω of a trained model is what
    `admin-nmt info` shows.

    \b
    admin-nmt profile runs/phrasebook/final --source train.en --target train.de
    admin-nmt profile runs/phrasebook/final --source train.en --target train.de --mode reference --output fresh
    """
    from ..data.parallel_text import load_parallel
    from ..data.tokenization.byte_bpe import load_tokenizers, save_tokenizers
    from ..hub.model_folder import local_folder
    from ..runs.fresh_profiling import profile_fresh_model
    from ..system.files import new_folder

    quiet()
    folder, pairs = local_folder(model, trained=True), load_parallel(source, target)
    fresh, omega = profile_fresh_model(folder, pairs, mode, max_tokens=max_tokens, seed=seed)
    if output:
        with new_folder(output) as temporary:
            fresh.save_pretrained(temporary)
            save_tokenizers(temporary, *load_tokenizers(folder), positions=fresh.config.max_position_embeddings)
    write_lines(f"{name}\t{value:.6f}" for name, value in omega.items())


def fold(model: Model, out: New) -> None:
    """Fold ω into the weights, in this package's class.

    The result computes the same as a plain post-LN Transformer, and can be trained on.

    \b
    admin-nmt fold runs/phrasebook/final folded
    """
    from ..data.tokenization.byte_bpe import load_tokenizers, save_tokenizers
    from ..hub.model_folder import load_admin_model, local_folder
    from ..system.files import new_folder
    from ..weights.folding import fold_omega

    quiet()
    folder = local_folder(model, trained=True)
    folded = fold_omega(load_admin_model(folder))
    with new_folder(out) as temporary:
        folded.save_pretrained(temporary)
        save_tokenizers(temporary, *load_tokenizers(folder), positions=folded.config.max_position_embeddings)
        _copy_usual_scores(folder, temporary)


def export(
    model: Model,
    out: New,
    ctranslate2: Annotated[
        bool, typer.Option("--ctranslate2", help="Write the folder that CTranslate2 runs, of this or a stock model.")
    ] = False,
    quantization: Annotated[
        str | None, typer.Option(help="With --ctranslate2: int8, float16, …; by default float32.")
    ] = None,
) -> None:
    """Write the stock model, which every tool runs.

    ω is folded; post-LN becomes Marian, pre-LN becomes Pegasus. The folder appears when the stock model was reloaded
    and gave the same logits and beams. With --ctranslate2 random sentences are translated greedily and compared with
    the stock model's, which in float32 have to be the same token by token.

    \b
    admin-nmt export runs/phrasebook/final standard
    admin-nmt export runs/phrasebook/final int8 --ctranslate2 --quantization int8
    """
    if quantization is not None and not ctranslate2:
        raise typer.BadParameter("--quantization belongs to --ctranslate2")
    if ctranslate2:
        _export_ctranslate2(model, out, quantization)
        return

    from ..data.tokenization.byte_bpe import load_tokenizers
    from ..hub.cards import write_export_card
    from ..hub.model_folder import load_admin_model, local_folder
    from ..weights.exporting import export_standard

    quiet()
    folder = local_folder(model, trained=True)
    model_to_export = load_admin_model(folder)
    source, target = load_tokenizers(folder)
    export_standard(model_to_export, source, out, target)
    write_export_card(out)
    _copy_usual_scores(folder, out)


def _export_ctranslate2(model: str, out: Path, quantization: str | None) -> None:
    from ..decoding.ctranslate2_backend import export_ctranslate2
    from ..hub.model_folder import local_folder

    quiet()
    same = export_ctranslate2(local_folder(model), out, quantization)
    say(f"{out}: translates {same:.0%} of some random sentences as the stock model does, greedily, token by token")


def _copy_usual_scores(model: Path, same: Path) -> None:
    """A model that computes the same is as sure of its translations."""
    from ..decoding.usual_scores import UsualScores

    if scores := UsualScores.load(model):
        scores.save(same)


def convert_fairseq(
    checkpoint: Annotated[Path, typer.Argument(help="File that fairseq wrote.", show_default=False)],
    out: New,
    dicts: Annotated[list[Path], typer.Option(help="dict.txt of both sides, or twice: source, then target.")],
    bpe_codes: Annotated[list[Path], typer.Option(help="Codes of subword-nmt, likewise.")],
    moses_source: Annotated[str | None, typer.Option(help="Source language, if Moses tokenised the text.")] = None,
    moses_target: Annotated[str | None, typer.Option(help="Target language, if Moses tokenised the text.")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="The text was lower-cased.")] = False,
    length_penalty: Annotated[float, typer.Option(callback=check_finite, help="fairseq-generate's --lenpen.")] = 1.0,
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

    from ..weights.fairseq_folder import convert_checkpoint

    quiet()
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


def average(
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoints, or with --last one run.", show_default=False)],
    out: New,
    last: Annotated[int | None, typer.Option(min=1, help="Take this many last checkpoints of a run.")] = None,
) -> None:
    """Average checkpoints of one run.

    \b
    admin-nmt average runs/phrasebook/checkpoint-1900 runs/phrasebook/checkpoint-2000 averaged
    admin-nmt average runs/phrasebook --last 5 averaged
    """
    if last is not None and len(checkpoints) != 1:
        raise typer.BadParameter("--last takes the checkpoints of one run; name that run alone")

    from ..data.tokenization.byte_bpe import load_tokenizers, save_tokenizers
    from ..hub.model_folder import load_model
    from ..system.files import new_folder
    from ..trainer.checkpoints import damaged_weights, last_whole_weights
    from ..weights.averaging import average_checkpoints

    quiet()
    if last is not None:
        run, checkpoints = checkpoints[0], last_whole_weights(checkpoints[0], last)
        if len(checkpoints) < last:
            raise ValueError(f"{run}: has {len(checkpoints)} complete checkpoints, not {last}; lower --last")
    for checkpoint in checkpoints:
        if fault := damaged_weights(checkpoint):
            raise ValueError(f"{checkpoint}: {fault}; leave out this checkpoint")
    with new_folder(out) as temporary:
        model = load_model(checkpoints[-1])
        model.load_state_dict(average_checkpoints(checkpoints), strict=False)
        model.save_pretrained(temporary)
        save_tokenizers(
            temporary,
            *load_tokenizers(checkpoints[-1]),
            positions=getattr(model.config, "max_position_embeddings", None),
        )


def card(
    run: RunFolder,
    repo: Annotated[
        str | None,
        typer.Option(
            callback=check_repository, help="Where the stock model will be published; default: what the recipe says."
        ),
    ] = None,
) -> None:
    """Write the model cards of a finished run.

    They hold what the run has measured and go into its final/ and standard/, each as README.md with its pictures; their
    paths are printed.

    \b
    admin-nmt card runs/phrasebook
    admin-nmt card runs/phrasebook --repo user/phrasebook-en-de
    """
    from ..runs.publishing import write_card

    quiet()
    folders = [run / name for name in ("final", "standard") if (run / name).is_dir()]
    if not folders:
        raise ValueError(
            f"{run}: has neither final/ nor standard/, so it is no finished run; give its training command again"
        )
    for folder in folders:
        print(write_card(run, folder, repo))


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
    from ..hub.model_folder import local_folder
    from ..hub.model_info import model_info

    quiet()
    facts = model_info(local_folder(model, trained=True))
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


def publish(
    run: RunFolder,
    repo: Annotated[
        str,
        typer.Option(
            callback=check_repository, help="Repository of the stock model, user/name; created if there is none."
        ),
    ],
    private: Annotated[
        bool, typer.Option("--private", help="Create private repositories; public ones are refused.")
    ] = False,
    space: Annotated[
        bool, typer.Option("--space", help="Also publish a Space of the same name, the page of `admin-nmt demo`.")
    ] = False,
) -> None:
    """Publish the models of a finished run on the Hub.

    Each with its card in one commit. The stock model of standard/ goes to --repo, the trained model of final/ with its
    code beside it to the same name with -admin. A run whose model has no stock class publishes final/ alone, to --repo.
    Before anything is sent both cards are checked: one that is missing, lacks a fact, differs from a fresh rendering or
    names another repository is refused. With --space a page where --repo can be tried follows; it needs Gradio here.
    Log in first, with `hf auth login` or HF_TOKEN; HF_ENDPOINT names another Hub.

    \b
    admin-nmt card runs/phrasebook --repo user/phrasebook-en-de
    admin-nmt publish runs/phrasebook --repo user/phrasebook-en-de
    admin-nmt publish runs/phrasebook --repo user/phrasebook-en-de --private
    admin-nmt publish runs/phrasebook --repo user/phrasebook-en-de --space
    """
    if space:
        from ..demo.space import publish_with_space

        urls = publish_with_space(run, repo, private=private)
    else:
        from ..runs.publishing import publish_run

        urls = publish_run(run, repo, private=private)
    for url in urls:
        print(url, flush=True)
    if space and private:
        say(f"the Space needs a secret HF_TOKEN, in its settings, that may read {repo}")
