"""Model cards: no gaps, always the same text, valid metadata, and snippets that run as they stand."""

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finished_run import SENTENCE, SIGNATURE, toy_results
from huggingface_hub import ModelCard
from toy import learn_to_copy, random_texts, toy_tokenizer

from admin_nmt import AdminForConditionalGeneration, Translator
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.hub.cards import progress, run_card, write_export_card
from admin_nmt.model.configuration_admin import VARIANTS
from admin_nmt.runs.cards import check_card, pictures, read_facts, write_card
from admin_nmt.weights.exporting import export_standard

COMMITTED = Path(__file__).parents[2] / "model_cards"


@pytest.fixture
def make_run(tmp_path, tiny_config) -> Callable[..., Path]:
    """Writes the folder of a run with empty folders of models; keyword arguments are fields of the configuration."""

    def make(change: Callable[[dict[str, Any]], None] = lambda results: None, run: str = "run", **fields: Any) -> Path:
        results, folder = toy_results(tiny_config(**fields)), tmp_path / run
        change(results)
        for name in ("standard", "final"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "curve.png").write_bytes(b"picture")
        (folder / "results.json").write_text(json.dumps(results))
        return folder

    return make


def drop(results: dict[str, Any], path: str) -> None:
    """Take the fact with this dotted name out of results."""
    *sections, last = path.split(".")
    for section in sections:
        results = results[section]
    del results[last]


@pytest.mark.parametrize("name", ["commit", "recipe.card", "training.peak_memory_gb", "omega"])
def test_optional_fact(make_run, name):
    run = make_run(lambda results: drop(results, name))
    text = run_card(read_facts(run), run / "standard")
    assert "None" not in text and "nan" not in text
    assert (ModelCard(text).data.license == "unknown") == (name == "recipe.card")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda results: drop(results, "export"), r"results\.json: export"),
        (lambda results: drop(results, "test.bleu"), r"results\.json: .*bleu"),
        (lambda results: results["test"].update(bleu=float("nan")), r"test\.bleu"),
        (lambda results: results.update(diverged={"update": 12, "reason": "the loss is nan."}), "update 12"),
    ],
)
def test_what_makes_no_card_is_named(make_run, change, named):
    run = make_run(change)
    with pytest.raises(ValueError, match=named):
        write_card(run, run / "standard")
    assert not list((run / "standard").iterdir())
    run = make_run(run="whole")
    with pytest.raises(ValueError, match="checkpoint-300"):
        run_card(read_facts(run), run / "checkpoint-300")
    for repo in ('user/x"; import os; "', "a/b/c"):
        with pytest.raises(ValueError):
            run_card(read_facts(run), run / "standard", repo)


def test_a_card_and_its_pictures_are_checked(make_run):
    """All files are there, and the card says what the facts say now."""
    run, folder = make_run(), "standard"
    card, names = run / folder / "README.md", ("README.md", "curve.png", "omega.png")
    for damage in (
        *((card.parent / name).unlink for name in names),
        lambda: card.write_text(card.read_text().replace("36.47", "46.47")),
        lambda: make_run(lambda results: results["test"].update(chrf=61.0)),
    ):
        make_run()
        assert write_card(run, run / folder) == card
        assert {path.name for path in card.parent.iterdir()} == set(names)
        check_card(run, run / folder)
        damage()
        with pytest.raises(ValueError, match=r"\.(md|png)"):
            check_card(run, run / folder)
    (run / "curve.png").unlink()
    with pytest.raises(ValueError, match=r"curve\.png"):
        write_card(run, run / folder)


