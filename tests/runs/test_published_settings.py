"""The recipes and grids of the papers' own size against the published settings, each with its source.

VD: Liu et al. 2020, arXiv 2008.07772. DL: Wang et al. 2019, arXiv 1906.01787. TC: LiyuanLucasLiu/Transformer-Clinic.
DN: microsoft/deepnmt. DLc: wangqiangneu/dlcl. SN: fairseq, examples/scaling_nmt.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from admin_nmt.runs.grids import Grid, load_grid
from admin_nmt.runs.recipe import Recipe, load_recipe

TRAINING = Path(__file__).parents[2] / "training"
GPUS = 8  # of the launch line that each of these files shows

VD_SIZE = {"d_model": 512, "ffn": 2048, "heads": 8}
BIG_SIZE = {"d_model": 1024, "ffn": 4096, "heads": 16}
VD_RUN = {"optimizer": "radam", "beta2": 0.98, "schedule": "inverse_sqrt", "clipping": 0.0, "smoothing": 0.1}
DL_RUN = VD_RUN | {"optimizer": "adam"}
VD_DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}  # TC wmt14_en-{de,fr}.md; DN
LAST_10 = {"save": "epoch", "average": 10, "always": True, "bleu": "liu2020"}  # TC, DN: their eval scripts
LAST_5 = {"save": "epoch", "average": 5, "always": True, "bleu": "wang2019"}  # DL 4.1; DLc
EN_DE = {"beam": 4, "length_penalty": 0.6}  # TC eval_wmt_en-de.sh; DLc
NO_FILTER = {"drop_copies": False, "drop_duplicates": False, "drop_held_out": None}  # no preparation script has one
MOSES_CLEAN = NO_FILTER | {"ratio_slack": 0, "longest_word": 1000}  # clean-corpus-n.perl
UP_TO_80 = MOSES_CLEAN | {"max_words": 80, "max_ratio": 9, "count": "words"}  # without -ratio: its default
SUBWORD = {"kind": "subword_nmt", "threshold": None, "split_final_dots": True}
NORMALISED = SUBWORD | {"normalize_punctuation": True, "aggressive_hyphens": True}
# TC pre-process/wmt14en-de.sh; SN: --nwordssrc
EN_DE_TEXT = UP_TO_80 | NORMALISED | {"merges": 32_764, "vocab_size": 32_768}
EN_FR_TEXT = (  # TC pre-process/wmt14en-fr.sh, after fairseq's prepare-wmt14en2fr.sh
    MOSES_CLEAN | NORMALISED
    | {"valid_every": 1333, "max_ratio": 1.5, "max_words": 250, "count": "subwords"}
    | {"merges": 40_000, "vocab_size": 44_512}
)  # fmt: skip
# google/seq2seq bin/data/wmt16_en_de.sh (tokenizer.perl -q -l, clean 1 80, bpe.32000); DLc runs/prepare-wmt-en2de.sh
GOOGLE_TEXT = (
    UP_TO_80 | SUBWORD
    | {"normalize_punctuation": False, "aggressive_hyphens": False, "split_final_dots": False}
    | {"merges": 32_000, "threshold": 5}
)  # fmt: skip

VD_EN_DE = (  # VD footnote 8; SN: 16 batches accumulated
    VD_SIZE | VD_RUN | VD_DROPOUT | LAST_10 | EN_DE | EN_DE_TEXT
    | {"tokens": 458_752, "lr": 1e-3, "warmup": 4000, "epochs": 50}
)  # fmt: skip
VD_EN_FR = (  # VD footnote 8; SN; DN nmt_eval/eval_enfr.sh
    VD_SIZE | VD_RUN | VD_DROPOUT | LAST_10 | EN_FR_TEXT
    | {"tokens": 458_752, "lr": 7e-4, "warmup": 8000, "epochs": 50, "beam": 10, "length_penalty": 1.0}
)  # fmt: skip
TC_EN_DE = {"tokens": 32_768, "lr": 1e-3, "warmup": 8000, "epochs": 100}  # TC wmt14_en-de.md
TC_EN_FR = {"beam": 5, "length_penalty": 0.8, "lr": 7e-4, "warmup": 8000}  # TC wmt14_en-fr.md, eval_wmt_en-fr.sh

DL_ALL = LAST_5 | EN_DE | GOOGLE_TEXT | {"dropout": 0.1}
PRE_LN = DL_RUN | {"beta2": 0.997, "attention_dropout": 0.1, "activation_dropout": 0.1}  # DL 4.2; DLc
POST_LN = DL_RUN | {"attention_dropout": 0.0, "activation_dropout": 0.0}  # DL 4.2; DLc dlcl_transformer.py
DEEP = VD_SIZE | {"tokens": 65_536, "lr": 2e-3, "warmup": 16_000, "updates": 50_000}  # DL 4.2
BASE = VD_SIZE | {"tokens": 32_768, "updates": 100_000}  # DL 4.2
BIG = BIG_SIZE | {"tokens": 32_768, "updates": 300_000, "dropout": 0.3}  # DL 4.2
PRE_BASE, POST_BASE = BASE | {"lr": 1e-3, "warmup": 8000}, BASE | {"lr": 7e-4, "warmup": 4000}  # DL 4.2
PRE_BIG, POST_BIG = BIG | {"lr": 7e-4, "warmup": 8000}, BIG | {"lr": 5e-4, "warmup": 4000}  # DL 4.2

PUBLISHED: dict[str, dict[str, Any]] = {
    "wmt14-en-de-6-6": VD_EN_DE | {"variant": "admin", "depth": (6, 6)},  # VD table 1
    "wmt14-en-de-60-12": VD_EN_DE | {"variant": "admin", "depth": (60, 12)},  # VD table 1
    "wmt14-en-fr-6-6": VD_EN_FR | {"variant": "admin", "depth": (6, 6)},  # VD table 1
    "wmt14-en-fr-60-12": VD_EN_FR | {"variant": "admin", "depth": (60, 12)},  # VD table 1
    "wmt14-en-de-dlcl-30-6": DL_ALL | PRE_LN | DEEP | {"variant": "dlcl_pre_ln", "depth": (30, 6)},  # DL table 1
    "wmt14-en-de-settings/scaling_nmt-60-12": VD_EN_DE | {"depth": (60, 12)},
    "wmt14-en-de-settings/clinic-6-6": VD_EN_DE | TC_EN_DE | {"depth": (6, 6)},
    "wmt14-en-de-settings/clinic-18-18": VD_EN_DE | TC_EN_DE | {"depth": (18, 18)},
    "wmt14-en-de-settings/clinic-100-100": VD_EN_DE | TC_EN_DE | {"depth": (100, 100)},
    "wmt14-en-fr-settings/scaling_nmt-60-12": VD_EN_FR | {"depth": (60, 12)},
    "wmt14-en-fr-settings/clinic-6-6": VD_EN_FR | TC_EN_FR | {"tokens": 640_000, "depth": (6, 6)},
    "wmt14-en-fr-settings/clinic-60-12": VD_EN_FR | TC_EN_FR | {"tokens": 1_280_000, "depth": (60, 12)},
    # DN run_wmt14_en_fr.sh, on 16 GPUs
    "wmt14-en-fr-settings/deepnmt-60-12": VD_EN_FR | {"tokens": 409_600, "lr": 1e-3, "dropout": 0.2},
    # DL tables 1 and 2
    "wmt14-en-de-variants/post_ln-6-6": DL_ALL | POST_LN | POST_BASE | {"variant": "post_ln", "depth": (6, 6)},
    "wmt14-en-de-variants/pre_ln-6-6": DL_ALL | PRE_LN | PRE_BASE | {"variant": "pre_ln", "depth": (6, 6)},
    "wmt14-en-de-variants/dlcl_post_ln-6-6": DL_ALL | POST_LN | POST_BASE | {"variant": "dlcl_post_ln"},
    "wmt14-en-de-variants/dlcl_pre_ln-6-6": DL_ALL | PRE_LN | PRE_BASE | {"variant": "dlcl_pre_ln"},
    "wmt14-en-de-variants/big-post_ln-6-6": DL_ALL | POST_LN | POST_BIG | {"variant": "post_ln", "depth": (6, 6)},
    "wmt14-en-de-variants/big-pre_ln-6-6": DL_ALL | PRE_LN | PRE_BIG | {"variant": "pre_ln", "depth": (6, 6)},
    "wmt14-en-de-variants/post_ln-6-6-deep-settings": DL_ALL | POST_LN | DEEP | {"depth": (6, 6)},  # DL table 7
    "wmt14-en-de-variants/post_ln-20-6": DL_ALL | POST_LN | DEEP | {"variant": "post_ln", "depth": (20, 6)},
    "wmt14-en-de-variants/dlcl_post_ln-25-6": DL_ALL | POST_LN | DEEP | {"variant": "dlcl_post_ln", "depth": (25, 6)},
    "wmt14-en-de-variants/pre_ln-20-6": DL_ALL | PRE_LN | DEEP | {"variant": "pre_ln", "depth": (20, 6)},
    "wmt14-en-de-variants/pre_ln-30-6": DL_ALL | PRE_LN | DEEP | {"variant": "pre_ln", "depth": (30, 6)},
    "wmt14-en-de-variants/dlcl_pre_ln-30-6": DL_ALL | PRE_LN | DEEP | {"variant": "dlcl_pre_ln", "depth": (30, 6)},
    # DL table 5
    **{f"wmt14-en-de-decoder-depth/pre_ln-6-{n}": DL_ALL | PRE_LN | PRE_BASE | {"depth": (6, n)} for n in (4, 6, 8)},
    # DN transformer_layer.py: its ω are parameters
    "wmt14-en-de-omega/profile_reference-trained": VD_EN_DE | {"omega": "profile_reference", "trained": True},
}


@cache
def grid(name: str) -> Grid:
    return load_grid(TRAINING / "grids" / f"{name}.yaml")


def recipe_of(name: str) -> Recipe:
    file, _, system = name.partition("/")
    if not system:
        return load_recipe(TRAINING / "recipes" / f"{file}.yaml")
    return next(run for run in grid(file).runs() if run.system == system).recipe()


def settings(recipe: Recipe) -> dict[str, Any]:
    """What the sources state, in their terms."""
    model, training, evaluation = recipe.model, recipe.training, recipe.evaluation
    assert recipe.data.cleaning is not None
    both = {name: f"{{}}coder_{field}" for name, field in (("ffn", "ffn_dim"), ("heads", "attention_heads"))}
    sizes = {name: [getattr(model, field.format(side)) for side in ("en", "de")] for name, field in both.items()}
    assert all(encoder == decoder for encoder, decoder in sizes.values())
    return {
        "variant": model.variant,
        "depth": (model.encoder_layers, model.decoder_layers),
        "d_model": model.d_model,
        **{name: encoder for name, (encoder, _) in sizes.items()},
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "smoothing": model.label_smoothing,
        "omega": model.omega_rule,
        "trained": model.train_omega,
        "tokens": training.max_tokens * training.gradient_accumulation_steps * GPUS,
        "optimizer": training.optimizer,
        "beta2": training.adam_beta2,
        "schedule": training.lr_scheduler_type,
        "clipping": training.max_grad_norm,
        "lr": training.learning_rate,
        "warmup": training.warmup_steps,
        "updates": training.max_steps,
        "epochs": training.num_train_epochs,
        "save": training.save_strategy,
        "average": evaluation.average_last,
        "always": evaluation.always_average,
        "bleu": evaluation.published_bleu,
        "beam": evaluation.num_beams,
        "length_penalty": evaluation.length_penalty,
        **{name: getattr(recipe.tokenizer, name) for name in type(recipe.tokenizer).model_fields},
        "valid_every": recipe.data.valid_every,
        **{name: getattr(recipe.data.cleaning, name) for name in type(recipe.data.cleaning).model_fields},
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_settings_are_the_published_ones(name):
    found = settings(recipe_of(name))
    assert {setting: found[setting] for setting in PUBLISHED[name]} == PUBLISHED[name]


def test_wang_et_al_average_three_runs():
    """DL section 4.1."""
    assert grid("wmt14-en-de-variants").seeds == grid("wmt14-en-de-decoder-depth").seeds == [1, 2, 3]


def test_every_recipe_of_the_papers_size_is_compared():
    names = {path.stem for path in (TRAINING / "recipes").glob("wmt14-*.yaml")}
    assert names and names <= set(PUBLISHED)
