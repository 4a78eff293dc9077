"""What follows training: averaging checkpoints, folding, scoring the test set."""

from pathlib import Path
from typing import Any

from datasets import Dataset

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, Translator
from admin_nmt.averaging import average_checkpoints, last_checkpoints
from admin_nmt.exporting import ExportError, FoldingError, export_standard
from admin_nmt.metrics import score, tokenized_bleu
from admin_nmt.tokenization import load_tokenizers, save_tokenizers


def average_or_best(trainer: AdminTrainer, folder: Path) -> dict[str, Any]:
    """Save the better of the trained weights and the average of the last checkpoints, by BLEU on the validation set.

    The trained weights are those of the best checkpoint with `load_best_model_at_end`, else the last ones.
    """
    best = trainer.state.best_model_checkpoint
    kind = f"best checkpoint {Path(best).name}" if best and trainer.args.load_best_model_at_end else "last weights"
    candidates = {kind: trainer.evaluate()}
    if trainer.args.average_last > 1:
        model = trainer.accelerator.unwrap_model(trainer.model)
        trained = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        checkpoints = last_checkpoints(trainer.args.output_dir, trainer.args.average_last)
        model.load_state_dict(average_checkpoints(checkpoints), strict=False)
        candidates[f"average of the last {len(checkpoints)} checkpoints"] = trainer.evaluate()
        kind = max(candidates, key=lambda name: candidates[name].get("eval_bleu", -candidates[name]["eval_loss"]))
        if not kind.startswith("average"):
            model.load_state_dict(trained)
    trainer.save_model(str(folder))
    facts = ("eval_loss", "eval_perplexity", "eval_bleu", "eval_chrf")
    valid = {name: {f: scores[f] for f in facts if f in scores} for name, scores in candidates.items()}
    return {"kind": kind, "valid": valid, "updates": trainer.state.global_step}


def export(folder: Path, target: Path) -> Path:
    """Write the stock model of a trained one; where there is none, say why, and use the trained model itself."""
    model = AdminForConditionalGeneration.from_pretrained(folder)
    source, target_tokenizer = load_tokenizers(folder)
    try:
        export_standard(model, source, target)
    except (ExportError, FoldingError) as error:
        print(f"      no stock model: {error}")
        return folder
    if target_tokenizer is not source:
        save_tokenizers(target, source, target_tokenizer)
    print(f"      {target}")
    return target


def test_scores(folder: Path, test: Dataset | None, language: str) -> dict[str, Any]:
    """Translate the test set with beam 5 and score the text; print the scores and some examples."""
    if test is None:
        return {}
    references = test["target"][:]
    translations = Translator.from_pretrained(folder, num_beams=5).translate(test["source"][:], progress=True)
    (folder.parent / "test.hyp").write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
    scores: dict[str, Any] = score(translations, references)
    scores["tokenized_lowercase_bleu"] = tokenized_bleu(translations, references, language)
    print(f"      BLEU {scores['bleu']:.2f} ({scores['bleu_signature']}), chrF {scores['chrf']:.2f}")
    print(f"      lower-cased tokenised BLEU {scores['tokenized_lowercase_bleu']:.2f}")
    for row in range(min(3, len(test))):
        print(f"      source      {test[row]['source']}")
        print(f"      translation {translations[row]}\n      reference   {references[row]}")
    return {"test": scores, "test_sentences": len(references)}
