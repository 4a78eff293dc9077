"""Arguments of a training run: `Seq2SeqTrainingArguments` with the authors' recipe as defaults."""

import os
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import torch
from accelerate.utils import str_to_bool
from datasets import Dataset
from transformers import PreTrainedModel, SchedulerType, Seq2SeqTrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import is_torch_tf32_available
from transformers.utils.import_utils import enable_tf32

from ..system.limits import LENGTH_PENALTY, PROFILE_TOKENS, check_limits, default_of
from .optimizers.fused_radam import FusedRAdam
from .optimizers.master_weights import MOST_ACCUMULATED

Optimizer = Literal["radam", "adam"]
OPTIMIZERS = get_args(Optimizer)
NO_DEEPSPEED = "start with training/accelerate/ddp.yaml, or fsdp2.yaml to shard"
BUDGET = "batches are made by max_tokens"
ARGUMENTS_WITHOUT_EFFECT = {
    "per_device_train_batch_size": BUDGET,
    "per_device_eval_batch_size": BUDGET,
    "auto_find_batch_size": BUDGET,
    "optim": "set optimizer",
    "deepspeed": NO_DEEPSPEED,
    "predict_with_generate": "set eval_bleu",
    "generation_max_length": "the length of a translation is limited by that of its source",
    "generation_config": "set generation_num_beams and generation_length_penalty",
    **dict.fromkeys(("optim_args", "optim_target_modules"), "set optimizer"),
    **dict.fromkeys(
        ("bf16_full_eval", "fp16_full_eval"), "evaluations are in float32 on a CPU, in training's precision on a GPU"
    ),
    **dict.fromkeys(("dataloader_drop_last", "train_sampling_strategy"), BUDGET),
    **dict.fromkeys(
        ("eval_accumulation_steps", "prediction_loss_only", "batch_eval_metrics", "include_for_metrics"),
        "evaluations report their scores alone",
    ),
}
"""Arguments of other trainers that this one does not look at, and what to do instead."""
# Before transformers 5.23 it was called gradient checkpointing, in models and in arguments.
HAS_ACTIVATION_CHECKPOINTING = hasattr(PreTrainedModel, "activation_checkpointing_enable")


