"""Commands on recipes and grids: train, prepare, memory, recipe, experiment."""

import shlex
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..runs.own_text.files import OwnFiles, OwnText
from .bundled import KINDS, bundled, find_file, summary
from .options import OnCluster, RecipeFile
from .output import quiet, say, show_markdown
from .parsing import expanded


@dataclass(frozen=True)
class OwnTextArguments:
    """Own text instead of a recipe."""

    source: Annotated[
        list[str] | None,
        typer.Option(help="Source sentences (.gz too), or a .tsv, .jsonl or .parquet file of pairs; repeatable."),
    ] = None
    target: Annotated[
        list[str] | None, typer.Option(help="Their translations, line by line, unless SOURCE holds pairs; repeatable.")
    ] = None
    valid_source: Annotated[
        str | None, typer.Option(help="Validation set, likewise; default: held out of the training text.")
    ] = None
    valid_target: Annotated[str | None, typer.Option(help="Its translations.")] = None
    test_source: Annotated[
        str | None, typer.Option(help="Test set, likewise; default: held out of the training text.")
    ] = None
    test_target: Annotated[str | None, typer.Option(help="Its translations.")] = None

    def __post_init__(self) -> None:
        held_out = (self.valid_source, self.valid_target, "valid"), (self.test_source, self.test_target, "test")
        for one, other, split in held_out:
            if other is not None and one is None:
                raise ValueError(f"--{split}-target goes with --{split}-source")
        if not self.source and (self.target or self.valid_source or self.test_source):
            raise ValueError("--target and held-out files go with --source; a RECIPE names its own")
        if self.source and self.target and len(self.target) != len(self.source):
            sizes = f"--source names {len(self.source)} files and --target {len(self.target)}"
            raise ValueError(f"{sizes}; give pairs of files")

    def files(self) -> OwnText | None:
        """The files, checked; None where no text is given."""
        if not self.source:
            return None
        held_out = {"valid": (self.valid_source, self.valid_target), "test": (self.test_source, self.test_target)}
        given = {split: OwnFiles([one], [other] if other else []) for split, (one, other) in held_out.items() if one}
        text = OwnText(OwnFiles(self.source, self.target or []), given)
        text.check()
        return text


@expanded
def train(
    ctx: typer.Context,
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="YAML file or name of a built-in recipe.", show_default=False),
    ] = None,
    *,
    text: OwnTextArguments,
    output: Annotated[
        Path | None, typer.Option(help="Output folder; default: the recipe's, or runs/ and the name of the text.")
    ] = None,
) -> None:
    """Train a recipe, or your own text, from data to a standard model.

    Prepares the data, trains, chooses the best weights, folds them into a standard model and scores it on the test set.
    Any field of the recipe may be given as --section.field VALUE. A run that was interrupted continues from its last
    checkpoint when the same command is given again.

    With --source no recipe is needed: one that suits the size of the text and this machine is written beside the run,
    OUTPUT.yaml, with its reasons. Which languages they are is guessed from the names, or said by --languages en de.

    \b
    admin-nmt train phrasebook
    admin-nmt train mine.yaml --training.max_steps 100 --output_dir runs/try
    admin-nmt train --source train.en --target train.de
    admin-nmt train --source pairs.tsv --languages en de --output runs/pairs
    accelerate launch --multi_gpu --num_processes 2 -m admin_nmt train mine.yaml
    """
    own = text.files()
    if (recipe is None) == (own is None):
        raise typer.BadParameter("give a RECIPE, or text of your own: --source train.en --target train.de")
    path = find_file(recipe, "recipes") if recipe is not None else None

    from ..runs.recipe import load_recipe
    from ..runs.training_run import run_recipe
    from ..runs.yaml_files import yaml_text

    overrides = [*ctx.meta["overrides"], *(["--output_dir", yaml_text(str(output))] if output else [])]
    quiet()
    if own is not None:
        from ..runs.own_text.recipe_file import recipe_for

        path = recipe_for(own, overrides)
    assert path is not None
    run_recipe(load_recipe(path, overrides, recipe or str(path)))


def prepare(
    ctx: typer.Context,
    recipe: RecipeFile,
    num_proc: Annotated[int | None, typer.Option(min=1, help="Number of processes; default: one a core.")] = None,
    cluster: OnCluster = None,
) -> None:
    """Prepare the data of a recipe.

    As training does, on all cores, so that training then starts at once. Every stage prints its pairs a second.
    Interrupted? The same command continues there.

    \b
    admin-nmt prepare phrasebook
    admin-nmt prepare mine.yaml --data.cache_dir /large/disk --num-proc 8
    admin-nmt prepare mine.yaml --cluster workers.json
    """
    path = find_file(recipe, "recipes")

    from ..data.arrow_cache import available_cores, jobs_run_by
    from ..data.dask_cluster import Cluster
    from ..runs import preparation
    from ..runs.recipe import load_recipe
    from ..system.processes import print_once, start_processes

    quiet()
    loaded = load_recipe(path, ctx.meta["overrides"], recipe)
    start_processes()
    with ExitStack() as stack:
        if cluster is not None:
            Path(loaded.data.cache_dir).mkdir(parents=True, exist_ok=True)
            workers = stack.enter_context(Cluster(cluster, [loaded.data.cache_dir]))
            stack.enter_context(jobs_run_by(workers.run))
        preparation.prepare(loaded, num_proc or available_cores(), preparation.timed)
    print_once(f"prepared; next: admin-nmt train {shlex.join([recipe, *ctx.meta['overrides']])}")


