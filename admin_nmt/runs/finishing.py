"""The end of a run, after training: averaging checkpoints, exporting, scoring the test set; and its rehearsal."""

import copy
import json
import shutil
import time
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset, DatasetDict
from transformers import TrainingArguments

from ..data.tokenization.tokenizer_folder import save_tokenizers
from ..decoding.file_translation import one_line
from ..decoding.translator import Translator
from ..decoding.usual_scores import UsualScores, score_per_token
from ..hub.run_folder import (
    CURVE,
    DEGENERATE,
    FINAL,
    NO_TRANSLATION,
    REHEARSAL,
    RESULTS,
    SOURCES,
    STANDARD,
    TRANSLATIONS,
    Chosen,
    Decoding,
    Export,
    Results,
    Search,
    TestScores,
    reference_name,
    write_results,
)
from ..metrics.scores import published_bleu, reference_rows, reported_scores
from ..model.modeling_admin import AdminForConditionalGeneration
from ..system.errors import describe
from ..system.processes import print_once
from ..trainer.admin_trainer import AdminTrainer
from ..trainer.checkpoints import last_whole_weights
from ..trainer.sharding import load_weights
from ..weights.averaging import average_checkpoints
from ..weights.exporting import ExportError
from ..weights.folding import FoldingError
from .cards import write_card
from .model_folders import export_folder
from .pictures.curves import plot_curve
from .preparation import Prepared
from .recipe import Recipe
from .reporting import closing_lines
from .results import device_name, run_facts, training_facts

RECORDED = 500  # validation sentences whose scores are recorded
REPORTED = ("eval_loss", "eval_perplexity", "eval_bleu", "eval_chrf")


def finish(trainer: AdminTrainer, recipe: Recipe, prepared: Prepared) -> None:
    """Choose the weights, export and score them, and leave the cards and the results.

    results.json says that the run has ended, so it is written last: the same command then finishes what was cut off.
    """
    folder = Path(recipe.output_dir)
    # Before the candidates are evaluated, which is logged too.
    training, history = training_facts(trainer), [*trainer.state.log_history]
    print_once(f"      {training.minutes:.1f} minutes; checkpoints: {folder}, curve: {folder / CURVE}")
    search = set_search(trainer.accelerator.unwrap_model(trainer.model), recipe)
    print_once("[3/5] choosing weights on the validation set")
    chosen = average_or_best(
        trainer, recipe.evaluation.average_last, folder / FINAL, always_average=recipe.evaluation.always_average
    )
    # ω may be trained: that of the weights which were chosen counts.
    results = run_facts(recipe, prepared, trainer, training, history)
    results.search, results.chosen = search, chosen
    print_once(f"      saved: {folder / FINAL}")
    finish_folder(folder, recipe, prepared, results)
    if trainer.is_world_process_zero():
        write_results(folder, results)
    print_once(f"      results: {folder / RESULTS}")
    print_once(closing_lines(recipe, folder / STANDARD if (folder / STANDARD).is_dir() else folder / FINAL))


def finish_folder(folder: Path, recipe: Recipe, prepared: Prepared, results: Results) -> None:
    """Export and score the model in `final/` of a run's folder, and write the cards; `results` get what is found."""
    print_once("[4/5] writing the standard model and checking that it computes the same")
    if PartialState().is_main_process:
        results.export = export(folder / FINAL, folder / STANDARD)
    PartialState().wait_for_everyone()
    standard = folder / STANDARD if (folder / STANDARD).is_dir() else folder / FINAL
    print_once(f"[5/5] test set, beam search with {standard}")
    score_test_set(results, standard, prepared, recipe.evaluation.published_bleu)
    record_usual_scores(standard, prepared.data.get("valid"), {standard, folder / FINAL})
    if PartialState().is_main_process:
        write_cards(folder, results)


