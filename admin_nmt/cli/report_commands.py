"""Commands that compare and draw: compare, plot, and the group `analyse`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .output import quiet
from .parsing import Command

DepthPart = Literal["steps", "gradients"]
Figure = Literal["curves", "depth", "dlcl", "omega"]
By = Literal["updates", "tokens", "hours"]


def compare(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM",
            help="Finished runs, grids or files of translations; name=path names one.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option(help="Output folder.")],
    reference: Annotated[
        list[str] | None,
        typer.Option(help="Raw references; repeatable; default: those of the first finished run."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Source sentences for the examples; default: those of the run.")
    ] = None,
    train_target: Annotated[
        str | None, typer.Option(help="Target side of the training text, for word accuracy by frequency.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Baseline system; default: the first.")] = None,
    language: Annotated[
        str | None, typer.Option(help="Target language code, for tokenisation; default: the first run's, else de.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Comparison of systems",
) -> None:
    """Compare systems on one test set.

    Scores, significance, rare words, sentence length and n-grams of systems that translated the same sentences. A file
    holds detokenised translations, one a line. The output folder gets README.md, comparison.html (one file, no server
    needed), CSV tables, and plots as PNG and SVG. What cannot be compared is named and left out; the exit code is then
    1.

    Several outputs of one name are training runs of one system, and so are the seeds of a grid's folder. Systems are
    then compared by the means over their runs and by approximate randomisation over all of them (Clark et al. 2011).

    \b
    admin-nmt compare runs/admin runs/pre_ln other=hyp.txt --train-target train.de.gz --output comparison
    admin-nmt compare admin=runs/admin-1 admin=runs/admin-2 post=runs/post-1 post=runs/post-2 --output comparison
    admin-nmt compare runs/grids/multi30k-variants --baseline post_ln-18-6 --output comparison
    admin-nmt compare a.hyp b.hyp --reference test.en0 --reference test.en1 --language en --output comparison
    """
    from ..experiments.systems import compare_systems

    complete = compare_systems(
        systems,
        output,
        references=reference or [],
        source=source,
        train_target=train_target,
        baseline=baseline,
        language=language,
        title=title,
    )
    raise typer.Exit(0 if complete else 1)


def plot(
    figure: Annotated[Figure, typer.Argument(help="Figure to draw.", show_default=False)],
    output: Annotated[Path, typer.Option(help="Output file, PNG, SVG or PDF.")],
    inputs: Annotated[list[Path] | None, typer.Argument(metavar="FOLDER", help="Runs or models.")] = None,
    title: Annotated[str, typer.Option(help="Title, of curves and depth.")] = "",
    by: Annotated[By, typer.Option(help="x axis of curves.")] = "updates",
) -> None:
    """Draw a picture of runs or models.

    curves shows training and validation perplexity, depth shows test BLEU by depth and variant: both take folders of
    runs, with their results.json. dlcl shows the matrices W of one model, omega the ω of the sublayers: they take
    folders of models. What cannot be drawn is named and left out; the exit code is then 1.

    \b
    admin-nmt plot curves runs/a runs/b --output curves.png
    admin-nmt plot curves runs/a runs/b --by hours --output hours.png
    admin-nmt plot depth runs/grids/x/* --output depth.png
    admin-nmt plot dlcl runs/dlcl/final --output weights.png
    admin-nmt plot omega runs/a/final runs/b/final --output omega.png
    """
    from ..experiments.plots import draw

    raise typer.Exit(0 if draw(figure, inputs or [], output, title, by) else 1)


analyse = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Analyse how deep models learn.")


@analyse.command(cls=Command)
def depth(
    output: Annotated[Path, typer.Option(help="Output folder.")],
    variant: Annotated[
        list[str] | None, typer.Option(help="Variant, or admin:RULE for ω by that rule; repeatable; default: all.")
    ] = None,
    depth: Annotated[
        list[int] | None, typer.Option(min=1, help="Encoder layers; repeatable; default: 2 6 12 18 36 60.")
    ] = None,
    decoder_layers: Annotated[int, typer.Option(min=1, help="Decoder layers, at every encoder depth.")] = 6,
    shown_depth: Annotated[int, typer.Option(min=1, help="Encoder layers in the plots of single sublayers.")] = 18,
    d_model: Annotated[int, typer.Option(min=1, help="Model width; feed-forward twice that, 4 heads.")] = 128,
    seed: Annotated[
        list[int] | None, typer.Option(help="Random seed of weights, batch and update; repeatable; default: 1 2 3.")
    ] = None,
    part: Annotated[DepthPart | None, typer.Option(help="Do this part alone.", show_default=False)] = None,
    updates: Annotated[
        int, typer.Option(min=0, help="Training updates after which gradients are measured again; 0 for none.")
    ] = 0,
) -> None:
    """Show why post-LN fails when it is deep.

    And why ADMIN does not. New models of random weights read one batch of random ids. Shown by variant, and by depth of
    the encoder: the share of each sublayer's output variance that comes from its own residual branch, and how far the
    encoder's output moves under a small random perturbation of the weights, or under Adam's first update (Liu, Liu
    et al. 2020, section 4). No training, no data; minutes on one core. The second part, gradients, reads sentences of
    the built-in phrasebook: the norm of the loss's gradient at every sublayer, of the smallest, the shown and the
    largest depth (Wang et al. 2019, equations 5 and 6), with --updates once more after so much training on the
    phrasebook.

    \b
    admin-nmt analyse depth --output model_cards/depth-analysis
    admin-nmt analyse depth --variant post_ln --variant admin --depth 6 --depth 24 --d-model 256 --output out
    admin-nmt analyse depth --variant admin --variant admin:log_n --variant admin:n --output out
    admin-nmt analyse depth --part gradients --depth 6 --depth 60 --updates 100 --seed 1 --output out
    """
    from ..experiments.depth.depth_report import DepthStudy, write_depth_report

    sizes: dict[str, Any] = {
        "decoder_layers": decoder_layers,
        "shown_depth": shown_depth,
        "d_model": d_model,
        "updates": updates,
    }
    lists = {"variants": variant, "depths": depth, "seeds": seed, "parts": [part] if part else None}
    given: dict[str, Any] = {name: values for name, values in lists.items() if values}
    quiet()
    study = DepthStudy(**sizes, **given)
    print(write_depth_report(study, output))
