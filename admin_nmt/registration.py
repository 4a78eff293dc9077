"""The Auto classes of transformers know this package's classes, without transformers being loaded for it.

Loading transformers and torch takes seconds, which `admin-nmt --help` should not cost. So the classes are registered as
soon as the module that holds an Auto class is there: at once if it is, else when somebody imports it.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import local
from types import ModuleType
from typing import Any

WATCHED = ("transformers", "admin_nmt")


def _register_config(auto: Any) -> None:
    from .model.configuration_admin import AdminConfig

    auto.AutoConfig.register("admin", AdminConfig, exist_ok=True)


def _register_models(auto: Any) -> None:
    from .model.configuration_admin import AdminConfig
    from .model.modeling_admin import AdminForConditionalGeneration, AdminModel

    auto.AutoModel.register(AdminConfig, AdminModel, exist_ok=True)
    auto.AutoModelForSeq2SeqLM.register(AdminConfig, AdminForConditionalGeneration, exist_ok=True)
    # Code of transformers that goes by class names looks these two up.
    auto.MODEL_MAPPING_NAMES["admin"] = "AdminModel"
    auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["admin"] = "AdminForConditionalGeneration"


def _register_tokenizer(auto: Any) -> None:
    from .model.configuration_admin import AdminConfig
    from .tokenization.fairseq_tokenizer import FairseqTokenizer

    # Models trained here name the stock class in their tokenizer_config.json; those of fairseq need this one.
    auto.AutoTokenizer.register(AdminConfig, slow_tokenizer_class=FairseqTokenizer, exist_ok=True)


class Registration(MetaPathFinder):
    """Registers with every Auto class whose module is loaded, and waits for the modules that are not.

    Modules of transformers import each other and the Auto classes, and our classes import them, so that in the middle
    of an import there may be only half a module. Registration therefore waits until the outermost import of a module of
    transformers or of this package has ended. When all are registered, imports are watched no more.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[Any], None]] = {
            "transformers.models.auto.configuration_auto": _register_config,
            "transformers.models.auto.modeling_auto": _register_models,
            "transformers.models.auto.tokenization_auto": _register_tokenizer,
        }
        self.imports = local()  # `depth`: how many imports of watched modules this thread is inside

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module as the other finders find it, with a registration after its import."""
        if fullname.partition(".")[0] not in WATCHED:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            self._register_after(spec.loader)
        return spec

    def _register_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with self:
                execute(module)

        loader.exec_module = exec_module

    def __enter__(self) -> None:
        self.imports.depth = getattr(self.imports, "depth", 0) + 1

    def __exit__(self, *error: object) -> None:
        try:
            if self.imports.depth == 1 and error[0] is None:
                self.register()
        finally:
            self.imports.depth -= 1

    def register(self) -> None:
        """Register with the Auto classes that are loaded."""
        for name in [name for name in self.waiting if name in sys.modules]:
            register = self.waiting.pop(name, None)
            if register is not None:  # another thread may have been faster
                register(import_module(name))
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


def register_auto_classes() -> None:
    """Make AutoConfig, AutoModel, AutoModelForSeq2SeqLM and AutoTokenizer know this package's classes."""
    registration = Registration()
    sys.meta_path.insert(0, registration)
    registration.register()
