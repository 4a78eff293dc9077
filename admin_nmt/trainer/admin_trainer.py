"""`Seq2SeqTrainer` for very deep translation models: token batches, profiling, BLEU, a stop at divergence."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerControl,
    TrainingArguments,
)
from transformers.modelcard import TrainingSummary
from transformers.trainer_utils import PredictionOutput, TrainOutput, speed_metrics

from ..data.batching import Seq2SeqCollator
from ..data.tokenization.tokenizer_folder import save_tokenizers
from ..data.tokenized_pairs import batch_sampler, longest_sentence, refuse_long
from ..model.loss import num_target_tokens
from ..system.devices import leave_out_cudnn_attention
from ..system.files import open_to_readers
from ..system.processes import gather_objects
from ..weights.omega import write_omega
from ..weights.profiling import MODES, needs_profiling, profile_omega, profiling_batch
from .arguments import (
    HAS_ACTIVATION_CHECKPOINTING,
    AdminTrainingArguments,
    checked_arguments,
    enable_checkpointing,
    optimizer_settings,
)
from .callbacks import (
    AsSetNow,
    LogBeforeSaving,
    LogsForTrackers,
    ModelFiles,
    RunRecord,
    StopRequest,
    TokenMeter,
    mean_training_loss,
    recorded_batches,
)
from .checkpoints import check_position, checkpoint_to_resume
from .compilation import compiled_layers, without_compilation
from .divergence import DivergenceGuard
from .evaluation import first_rows, validation_scores
from .hooks import TrainerHooks
from .losses import AdversarialLoss, LabelSmoothedLoss
from .memory_prediction import RunMemory
from .optimizers.master_weights import MasterWeights, NoMasterWeights
from .precision_and_attention import autocast_on_cpu, cpu_attention
from .process_memory import keep_freed_memory
from .sharding import sharding_of

NEVER_DECAYED = (".omega", "history.weight", "common.alpha")


class AdminTrainer(TrainerHooks):
    """Trains a translation model on a tokenised dataset.

    The datasets have the columns `input_ids` and `labels`, without padding, and may have `source_length` and
    `target_length`, which are counted otherwise; that of the evaluation has also `target`, the raw reference text.

    What it does besides `Seq2SeqTrainer`, and where:
        the batches: `get_train_dataloader`, under a token budget;
        the tokens of an update, which its loss is divided by: `get_batch_samples` counts them, and `meter` logs them;
        attention and precision: `choose_attention` and `compute_loss`, by the rules of [`precision_and_attention`];
        what the model needs before its optimizer is made, such as ω: `prepare_model`;
        `guard` stops before an update that is not finite, `sharding` is FSDP2 or none, `masters` are the float32
        weights of a training in bfloat16 or none, `adversary` is the adversarial loss or None, `stop_request` heeds
        SIGTERM.

    Args:
        model: an `AdminForConditionalGeneration`, or a stock translation model such as a folded one, whose loss is then
            computed here: summed, smoothed by `label_smoothing_factor`, divided by the target tokens of the update.
            Instead of it `model_init` may be given, which makes a new one for each training, and so for each trial of
            `hyperparameter_search`.
        processing_class: the tokenizer, or that of the source if there are two.
        target_tokenizer: the target's tokenizer if there are two.
        kwargs: the other arguments of `Seq2SeqTrainer`.

    Raises:
        TypeError: `args` are those of another trainer; a dataset is a stream, or none of `datasets`.
        ValueError: one process has several GPUs; a dataset has no text for BLEU; a function for metrics is given,
            which nothing would call; `label_smoothing_factor` is set beside the model's own; `master_weights` is set
            under FSDP.
            By `train`: a sentence is longer than the model can read; a checkpoint is damaged, or was saved at another
            point of the epoch than its number of updates is here.
        DivergedError: by `train`, before an update that is not finite.
        StopRequestedError: by `train`, when it has written a checkpoint because of SIGTERM.
    """

    args: AdminTrainingArguments
    control: TrainerControl
    model: PreTrainedModel
    train_dataset: Dataset
    eval_dataset: Dataset | dict[str, Dataset] | None
    processing_class: PreTrainedTokenizerBase | None

    def __init__(
        self,
        model: PreTrainedModel | None = None,
        args: AdminTrainingArguments | None = None,
        *,
        processing_class: PreTrainedTokenizerBase | None = None,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ) -> None:
        args = checked_arguments(args, processing_class=processing_class, **kwargs)
        super().__init__(model, args, processing_class=processing_class, **kwargs)
        loss, collator = self.loss_and_collator()  # of self.model, which `model_init` may have made
        self.compute_loss_func = kwargs.get("compute_loss_func") or loss
        self.data_collator = kwargs.get("data_collator") or collator
        if args.n_gpu > 1:
            raise ValueError(
                f"one process has {args.n_gpu} GPUs; start one process a GPU: accelerate launch --num_processes "
                f"{args.n_gpu} SCRIPT, or show it a single one with CUDA_VISIBLE_DEVICES=0"
            )
        if args.master_weights and self.sharding.is_sharded:
            raise ValueError("master_weights: cannot train under FSDP; start with DDP, or leave it out")
        # The argument of this name that Trainer takes is one that Seq2SeqTrainer does not pass on.
        self.optimizer_cls_and_kwargs = optimizer_settings(args)
        self.target_tokenizer = target_tokenizer or processing_class
        self.adversary = (
            AdversarialLoss(args, self.model, self.sharding.is_sharded) if args.adversarial_weight else None
        )
        self.masters = NoMasterWeights()
        self.guard = DivergenceGuard(processing_class, self.target_tokenizer)
        self.stop_request = StopRequest()
        self.callback_handler.callbacks.insert(0, LogsForTrackers())  # the others are to see what it adds
        for callback in (ModelFiles(self), self.stop_request, LogBeforeSaving(), AsSetNow(), RunRecord()):
            self.add_callback(callback)
        self.start_anew()
        self.choose_attention()

    def start_anew(self) -> None:
        """Forgets what was counted in an earlier training of this trainer."""
        self.meter = TokenMeter()
        self.resumed_from: Path | None = None
        self.while_training = ExitStack()  # what ends with the training
        self.sampler = None
        self.guard.start_anew()
        self.stop_request.start_anew()
        for callback in self.early_stopping():
            callback.early_stopping_patience_counter = 0
        self.patience = [callback.early_stopping_patience for callback in self.early_stopping()]

    def create_accelerator_and_postprocess(self) -> None:
        """Makes the sharding too; the Trainer's own writes what only FSDP reads, so it is not told."""
        super().create_accelerator_and_postprocess()
        self.sharding = sharding_of(self.accelerator)
        self.is_fsdp_enabled = False

    def loss_and_collator(self) -> tuple[Any, Seq2SeqCollator]:
        """Chooses what computes the loss, None for the model itself, and what makes its batches.

        Raises:
            ValueError: `label_smoothing_factor` is set beside the model's own.
        """
        config, smoothing = self.model.config, self.args.label_smoothing_factor
        pad = config.pad_token_id
        with_decoder_input = Seq2SeqCollator(pad, config.decoder_start_token_id)
        if not hasattr(config, "label_smoothing"):
            return LabelSmoothedLoss(smoothing, padding=pad, excluded=pad), with_decoder_input
        if smoothing != 0:
            raise ValueError(
                f"label_smoothing_factor is {smoothing}, but the model smooths its own loss; "
                "set label_smoothing in the model's configuration"
            )
        if self.args.adversarial_weight:  # which needs the logits
            model: Any = self.model
            return LabelSmoothedLoss(config.label_smoothing, pad, model.excluded_token), with_decoder_input
        return None, with_decoder_input if self.compute_loss_func else Seq2SeqCollator(pad)

    def choose_attention(self) -> None:
        """On a CPU, gives a model whose attention nobody named that which suits the longest training pair."""
        if self.args.device.type == "cpu" and getattr(self.model, "attention_is_default", False):
            self.model.config._attn_implementation = cpu_attention(self.longest)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest training sentence, 0 without a training set."""
        return 0 if self.train_dataset is None else longest_sentence(self.train_dataset)

    @property
    def positions(self) -> int | None:
        """Tokens of the longest sentence that the model can read; None for no limit."""
        return getattr(self.model.config, "max_position_embeddings", None)

    @property
    def record(self) -> RunRecord:
        """Record of how the run has computed so far; a resumed training takes over that of its checkpoint."""
        return next(callback for callback in self.callback_handler.callbacks if isinstance(callback, RunRecord))

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Trains, from the beginning or from a checkpoint; `train_loss` is that of the whole run.

        On the way the Trainer calls `create_optimizer`, just before it wraps the model for several processes. That
        calls `prepare_model`, where ω of a new model is measured (`settle_omega`).

        Args:
            resume_from_checkpoint: a checkpoint, which is refused if it is damaged, or True for the newest whole one
                of `output_dir`; a warning says of each newer one what is wrong with it.
            args: the other arguments of `Trainer.train`.
            kwargs: likewise.
        """
        if self.args.device.type == "cpu":
            keep_freed_memory()
        elif not self.args.cudnn_attention:
            leave_out_cudnn_attention()
        self.start_anew()
        self.resumed_from = checkpoint_to_resume(resume_from_checkpoint, str(self.args.output_dir))
        self.fit_into_memory()
        with self.stop_request.listening(), self.while_training:
            output = super().train(None if self.resumed_from is None else str(self.resumed_from), *args, **kwargs)
        return output._replace(training_loss=output.metrics["train_loss"])

    def fit_into_memory(self) -> None:
        """Decides what `auto_micro_batch` and `activation_checkpointing: auto` leave to the memory of the GPUs.

        A run that goes on does so with the batches of its checkpoint: otherwise it would meet other pairs.
        """
        args, memory = self.args, RunMemory(self.model, self.args, self.train_dataset)
        if args.auto_micro_batch:
            chosen = memory.micro_batch() if self.resumed_from is None else recorded_batches(self.resumed_from)
            if chosen is not None:
                args.max_tokens, args.gradient_accumulation_steps = self.record.batches = chosen
        if args.activation_checkpointing == "auto":
            args.activation_checkpointing = memory.needs_checkpointing()

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Prepares the model of a training first: no other public method comes before DDP wraps it.

        Afterwards the modules take bfloat16 copies of its parameters if there are master weights.
        """
        if self.is_in_train:
            self.prepare_model()
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if is_new:
            self.sharding.take_whole_states(optimizer)
        self.while_training.enter_context(self.masters.training(optimizer))
        return optimizer

    def prepare_model(self) -> None:
        """Does what a model needs before it is wrapped and its optimizer is made, such as measuring ω.

        Before that, sentences that are too long for the model are refused.
        """
        self.choose_attention()  # of what `model_init` has made
        refuse_long("train_dataset", self.longest, self.positions)
        evaluated = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        for dataset in evaluated.values():
            refuse_long("eval_dataset", 0 if dataset is None else longest_sentence(dataset), self.positions)
        for callback, patience in zip(self.early_stopping(), self.patience, strict=False):
            callback.early_stopping_patience = patience  # the checkpoint's may have been raised since
        if self.state.is_hyper_param_search:
            self.optimizer_cls_and_kwargs = optimizer_settings(self.args)
        self.settle_omega()
        if self.args.activation_checkpointing and not HAS_ACTIVATION_CHECKPOINTING:
            enable_checkpointing(self.model, self.args.activation_checkpointing_kwargs or {})
        # DDP keeps to the copies that it has seen, also where the trainer trains once more.
        if self.args.master_weights and getattr(self.masters, "model", None) is not self.model:
            self.masters = MasterWeights(self.model)
        if self.args.compile_layers:
            self.while_training.enter_context(compiled_layers(self.model))
        self.sharding.shard(self.model)

    def settle_omega(self) -> None:
        """Measures ω of a new model where its rule says so; takes over from a checkpoint whether that was done."""
        config = self.model.config
        if self.resumed_from is None:
            if needs_profiling(self.model):
                self.measure_omega()
        elif hasattr(config, "omega_profiled"):
            # The Trainer restores the weights, ω among them, but not the configuration that says where they are from.
            saved = PreTrainedConfig.get_config_dict(self.resumed_from)[0] or config.to_dict()  # an adapter has none
            config.omega_profiled = saved.get("omega_profiled", False)  # left out of the file where it is False
            config.omega_rule = saved.get("omega_rule", config.omega_rule)

    def measure_omega(self) -> None:
        """Measures ω on one batch of training pairs, the same on every process."""
        model: Any = self.model
        args, mode = self.args, MODES[model.config.omega_rule]
        batch = profiling_batch(self.training_pairs(), self.data_collator, args.profile_tokens, args.seed, mode)
        omega = profile_omega(model, {name: x.to(model.device) for name, x in batch.items()})
        write_omega(model, gather_objects(omega)[0])  # the first process's, as DDP does not send buffers

    @contextmanager
    def whole_model(self) -> Iterator[None]:
        """Every process has all weights, in float32, in this block, so each may run the model as often as it likes."""
        with self.masters.in_float32(), self.sharding.whole(self.model):
            yield

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; what is minimised, where `compute_objective` is not given, is the validation NLL.

        The Trainer itself would add up all that an evaluation reports.
        """
        if len(args) < 2:
            kwargs["compute_objective"] = kwargs.get("compute_objective") or validation_nll
        return super().hyperparameter_search(*args, **kwargs)

    def floating_point_ops(self, inputs: dict[str, Tensor | Any]) -> int:
        """Counts none: the Trainer would go through all parameters at every batch for a number that nobody reads."""
        return 0

    def get_train_dataloader(self) -> DataLoader:
        """Batches under the token budget, planned once for the run; accelerate deals them out to the processes."""
        args, pairs = self.args, self.training_pairs()
        sampler = batch_sampler(self.train_dataset, args.max_tokens, seed=args.batch_seed)
        self.sampler = sampler
        loader = DataLoader(
            pairs,
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and args.device.type != "cpu",
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
        )
        loader = self.accelerator.prepare(loader)
        if self.resumed_from is not None and not args.ignore_data_skip:
            check_position(self.resumed_from, len(loader), args.gradient_accumulation_steps)
        return loader

    def training_pairs(self) -> Dataset:
        """The ids of the training set as lists, which `datasets` gives twice as fast as arrays.

        Raises:
            ValueError: there is none.
        """
        if self.train_dataset is None:
            raise ValueError("train_dataset is missing; training needs one")
        return self.train_dataset.with_format(None, columns=["input_ids", "labels"])

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Mean number of pairs in an update, for the Trainer's statistics."""
        if self.sampler is None:
            return super().get_total_train_batch_size(args)
        return round(len(self.train_dataset) / len(self.sampler) * args.gradient_accumulation_steps * args.world_size)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Weight decay spares ω, α of ReZero and the weights of DLCL, as it does biases and LayerNorms."""
        return [name for name in super().get_decay_parameter_names(model) if not name.endswith(NEVER_DECAYED)]

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, Tensor | None]:
        """The batches of an update and their target tokens, which the model divides by; the meter counts them.

        They are counted here, because the Trainer leaves out the first of every sentence where it takes the loss for
        that of a causal language model: by the name of the class, and in transformers 5.10 to 5.13 though a decoder
        reads shifted labels.
        """
        batches = list(islice(epoch_iterator, num_batches))
        self.guard.begin_update(batches)
        if not batches:
            return batches, None
        tokens = torch.stack([num_target_tokens(batch["labels"]) for batch in batches]).sum().to(device)
        if self.args.world_size > 1:
            counts = torch.stack([tokens, tokens.new_tensor(self.stop_request.received)])
            everywhere, self.stop_request.processes = self.accelerator.gather(counts[None]).sum(0)
            self.meter.add_tokens(everywhere)
            return batches, everywhere if self.args.average_tokens_across_devices else tokens
        self.meter.add_tokens(tokens)
        return batches, tokens

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        """Computes the loss, summed over the target tokens and divided by those of the whole update, of all processes.

        The Trainer multiplies it by the number of processes, because DDP averages their gradients.

        In training, the virtual adversary may add its own, a CPU computes in the precision that suits it, the guard
        keeps the loss for its message, and the meter the plain NLL for the log. `predict` stays in float32 on a CPU.
        """

        def plain_loss() -> tuple[Tensor, Any]:
            return super(AdminTrainer, self).compute_loss(model, inputs, True, num_items_in_batch)

        if not model.training:
            loss, outputs = plain_loss()
            return (loss, outputs) if return_outputs else loss
        if self.adversary is None:
            with autocast_on_cpu(self.args, self.model.config):
                loss, outputs = plain_loss()
        else:
            tokens, scale = num_items_in_batch, self.accelerator.num_processes
            if tokens is not None and self.args.average_tokens_across_devices:
                tokens = tokens / scale
            loss, outputs = self.adversary(self.accelerator.unwrap_model(model), inputs, plain_loss, tokens)
        self.guard.add_loss(loss)
        if outputs.get("nll") is not None:
            self.meter.add_nll(outputs["nll"])
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the plain NLL per token, the target tokens and their number a second to the entries about training.

        The mean loss of the whole run takes the place of the Trainer's, which is that since the last resume.
        """
        if "loss" in logs:
            logs = logs | self.meter.read(self.accelerator)
        if "train_loss" in logs:  # changed in place: `train` returns it too
            logs["train_loss"] = mean_training_loss(self.state.log_history) or logs["train_loss"]
        super().log(logs, start_time)

    def evaluate(
        self,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **options: Any,
    ) -> dict[str, Any]:
        """Reports `loss` (mean NLL per token), `perplexity`, `encoder_variance` and, by beam search, `bleu` and `chrf`.

        Their names come after the prefix; see [`admin_nmt.trainer.evaluation`].

        Args:
            eval_dataset: instead of the trainer's own; a dict of them gives each one's metrics after its name.
            options: settings of `generate` that override those of the arguments.
        """
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise ValueError("eval_dataset is missing; evaluation needs one")
        if isinstance(dataset, dict):
            parts = (self.evaluate(d, None, f"{metric_key_prefix}_{name}", **options) for name, d in dataset.items())
            return {name: value for part in parts for name, value in part.items()}
        start = time.time()
        uncompiled = without_compilation() if self.args.compile_layers else nullcontext()
        with self.meter.paused(), self.accelerator.autocast(), self.whole_model(), uncompiled:
            results = validation_scores(self.model, dataset, self.args, self.target_tokenizer, **options)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in results.items()}
        metrics.update(speed_metrics(metric_key_prefix, start, num_samples=len(dataset)))
        self.log({name: value for name, value in metrics.items() if isinstance(value, float)})
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def predict(self, test_dataset: Dataset, *args: Any, **options: Any) -> PredictionOutput:
        """As `Seq2SeqTrainer`'s, without the sentences that several processes repeat to fill their last batches."""
        return first_rows(super().predict(test_dataset, *args, **options), len(test_dataset))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model with its tokenizers, also the target's if there are two."""
        with self.masters.in_float32(), self.sharding.saved_whole(self.model, keep=self.args.should_save):
            super().save_model(output_dir, _internal_call)
        folder = str(output_dir or self.args.output_dir)
        if self.args.should_save:
            open_to_readers(folder)
        if self.processing_class is not None and self.args.should_save:
            save_tokenizers(folder, self.processing_class, self.target_tokenizer, positions=self.positions)

    def create_model_card(self, **facts: Any) -> None:
        """Writes the Trainer's draft of a card, with the settings that this trainer really used.

        Args:
            facts: what the Trainer's own `create_model_card` takes (`language`, `license`, `dataset`, ...).
        """
        if self.is_world_process_zero():
            args, summary = self.args, TrainingSummary.from_trainer(self, **facts)
            # The Trainer would name how the dataset was built in memory, and a model of the empty name.
            summary.dataset_tags = facts.get("dataset_tags")
            summary.dataset = facts.get("dataset", summary.dataset_tags)
            summary.finetuned_from = summary.finetuned_from or None
            optimizer = f"{args.optimizer}, betas ({args.adam_beta1}, {args.adam_beta2}), epsilon {args.adam_epsilon}"
            settings = {name: value for name, value in summary.hyperparameters.items() if "batch_size" not in name}
            summary.hyperparameters = {"max_tokens": args.max_tokens} | settings | {"optimizer": optimizer}
            (Path(args.output_dir) / "README.md").write_text(summary.to_model_card(), encoding="utf-8")


def validation_nll(metrics: dict[str, float]) -> float:
    """The mean NLL of an evaluation."""
    return metrics["eval_loss"]
