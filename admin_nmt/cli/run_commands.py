"""Commands on recipes and grids: train, prepare, memory, recipe, experiment."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from .bundled import KINDS, bundled, find_file, find_recipe, summary
from .options import RecipeFile, say, show_markdown


def train(ctx: typer.Context, recipe: RecipeFile) -> None:
    """Train a recipe from data to stock model.

    Prepares the data, trains, chooses the best weights, folds them into a stock model and scores it on the test set.
    Any field of the recipe may be given as --section.field VALUE. A run that was interrupted continues from its last
    checkpoint when the same command is given again.

    \b
    admin-nmt train phrasebook
    admin-nmt train mine.yaml --training.max_steps 100 --output_dir runs/try
    accelerate launch --multi_gpu --num_processes 2 -m admin_nmt train mine.yaml
    """
    path = find_recipe(recipe)

    from ..runs.recipe import load_recipe
    from ..runs.training_run import run_recipe

    run_recipe(load_recipe(path, ctx.meta["overrides"], recipe))


def prepare(
    ctx: typer.Context,
    recipe: RecipeFile,
    num_proc: Annotated[int | None, typer.Option(min=1, help="Processes; by default one a core.")] = None,
) -> None:
    """Prepare the data of a recipe.

    As training does, on all cores, so that training then starts at once. Every step prints its pairs a second and its
    peak memory. Interrupted? The same command continues there.

    \b
    admin-nmt prepare phrasebook
    admin-nmt prepare mine.yaml --data.cache_dir /large/disk --num-proc 8
    """
    path = find_recipe(recipe)

    from ..benchmarks.preparation_meter import Meter
    from ..data.arrow_cache import available_cores
    from ..distributed import print_once, start_processes
    from ..runs import preparation
    from ..runs.recipe import load_recipe

    loaded = load_recipe(path, ctx.meta["overrides"], recipe)
    start_processes()
    preparation.prepare(loaded, num_proc or available_cores(), Meter())
    print_once(f"prepared; next: admin-nmt train {shlex.join([recipe, *ctx.meta['overrides']])}")


def memory(
    ctx: typer.Context,
    recipes: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECIPE", help="YAML files, or names of recipes that come with the package."),
    ] = None,
    options: Annotated[bool, typer.Option("--options", help="Vary precision and checkpointing.")] = False,
    prepared: Annotated[
        bool, typer.Option("--prepared", help="Take lengths and vocabulary from the prepared data.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with measurements on this CPU.")] = False,
    output: Annotated[Path | None, typer.Option(help="Also write the table to OUTPUT.md and OUTPUT.json.")] = None,
) -> None:
    """Predict the peak memory of recipes.

    Runs none of them, and says which GPUs they fit. --prepared takes the lengths of sentences and the vocabulary from
    the prepared data instead of the recipe's limits; --verify compares predictions with what PyTorch's profiler sees
    allocated while small models train. All tables are predictions but for the column "measured". GB are 10⁹ bytes.

    \b
    admin-nmt memory phrasebook
    admin-nmt memory wmt14-en-de-60-12 --training.max_tokens 8192
    admin-nmt memory mine.yaml --options --output tables/memory
    admin-nmt memory --verify
    """
    if verify == bool(recipes):
        raise typer.BadParameter("give recipes, or --verify")
    paths = [find_recipe(name) for name in recipes or []]

    from tqdm import tqdm

    from ..reports import memory_tables as tables

    options_given = {"options": options, "prepared_data": prepared}
    work = tables.verify(tables.CASES) if verify else tables.recipe_rows(paths, ctx.meta["overrides"], **options_given)
    rows = []
    for row in tqdm(work, desc="models", unit="model"):
        rows.append(row)
        print(tables.table([row]).splitlines()[-1] if rows[1:] else tables.table(rows).strip(), flush=True)
    note = tables.VERIFIED if verify else tables.NOTE
    say(note)
    if output:
        tables.write(rows, note, output)


def recipe(
    name: Annotated[
        str | None, typer.Argument(help="What to print, by its name in the list.", show_default=False)
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List everything that has a name, with a line each.")
    ] = False,
    options: Annotated[bool, typer.Option("--options", help="Every option that a recipe may set, in tables.")] = False,
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
        from ..reports.option_table import option_page

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
        typer.Argument(
            metavar="GRID", help="YAML file, or the name of a grid that comes with the package.", show_default=False
        ),
    ],
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; each gets its share of the cores.")] = 1,
    tables: Annotated[bool, typer.Option("--tables", help="Only write the tables and plots of what is there.")] = False,
    system: Annotated[list[str] | None, typer.Option(help="Only this system; several by repeating.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed, or one more; several by repeating.")] = None,
    launch: Annotated[
        str | None, typer.Option(help="What starts Python on `-m admin_nmt train`; by default this Python.")
    ] = None,
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

    from ..schema.yaml_files import load_yaml

    load_yaml(path, grid)  # for its mistakes: torch takes seconds to load

    from ..metrics.unigram import write_unigram
    from ..reports.tables import outcome, write_tables
    from ..runs.grid_runner import run_all, wanted_runs
    from ..runs.grids import Run, load_grid
    from ..runs.preparation import prepare

    loaded = load_grid(path, ctx.meta["overrides"], grid)
    pending = [run for run in wanted_runs(loaded, system or [], seed or []) if run.results() is None]

    def ended(run: Run) -> str:
        write_tables(loaded)
        return outcome(run.results() or {})

    if pending and not tables:
        prepared = prepare(pending[0].recipe())  # and the caches, before several runs want them
        write_unigram(prepared.data, len(prepared.target_tokenizer), loaded.output_dir)
        run_all(pending, jobs, shlex.split(launch) if launch else [sys.executable], ended)
    print(write_tables(loaded))
    if not tables and any(run.results() is None for run in pending):
        say("not all runs have ended; the same command tries again")
        raise typer.Exit(1)
