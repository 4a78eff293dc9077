"""What every step of the GPU benchmark works on: the grid, its data, and whether it is a trial at toy size."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...experiments.grids import Grid
    from ...runs.preparation import Prepared
    from ...runs.recipe import Recipe

SEED = 1
PREPARED = "cache/prepared"  # a file below the output folder that is there when all data are
TOY_PAIRS = (2000, 20, 20)  # of training, validation and test
TOY = {  # of everything that the grid trains; any CPU does it in seconds
    "model.d_model": 16,
    "model.encoder_ffn_dim": 32,
    "model.decoder_ffn_dim": 32,
    "model.encoder_attention_heads": 2,
    "model.decoder_attention_heads": 2,
    "model.encoder_layers": 2,
    "model.decoder_layers": 1,
    "tokenizer.vocab_size": 400,
    "training.bf16": False,  # which a CPU emulates
    "training.max_tokens": 2048,
    "training.max_steps": 40,
    "training.warmup_steps": 5,
    "training.logging_steps": 2,
    "training.eval_steps": 20,
    "training.save_steps": 10,
    "evaluation.num_beams": 2,
}
BUILTIN = {"data.builtin": "phrasebook", "data.train": None, "data.valid": None, "data.test": None, "data.root": None}


def toy_corpus(folder: Path) -> Path:
    """Files of a few made-up pairs, named as those of msdocs; the first call writes them."""
    import gzip

    from ...data.phrasebook import phrasebook
    from ...system.files import new_folder

    if not folder.is_dir():
        with new_folder(folder) as temporary:
            for split, pairs in phrasebook(*TOY_PAIRS).items():
                for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
                    text = "".join(f"{line}\n" for line in lines)
                    (temporary / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return folder.absolute()


@dataclass(frozen=True)
class Setup:
    """Where the benchmark runs and on what.

    Args:
        output: folder of the results, the prepared data and the trained models.
        grid: file of the grid whose systems are trained, and whose recipe has the data and the settings.
        data: folder of msdocs; None for the built-in phrasebook.
        toy: tiny models and few updates, to try every step on a CPU; such numbers mean nothing.
    """

    output: Path
    grid: Path
    data: Path | None = None
    toy: bool = False

    def overrides(self) -> list[str]:
        """What the data and the size change of the grid, as its command line takes it."""
        import json

        changed: dict[str, Any] = {
            "data.cache_dir": str(self.output / "cache"),
            "output_dir": str(self.output / "runs"),
        }
        if self.toy:
            changed |= TOY | {"data.root": str(toy_corpus(self.output / "toy-data"))}
        else:
            changed |= BUILTIN if self.data is None else {"data.root": str(self.data.absolute())}
        return [text for name, value in changed.items() for text in (f"--{name}", json.dumps(value))]

    def load_grid(self) -> "Grid":
        """The grid on this data."""
        from ...experiments.grids import load_grid

        return load_grid(self.grid, self.overrides())

    def recipe(self, changed: dict[str, Any] | None = None) -> "Recipe":
        """The recipe of the grid with some fields changed, `section.field` names with their values."""
        import json

        from ...experiments.grids import load_grid
        from ...runs.recipe import load_recipe

        grid = load_grid(self.grid, self.overrides())
        values = dict(grid.overrides) | {"output_dir": str(self.output / "scratch")} | (changed or {})
        return load_recipe(
            grid.recipe, [text for name, value in values.items() for text in (f"--{name}", json.dumps(value))]
        )

    def prepared(self) -> "Prepared":
        """The tokenised data, from the cache after the first call."""
        from ...runs.preparation import prepare
        from ...system.processes import start_processes

        start_processes()
        return prepare(self.recipe())

    def depth(self, layers: int) -> int:
        """So many layers, or a sixth of them at toy size."""
        return max(1, layers // 6) if self.toy else layers
