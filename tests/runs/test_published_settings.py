"""The recipes and grids of the papers' own size against the published settings, each with its source.

VD: Liu, Duh et al. 2020, arXiv 2008.07772. DL: Wang et al. 2019, arXiv 1906.01787.
TC: LiyuanLucasLiu/Transformer-Clinic. DN: microsoft/deepnmt. DLc: wangqiangneu/dlcl. SN: fairseq, examples/scaling_nmt.
Where a source is silent, the comment of the grid or recipe says so, and whose settings were taken instead.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from admin_nmt.experiments.grids import Grid, load_grid
from admin_nmt.runs.recipe import Recipe, load_recipe

TRAINING = Path(__file__).parents[2] / "training"
PAPERS = ("wmt14-", "wmt18-", "nist12-")  # what the names of files of the papers' size begin with
GPUS = 8  # of the launch line that each of these files shows

VD_SIZE = {"d_model": 512, "ffn": 2048, "heads": 8}
BIG_SIZE = {"d_model": 1024, "ffn": 4096, "heads": 16}
SIZE_768 = {"d_model": 768, "ffn": 3072, "heads": 12}  # VD table 2
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

ZH_EN = LAST_5 | {"bleu": None, "dropout": 0.1, "beam": 6, "length_penalty": 1.0} | NO_FILTER  # DL 4.1, unchecked
ZH_EN |= {"joint": False, "vocab_size": 44_000, "target_vocab_size": 33_000}  # DL 4.1
ZH_EN |= {"max_words": 100, "max_ratio": None}  # DL 4.1, unchecked
SMALL, LARGE = {"updates": 50_000}, {"updates": 200_000}  # DL 4.2 for Zh-En, unchecked; deep models take half of it
SMALL_DEEP, LARGE_DEEP = DEEP | {"updates": 25_000}, DEEP | {"updates": 100_000}


def cells(grid: str, common: dict[str, Any], systems: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings of some systems of a grid; `variant-6-6…` in a system's name says the first two."""
    return {f"{grid}/{name}": common | named(name) | own for name, own in systems.items()}


def named(system: str) -> dict[str, Any]:
    found = re.match(r"(?:big-)?(admin|(?:dlcl_|transparent_)?(?:pre|post)_ln)-(\d+)-(\d+)", system)
    return {"variant": found[1], "depth": (int(found[2]), int(found[3]))} if found else {}


def alike(settings: dict[str, Any], *systems: str) -> dict[str, dict[str, Any]]:
    return dict.fromkeys(systems, settings)