def rehearse_finish(trainer: AdminTrainer, recipe: Recipe, prepared: Prepared) -> None:
    """Do what follows training with an untrained model of one layer a stack and two sentences, and leave nothing.

    What cannot work, such as a length penalty beyond all numbers, is an error now and not after days of training.
    Every process calls it; no random number that training draws changes.

    Raises:
        ValueError: naming what fails.
    """
    run = Path(recipe.output_dir) / REHEARSAL
    few = {split: pairs.select(range(min(2, len(pairs)))) for split, pairs in prepared.data.items()}
    references = [lines[:2] for lines in prepared.more_references]
    prepared = replace(prepared, data=DatasetDict(few), more_references=references)
    try:
        with torch.random.fork_rng(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            training = training_facts(trainer).model_copy(update={"tokens_per_second": 1.0})
            results = run_facts(recipe, prepared, trainer, training, [])
            config = copy.deepcopy(trainer.model.config)
            config.encoder_layers = config.decoder_layers = 1
            model = AdminForConditionalGeneration(config)
            results.search = set_search(model, recipe)
            results.chosen = Chosen(kind="last weights", valid={"last weights": {}}, updates=0)
            if PartialState().is_main_process:
                model.save_pretrained(run / FINAL)
                save_tokenizers(run / FINAL, prepared.source_tokenizer, trainer.target_tokenizer)
                plot_curve([], run / CURVE)
            PartialState().wait_for_everyone()
            finish_folder(run, recipe, prepared, results)
    except (ArithmeticError, ValueError, OSError) as error:
        raise ValueError(f"{recipe._called}: what follows training would fail: {describe(error)}") from error
    finally:
        if PartialState().is_main_process:
            shutil.rmtree(run, ignore_errors=True)


def average_or_best(trainer: AdminTrainer, average_last: int, folder: Path, *, always_average: bool = False) -> Chosen:
    """Save the better of the trained weights and the average of the last checkpoints, by the validation set.

    The trained weights are those of the best checkpoint with `load_best_model_at_end`, else the last ones. Without a
    validation set, and with `always_average`, the average is taken where there is one.
    """
    best = trainer.state.best_model_checkpoint
    kind = f"best checkpoint {Path(best).name}" if best and trainer.args.load_best_model_at_end else "last weights"
    candidates = {kind: evaluate(trainer)}
    checkpoints = last_whole_weights(str(trainer.args.output_dir), average_last) if average_last > 1 else []
    if checkpoints:
        model = trainer.accelerator.unwrap_model(trainer.model)
        trained = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        load_weights(model, average_checkpoints(checkpoints))
        candidates[f"average of the last {len(checkpoints)} checkpoints"] = evaluate(trainer)
        average = [*candidates][-1]
        kind = average if always_average else best_of(candidates, trainer.args)
        if kind != average:
            model.load_state_dict(trained)
    for name, scores in candidates.items():
        chosen = " * chosen" if name == kind and len(candidates) > 1 else ""
        print_once(f"      {name}{scores_text(scores)}{chosen}")
    if trainer.is_world_process_zero():
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run left
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(folder))
    return Chosen(kind=kind, valid=candidates, updates=trainer.state.global_step)


def set_search(model: AdminForConditionalGeneration, recipe: Recipe) -> Search:
    """Let the saved model search by default as it is evaluated; gives these settings."""
    search = Search(num_beams=recipe.evaluation.num_beams, length_penalty=recipe.evaluation.length_penalty)
    config = model.generation_config
    config.update(**search.model_dump(), early_stopping=True if search.num_beams > 1 else None)
    return search


def evaluate(trainer: AdminTrainer) -> dict[str, float]:
    """Scores on the validation set, if there is one."""
    scores = trainer.evaluate() if trainer.eval_dataset is not None else {}
    return {name: scores[name] for name in REPORTED if name in scores}


def scores_text(scores: dict[str, float]) -> str:
    """The scores of an evaluation, for a line about it."""
    names = {"eval_loss": "NLL {:.3f}", "eval_bleu": "BLEU {:.2f}", "eval_chrf": "chrF {:.2f}"}
    found = [form.format(scores[name]) for name, form in names.items() if name in scores]
    return f": {', '.join(found)}" if found else ""


def best_of(candidates: dict[str, dict[str, float]], args: TrainingArguments) -> str:
    """Name of the best candidate by the scores of each, the last of equal ones.

    `metric_for_best_model` decides, without it BLEU if it was measured, else the likelihood. Where no BLEU reaches
    `NO_TRANSLATION`, which is chance, chrF decides in its place.
    """
    measured = next(iter(candidates.values()))
    metric, sign = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}", 1 if args.greater_is_better else -1
    if metric not in measured:
        metric, sign = ("eval_bleu", 1) if "eval_bleu" in measured else ("eval_loss", -1)
    if metric == "eval_bleu" and max(scores[metric] for scores in candidates.values()) < NO_TRANSLATION:
        metric = "eval_chrf"
    return max(reversed(candidates), key=lambda name: sign * candidates[name].get(metric, 0.0))


