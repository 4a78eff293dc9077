"""Push the folder of a model, or of a Space, to the Hub: one commit, or none."""

import logging
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HFValidationError, HTTPError
from huggingface_hub.utils import validate_repo_id

from ..data.tokenization.tokenizer_folder import TARGET_FOLDER

TOKENIZER = (
    "tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "dict.txt",
    "bpe_codes.txt", "*.spm", "*.model", "*.py",
)  # fmt: skip
# All that a model's folder holds; whatever else lies there, such as keys, dumps and backups, stays where it is.
PUSHED = (
    "README.md", "LICENSE*", "*.png", "config.json", "generation_config.json", "export.json", "validation_scores.json",
    "*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", *TOKENIZER,
)  # fmt: skip
TRAINING_ARGUMENTS = "training_args.bin"  # a pickle that every training leaves, and that names paths of the machine
# What a loader would take for a part of the new model if an earlier one left it; of a Space, the package it brought.
REPLACED = {
    "model": ("*.safetensors", "*.safetensors.index.json", "*.py", "target_tokenizer/*", "validation_scores.json"),
    "space": ("admin_nmt/*",),
}

logger = logging.getLogger(__name__)


class HubError(OSError):
    """The Hub did not take the model; it still has its last complete revision."""


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    repo_type: Literal["model", "space"] = "model",
    private: bool = False,
) -> str:
    """Make a repository hold the model of a folder, in one commit; create the repository if there is none.

    Files that are there already, weights among them, are not sent again, and where nothing differs there is no commit.
    Weights, code and a target tokenizer of an earlier model that the folder lacks are deleted in the same commit; other
    files stay, also those in other folders.

    Args:
        folder: the model; files in it that are no part of a model are not pushed, and a warning names them.
        repo_type: "space" for a folder with the app of a Gradio Space.
        private: make a new repository private, and refuse one that is public already.

    Returns:
        The commit's URL.

    Raises:
        ValueError: the folder holds no file of a model.
        HubError: the Hub refused, failed or could not be reached; the repository keeps its last complete revision.
    """
    files = files_to_push(Path(folder), repo_type)
    try:
        api = HfApi()
        sdk = "gradio" if repo_type == "space" else None
        created = api.create_repo(repo_id, private=private or None, exist_ok=True, repo_type=repo_type, space_sdk=sdk)
        repo_id = created.repo_id
        there: Any = api.repo_info(repo_id, repo_type=repo_type)
        if private and not there.private:
            raise ValueError("is public on the Hub; make it private there, or push without `private`")
        stale = [file.rfilename for file in there.siblings or [] if is_stale(file.rfilename, files, repo_type)]
        # Not upload_folder, which makes several commits of a folder that takes long.
        commit = api.create_commit(
            repo_id,
            [
                *(CommitOperationAdd(path, local) for path, local in files.items()),
                *(CommitOperationDelete(path) for path in stale),
            ],
            commit_message=f"Upload {repo_type}",
            repo_type=repo_type,
            parent_commit=there.sha,
        )
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        raise HubError(
            f"{repo_id}: {' '.join(str(error).split())}; the repository keeps its last complete revision: mend this "
            "and push again, what arrived is not sent twice"
        ) from error
    return commit.commit_url


def check_repository(repo_id: str) -> None:
    """Raise ValueError where a name is not that of a repository, user/name."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r}: {error}; give user/name, as the Hub has it") from error
    if "/" not in repo_id:
        raise ValueError(f"{repo_id!r}: has no user; give user/name, as the Hub has it")


def files_to_push(folder: Path, repo_type: str) -> dict[str, Path]:
    """The files of a model or a Space by their path in the repository; a warning names what is neither.

    Raises:
        ValueError: there are none.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {name: path for name, path in paths.items() if repo_type == "space" or is_part_of_model(name)}
    if not files:
        raise ValueError(f"{folder}: holds no file to push; give the folder of a saved model")
    if left := [name for name in paths if name not in files and name != TRAINING_ARGUMENTS]:
        logger.warning("%s: not pushed, as they are no part of a model: %s", folder, ", ".join(left))
    return files


def is_part_of_model(path: str) -> bool:
    """Tell whether a file, by its path in the folder, belongs to a model or to its tokenizers."""
    folder, _, name = path.rpartition("/")
    patterns = {"": PUSHED, TARGET_FOLDER: TOKENIZER}.get(folder, ())
    return not name.startswith(".") and any(fnmatch(name, pattern) for pattern in patterns)


def is_stale(path: str, files: dict[str, Path], repo_type: str = "model") -> bool:
    """Tell whether a file of the repository is a left-over of an earlier model, or of a Space's earlier package."""
    patterns = [one for one in REPLACED[repo_type] if "/" in one or "/" not in path]  # `*` matches / as well
    return path not in files and any(fnmatch(path, pattern) for pattern in patterns)
