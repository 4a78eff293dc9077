"""The checkpoints that a run has left in its folder."""

import json
import re
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR


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


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True
