"""Commands on the folder of a model: the group `model`, and publish."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..system.limits import PROFILE_TOKENS
from .options import Model, NewFolder, RunFolder, Source, Target, check_repository
from .output import print_json, quiet, say, write_lines
from .parsing import Command

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Inspect and convert models.")


@group.command(cls=Command)
def info(model: Model, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show variant, sizes, vocabulary and ω of a model.

    And the class of transformers that it exports to.

    \b
    admin-nmt model info runs/phrasebook/final
    admin-nmt model info runs/phrasebook/standard --json
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


@group.command(cls=Command)
def fold(model: Model, output: NewFolder) -> None:
    """Fold ω into the weights, keeping this package's class.

    The result computes the same as a plain post-LN Transformer, and can be trained further.

    \b
    admin-nmt model fold runs/phrasebook/final --output folded
    """
    from ..hub.model_folder import local_folder
    from ..runs.model_folders import fold_folder

    quiet()
    fold_folder(local_folder(model, trained=True), output)


@group.command(cls=Command)
def export(
    model: Model,
    output: NewFolder,
    ctranslate2: Annotated[bool, typer.Option("--ctranslate2", help="Export to CTranslate2 instead.")] = False,
    quantization: Annotated[
        str | None, typer.Option(help="With --ctranslate2: int8, float16, …; default: float32.")
    ] = None,
) -> None:
    """Export to a standard Marian or Pegasus model.

    ω is folded; post-LN becomes Marian, pre-LN becomes Pegasus. The folder appears when the exported model was reloaded
    and gave the same logits and beams. With --ctranslate2 random sentences are translated greedily and compared with
    the standard model's translations, which in float32 have to be the same token by token.

    \b
    admin-nmt model export runs/phrasebook/final --output standard
    admin-nmt model export runs/phrasebook/final --output int8 --ctranslate2 --quantization int8
    """
    if quantization is not None and not ctranslate2:
        raise typer.BadParameter("--quantization belongs to --ctranslate2")
    from ..hub.model_folder import local_folder

    quiet()
    if ctranslate2:
        from ..decoding.ctranslate2_backend import export_ctranslate2

        same = export_ctranslate2(local_folder(model), output, quantization)
        say(f"{output}: {same:.0%} of some random sentences are translated as by the standard model, greedily")
    else:
        from ..runs.model_folders import export_folder

        export_folder(local_folder(model, trained=True), output)


@group.command(cls=Command)
def average(
    checkpoints: Annotated[
        list[Path], typer.Argument(metavar="CHECKPOINT", help="Checkpoints, or with --last a run.", show_default=False)
    ],
    output: NewFolder,
    last: Annotated[int | None, typer.Option(min=1, help="Average the last N checkpoints of a run.")] = None,
) -> None:
    """Average checkpoints of one run.

    \b
    admin-nmt model average runs/phrasebook/checkpoint-1900 runs/phrasebook/checkpoint-2000 --output averaged
    admin-nmt model average runs/phrasebook --last 5 --output averaged
    """
    if last is not None and len(checkpoints) != 1:
        raise typer.BadParameter("--last takes the checkpoints of one run; name that run alone")

    from ..runs.model_folders import average_folders, last_checkpoints

    quiet()
    average_folders(checkpoints if last is None else last_checkpoints(checkpoints[0], last), output)


@group.command(cls=Command)
def convert_fairseq(
    checkpoint: Annotated[Path, typer.Argument(help="fairseq checkpoint (.pt).", show_default=False)],
    output: NewFolder,
    dicts: Annotated[list[Path], typer.Option(help="fairseq dictionary (dict.txt), joint, or twice: source, target.")],
    bpe_codes: Annotated[list[Path], typer.Option(help="subword-nmt codes, joint, or twice: source, target.")],
    moses_source: Annotated[
        str | None, typer.Option(help="Source language for Moses tokenization, if the text had it.")
    ] = None,
    moses_target: Annotated[str | None, typer.Option(help="Target language, likewise.")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower-case the source.")] = False,
    length_penalty: Annotated[float, typer.Option(help="Length penalty (fairseq-generate --lenpen).")] = 1.0,
) -> None:
    """Convert a fairseq checkpoint.

    Reads stock transformers, those of Transformer-Clinic (ADMIN, pre-LN) and the authors' DLCL, with their dictionaries
    and BPE codes. The model translates text as fairseq-generate did; no code in the file is run.

    \b
    admin-nmt model convert-fairseq checkpoint.pt --output converted --dicts dict.txt --bpe-codes codes \\
        --moses-source en --moses-target de
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
        output=output,
        moses=moses,
        lowercase=lowercase,
        length_penalty=length_penalty,
    )


