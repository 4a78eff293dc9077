"""ω of each sublayer, in a model and in the folder of one; a sublayer has a name such as `encoder 0 self_attn`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from safetensors import safe_open
from torch import Tensor, nn

from ..model.configuration_admin import AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration, AdminStack
from ..model.residual import AdminPostNorm
from ..model.sublayers import SUBLAYERS, count_layers
from ..system.processes import gather_shards


def sublayer_names(config: AdminConfig) -> list[str]:
    """All sublayers of a model in the order in which they run."""
    return [
        f"{stack} {layer} {sublayer}"
        for stack, sublayers in SUBLAYERS.items()
        for layer in range(count_layers(config, stack))
        for sublayer in sublayers
    ]


def omega_keys(config: AdminConfig) -> dict[str, str]:
    """Keys of ω in the state dict of a translation model, by sublayer in the order in which they run."""
    names = [name.split() for name in (sublayer_names(config) if config.has_omega else [])]
    return {" ".join(name): "model.{}.layers.{}.{}_residual.omega".format(*name) for name in names}


def omega_by_sublayer(model: AdminForConditionalGeneration) -> dict[str, Tensor]:
    """ω [d] of each sublayer of a model in the order in which they run; none without ω."""
    return {name: model.get_parameter_or_buffer(key).detach() for name, key in omega_keys(model.config).items()}


def mean_omega(model: Any) -> dict[str, list[float]]:
    """Mean ω of each sublayer of `encoder` and `decoder` in the order in which they run; empty for a model without ω.

    Every process of a sharded model calls it.
    """
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # of one with adapters
    means: dict[str, list[float]] = {}
    if getattr(model.config, "has_omega", False):
        for sublayer, omega in omega_by_sublayer(model).items():
            means.setdefault(sublayer.split()[0], []).append(float(gather_shards(omega).mean()))
    return means


def stored_omega(folder: Path, config: AdminConfig) -> dict[str, Tensor]:
    """ω [d] of each sublayer in the weights of a folder, float32, in the order in which they run."""
    keys = omega_keys(config)
    found: dict[str, Tensor] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            stored = set(file.keys())
            found |= {name: file.get_tensor(key).float() for name, key in keys.items() if key in stored}
    return {name: found[name] for name in keys if name in found}


def write_omega(model: AdminForConditionalGeneration, omega: Mapping[str, list[float]]) -> None:
    """Give a model ω of the encoder's and the decoder's sublayers: {"encoder": [...], "decoder": [...]}."""
    for stack, values in omega.items():
        blocks = cast(AdminStack, getattr(model.model, stack)).residual_blocks()
        for block, value in zip(blocks, values, strict=True):
            nn.init.constant_(cast(AdminPostNorm, block).omega, value)
