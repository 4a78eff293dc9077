"""Fixtures that every test may use: tiny models, and the folder of references where it is there."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# One thread for every process, before torch is imported: the workers share the cores already, and threads that wait for
# each other on a busy core make small products many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

if TYPE_CHECKING:  # the process that distributes tests to others never loads these
    import torch
    from hub_server import HubServer
    from transformers import PreTrainedTokenizerFast

    from admin_nmt import AdminConfig, AdminForConditionalGeneration

hypothesis.settings.register_profile("untimed", deadline=None)  # busy machines are slow, not wrong
hypothesis.settings.load_profile("untimed")

SHARED = Path(os.environ.get("ADMIN_NMT_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of references and data; the test is skipped where it is absent."""
    if not (SHARED / "reference").is_dir():
        pytest.skip(f"needs the shared references, which are not at {SHARED} (set ADMIN_NMT_SHARED)")
    return SHARED


@pytest.fixture(scope="module", autouse=True)
def less_to_collect() -> None:
    """Spare the modules the garbage collection that begins each training: their objects make half of its time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fixed_seed():
    """Each test starts from one seed, which is shifted as the toy data's are."""
    import torch
    from toy import SHIFT

    torch.manual_seed(SHIFT)


@pytest.fixture
def tiny_config() -> Callable[..., "AdminConfig"]:
    """Builds a configuration of width 16, 3 + 2 layers and 99 tokens; keyword arguments override its fields."""
    from toy import small_config

    return small_config


@pytest.fixture
def tiny_model(tiny_config) -> Callable[..., "AdminForConditionalGeneration"]:
    """Builds a model of `tiny_config` whose LayerNorms and ω are random, in evaluation mode."""
    from toy import randomised

    from admin_nmt import AdminForConditionalGeneration

    def build(**fields) -> AdminForConditionalGeneration:
        return randomised(AdminForConditionalGeneration(tiny_config(**fields)))

    return build


@pytest.fixture(scope="session")
def tokenizer() -> "PreTrainedTokenizerFast":
    """The tokenizer of `random_texts`, of 300 pieces."""
    from toy import toy_tokenizer

    return toy_tokenizer()


@pytest.fixture
def model_folder(tmp_path, tiny_model, tokenizer) -> Path:
    """The folder of a tiny ADMIN model with its tokenizer, tmp_path/model."""
    from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers

    tiny_model(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "model")
    save_tokenizers(tmp_path / "model", tokenizer)
    return tmp_path / "model"


@pytest.fixture
def batch() -> "dict[str, torch.Tensor]":
    """Three right-padded pairs over the 99 tokens of `tiny_config`."""
    import torch

    source, labels = torch.randint(2, 98, (3, 9)), torch.randint(2, 98, (3, 7))
    source[:, -1] = labels[:, -1] = 0
    source[1, 5:], labels[1, 4:] = 98, -100
    source[1, 4] = labels[1, 3] = 0
    return {"input_ids": source, "attention_mask": source.ne(98).long(), "labels": labels}


@pytest.fixture
def hub(monkeypatch) -> "Iterator[HubServer]":
    """A Hub in memory, which the client of this process talks to; it does not wait between its attempts."""
    from hub_server import TOKEN, HubServer, client_settings

    with HubServer() as server:
        for name, value in client_settings(server.url).items():
            monkeypatch.setattr(name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