@group.command(cls=Command)
def card(
    run: RunFolder,
    repo: Annotated[
        str | None,
        typer.Option(
            callback=check_repository, help="Hub repository of the standard model; default: the recipe's card.repo_id."
        ),
    ] = None,
) -> None:
    """Write the model cards of a finished run.

    They hold what the run has measured and go into its final/ and standard/, each as README.md with its pictures; their
    paths are printed.

    \b
    admin-nmt model card runs/phrasebook
    admin-nmt model card runs/phrasebook --repo user/phrasebook-en-de
    """
    from ..hub.run_folder import FINAL, STANDARD
    from ..runs.cards import write_card

    quiet()
    folders = [run / name for name in (FINAL, STANDARD) if (run / name).is_dir()]
    if not folders:
        raise ValueError(
            f"{run}: has neither final/ nor standard/, so it is no finished run; give its training command again"
        )
    for folder in folders:
        print(write_card(run, folder, repo))


@group.command(cls=Command)
def profile(
    model: Model,
    source: Source,
    target: Target = None,
    mode: Annotated[
        Literal["unit", "reference"], typer.Option(help="unit as in the paper; reference as in the authors' code.")
    ] = "unit",
    batch_tokens: Annotated[int, typer.Option(min=1, help="Batch size in target tokens.")] = PROFILE_TOKENS,
    seed: Annotated[int, typer.Option(help="Random seed of the weights and of the batch.")] = 42,
    output: Annotated[Path | None, typer.Option(help="Save the new model with its ω in this folder.")] = None,
) -> None:
    """Measure ω of a new, untrained model.

    Draws weights for MODEL's configuration, measures ω on a batch of text and prints it, a sublayer a line. Of MODEL
    only config.json and the tokenizer are read. Training with `omega_rule: profile` does this by itself; this command
    shows it beforehand, or writes a new model for a training loop of your own. The ω of a trained model is shown by
    `admin-nmt model info`.

    \b
    admin-nmt model profile runs/phrasebook/final --source train.en --target train.de
    admin-nmt model profile runs/phrasebook/final --source train.en --target train.de --mode reference --output fresh
    """
    from ..data.parallel_text import load_parallel
    from ..hub.model_folder import local_folder
    from ..runs.model_folders import profile_folder

    quiet()
    folder, pairs = local_folder(model, trained=True), load_parallel(source, target)
    omega = profile_folder(folder, pairs, mode, max_tokens=batch_tokens, seed=seed, output=output)
    write_lines(f"{name}\t{value:.6f}" for name, value in omega.items())


def publish(
    run: RunFolder,
    repo: Annotated[
        str,
        typer.Option(
            callback=check_repository, help="Hub repository of the standard model, user/name; created if missing."
        ),
    ],
    private: Annotated[
        bool, typer.Option("--private", help="Create private repositories; refuse public ones.")
    ] = False,
    space: Annotated[
        bool, typer.Option("--space", help="Also publish a Space of the same name with the page of `admin-nmt demo`.")
    ] = False,
) -> None:
    """Publish the models of a finished run on the Hub.

    Each with its card in one commit. The standard model goes to --repo, the final model with its code beside it to the
    same name with -admin. A run without a standard model publishes its final model alone, to --repo. Before anything is
    sent both cards are checked: one that is missing, lacks a fact, differs from a fresh rendering or names another
    repository is refused. With --space a page where --repo can be tried follows; it needs Gradio here. Log in first,
    with `hf auth login` or HF_TOKEN; HF_ENDPOINT names another Hub.

    \b
    admin-nmt model card runs/phrasebook --repo user/phrasebook-en-de
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
