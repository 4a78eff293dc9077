"""The recipe of somebody's own text: sizes by pairs and machine, what it says, and the file."""

from dataclasses import replace

import pytest
import yaml

from admin_nmt.runs.own_text import plan as planning
from admin_nmt.runs.own_text.plan import Machine, Plan
from admin_nmt.runs.own_text.recipe_file import recipe_text
from admin_nmt.runs.own_text.sizes import BASE, DEEP, ROWS, SMALL, TINY, row_for
from admin_nmt.runs.own_text.summary import CorpusSummary, cleaning_options
from admin_nmt.runs.recipe import CleaningSection, DataSection, TrainingCorpusSection, load_recipe

CPU = Machine(gpu=None, free=16_000_000_000, processes=1, bf16=False)
GPU = Machine(gpu="NVIDIA A100", free=80_000_000_000, processes=1, bf16=True)
LANGUAGES = ["en", "de"]


def corpus(pairs: int, **fields) -> CorpusSummary:
    held_out = {split: {"source": f"x/{split}.en", "target": f"x/{split}.de"} for split in ("valid", "test")}
    return CorpusSummary(pairs, pairs, 70.0, held_out, **fields)


def plan(corpus: CorpusSummary, languages: list[str], *args, **fields) -> Plan:
    train = TrainingCorpusSection(source="train.en", target="train.de")
    data = DataSection(train=train, cleaning=CleaningSection(**cleaning_options(languages)))
    return planning.plan(corpus, data, languages, *args, **fields)


@pytest.fixture(autouse=True)
def small_memory(monkeypatch):
    """Memory in proportion to the batch, 1 GB for 1,024 tokens: the prediction has tests of its own."""
    monkeypatch.setattr(planning, "_peak", lambda recipe, tokens, machine: tokens * 10**6)


@pytest.mark.parametrize(
    ("pairs", "cpu", "gpu", "vocabulary"),
    [
        (300, TINY, TINY, 2000),
        (9_999, TINY, TINY, 2000),
        (10_000, SMALL, SMALL, 8000),
        (99_999, SMALL, SMALL, 8000),
        (100_000, SMALL, BASE, 16_000),
        (999_999, SMALL, BASE, 16_000),
        (40_000_000, SMALL, DEEP, 32_000),
    ],
)
def test_sizes_grow_with_the_corpus_and_the_device(pairs, cpu, gpu, vocabulary):
    row = row_for(pairs)
    assert (row.cpu, row.gpu, row.vocabulary) == (cpu, gpu, vocabulary)
    for machine, shape in ((CPU, cpu), (GPU, gpu)):
        values = plan(corpus(pairs), LANGUAGES, "runs/x", machine).values
        assert values["tokenizer"] == {"vocab_size": vocabulary}
        assert (values["model"]["encoder_layers"], values["model"]["decoder_layers"]) == shape.layers
        assert values["model"]["d_model"] == shape.width
    assert [row.pairs for row in ROWS] == sorted({row.pairs for row in ROWS})


def test_updates_are_epochs_within_limits():
    """A small corpus gets a floor of updates, a large one on a CPU a ceiling; evaluations divide them."""
    steps = {
        (pairs, machine.kind): plan(corpus(pairs), LANGUAGES, "x", machine).values["training"]["max_steps"]
        for pairs in (300, 29_000, 400_000, 40_000_000)
        for machine in (CPU, GPU)
    }
    assert steps[300, "cpu"] == 500
    assert 2_500 < steps[29_000, "cpu"] < 3_500  # 12 epochs, as in model_cards/multi30k-long
    assert steps[400_000, "cpu"] == steps[40_000_000, "cpu"] == 10_000
    assert steps[400_000, "gpu"] > 10_000
    assert steps[40_000_000, "gpu"] == 100_000


@pytest.mark.parametrize(("language", "metric"), [("de", "bleu"), ("zh-TW", "bleu"), ("th", "chrf"), ("my-MM", "chrf")])
def test_bleu_chooses_the_weights_where_there_are_words(language, metric):
    """sacreBLEU takes a Thai sentence for one word: its BLEU is 0 without an n-gram of 4 words."""
    made = plan(corpus(29_000), ["en", language], "x", CPU)
    assert made.values["training"]["metric_for_best_model"] == f"eval_{metric}"


def test_updates_and_epochs_count_the_tokens_of_all_processes():
    """512 tokens are the least of a process, so 16 of them make updates of 8,192 instead of 2,048."""
    one, several = (plan(corpus(60_000), LANGUAGES, "x", replace(CPU, processes=count)) for count in (1, 16))
    updates = [made.values["training"]["max_steps"] for made in (one, several)]
    assert updates[0] > 2 * updates[1]
    given = plan(corpus(60_000), LANGUAGES, "x", CPU, {"training.max_tokens": 512}).values["training"]
    assert (given["max_tokens"], given["gradient_accumulation_steps"]) == (512, 4)


