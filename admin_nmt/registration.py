"""Registers our classes with transformers' Auto classes.

`import admin_nmt` does so at once, with one exception: registering loads torch and transformers, some four seconds,
which `admin-nmt --help` should not cost. transformers has no entry points for models of other packages, and its lazy
tables of names load modules of its own folder alone, so there is nothing that could be registered without loading it;
and whatever the command line's first module is, `admin_nmt/__init__.py` runs before. So that file asks whether the
process was started as the command line, whose commands register before they load a model (`quiet` in
`admin_nmt.cli.output`).
"""

import sys
from itertools import pairwise
from pathlib import Path

OLDEST_TRANSFORMERS = "transformers>=5.10.1"  # as in setup.cfg, which pip looks at only while it installs this package


def is_command_line() -> bool:
    """Tell whether this process was started as `admin-nmt` or `python -m admin_nmt`, or by such a process."""
    script = Path(sys.argv[0])
    is_ours = script.stem == "admin-nmt" or script.parts[-2:] == ("admin_nmt", "__main__.py")
    return is_ours or ("-m", "admin_nmt") in pairwise(sys.orig_argv)


def register_auto_classes() -> None:
    """Makes AutoConfig, AutoModel, AutoModelForSeq2SeqLM and AutoTokenizer know this package's classes.

    Raises:
        ImportError: the release of transformers is too old.
    """
    from transformers.utils.versions import require_version

    require_version(OLDEST_TRANSFORMERS, f"admin_nmt needs it: pip install --upgrade '{OLDEST_TRANSFORMERS},<6'")
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.models.auto import modeling_auto

    from .data.tokenization.fairseq_tokenizer import FairseqTokenizer
    from .model.configuration_admin import AdminConfig
    from .model.modeling_admin import AdminForConditionalGeneration, AdminModel

    AutoConfig.register("admin", AdminConfig, exist_ok=True)
    AutoModel.register(AdminConfig, AdminModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(AdminConfig, AdminForConditionalGeneration, exist_ok=True)
    # Code of transformers that goes by class names looks these two up.
    modeling_auto.MODEL_MAPPING_NAMES["admin"] = "AdminModel"
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["admin"] = "AdminForConditionalGeneration"
    # Models trained here name the stock class in their tokenizer_config.json; those of fairseq need this one.
    AutoTokenizer.register(AdminConfig, slow_tokenizer_class=FairseqTokenizer, exist_ok=True)
