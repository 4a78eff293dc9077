"""The checkpoints that a run has left in its folder: which of them are whole, and which one to continue from.

A checkpoint has a manifest, manifest.json, of the size and the checksum of each file. It is written last, when every
process has written its files, and is compared with them before any of them is loaded.
"""

import hashlib
import itertools
import json
import logging
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from safetensors import SafetensorError
from transformers import TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..system.files import write_text_whole
from ..system.processes import gather_objects, rank_and_size

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
ON_REQUEST = "on_request"  # file in a checkpoint that was written because the run had to stop there
TORCH_SAVE_FAILED = re.compile("inline_container|PytorchStreamWriter|iostream error")
WEIGHTS = re.compile(r"(model|adapter_model|pytorch_model)[^/]*\.(safetensors|bin|index\.json)")


def complete_checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoint folders of a run that were written to the end, earliest first; none if there is no such folder.

    The Trainer writes its state last, so a folder without it, or with a part of it, was cut off in the middle. Nothing
    else is read: files that were damaged later are found by [`damage`].
    """
    return [path for path in _checkpoint_folders(output_dir) if _is_json(path / TRAINER_STATE_NAME)]


def _checkpoint_folders(output_dir: str | Path) -> list[Path]:
    paths = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    numbered = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-\d+")
    return sorted((path for path in paths if numbered.fullmatch(path.name) and path.is_dir()), key=_number)


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def requested_checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoints that a run would not have written by itself, so that averages and limits leave them out."""
    return [path for path in _checkpoint_folders(output_dir) if (path / ON_REQUEST).exists()]


def write_manifest(checkpoint: Path) -> None:
    """Leave the size and the checksum of each file in a checkpoint of which nothing else is to be written."""
    left_out = (MANIFEST, TRAINING_ARGS_NAME)  # the latter is a pickle, which is never read
    paths = [path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name not in left_out]
    files = {
        path.relative_to(checkpoint).as_posix(): {"size": path.stat().st_size, "blake2b": checksum(path)}
        for path in paths
    }
    write_text_whole(checkpoint / MANIFEST, json.dumps({"files": files}, indent=1) + "\n")


def checksum(path: Path) -> str:
    """BLAKE2b of a file, 128 bits in hexadecimal digits; a file that has not changed is read once by this process."""
    facts = path.stat()
    return _checksum(path.absolute(), facts.st_size, facts.st_mtime_ns)