def memory(
    ctx: typer.Context,
    recipes: Annotated[
        list[str], typer.Argument(metavar="RECIPE", help="YAML files or names of built-in recipes.", show_default=False)
    ],
    prepared: Annotated[
        bool, typer.Option("--prepared", help="Use lengths and vocabulary of the prepared data.")
    ] = False,
) -> None:
    """Predict the peak memory of recipes.

    Runs none of them, and says which GPUs they fit. --prepared takes the lengths of sentences and the vocabulary from
    the prepared data instead of the recipe's limits. GB are 10⁹ bytes.

    \b
    admin-nmt memory phrasebook
    admin-nmt memory wmt14-en-de-60-12 --training.max_tokens 8192
    admin-nmt memory mine.yaml --prepared --training.bf16 true
    """
    files = {name: find_file(name, "recipes") for name in recipes}

    from ..runs.memory_table import NOTE, memory_rows
    from ..runs.preparation import prepare
    from ..runs.recipe import load_recipe
    from ..system.markdown import table_lines

    loaded = [load_recipe(path, ctx.meta["overrides"], name) for name, path in files.items()]
    rows = [row for recipe in loaded for row in memory_rows(recipe, prepare(recipe) if prepared else None)]
    print("\n".join(table_lines(list(rows[0]), (row.values() for row in rows))))
    say(NOTE)


def recipe(
    name: Annotated[
        str | None, typer.Argument(help="Name of a recipe, grid or launch configuration.", show_default=False)
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the names, with a line each.")] = False,
    options: Annotated[bool, typer.Option("--options", help="Print all options of a recipe, in tables.")] = False,
) -> None:
    """Print a recipe that comes with the package.

    Or a grid, or a launch configuration for accelerate. To train a recipe, name it; to change it, print it into a file.

    \b
    admin-nmt recipe --list
    admin-nmt recipe phrasebook > mine.yaml
    admin-nmt recipe ddp > ddp.yaml
    admin-nmt recipe --options | grep dropout
    """
    if show_list + options + (name is not None) != 1:
        raise typer.BadParameter("give a name, --list or --options")
    if options:
        from ..runs.option_table import option_page

        show_markdown(option_page())
        return
    known = {path.stem: path for kind in KINDS for path in bundled(kind).values()}
    if name is None:
        width = max(map(len, known), default=0)
        lists = ([f"{stem:{width}}  {summary(path)}" for stem, path in bundled(kind).items()] for kind in KINDS)
        print("\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in zip(KINDS.values(), lists, strict=True)))
    elif name not in known:
        raise ValueError(f"{name}: nothing of that name comes with the package; see `admin-nmt recipe --list`")
    else:
        print(known[name].read_text(encoding="utf-8"), end="")


def experiment(
    ctx: typer.Context,
    grid: Annotated[
        str,
        typer.Argument(metavar="GRID", help="YAML file or name of a built-in grid.", show_default=False),
    ],
    jobs: Annotated[int, typer.Option(min=1, help="Number of runs at a time, sharing the cores.")] = 1,
    tables: Annotated[
        bool, typer.Option("--tables", help="Only write tables and plots of the runs that there are.")
    ] = False,
    system: Annotated[list[str] | None, typer.Option(help="Run this system only; repeatable.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Run this seed only; repeatable.")] = None,
    launch: Annotated[str | None, typer.Option(help="Launcher for each run; default: this Python.")] = None,
) -> None:
    """Run a grid of recipes and seeds.

    Writes its tables and plots. Every run is a process of its own, `admin-nmt train` with its output in
    OUTPUT_DIR/SYSTEM-seedK/train.log. After an interruption the same command continues: runs that ended, also
    those that diverged, are left as they are, others continue from their last checkpoint, and one that failed is tried
    again. --section.field VALUE holds for all systems.

    \b
    admin-nmt experiment multi30k-default-admin --data.root path/to/multi30k --jobs 2
    admin-nmt experiment multi30k-default-admin --tables
    admin-nmt experiment mine.yaml --training.max_steps 1000 --system admin --system pre_ln --seed 1
    admin-nmt experiment mine.yaml --launch "accelerate launch --num_processes 8"
    """
    path = find_file(grid, "grids")

    from ..experiments.grid_runner import run_grid
    from ..experiments.grids import load_grid

    launcher = shlex.split(launch) if launch else [sys.executable]
    loaded = load_grid(path, ctx.meta["overrides"], grid)
    table, complete = run_grid(loaded, system or [], seed or [], jobs, launcher, tables)
    print(table)
    if not complete:
        say("not all runs have ended; the same command tries again")
        raise typer.Exit(1)