@dataclass
class AdminTrainingArguments(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with the authors' recipe as defaults: token batches, RAdam with an inverse square root
    schedule, no clipping; and BLEU while training.

    What each field means is its `help`; `admin-nmt recipe --options` prints all of them.

    Raises:
        ValueError: a field has a value that makes no sense; the message names the field.
    """

    max_tokens: int = field(
        default=4096,
        metadata={"ge": 1, "help": "Token budget of a batch and device: sentences times the longest source or target."},
    )
    optimizer: Optimizer = field(default="radam", metadata={"help": f"One of {', '.join(OPTIMIZERS)}."})
    profile_tokens: int = field(
        default=PROFILE_TOKENS,
        metadata={
            "ge": 1,
            "help": "Most target tokens of the random pairs on which ω is measured (`profile_reference`: similar "
            "ones).",
        },
    )
    eval_bleu: bool = field(default=True, metadata={"help": "Translate the evaluation set and report BLEU and chrF."})
    eval_bleu_sentences: int | None = field(
        default=None,
        metadata={"ge": 1, "help": "Translate only this many first sentences while training; default all."},
    )
    generation_num_beams: int | None = field(default=5, metadata={"ge": 1, "help": "Beam size of the evaluation."})
    generation_length_penalty: float = field(
        default=1.0, metadata={**LENGTH_PENALTY, "help": "Hypothesis scores are divided by length to this power."}
    )
    target_language: str | None = field(
        default=None, metadata={"help": "Two-letter code; BLEU splits zh, ja and ko with a tokeniser of their own."}
    )
    adversarial_weight: float = field(
        default=0.0, metadata={"ge": 0, "help": "Weight of virtual adversarial training; 0 for none."}
    )
    adversarial_step: float = field(
        default=1e-3, metadata={"ge": 0, "help": "Largest entry of the adversarial change of a source embedding."}
    )
    adversarial_noise: float = field(
        default=1e-5, metadata={"ge": 0, "help": "Standard deviation of the random change that it starts from."}
    )
    cudnn_attention: bool = field(
        default=False, metadata={"help": "Let PyTorch choose cuDNN for attention, which prepares for every new shape."}
    )
    bf16: bool | None = field(
        default=None,
        metadata={
            "help": "Products of matrices in bfloat16, all else in float32; by default on a CPU with instructions for "
            "it, from d_model 128 on (256 with fused attention)."
        },
    )
    tf32: bool | None = field(
        default=None,
        metadata={
            "help": "Round the factors of float32 products to ten bits, on NVIDIA GPUs since Ampere; by default where "
            "neither bf16 nor fp16 is set."
        },
    )
    master_weights: bool = field(
        default=False,
        metadata={
            "help": "Parameters, gradients and residual stream in bfloat16, for GPUs; master copies and moments, "
            "checkpoints and evaluations in float32."
        },
    )
    learning_rate: float = field(
        default=7e-4, metadata={"ge": 0, "help": "Peak learning rate, reached after the warmup."}
    )
    lr_scheduler_type: SchedulerType | str = field(
        default="inverse_sqrt", metadata={"help": "Any schedule of transformers."}
    )
    warmup_steps: float = field(
        default=8000, metadata={"ge": 0, "help": "Updates of linear warmup; below 1 a share of all."}
    )
    adam_beta2: float = field(default=0.98, metadata={"ge": 0, "lt": 1, "help": "Second beta of RAdam or Adam."})
    max_grad_norm: float = field(default=0.0, metadata={"ge": 0, "help": "Largest gradient norm; 0 for no clipping."})
    logging_steps: float = field(
        default=50, metadata={"gt": 0, "help": "Updates between log entries; below 1 a share of all."}
    )
    # The Trainer's filter would replace a NaN in the log by the mean of earlier losses.
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "Hide a loss that is not finite."})
    # The Trainer copies this into the saved configuration, where it must say that generation may use a cache.
    use_cache: bool = field(default=True, metadata={"help": "What saved configurations say about the cache."})
    # Otherwise early stopping would count from zero again whenever a run is resumed.
    restore_callback_states_from_checkpoint: bool = field(
        default=True, metadata={"help": "Early stopping counts on after a resume, with the patience it began with."}
    )
    # All parameters of these models take part in every step, so DDP need not search the graph for unused ones.
    ddp_find_unused_parameters: bool | None = field(default=False, metadata={"help": "Passed to DDP."})
    # ω, tables of positions and fixed weights of DLCL: no buffer changes in training.
    ddp_broadcast_buffers: bool | None = field(default=False, metadata={"help": "Passed to DDP."})
    activation_checkpointing: bool | Literal["auto"] | None = field(
        default=None,
        metadata={
            "help": "Compute activations again in the backward pass, to save memory; auto: where the memory would be "
            "too small without."
        },
    )
    auto_micro_batch: bool = field(
        default=False,
        metadata={
            "help": "On a GPU, make each batch as large as its predicted memory allows and accumulate as many fewer: "
            "max_tokens times gradient_accumulation_steps stays the same."
        },
    )
    compile_layers: bool = field(
        default=False,
        metadata={"help": "Compile the layers in training, one graph a kind of layer, whatever the depth and shapes."},
    )
    # Fields of transformers with limits, and what they mean here.
    num_train_epochs: float = field(
        default=3.0, metadata={"gt": 0, "help": "Passes through the training data, where `max_steps` is not given."}
    )
    gradient_accumulation_steps: int = field(
        default=1,
        metadata={"ge": 1, "help": "Batches of an update: it has so many times `max_tokens`, on every device."},
    )
    weight_decay: float = field(
        default=0.0,
        metadata={
            "ge": 0,
            "help": "Decoupled from the gradient; biases, LayerNorms, ω, the weights of DLCL and α have none.",
        },
    )
    adam_beta1: float = field(default=0.9, metadata={"ge": 0, "lt": 1, "help": "First beta of RAdam or Adam."})
    adam_epsilon: float = field(default=1e-8, metadata={"ge": 0, "help": "ε of RAdam or Adam."})
    seed: int = field(default=42, metadata={"ge": 0, "help": "Of initialisation, dropout and the order of the data."})
    data_seed: int | None = field(
        default=None, metadata={"ge": 0, "help": "Of the order of the data, where it shall differ from `seed`."}
    )
    eval_steps: float | None = field(
        default=None, metadata={"gt": 0, "help": "Updates between two evaluations; by default `logging_steps`."}
    )
    save_steps: float = field(default=500, metadata={"gt": 0, "help": "Updates between two checkpoints."})
    save_total_limit: int | None = field(
        default=None,
        metadata={"ge": 1, "help": "Checkpoints that are kept, the latest ones and the best; by default all."},
    )
    if not HAS_ACTIVATION_CHECKPOINTING:
        activation_checkpointing_kwargs: dict[str, Any] | None = field(
            default=None, metadata={"help": "Settings of torch's checkpoint; `every_n_layers` spares the others."}
        )

    def __post_init__(self) -> None:
        if self.deepspeed or str_to_bool(os.environ.get("ACCELERATE_USE_DEEPSPEED", "no")):
            raise ValueError(f"deepspeed: is not supported; {NO_DEEPSPEED}")
        check_limits(self)
        if self.master_weights:
            self.prepare_master_weights()
        is_open = self.greater_is_better is None  # type: ignore[has-type]
        if is_open and str(self.metric_for_best_model).endswith("perplexity"):
            self.greater_is_better = False  # transformers knows it of losses alone
        super().__post_init__()
        self.heed_accelerate()
        if self.tf32 is None and not (self.bf16 or self.fp16) and is_torch_tf32_available():
            self.tf32 = True
            enable_tf32(True)
        if self.master_weights or (self.bf16 and self.device.type == "cpu"):
            self.mixed_precision = "no"  # for accelerate, as the trainer does it: evaluations stay in float32
        if isinstance(self.activation_checkpointing, str) and self.activation_checkpointing != "auto":
            raise ValueError(f"activation_checkpointing is {self.activation_checkpointing!r}; give true, false or auto")
        if self.compile_layers and self.torch_compile:
            raise ValueError("compile_layers and torch_compile are both set; leave out torch_compile")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer is {self.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
        if not HAS_ACTIVATION_CHECKPOINTING and "offload" in (self.activation_checkpointing_kwargs or {}):
            raise ValueError(
                "activation_checkpointing_kwargs has offload, which needs a newer transformers; leave it out, "
                "or pip install 'transformers>=5.23'"
            )

    def heed_accelerate(self) -> None:
        """Takes the precision of accelerate's configuration where `bf16` and `fp16` leave it open, and no other."""
        if self.fp16:
            return
        if self.bf16 is None and self.mixed_precision in ("bf16", "fp16"):
            setattr(self, self.mixed_precision, True)
        elif self.bf16 is False:
            self.mixed_precision = "no"

    def prepare_master_weights(self) -> None:
        """Leaves `bf16`, which is autocast, out.

        Raises:
            ValueError: other arguments do not go with `master_weights`.
        """
        for name in ("fp16", "adversarial_weight", "fsdp"):
            if getattr(self, name):
                raise ValueError(f"master_weights and {name} are both set; leave out one of them")
        if self.gradient_accumulation_steps > MOST_ACCUMULATED:
            raise ValueError(
                f"gradient_accumulation_steps is {self.gradient_accumulation_steps}, but master_weights adds "
                f"gradients up in bfloat16, at most {MOST_ACCUMULATED}; make max_tokens larger"
            )
        self.bf16 = False

    @property
    def batch_seed(self) -> int:
        """The seed of the batches."""
        return int(self.seed if self.data_seed is None else self.data_seed)

    @property
    def device(self) -> torch.device:
        """The device of this process; a CPU has no number here.

        Before transformers 5.18 torch.load is given this device on several processes, and does not know `cpu:0`.
        """
        device: torch.device = super().device
        return torch.device("cpu") if device.type == "cpu" else device


def enable_checkpointing(model: PreTrainedModel, settings: dict[str, Any]) -> None:
    """`activation_checkpointing_enable` of any release, with its arguments `every_n_layers` and those of torch."""
    settings = dict(settings)
    every = settings.pop("every_n_layers", 1)
    if HAS_ACTIVATION_CHECKPOINTING:
        model.activation_checkpointing_enable(settings or None, every_n_layers=every)
        return
    model.gradient_checkpointing_enable(settings or None)
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for index, layer in enumerate(layers):
        layer.gradient_checkpointing = index % every == 0


def checked_arguments(args: AdminTrainingArguments | None, **others: Any) -> AdminTrainingArguments:
    """The arguments of a trainer, or the default ones, if what the trainer is given besides goes with them.

    Raises:
        TypeError: they are another trainer's, or a dataset is not one of `datasets`.
        ValueError: an argument or a function is given that nothing looks at; a training set is empty; evaluations
            cannot have BLEU, for want of text or of a tokenizer.
    """
    args = AdminTrainingArguments() if args is None else args
    if not isinstance(args, AdminTrainingArguments):
        raise TypeError(f"args: is a {type(args).__name__}; give AdminTrainingArguments, which takes the same fields")
    for known in fields(args):
        if known.name in ARGUMENTS_WITHOUT_EFFECT and getattr(args, known.name) != default_of(known):
            raise ValueError(f"{known.name} has no effect; {ARGUMENTS_WITHOUT_EFFECT[known.name]}")
    for name in ("compute_metrics", "preprocess_logits_for_metrics"):
        if others.get(name) is not None:
            raise ValueError(
                f"{name}: would not be called, as evaluations report NLL, BLEU and chrF; leave it out, and compute "
                "other scores from what `predict` returns"
            )
    trained, evaluated = others.get("train_dataset"), others.get("eval_dataset")
    evaluations = [*evaluated.values()] if isinstance(evaluated, dict) else [evaluated]
    for name, several in {"train_dataset": [trained], "eval_dataset": evaluations}.items():
        for dataset in several:
            if not isinstance(dataset, Dataset | None):
                raise TypeError(
                    f"{name}: is a {type(dataset).__name__}; give a datasets.Dataset, as `tokenize` of "
                    "admin_nmt.data.tokenizing makes it of pairs, and no stream: token batches are planned from the "
                    "lengths of all pairs"
                )
    if trained is not None and not len(trained):
        raise ValueError("train_dataset: holds no pair")
    if args.eval_bleu and args.eval_strategy != "no" and evaluated is not None:
        if others.get("processing_class") is None:
            raise ValueError("processing_class: is missing; BLEU needs a tokenizer, or set eval_bleu to False")
        for dataset in evaluations:
            if dataset is not None and "target" not in dataset.column_names:
                raise ValueError(
                    "eval_dataset: has no column target, the reference text that BLEU needs; tokenize it with "
                    "keep_text=True, or set eval_bleu to False"
                )
    return args


def optimizer_settings(args: AdminTrainingArguments) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The optimizer's class and arguments; weight decay is decoupled from the gradient, as in fairseq."""
    common = {"lr": args.learning_rate, "betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    if args.optimizer == "radam":
        kind = FusedRAdam if args.device.type in ("cpu", "cuda") else torch.optim.RAdam  # the kernel of AdamW's devices
        return kind, common | {"decoupled_weight_decay": True, "foreach": True}
    # A fused optimizer skips an overflow by itself; accelerate takes that update for made, and the schedule goes on.
    return torch.optim.AdamW, common | {"fused": args.device.type in ("cpu", "cuda") and not args.fp16}
