from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from admin_nmt.weights.averaging import average_checkpoints


def checkpoint(output_dir: Path, step: int, **tensors: Tensor) -> Path:
    folder = output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    save_file(tensors or {"weight": torch.zeros(2)}, folder / "model.safetensors")
    return folder


def test_mean_of_floats_and_equal_integers(tmp_path: Path) -> None:
    folders = [
        checkpoint(tmp_path, step, weight=torch.tensor([1.0, 2.0]) * step, position=torch.tensor([3, 4]))
        for step in (1, 2, 6)
    ]
    mean = average_checkpoints(folders)
    assert mean["weight"].tolist() == [3.0, 6.0]
    assert mean["position"].tolist() == [3, 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mean_is_exact_in_the_stored_type(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(50, 7).to(dtype) for _ in range(5)]
    folders = [checkpoint(tmp_path, step, weight=weight) for step, weight in enumerate(weights)]
    mean = average_checkpoints(folders)["weight"]
    assert mean.dtype == dtype
    assert torch.equal(mean, torch.stack(weights).double().mean(dim=0).to(dtype))


@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_mean_of_one_checkpoint_repeated_is_that_checkpoint(
    values: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    weight = torch.tensor(values)
    folder = checkpoint(tmp_path_factory.mktemp("run"), 1, weight=weight)
    assert torch.equal(average_checkpoints([folder] * 3)["weight"], weight)


def test_sharded_and_single_files_of_a_model_average_alike(tmp_path: Path) -> None:
    config = MarianConfig(
        vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, pad_token_id=49,
    )  # fmt: skip
    torch.manual_seed(0)
    models = [MarianMTModel(config) for _ in range(2)]
    for number, model in enumerate(models):
        model.save_pretrained(tmp_path / f"single-{number}")
        model.save_pretrained(tmp_path / f"sharded-{number}", max_shard_size="10KB")
    assert len(list((tmp_path / "sharded-0").glob("model-*.safetensors"))) > 1

    single = average_checkpoints([tmp_path / "single-0", tmp_path / "single-1"])
    sharded = average_checkpoints([tmp_path / "sharded-0", tmp_path / "sharded-1"])
    assert single.keys() == sharded.keys()
    assert all(torch.equal(single[name], sharded[name]) for name in single)

    embeddings = [model.model.shared.weight for model in models]
    torch.testing.assert_close(single["model.shared.weight"], (embeddings[0] + embeddings[1]) / 2)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"weight": torch.ones(2)}, "bias is in .*checkpoint-1 but not in .*checkpoint-2"),
        ({"weight": torch.ones(2), "bias": torch.ones(1), "extra": torch.ones(1)}, "extra is in .*checkpoint-2"),
        ({"weight": torch.ones(3), "bias": torch.ones(1)}, r"weight is torch.float32 \[3\] in .*checkpoint-2"),
        ({"weight": torch.ones(2).half(), "bias": torch.ones(1)}, "weight is torch.float16"),
    ],
)
def test_checkpoints_of_different_models_are_refused(tmp_path: Path, other: dict[str, Tensor], message: str) -> None:
    folders = [
        checkpoint(tmp_path, 1, weight=torch.ones(2), bias=torch.ones(1)),
        checkpoint(tmp_path, 2, **other),
    ]
    with pytest.raises(ValueError, match=message):
        average_checkpoints(folders)


def test_integers_that_differ_are_refused(tmp_path: Path) -> None:
    folders = [checkpoint(tmp_path, step, position=torch.tensor([step])) for step in (1, 2)]
    with pytest.raises(ValueError, match="position holds integers that differ"):
        average_checkpoints(folders)


@pytest.mark.parametrize("damage", ["truncate", "empty", "remove"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    folders = [checkpoint(tmp_path, step, weight=torch.randn(100)) for step in (1, 2)]
    file = folders[1] / "model.safetensors"
    content = file.read_bytes()
    file.unlink()
    if damage != "remove":
        file.write_bytes(content[:-20] if damage == "truncate" else b"")
    with pytest.raises(ValueError, match=r"checkpoint-2/model\.safetensors is missing or damaged"):
        average_checkpoints(folders)


def test_nothing_to_average_is_refused() -> None:
    with pytest.raises(ValueError, match="no checkpoint to average"):
        average_checkpoints([])