PAPERS = {
    "admin": "2008.07772", "deepnorm": "2203.00555", "post_ln": "1706.03762", "b2t": "2206.00330",
    "ds_init": "1908.11365", "rezero": "2003.04887", "t_fixup": "layer6ai-labs/T-Fixup", "ln_scaling": "2502.05795",
    "transparent_post_ln": "1808.07561", "transparent_pre_ln": "1808.07561",
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(make_run, variant):
    run = make_run(variant=variant)
    if variant.startswith(("dlcl", "transparent")):
        with pytest.raises(ValueError, match="DLCL has no fold"):
            run_card(read_facts(run), run / "standard")
    else:
        text = run_card(read_facts(run), run / "standard")
        assert ("omega.png" in text) == (variant in ("admin", "deepnorm"))
        assert ("Fold error" in text) == ("folded into" in text) == (variant in ("admin", "deepnorm", "ln_scaling"))
        assert "trust_remote_code" not in text and "2.5e-06" in text
    text = run_card(read_facts(run), run / "final")
    assert "trust_remote_code=True" in text and f"`{variant}`" in text
    assert PAPERS.get(variant, "1906.01787") in text and re.search(r"\(\w+ et al\. \d{4}\), trained", text)


@pytest.mark.parametrize(("bleu", "chrf", "translates"), [(0.9, 12.2, False), (0.9, 45.0, True), (2.0, 12.2, True)])
def test_the_card_says_that_a_model_does_not_translate_yet(make_run, bleu, chrf, translates):
    run = make_run(lambda results: results["test"].update(bleu=bleu, chrf=chrf))
    assert ("does not translate yet" in run_card(read_facts(run), run / "standard")) is not translates


def test_content(make_run):
    run = make_run()
    card = ModelCard.load(write_card(run, run / "standard"))
    text, data = str(card), card.data
    for part in (
        "| BLEU | **36.47** |", "| chrF | 60.46 |", "someone/toy-admin", "| TER (lower is better) | 48.10 |",
        "3 beams", "| duplicate | 20 | 279 |", "1,234,567", "| too many tokens | 9 | 270 |", "(7)", "`cc-by-4.0`",
        "1.00 to 2.00", "1.00 to 2.50",
    ):  # fmt: skip
        assert part in text, part
    assert "somewhere" not in text  # paths of the machine are nobody's business
    assert (data.license, data.pipeline_tag, data.library_name) == ("cc-by-4.0", "translation", "transformers")
    assert data.language == ["en", "de"] and data.model_name == "toy"
    found = {result.metric_type: (result.metric_value, result.metric_args) for result in data.eval_results}
    signed = {"signature": SIGNATURE}
    assert found == {"bleu": (36.47, signed), "chrf": (60.46, signed), "ter": (48.1, signed)}
    assert {result.dataset_name for result in data.eval_results} == {"toy"}


def test_the_best_update_is_that_of_the_validation_scores():
    history = [{"step": 100, "eval_bleu": 3}, {"step": 200, "eval_bleu": 2}, {"step": 300, "eval_bleu": None}]
    assert "update 100" in progress(history)
    assert "update 2" in progress([{"step": step, "eval_loss": loss} for step, loss in ((1, 3), (2, 2), (3, 4))])
    afterwards = [{"step": 300, "train_runtime": 1.0}, {"step": 300, "eval_bleu": 9.0}]
    assert "update 100" in progress([*history[:2], {"step": 300, "eval_bleu": 2}, *afterwards])


@pytest.fixture(scope="module")
def tokenizers():
    return toy_tokenizer(), toy_tokenizer(seed=1)


def snippets(card: str, repo_id: str, folder: Path) -> list[str]:
    """The Python snippets, with a folder in the place of the repository's name."""
    codes = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert all(f'"{repo_id}"' in code for code in codes)
    return [code.replace(f'"{repo_id}"', repr(str(folder))) for code in codes]


def output_elsewhere(code: str) -> list[str]:
    """What code prints in a process of its own, which asks nothing and never imports this package."""
    code += "import sys\nassert 'admin_nmt' not in sys.modules\n"
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "y/N" not in result.stdout + result.stderr
    return result.stdout.splitlines()


def output_here(code: str) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        exec(compile(code, "README.md", "exec"), {})
    return stdout.getvalue().splitlines()


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("output", [output_here, pytest.param(output_elsewhere, marks=pytest.mark.slow)])
def test_snippets_run(make_run, tiny_config, tokenizers, monkeypatch, tmp_path, joint, output):
    """Of both models, with one vocabulary and with two; that they do without the package is in test_hub.py, too."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    source, target = (tokenizers[0], tokenizers[0]) if joint else tokenizers
    fields = {"vocab_size": len(source), "decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": joint}
    run = make_run(lambda results: results["recipe"]["tokenizer"].update(joint=joint), **fields)
    texts = [*random_texts(24, seed=7), SENTENCE]
    model = learn_to_copy(AdminForConditionalGeneration(tiny_config(**fields)), source, target, texts)
    model.save_pretrained(run / "final")
    save_tokenizers(run / "final", source, target)
    export_standard(model, source, run / "standard", target)
    translation = str(Translator(model, source, target, num_beams=3, length_penalty=0.8).translate([SENTENCE]))
    assert translation != "['']"
    for name, repo_id in (("standard", "someone/toy"), ("final", "someone/toy-admin")):
        with_transformers, with_package = snippets(write_card(run, run / name).read_text(), repo_id, run / name)
        assert output_here(with_package) == output(with_transformers) == [translation]


@pytest.mark.parametrize("joint", [True, False])
def test_the_card_of_an_export_says_how_to_use_it(tiny_model, tokenizers, tmp_path, joint):
    source, target = tokenizers
    two = {"decoder_vocab_size": len(target), "share_encoder_decoder_embeddings": False}
    model = tiny_model(vocab_size=len(source), **({} if joint else two))
    export_standard(model, source, tmp_path / "mine", None if joint else target)
    card = ModelCard.load(write_export_card(tmp_path / "mine"))
    assert card.data.pipeline_tag == "translation" and "admin" in card.data.tags
    (snippet,) = snippets(card.content, "mine", tmp_path / "mine")
    (line,) = output_here(snippet)
    assert len(ast.literal_eval(line)) == 1


def committed() -> list[Path]:
    """Folders of model cards that came from a run."""
    results = [path for path in COMMITTED.glob("*/results.json") if "status" in json.loads(path.read_text())]
    return sorted(path.parent for path in results)


@pytest.mark.parametrize("folder", committed(), ids=lambda folder: folder.name)
def test_committed_cards_are_fresh(folder):
    refused = read_facts(folder).export.refused
    text = run_card(read_facts(folder), folder / ("final" if refused else "standard"))
    assert (folder / "README.md").read_text(encoding="utf-8") == text
    assert all((folder / name).is_file() for name in pictures(text))


def test_a_card_quotes_what_results_and_recipes_say_as_text(make_run):
    """Of the author's fields, `note` alone is Markdown."""

    def change(results):
        results["training"]["device"] = "<b>a</b> | [GPU](x)"
        results["recipe"]["card"] = {"dataset_name": "<img src=x>|`a` [b](c)"}
        results["recipe"]["output_dir"] = 'runs/my run"; rm -rf ~; "'

    text = run_card(read_facts(run := make_run(change)), run / "standard").split("---", 2)[2]
    assert "&lt;b>a&lt;/b> \\| \\[GPU\\](x)" in text
    assert "&lt;img src=x>\\|\\`a\\` \\[b\\](c)" in text and "<img" not in text
    assert 'name = "USER/my-run-rm-rf' in text and "rm -rf ~" not in text