def export(folder: Path, target: Path) -> Export:
    """Write the standard model of a trained one, with a card that is replaced where the run has all facts for its own.

    Returns:
        Its class and error, or why there is none.
    """
    shutil.rmtree(target, ignore_errors=True)  # what an interrupted run left
    try:
        standard = export_folder(folder, target, target.parent.name)
        print_once(f"      {target}")
        facts = json.loads((target / "export.json").read_text())
        return Export.model_validate({"class": type(standard).__name__} | facts)
    except (ExportError, FoldingError) as error:
        print_once(f"      no standard model: {error}")
        return Export(refused=str(error))


def write_cards(run: Path, results: Results) -> None:
    """Write the cards of the run's models from what its results.json will hold, or say which fact they lack."""
    try:
        for folder in (run / STANDARD, run / FINAL):
            if folder.is_dir():
                write_card(run, folder, results=results)
    except ValueError as error:
        print_once(f"      no model card: {error}")


def score_test_set(results: Results, model: Path, prepared: Prepared, paper: str | None = None) -> None:
    """Translate the test set, on all processes, and score the text; print the scores and some examples.

    Args:
        results: get what is found, where there is a test set.
        model: folder of the model, in the folder of the run, which gets the translations.
        prepared: the data, with the further references of the test set.
        paper: name of the paper as which BLEU is computed, too.
    """
    test, language = prepared.data.get("test"), results.recipe.languages[1]
    if test is None:
        return
    sources, columns = test["source"][:], [test["target"][:], *prepared.more_references]
    translator = Translator.from_pretrained(model, dtype="float32")  # as `admin-nmt evaluate`, on every machine
    references = reference_rows(columns)
    started = time.perf_counter()
    translations = translator.translate(sources, progress=True)
    seconds = time.perf_counter() - started
    if PartialState().is_main_process:
        for earlier in model.parent.glob(f"{reference_name(0)}[1-9]*"):  # of which there may have been more
            earlier.unlink()
        files = {TRANSLATIONS: translations, SOURCES: sources}
        files |= {reference_name(number): lines for number, lines in enumerate(columns)}
        for name, lines in files.items():
            (model.parent / name).write_text("".join(f"{one_line(line)}\n" for line in lines), encoding="utf-8")
    values: dict[str, Any] = reported_scores(translations, references, language)
    if paper is not None:
        values |= {"published_bleu": published_bleu(translations, references, language, paper), "paper": paper}
    scores = TestScores(**values)
    print_once(f"      BLEU {scores.bleu:.2f} ({scores.bleu_signature})")
    print_once(f"      chrF {scores.chrf:.2f}, TER {scores.ter:.2f}")
    print_once(f"      lower-cased tokenised BLEU {scores.tokenized_lowercase_bleu:.2f}")
    if paper is not None:
        print_once(f"      BLEU as {paper} computed it {scores.published_bleu:.2f}")
    for source, translation, several in list(zip(sources, translations, references, strict=True))[:3]:
        print_once(f"      source      {source}")
        print_once(f"      translation {translation}")
        for reference in several:
            print_once(f"      reference   {reference}")
    if not scores.is_translation:
        print_once(
            "warning: does not translate yet: it needs more text, more updates, or the start from a trained model "
            "(model.from_pretrained)"
        )
    different, distinct = len(set(sources)), len(set(translations))
    if distinct <= DEGENERATE * different:
        print_once(f"warning: {different:,} sources have only {distinct:,} translations: the model hardly reads them")
    results.test, results.test_sentences = scores, len(references)
    results.distinct_translations = distinct / different
    results.decoding = Decoding(
        sentences_per_second=len(test) / seconds,
        device=device_name(translator.device),
        processes=PartialState().num_processes,
        precision=translator.precision,
        threads=torch.get_num_threads() if translator.device.type == "cpu" else None,
    )


def record_usual_scores(model: Path, valid: Dataset | None, folders: Iterable[Path]) -> None:
    """Translate validation sentences with the run's model, and write into folders how sure it is of them."""
    if valid is None:
        return
    found = Translator.from_pretrained(model).translations(valid["source"][:RECORDED], progress=True)
    usual = UsualScores.of([score_per_token(best.log_prob, len(best.tokens)) for best, *_ in found if best.tokens])
    if usual is not None and PartialState().is_main_process:
        for folder in folders:
            usual.save(folder)
