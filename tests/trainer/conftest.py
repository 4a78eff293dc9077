"""Arguments and models of short trainings."""

from collections.abc import Callable

import pytest
import torch

from admin_nmt import AdminForConditionalGeneration, AdminTrainingArguments


@pytest.fixture
def arguments(tmp_path) -> Callable[..., AdminTrainingArguments]:
    """Builds arguments of six quiet updates on a CPU, in a folder of tmp_path; keyword arguments override them."""

    def build(folder: str = "run", **fields) -> AdminTrainingArguments:
        small = {"output_dir": str(tmp_path / folder), "max_tokens": 40, "profile_tokens": 60, "max_steps": 6}
        schedule = {"learning_rate": 1e-2, "warmup_steps": 2, "save_strategy": "no", "logging_steps": 1}
        quiet = {"eval_bleu": False, "generation_num_beams": 2, "disable_tqdm": True, "use_cpu": True}
        return AdminTrainingArguments(**small | schedule | quiet | {"report_to": "none"} | fields)

    return build


@pytest.fixture
def new_model(tiny_config) -> Callable[..., AdminForConditionalGeneration]:
    """Builds a 2-1 model that is the same at every call, and profiled in training if not told otherwise."""

    def build(**fields) -> AdminForConditionalGeneration:
        torch.manual_seed(1)
        return AdminForConditionalGeneration(
            tiny_config(**{"encoder_layers": 2, "decoder_layers": 1, "omega_rule": "profile"} | fields)
        )

    return build
