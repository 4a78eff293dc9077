"""Registers our classes without importing transformers: each group as soon as the module that holds its Auto class has
been imported.

Loading transformers and torch takes seconds, which `admin-nmt --help` should not cost. A release of transformers that
is too old is refused when it is about to be imported: pip keeps to this package's bound only while it installs it.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import local
from types import ModuleType
from typing import Any

WATCHED = ("transformers", "admin_nmt")
OLDEST_TRANSFORMERS = "5.10.1"  # as in setup.cfg


def refuse_old_release(found: str) -> None:
    """Look at a release of transformers, such as `5.23.0` or `6.0.0.dev0`.

    Raises:
        ImportError: it is too old; the message says what to do.
    """
    from packaging.version import Version  # which transformers brings along

    if Version(found) < Version(OLDEST_TRANSFORMERS):
        raise ImportError(
            f"transformers {found} is too old for admin_nmt, which needs {OLDEST_TRANSFORMERS} or newer: "
            f"pip install --upgrade 'transformers>={OLDEST_TRANSFORMERS},<6'"
        )


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
    from .data.tokenization.fairseq_tokenizer import FairseqTokenizer
    from .model.configuration_admin import AdminConfig

    # Models trained here name the stock class in their tokenizer_config.json; those of fairseq need this one.
    auto.AutoTokenizer.register(AdminConfig, slow_tokenizer_class=FairseqTokenizer, exist_ok=True)


# What is still to be registered, by the module that holds the Auto class.
WAITING: dict[str, Callable[[Any], None]] = {
    "transformers.models.auto.configuration_auto": _register_config,
    "transformers.models.auto.modeling_auto": _register_models,
    "transformers.models.auto.tokenization_auto": _register_tokenizer,
}


def register_loaded() -> None:
    """Register with the Auto classes that are loaded, and with those that our own classes load meanwhile."""
    while loaded := [name for name in list(WAITING) if name in sys.modules]:
        for name in loaded:
            if register := WAITING.get(name):  # another thread may have been faster
                register(import_module(name))
                WAITING.pop(name, None)


class ImportWatcher(MetaPathFinder):
    """Registers what has been loaded, after each import of a module of transformers or of this package.

    Modules of transformers import each other and the Auto classes, and our classes import them, so that in the middle
    of an import there may be only half a module. Registration therefore waits until the outermost of these imports has
    ended. When nothing is left to register, imports are watched no more.
    """

    def __init__(self) -> None:
        self.imports = local()  # `depth`: how many imports of watched modules this thread is inside

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module as the other finders find it, whose import this watcher notices."""
        if fullname.partition(".")[0] not in WATCHED:
            return None
        if fullname == "transformers":
            # Takes half as long as this whole package.
            from importlib.metadata import PackageNotFoundError, version

            with suppress(PackageNotFoundError):  # a checkout, or none
                refuse_old_release(version("transformers"))
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        # The loader stays what it is, for the module shows it as its own, and others ask its type and its other methods
        # (sources, resources); a loader of ours around it would have to answer for all of them.
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with self.inside_import():
                execute(module)

        loader.exec_module = exec_module

    @contextmanager
    def inside_import(self) -> Iterator[None]:
        """Counts how deep the imports of this thread are; registers when the outermost has succeeded."""
        self.imports.depth = getattr(self.imports, "depth", 0) + 1
        try:
            yield
            if self.imports.depth == 1:
                register_loaded()
        finally:
            self.imports.depth -= 1
        if not WAITING:
            with suppress(ValueError):  # it was removed before
                sys.meta_path.remove(self)


def register_auto_classes() -> None:
    """Make AutoConfig, AutoModel, AutoModelForSeq2SeqLM and AutoTokenizer know this package's classes.

    Raises:
        ImportError: transformers is loaded and too old.
    """
    if "transformers" in sys.modules:
        refuse_old_release(sys.modules["transformers"].__version__)
    register_loaded()
    if WAITING:
        sys.meta_path.insert(0, ImportWatcher())