@cache
def _checksum(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def damage(checkpoint: Path) -> str | None:
    """Says why training cannot continue from a checkpoint, naming the file; None if it can.

    One without a manifest, which comes last, is taken if the files are there.
    """
    if not _is_json(checkpoint / TRAINER_STATE_NAME):
        return f"{TRAINER_STATE_NAME} is missing or cut off"
    return _damaged_files(checkpoint, re.compile(".*")) or _missing_state(checkpoint)


def damaged_weights(checkpoint: Path) -> str | None:
    """Says why weights of a checkpoint cannot be used, naming the file; None if they can. Nothing else is read."""
    return _damaged_files(checkpoint, WEIGHTS)


def _damaged_files(checkpoint: Path, wanted: re.Pattern[str]) -> str | None:
    if not checkpoint.is_dir():
        return "is missing"
    try:
        if not (checkpoint / MANIFEST).exists():
            there = any(WEIGHTS.fullmatch(path.name) for path in checkpoint.iterdir())
            return None if there else "model.safetensors is missing"
        files = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"]
        faults = (_difference(checkpoint, name, **facts) for name, facts in files.items() if wanted.fullmatch(name))
        return next((fault for fault in faults if fault), None)
    except OSError as error:
        return f"{Path(error.filename or checkpoint).name} cannot be read ({error.strerror})"
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{MANIFEST} is damaged"


def _difference(checkpoint: Path, name: str, size: int, blake2b: str) -> str | None:
    """Says how a file differs from its entry in the manifest."""
    path = checkpoint / name
    if not path.is_file():
        return f"{name} is missing"
    if path.stat().st_size != size:
        return f"{name} has {path.stat().st_size:,} bytes, and {size:,} were written"
    return None if checksum(path) == blake2b else f"{name} was changed after it was written"


def _missing_state(checkpoint: Path) -> str | None:
    """Names what the Trainer would begin anew without a word."""
    for name in (OPTIMIZER_NAME, SCHEDULER_NAME, "rng_state.pth"):
        stem, end = name.split(".")
        if not any(checkpoint.glob(f"{stem}*.{end}")):  # rng_state_0.pth of the first of several processes
            return f"{name} is missing (was it saved with save_only_model?), so training cannot go on as it was"
    return None


def whole_checkpoints(
    candidates: Iterable[Path], fault: Callable[[Path], str | None] = damage, count: int = 1
) -> tuple[list[Path], list[str]]:
    """The first `count` candidates without a fault, and a line for each that was skipped.

    Every process calls it. The first looks at the files, and all get what it found.

    Args:
        fault: says what is wrong with a checkpoint, None if nothing is.
    """
    whole: list[Path] = []
    told: list[str] = []
    if rank_and_size()[0] == 0:
        for checkpoint in candidates:
            if len(whole) == count:
                break
            reason = fault(checkpoint)
            if reason is None:
                whole.append(checkpoint)
            else:
                told.append(f"{checkpoint} is skipped: {reason}")
    return gather_objects((whole, told))[0]


def newest_whole_checkpoint(output_dir: str | Path) -> Path | None:
    """The checkpoint of a run to continue from, None if there is none; called by every process.

    A warning says of each newer one why not, and of this one if it has no manifest.
    """
    whole, told = whole_checkpoints(reversed(_checkpoint_folders(output_dir)))
    if whole and not (whole[0] / MANIFEST).exists():
        told.append(f"{whole[0]} has no {MANIFEST}: only whether its files are there was checked")
    warn_once(told)
    return whole[0] if whole else None


def last_whole_weights(output_dir: str | Path, count: int) -> list[Path]:
    """The last `count` checkpoints of a run whose weights are whole, earliest first; called by every process.

    Those that were written on request are left out: a run that was not interrupted has none.
    """
    requested = requested_checkpoints(output_dir)
    candidates = [path for path in complete_checkpoints(output_dir) if path not in requested]
    whole, told = whole_checkpoints(reversed(candidates), damaged_weights, count)
    warn_once(told)
    return whole[::-1]


def checkpoint_to_resume(given: str | bool | None, output_dir: str) -> Path | None:
    """The checkpoint from which `train` continues, whole.

    Raises:
        ValueError: the one that was named is damaged, or True finds none.
    """
    if not given:
        return None
    if given is not True:
        check_checkpoint(Path(given))
        return Path(given)
    found = newest_whole_checkpoint(output_dir)
    if found is None:
        raise ValueError(f"{output_dir}: holds no whole checkpoint; to begin anew, leave resume_from_checkpoint out")
    return found


def set_aside_later(output_dir: str | Path, update: int) -> None:
    """Move the checkpoints after an update, at which training begins, to a folder `_set-aside-N` of their own.

    An earlier training wrote them. Averages and limits go by number, and would take them for this one's.
    """
    later = [path for path in _checkpoint_folders(output_dir) if not update or _number(path) > update]
    if later:
        # A folder whose name begins with `_` is never pushed to the Hub.
        folders = (Path(output_dir) / f"_set-aside-{number}" for number in itertools.count(1))
        folder = next(path for path in folders if not path.exists())
        folder.mkdir()
        for path in later:
            path.rename(folder / path.name)
        names = ", ".join(path.name for path in later)
        logger.warning(f"{names}: of an earlier training; moved to {folder}, where no choice of weights sees them")


def check_checkpoint(checkpoint: Path) -> None:
    """Refuse a checkpoint that was named if training cannot continue from it; called by every process.

    Raises:
        ValueError: naming the file that is damaged.
    """
    fault = gather_objects(damage(checkpoint) if rank_and_size()[0] == 0 else None)[0]
    if fault:
        raise ValueError(f"{checkpoint}: {fault}; name another checkpoint, or True for the newest whole one")


def warn_once(lines: Iterable[str]) -> None:
    """Warnings of the first process alone."""
    for line in lines if rank_and_size()[0] == 0 else ():
        logger.warning(line)


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
def checkpoint_being_written(folder: Path, on_request: bool, writes: bool) -> Iterator[None]:
    """Makes a checkpoint of what is written to a folder in this block, which every process enters.

    What was left there goes first. The manifest comes last, and then earlier checkpoints that were written on request
    go, unless this is one. If it cannot be finished, for want of space say, it is taken away. One that was finished
    stays, whatever fails after it, such as a push to the Hub.

    Args:
        on_request: the run would not have written it by itself.
        writes: this process writes what all have in common.

    Raises:
        OSError: naming the folder, why it could not be written, and the checkpoint before it.
    """
    if writes:
        (folder / TRAINER_STATE_NAME).unlink(missing_ok=True)  # without it, it does not count
        shutil.rmtree(folder, ignore_errors=True)
        if on_request:
            folder.mkdir(parents=True)
            (folder / ON_REQUEST).touch()
    PartialState().wait_for_everyone()
    try:
        yield
        if writes and not (folder / MANIFEST).exists():
            write_manifest(folder)
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
    if writes and not on_request:
        for passed in requested_checkpoints(folder.parent):
            shutil.rmtree(passed, ignore_errors=True)


@contextmanager
def limit_without_requested(args: TrainingArguments) -> Iterator[None]:
    """Lets `save_total_limit` count only what a run writes by itself, so that those stay which an average needs."""
    limit = args.save_total_limit
    if limit:
        args.save_total_limit = limit + len(requested_checkpoints(str(args.output_dir)))
    try:
        yield
    finally:
        args.save_total_limit = limit


def _is_json(path: Path) -> bool:
    """True if a file holds a JSON object."""
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False
