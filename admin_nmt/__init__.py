"""Very deep Transformers for neural machine translation that train, fold and run as stock transformers models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .registration import is_command_line, register_auto_classes

if TYPE_CHECKING:
    from .decoding.translator import Translator
    from .model.configuration_admin import AdminConfig
    from .model.modeling_admin import AdminForConditionalGeneration, AdminModel
    from .trainer.admin_trainer import AdminTrainer
    from .trainer.arguments import AdminTrainingArguments
    from .weights.exporting import export_standard, standard_model
    from .weights.fairseq_weights import convert_fairseq
    from .weights.folding import fold_omega
    from .weights.profiling import profile_omega

__all__ = [
    "AdminConfig",
    "AdminForConditionalGeneration",
    "AdminModel",
    "AdminTrainer",
    "AdminTrainingArguments",
    "Translator",
    "convert_fairseq",
    "export_standard",
    "fold_omega",
    "profile_omega",
    "standard_model",
]

# Where the public names are; each module is loaded when one of its names is first used.
_MODULES = {
    "AdminConfig": "model.configuration_admin",
    "AdminForConditionalGeneration": "model.modeling_admin",
    "AdminModel": "model.modeling_admin",
    "AdminTrainer": "trainer.admin_trainer",
    "AdminTrainingArguments": "trainer.arguments",
    "Translator": "decoding.translator",
    "convert_fairseq": "weights.fairseq_weights",
    "export_standard": "weights.exporting",
    "fold_omega": "weights.folding",
    "profile_omega": "weights.profiling",
    "standard_model": "weights.exporting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not is_command_line():
    register_auto_classes()
