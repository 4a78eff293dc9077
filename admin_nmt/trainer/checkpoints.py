"""The checkpoints that a run has left in its folder."""

import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..files import write_text_whole

TORCH_SAVE_FAILED = re.compile("inline_container|PytorchStreamWriter|iostream error")


def complete_checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoint folders of a run that were written to the end, earliest first; none if there is no such folder.

    The Trainer writes its state last, so a folder without it, or with a part of it, was cut off in the middle.
    """
    steps = {}
    for path in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        number = re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)", path.name)
        if number and _is_json(path / TRAINER_STATE_NAME):
            steps[int(number[1])] = path
    return [steps[step] for step in sorted(steps)]


def settle_best_checkpoint(checkpoint: Path) -> None:
    """Point a checkpoint's state to the best one beside it if the run was moved since; the Trainer would forget it."""
    path = checkpoint / TRAINER_STATE_NAME
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    best = state.get("best_model_checkpoint")
    if best is None or Path(best).is_dir():
        return
    moved = checkpoint.parent / Path(best).name
    if moved.is_dir():
        write_text_whole(path, json.dumps(state | {"best_model_checkpoint": str(moved)}, indent=2) + "\n")


def check_position(checkpoint: Path, batches: int, accumulation: int) -> None:
    """Refuse a checkpoint whose number of updates is another part of the epoch here: some pairs would be missed.

    Args:
        batches: in an epoch, of each process.
        accumulation: of them in an update.

    Raises:
        ValueError: naming the checkpoint and both positions.
    """
    state: dict[str, Any] = json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    updates = math.ceil(batches / accumulation)
    saved, here = state.get("epoch"), state["global_step"] / updates
    # Within an update: the last one of an epoch may be short, and not all processes may have a batch for it.
    if saved is not None and abs(saved - here) > 1 / updates:
        raise ValueError(
            f"{checkpoint}: was saved at epoch {saved:.2f} after {state['global_step']} updates, but here these are "
            f"{here:.2f} epochs: continue with the same training pairs, max_tokens and processes × "
            "gradient_accumulation_steps, or set ignore_data_skip to begin the epoch anew"
        )


@contextmanager
def checkpoint_being_written(folder: Path) -> Iterator[None]:
    """Takes away what was written of a checkpoint if it cannot be finished, for want of space say.

    One that was finished stays, whatever fails after it, such as a push to the Hub.

    Raises:
        OSError: naming the folder, why it could not be written, and the checkpoint before it.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch.save hides the system's error in a RuntimeError; any other one is not about the file.
        if isinstance(error, RuntimeError) and not TORCH_SAVE_FAILED.search(str(error)):
            raise
        if _is_json(folder / TRAINER_STATE_NAME):
            raise
        free = shutil.disk_usage(folder.parent).free
        shutil.rmtree(folder, ignore_errors=True)
        earlier = complete_checkpoints(folder.parent)
        last = f"the last complete checkpoint is {earlier[-1]}" if earlier else "there is no earlier checkpoint"
        reason = " ".join(str(error).split())[:200]
        raise OSError(
            f"{folder}: the checkpoint could not be written ({reason}; {free / 1e6:.1f} MB were left on the disk); "
            f"{last}, and the same command continues from there once there is space"
        ) from error


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True
