from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from admin_nmt.weights.averaging import average_checkpoints


def checkpoint(output_dir: Path, step: int, **tensors: Tensor) -> Path:
    folder = output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mean_is_exact_in_the_stored_type(tmp_path: Path, dtype: torch.dtype) -> None:
    """Of floats; integers stay."""
    weights, position = [torch.randn(50, 7).to(dtype) for _ in range(5)], torch.tensor([3, 4])
    folders = [checkpoint(tmp_path, step, weight=weight, position=position) for step, weight in enumerate(weights)]
    mean = average_checkpoints(folders)
    assert mean["weight"].dtype == dtype
    assert torch.equal(mean["weight"], torch.stack(weights).double().mean(dim=0).to(dtype))
    assert torch.equal(mean["position"], position)


def test_sharded_and_single_files_of_a_model_average_alike(tmp_path: Path, tiny_model) -> None:
    models = [tiny_model() for _ in range(2)]
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
    ("other", "named"),
    [
        ({"weight": torch.ones(2), "bias": torch.ones(1), "extra": torch.ones(1)}, "extra"),
        ({"weight": torch.ones(3), "bias": torch.ones(1)}, "weight"),
        ({"weight": torch.ones(2).half(), "bias": torch.ones(1)}, "weight"),
        ({"weight": torch.ones(2), "bias": torch.ones(1), "position": torch.tensor([2])}, "position"),
        (None, r"checkpoint-2/model\.safetensors"),
    ],
)
def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path, other: dict[str, Tensor] | None, named: str) -> None:
    """As those of another model, or with a damaged file."""
    position = {"position": torch.tensor([1])}
    folders = [
        checkpoint(tmp_path, 1, weight=torch.ones(2), bias=torch.ones(1), **position),
        checkpoint(tmp_path, 2, **position | (other or {})),
    ]
    if other is None:
        (folders[1] / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=named):
        average_checkpoints(folders)