def test_the_batch_shrinks_to_the_memory_and_is_accumulated():
    large, small = (plan(corpus(2_000_000), LANGUAGES, "x", replace(GPU, free=free)) for free in (80e9, 5.5e9))
    assert large.values["training"]["max_tokens"] == 8192
    assert large.values["training"]["gradient_accumulation_steps"] == 4
    assert small.values["training"]["max_tokens"] == 4096
    assert small.values["training"]["gradient_accumulation_steps"] == 8
    several = plan(corpus(2_000_000), LANGUAGES, "x", replace(GPU, processes=8)).values["training"]
    assert several["max_tokens"] == 4096 and "gradient_accumulation_steps" not in several
    assert "too little, choose a smaller model" in plan(corpus(300), LANGUAGES, "x", replace(CPU, free=10**9)).lines[2]


def test_the_file_is_the_recipe_with_reasons(tmp_path):
    """What is written is read as the values that were chosen, by every check of recipes."""
    made = plan(corpus(5000, split_off={"valid": 250, "test": 250}, example="- it's: 5 #"), LANGUAGES, "runs/x", CPU)
    text = recipe_text(made, ["train", "--source", "my train.en"], "runs/x.yaml")
    assert yaml.safe_load(text) == made.values
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    recipe = load_recipe(path)
    assert recipe.training.load_best_model_at_end and recipe.training.metric_for_best_model == "eval_bleu"
    assert recipe.training.logging_steps == 50
    assert recipe.training.save_total_limit == recipe.evaluation.average_last + 1
    assert recipe.training.eval_steps == recipe.training.save_steps
    assert recipe.training.max_steps % recipe.training.eval_steps == 0
    assert text.startswith("# Written by: admin-nmt train --source 'my train.en'\n")
    assert "  vocab_size: 2000  # below 10,000 pairs" in text
    assert "- it's: 5 #" in recipe.card.example
    assert all(fact in "\n".join(made.lines) for fact in ("5,000 pairs", "250 for valid", "updates of"))


def test_fields_of_the_command_line_are_kept():
    given = {"training.max_steps": 30, "model.encoder_layers": 12, "data.cleaning.max_words": 9}
    made = plan(corpus(5000), LANGUAGES, "runs/x", CPU, given)
    text = recipe_text(made, [], "x.yaml")
    assert "  encoder_layers: 12  # given on the command line\n" in text
    assert made.values["training"]["eval_steps"] == 30  # else a short run would never be evaluated
    assert made.values["data"]["cleaning"] == {"drop_held_out": "either", "max_words": 9}
    often = plan(corpus(5000), LANGUAGES, "runs/x", CPU, {"training.eval_steps": 7}).values["training"]
    assert often["save_steps"] == often["eval_steps"] == 7
    whole = plan(corpus(5000), LANGUAGES, "runs/x", CPU, {"tokenizer": {"vocab_size": 300}})
    assert "\n  vocab_size: 300  # given on the command line\n" in recipe_text(whole, [], "x.yaml")


@pytest.mark.parametrize(
    ("given", "reason", "line"),
    [
        (
            {"evaluation.average_last": 3},
            "save_total_limit: 4  # 3 to average",
            "or the average of the last 3",
        ),
        ({"evaluation.average_last": 0}, "save_total_limit: 2  # last", "then the best weights by BLEU"),
        ({"evaluation.always_average": True}, "5  # taken whatever", "then the average of the last 5"),
        ({"evaluation.num_beams": 8}, "scored with 8 beams", "by BLEU"),
        ({"training.metric_for_best_model": "eval_loss"}, "without a better validation NLL", "by validation NLL"),
        ({"training.gradient_accumulation_steps": 3}, "max_tokens: 1024", "updates of 3,072 tokens"),
        ({"training.load_best_model_at_end": False, "training.eval_steps": 0.1}, "save_steps: 0.1", "the last weights"),
        ({"data.cleaning": {"max_words": 9}}, "cleaning: {max_words: 9}  # given", "updates of"),
    ],
)
def test_reasons_and_lines_say_what_the_recipe_does_in_the_end(given, reason, line):
    made = plan(corpus(5000), LANGUAGES, "runs/x", CPU, given)
    assert reason in recipe_text(made, [], "x.yaml")
    assert line in made.lines[1]


def test_memory_is_that_of_the_model_that_is_asked_for(monkeypatch):
    monkeypatch.undo()
    usual, deep = (
        plan(corpus(5000), LANGUAGES, "x", CPU, given).lines[2]
        for given in ({}, {"model.encoder_layers": 6, "model.d_model": 256})
    )
    gigabytes = [float(line.split()[1]) for line in (usual, deep)]
    assert gigabytes[1] > 1.5 * gigabytes[0]


def test_a_gpu_gets_bf16():
    made = plan(corpus(200_000), LANGUAGES, "x", GPU)
    assert made.values["training"]["bf16"] is True
    assert made.values["training"]["activation_checkpointing"] == "auto"
    assert "bf16" not in plan(corpus(200_000), LANGUAGES, "x", CPU).values["training"]