def zh_en(base: dict[str, Any], deep: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The cells of a Zh-En grid."""
    return {
        "post_ln-6-6": POST_LN | POST_BASE | base,
        "pre_ln-6-6": PRE_LN | PRE_BASE | base,
        "dlcl_post_ln-25-6": POST_LN | deep,
        **alike(PRE_LN | deep, "pre_ln-25-6", "dlcl_pre_ln-25-6"),
    }


def base_and_deep(variant: str, base: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The cells of DL table 7: shallow and deep models under the settings of both."""
    return {f"{variant}-{n}-6-{name}": own for n in (6, 20) for name, own in (("base", base), ("deep", DEEP))}


# With the vocabulary of the run without back-translation, so that nothing is said of a new one.
BACK_TRANSLATED = {name: value for name, value in VD_EN_FR.items() if name not in EN_FR_TEXT} | NO_FILTER
BACK_TRANSLATED |= {"valid_every": 1333, "max_ratio": 1.5, "ratio_slack": 0, "max_words": 250, "upsample": [1, 1]}
VD_TABLE_1 = ("post_ln-6-6", "admin-6-6", "post_ln-60-12", "admin-60-12", "pre_ln-60-12")
VD_TABLE_3 = [f"admin-{n}" for n in ("6-6", "12-12", "24-12", "48-12", "60-12", "36-36", "12-60")]
# Depths of figure 3, and below the rows of table 6: written down without the paper at hand, as their grids say.
DL_FIGURE_3 = [f"{variant}-{n}-6" for variant in ("pre_ln", "dlcl_pre_ln") for n in (16, 20, 25, 30, 35)]
SIXTEEN = "wmt14-en-de-transparent-attention"
AT_16 = {kind: [f"{model}{kind}_ln-16-6" for model in ("", "dlcl_", "transparent_")] for kind in ("pre", "post")}
DLCL_20 = {"variant": "dlcl_pre_ln", "depth": (20, 6)}
DL_TABLE_6 = {
    "dlcl": {"weights": "learned", "normalized": True},
    "no_norm": {"weights": "learned", "normalized": False},
    "ones": {"weights": "ones", "normalized": True},
    "average": {"weights": "average", "normalized": True},
    "average-no_norm": {"weights": "average", "normalized": False},
}
OMEGA_RULES = {
    "profile": {"omega": "profile", "trained": False},
    "profile_reference": {"omega": "profile_reference", "trained": False},
    "log_n": {"omega": "log_n", "trained": False},
    "n": {"omega": "n", "trained": False},
    "profile-trained": {"omega": "profile", "trained": True},
    "log_n-trained": {"omega": "log_n", "trained": True},
    "deepnorm": {"variant": "deepnorm"},
    "post_ln": {"variant": "post_ln"},
}

PUBLISHED: dict[str, dict[str, Any]] = {
    "wmt14-en-de-6-6": VD_EN_DE | {"variant": "admin", "depth": (6, 6)},  # VD table 1
    "wmt14-en-de-60-12": VD_EN_DE | {"variant": "admin", "depth": (60, 12)},  # VD table 1
    "wmt14-en-fr-6-6": VD_EN_FR | {"variant": "admin", "depth": (6, 6)},  # VD table 1
    "wmt14-en-fr-60-12": VD_EN_FR | {"variant": "admin", "depth": (60, 12)},  # VD table 1
    "wmt14-en-de-dlcl-30-6": DL_ALL | PRE_LN | DEEP | {"variant": "dlcl_pre_ln", "depth": (30, 6)},  # DL table 1
    "wmt14-en-de-settings/scaling_nmt-6-6": VD_EN_DE | {"depth": (6, 6)},
    "wmt14-en-de-settings/scaling_nmt-60-12": VD_EN_DE | {"depth": (60, 12)},
    "wmt14-en-de-settings/clinic-6-6": VD_EN_DE | TC_EN_DE | {"depth": (6, 6)},
    "wmt14-en-de-settings/clinic-18-18": VD_EN_DE | TC_EN_DE | {"depth": (18, 18)},
    "wmt14-en-de-settings/clinic-100-100": VD_EN_DE | TC_EN_DE | {"depth": (100, 100)},
    "wmt14-en-de-settings/clinic-60-12": VD_EN_DE | TC_EN_DE | {"depth": (60, 12)},
    "wmt14-en-fr-settings/scaling_nmt-6-6": VD_EN_FR | {"depth": (6, 6)},
    "wmt14-en-fr-settings/scaling_nmt-60-12": VD_EN_FR | {"depth": (60, 12)},
    "wmt14-en-fr-settings/clinic-6-6": VD_EN_FR | TC_EN_FR | {"tokens": 640_000, "depth": (6, 6)},
    "wmt14-en-fr-settings/clinic-60-12": VD_EN_FR | TC_EN_FR | {"tokens": 1_280_000, "depth": (60, 12)},
    # DN run_wmt14_en_fr.sh, on 16 GPUs
    "wmt14-en-fr-settings/deepnmt-60-12": VD_EN_FR | {"tokens": 409_600, "lr": 1e-3, "dropout": 0.2},
    # VD table 4: the settings of table 1, up-sampling 1
    "wmt14-en-fr-60-12-bt": BACK_TRANSLATED | {"variant": "admin", "depth": (60, 12)},
    **cells("wmt14-en-fr-back-translation", BACK_TRANSLATED, alike({}, "post_ln-6-6", "admin-6-6", "admin-60-12")),
    # VD table 1
    **cells("wmt14-en-de-default-admin", VD_EN_DE, alike({}, *VD_TABLE_1)),
    **cells("wmt14-en-fr-default-admin", VD_EN_FR, alike({}, *VD_TABLE_1)),
    # VD tables 2 and 3
    **cells("wmt14-en-fr-depths", VD_EN_FR, alike({}, *VD_TABLE_3)),
    **cells("wmt14-en-fr-depths", VD_EN_FR, alike(BIG_SIZE, "admin-12-12-big")),
    **cells("wmt14-en-fr-depths", VD_EN_FR, alike(SIZE_768, "admin-24-12-768", "admin-36-12-768")),
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
    # DL table 2
    **cells(SIXTEEN, DL_ALL | DEEP | PRE_LN, alike({}, *AT_16["pre"])),
    **cells(SIXTEEN, DL_ALL | DEEP | POST_LN, alike({}, *AT_16["post"])),
    # DL tables 3 and 4
    "nist12-zh-en-dlcl-25-6": ZH_EN | PRE_LN | SMALL_DEEP | {"variant": "dlcl_pre_ln", "depth": (25, 6)},
    "wmt18-zh-en-dlcl-25-6": ZH_EN | PRE_LN | LARGE_DEEP | {"variant": "dlcl_pre_ln", "depth": (25, 6)},
    **cells("nist12-zh-en-variants", ZH_EN, zh_en(SMALL, SMALL_DEEP)),
    **cells("wmt18-zh-en-variants", ZH_EN, zh_en(LARGE, LARGE_DEEP)),
    # DL figure 3
    **cells("wmt14-en-de-encoder-depth", DL_ALL | PRE_LN | PRE_BASE, alike({}, "pre_ln-6-6", "dlcl_pre_ln-6-6")),
    **cells("wmt14-en-de-encoder-depth", DL_ALL | PRE_LN | DEEP, alike({}, *DL_FIGURE_3)),
    # DL table 6
    **cells("wmt14-en-de-ablations", DL_ALL | PRE_LN | DEEP | DLCL_20, {f"{k}-20-6": v for k, v in DL_TABLE_6.items()}),
    **cells(
        "wmt14-en-de-variants",
        DL_ALL | PRE_LN | DEEP,
        {f"{k}-30-6": DL_TABLE_6[k] for k in ("ones", "average", "no_norm")},
    ),
    "wmt14-en-de-ablations/big-dlcl-12-6": DL_ALL | PRE_LN | PRE_BIG | {"variant": "dlcl_pre_ln", "depth": (12, 6)},
    # DL table 7
    **cells("wmt14-en-de-hyperparameters", DL_ALL | PRE_LN, base_and_deep("pre_ln", PRE_BASE)),
    **cells("wmt14-en-de-hyperparameters", DL_ALL | POST_LN, base_and_deep("post_ln", POST_BASE)),
    # DL table 5
    **{f"wmt14-en-de-decoder-depth/pre_ln-6-{n}": DL_ALL | PRE_LN | PRE_BASE | {"depth": (6, n)} for n in (4, 6, 8)},
    # DN transformer_layer.py: its ω are parameters
    "wmt14-en-de-omega/profile_reference-trained": VD_EN_DE | {"omega": "profile_reference", "trained": True},
    **cells("wmt14-en-de-omega", VD_EN_DE | {"depth": (60, 12)}, OMEGA_RULES),
}


LIKE_WANG = {name.partition("/")[0] for name in PUBLISHED if "/" in name and PUBLISHED[name]["average"] == 5}


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
    corpora = recipe.data.train if isinstance(recipe.data.train, list) else [recipe.data.train]
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
        "weights": model.dlcl_weights,
        "normalized": model.dlcl_normalize_history,
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
        "upsample": [corpus.upsample for corpus in corpora],
        **{name: getattr(recipe.tokenizer, name) for name in type(recipe.tokenizer).model_fields},
        "valid_every": recipe.data.valid_every,
        **{name: getattr(recipe.data.cleaning, name) for name in type(recipe.data.cleaning).model_fields},
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_settings_are_the_published_ones(name):
    found = settings(recipe_of(name))
    assert {setting: found[setting] for setting in PUBLISHED[name]} == PUBLISHED[name]


def test_wang_et_al_average_three_runs():
    """DL section 4.1; its table 7 compares perplexities of single runs."""
    names = [name for name in LIKE_WANG if name != "wmt14-en-de-hyperparameters"]
    assert names and all(grid(name).seeds == [1, 2, 3] for name in names)


def test_every_recipe_and_system_of_the_papers_size_is_compared():
    recipes = {path.stem for path in (TRAINING / "recipes").glob("*.yaml") if path.stem.startswith(PAPERS)}
    grids = [path.stem for path in (TRAINING / "grids").glob("*.yaml") if path.stem.startswith(PAPERS)]
    assert recipes | {f"{name}/{system}" for name in grids for system in grid(name).systems} == set(PUBLISHED)
