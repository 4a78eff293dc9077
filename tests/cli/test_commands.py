"""The command line, in this process where that is enough; what it writes is compared with the library's functions."""

import json
import math
import re
import shutil
import subprocess
import sys
from errno import ENOSPC
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
import typer
from safetensors import SafetensorError
from toy import error, invoke, random_texts, started_translation, toy_tokenizer
from typer.testing import CliRunner

from admin_nmt import AdminForConditionalGeneration, Translator
from admin_nmt.cli.app import app, main
from admin_nmt.cli.parsing import WithOverrides
from admin_nmt.data.parallel_text import load_parallel
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.decoding.scoring import encode_pairs, score_pairs
from admin_nmt.decoding.usual_scores import UsualScores
from admin_nmt.hub.model_folder import read_config
from admin_nmt.hub.model_info import export_outlook
from admin_nmt.metrics.scores import corpus_scores, reference_rows
from admin_nmt.system.errors import describe
from admin_nmt.trainer.evaluation import evaluate_translator
from admin_nmt.weights.exporting import ExportError, standard_model
from admin_nmt.weights.folding import FoldingError, fold_omega
from admin_nmt.weights.omega import stored_omega


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_the_overview_is_whole_and_every_command_has_examples():
    overview = invoke("--help").stdout
    assert "..." not in overview.split("\n\n", 2)[2]  # every short help is whole
    for name, command in typer.main.get_command(app).commands.items():
        for inner in getattr(command, "commands", [""]):
            line = f"{name} {inner}".strip()
            assert f"\n  admin-nmt {line} " in invoke(*line.split(), "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("translate model --text a --input b", "--input"),
        ("translate model --split-sentences --nbest 2", "--split-sentences"),
        ("translate model --sampling --num-beams 4", "--num-beams"),
        ("translate model --top-k 4", "--sampling"),
        ("translate model --compute-type int8", "compute_type"),
        ("model card model --repo nonsense", "'nonsense'"),
        ("train", "RECIPE"),
        ("train --source a.en --source b.en --target a.de", "--target"),
        ("train phrasebook --languages en", "--languages"),
        ("train x.yaml --training.max_steps", "--training.max_steps"),
        ("synthesize model --input a --generates source --output out.txt", ".tsv"),
        ("model export m --output x --quantization int8", "--ctranslate2"),
        ("model average a b --last 2 --output x", "--last"),
    ],
)
def test_wrong_usage_is_refused_by_name(arguments, named):
    assert named in error(*arguments.split(), code=2)


def test_dashes_and_underscores_are_alike():
    for name in ("--num-beams", "--num_beams"):
        assert "'--num-beams'" in error("translate", "model", name, 0, code=2)
    assert invoke("model", "convert_fairseq", "--help").stdout == invoke("model", "convert-fairseq", "--help").stdout


def test_fields_of_a_recipe_are_options():
    """Of sections or whole sections, anywhere on the line, with a space or =."""
    seen, small = [], typer.Typer()

    @small.command(cls=WithOverrides)
    def command(ctx: typer.Context, recipe: str):
        seen.extend([recipe, *ctx.meta["overrides"]])

    line = ["--training.max-steps", "-1", "x.yaml", "--output_dir=runs/x-y", "--data", "{builtin: phrasebook}"]
    line += ["--languages", "[fr, de]", "--languages", "en", "no"]
    assert CliRunner().invoke(small, line, catch_exceptions=False).exit_code == 0
    given = ["--training.max_steps", "-1", "--output_dir", "runs/x-y", "--data", "{builtin: phrasebook}"]
    given += ["--languages", "[fr, de]", "--languages", '["en", "no"]']
    assert seen == ["x.yaml", *given]


def test_help_and_wrong_usage_load_nothing_heavy():
    """Whatever can be wrong on the command line is told before the library is loaded."""
    program = """
import sys
from typer.testing import CliRunner
from admin_nmt.cli.app import app, main
commands = ["--help", "train --help", "translate", "translate m --nonsense", "translate m --num-beams 0"]
commands += ["recipe --list", "train x.yaml --training.max_steps", "train nowhere.yaml", "compare a", "memory"]
commands += ["train --source no.en --target no.de", "train --source no.tsv x.yaml"]
print(*(CliRunner().invoke(app, command.split()).exit_code for command in commands))
print(*sys.modules)
"""
    program = f"import sys; sys.argv[0] = 'admin-nmt'\n{program}"  # as the command line that it is
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    codes, loaded = map(str.split, result.stdout.splitlines())
    assert " ".join(codes) == "0 0 2 2 2 0 2 1 2 2 1 1"
    heavy = {"torch", "transformers", "datasets", "pyarrow", "sacrebleu", "accelerate", "matplotlib", "numpy", "yaml"}
    assert not heavy & set(loaded)


def test_an_interrupt_is_one_line_and_130_and_a_bug_keeps_its_traceback(model, monkeypatch):
    def fail(folder):
        raise problem

    monkeypatch.setattr("admin_nmt.hub.model_info.model_info", fail)
    problem = KeyboardInterrupt()
    assert "interrupted" in error("model", "info", model, code=130)
    problem = KeyError("absent")
    with pytest.raises(KeyError):
        invoke("model", "info", model)


def test_outputs_are_checked_before_any_work(tmp_path):
    """The model, which is not there, is not even looked for."""
    (tmp_path / "in").write_text("a\n")
    sides = ["--source", tmp_path / "in", "--target", tmp_path / "in"]
    for command in (
        ["translate", "no-model"],
        ["score", "no-model", *sides],
        ["evaluate", "no-model", *sides, "--language", "de"],
    ):
        for output in (tmp_path, "/dev/null", "no/out"):
            assert str(output) in error(*command, "--output", output, code=2)
    same = ["--input", tmp_path / "in", "--output", tmp_path / "in"]
    assert "--output" in error("translate", "no-model", *same, code=2)
    assert "'german'" in error("evaluate", "no-model", *sides, "--language", "german", code=2)


def test_translate_keeps_lines(model, tmp_path):
    first, second = random_texts(2)
    source = [first, "", "   ", second, first]
    expected = Translator.from_pretrained(model, num_beams=2, batch_tokens=9).translate(source)
    options = ["--num-beams", 2, "--batch-tokens", 9, "--chunk", 2]
    result = invoke("translate", model, *options, stdin="\n".join(source))
    assert result.stdout == "".join(f"{line}\n" for line in expected)
    (tmp_path / "in").write_text("\n".join(source))
    assert invoke("translate", model, *options, "--input", tmp_path / "in", "--output", tmp_path / "out").stdout == ""
    assert (tmp_path / "out").read_text() == result.stdout
    assert invoke("translate", model, "--num-beams", 2, "--text", first).stdout == f"{expected[0]}\n"


def test_translate_goes_on_and_refuses_another_model(model, tmp_path, monkeypatch):
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in random_texts(9)))
    command = ["translate", model, "--input", tmp_path / "in", "--chunk", 2, "--num-beams", 2, "--output"]
    invoke(*command, tmp_path / "straight")
    translate, calls = Translator.translate, []

    def interrupted(self, sentences, **options):
        calls.append(sentences)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return translate(self, sentences, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", interrupted)
        invoke(*command, tmp_path / "out", code=130)
    weights = model / "model.safetensors"
    kept = weights.read_bytes()
    AdminForConditionalGeneration(AdminForConditionalGeneration.from_pretrained(model).config).save_pretrained(model)
    assert "out.partial was made with model" in error(*command, tmp_path / "out")
    weights.write_bytes(kept)
    assert "after the 4 finished lines" in invoke(*command, tmp_path / "out").stderr
    assert (tmp_path / "out").read_bytes() == (tmp_path / "straight").read_bytes()
    assert not list(tmp_path.glob("*.partial*"))


def test_a_bad_line_leaves_nothing_behind(model, tmp_path):
    (tmp_path / "in").write_bytes(b"fine\n\xff\n")
    message = error("translate", model, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert "in: line 2" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "model"]
    assert "absent" in error("translate", model, "--input", tmp_path / "absent")


def test_score(model, files, tmp_path):
    translator = Translator.from_pretrained(model)
    sides = encode_pairs(load_parallel(files[1], files[3]), translator.tokenizer, translator.target_tokenizer)
    expected = score_pairs(translator.model, *sides)
    result = invoke("score", model, *files, "--batch-tokens", 40)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [float(row[0]) for row in rows] == pytest.approx([sum(row) for row in expected], abs=1e-3)
    assert [int(row[1]) for row in rows] == [len(target) for target in sides[1]]
    tokens = sum(map(len, expected))
    perplexity, *others = map(float, re.findall(r"[\d.]+", result.stderr.splitlines()[-1]))
    assert perplexity == pytest.approx(math.exp(-sum(map(sum, expected)) / tokens), rel=1e-4)
    assert others == [tokens, 7]
    assert invoke("score", model, *files, "--tokens", "--output", tmp_path / "out.jsonl").stdout == ""
    for line, row, ids in zip(lines(tmp_path / "out.jsonl"), expected, sides[1], strict=True):
        record = json.loads(line)
        assert record["tokens"] == translator.tokenizer.convert_ids_to_tokens(ids)
        assert record["token_log_probs"] == pytest.approx(row, abs=1e-4)
        assert record["log_prob"] == pytest.approx(sum(row), abs=1e-3)
    (tmp_path / "target").write_text("one\n")
    assert "target" in error("score", model, *files)


def test_evaluate(model, files, tmp_path):
    command = ["evaluate", model, *files, "--num-beams", 2, "--output", tmp_path / "out"]
    assert "--language" in error(*command)
    result = invoke(*command, "--language", "de")
    translator = Translator.from_pretrained(model, num_beams=2, dtype="float32")
    translations, expected = evaluate_translator(translator, load_parallel(files[1], files[3]), "de")
    found = json.loads(result.stdout)
    assert found.pop("precision") == "float32"
    assert found == pytest.approx(expected)
    assert lines(tmp_path / "out") == translations
    (model / "README.md").write_text("---\nlanguage: [en, de]\ntags: [admin_nmt]\n---\n")
    assert invoke(*command).stdout == result.stdout  # the model tells its language
    one, other = tmp_path / "one", tmp_path / "other"
    other.write_text("".join(f"{line} x\n" for line in lines(Path(files[3]))))
    one.write_text("one\n")
    assert str(one) in error(*command, "--more-references", one)
    several = json.loads(invoke(*command, "--more-references", other).stdout)
    scores = corpus_scores(translations, reference_rows([lines(Path(files[3])), lines(other)]), "de")
    assert {name: several[name] for name in scores} == pytest.approx(scores)
    assert several["bleu_signature"].startswith("nrefs:2|")


def test_profile_measures_a_new_model(model, files, tmp_path):
    command = ["model", "profile", model, *files]
    printed = invoke(*command, "--output", tmp_path / "fresh").stdout
    table = dict(line.split("\t") for line in printed.splitlines())
    assert len(table) == 3 * 2 + 2 * 3
    fresh = AdminForConditionalGeneration.from_pretrained(tmp_path / "fresh")
    assert fresh.config.omega_profiled
    for name, value in table.items():
        stack, layer, sublayer = name.split()
        omega = fresh.get_buffer(f"model.{stack}.layers.{layer}.{sublayer}_residual.omega")
        torch.testing.assert_close(omega, torch.full_like(omega, float(value)), atol=1e-6, rtol=0)
    assert float(table["encoder 0 self_attn"]) == 1.0 < float(table["encoder 2 ffn"])
    (model / "model.safetensors").unlink()
    assert invoke(*command).stdout == printed  # the same seed, the same table; weights are not read
    assert invoke(*command, "--mode", "reference").stdout != printed
    assert invoke(*command, "--seed", 1).stdout != printed


def test_fold_and_export_translate_the_same(model, tmp_path):
    texts = "\n".join(random_texts(5))
    usual = UsualScores(sentences=100, mean=-0.5, deviation=0.1, low=-1.0)
    usual.save(model)
    expected = invoke("translate", model, stdin=texts).stdout
    for command, kind in (("fold", "admin"), ("export", "marian")):
        invoke("model", command, model, "--output", tmp_path / command)
        assert UsualScores.load(tmp_path / command) == usual
        assert json.loads((tmp_path / command / "config.json").read_text())["model_type"] == kind
        assert invoke("translate", tmp_path / command, stdin=texts).stdout == expected
        assert str(tmp_path / command) in error("model", command, model, "--output", tmp_path / command)  # not empty
    folded = AdminForConditionalGeneration.from_pretrained(tmp_path / "fold")
    for name, tensor in fold_omega(AdminForConditionalGeneration.from_pretrained(model)).state_dict().items():
        assert torch.equal(folded.state_dict()[name], tensor)
    assert "export" in error("model", "fold", tmp_path / "export", "--output", tmp_path / "again")


def test_what_has_no_standard_class_leaves_nothing(tmp_path, tiny_model, tokenizer):
    tiny_model(variant="dlcl_pre_ln", vocab_size=len(tokenizer)).save_pretrained(tmp_path / "model")
    save_tokenizers(tmp_path / "model", tokenizer)
    for command in ("fold", "export"):
        assert "dlcl_pre_ln" in error("model", command, tmp_path / "model", "--output", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def run(tmp_path, tiny_model, tokenizer) -> Path:
    """A run with three checkpoints, the last one cut off."""
    for update in (1, 2, 3):
        folder = tmp_path / "run" / f"checkpoint-{update}"
        tiny_model(vocab_size=len(tokenizer)).save_pretrained(folder)
        save_tokenizers(folder, tokenizer)
        if update < 3:
            (folder / "trainer_state.json").write_text("{}")
    return tmp_path / "run"


def test_a_run_stands_for_its_model(run, caplog):
    """For the standard model where text is translated, for the final one where that is needed."""
    assert f"{run}/checkpoint-3" in error("translate", run, "--text", "ba do.")  # as the run has not finished
    shutil.copytree(run / "checkpoint-1", run / "final")
    invoke("model", "export", run, "--output", run / "standard")
    caplog.clear()
    sentence = ["--text", "ba do.", "--num-beams", 2]
    asked = invoke("translate", run, *sentence)
    assert str(run / "standard") in caplog.messages[0]
    assert asked.stdout == invoke("translate", run / "standard", *sentence).stdout
    told = invoke("model", "info", run)
    assert str(run / "final") in caplog.messages[1]
    assert told.stdout == invoke("model", "info", run / "final").stdout


def test_average(run, tmp_path):
    checkpoints = [run / "checkpoint-1", run / "checkpoint-2"]
    invoke("model", "average", *checkpoints, "--output", tmp_path / "named")
    invoke("model", "average", run, "--last", 2, "--output", tmp_path / "last")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("named", "last")]
    assert weights[0] == weights[1] != (run / "checkpoint-2" / "model.safetensors").read_bytes()
    assert invoke("translate", tmp_path / "named", "--text", "ba do.").stdout
    assert "--last" in error("model", "average", run, "--last", 5, "--output", tmp_path / "more")


def test_info(model, tmp_path):
    facts = json.loads(invoke("model", "info", model, "--json").stdout)
    loaded = AdminForConditionalGeneration.from_pretrained(model)
    assert facts["parameters"] == sum(parameter.numel() for parameter in loaded.parameters())
    assert (facts["variant"], facts["encoder_layers"], facts["vocab_size"]) == ("admin", 3, len(toy_tokenizer()))
    (_, *measured), omega = facts["omega"][0], loaded.model.encoder.residual_blocks()[0].omega
    assert measured == pytest.approx([omega.min().item(), omega.mean().item(), omega.max().item()])
    assert len(facts["omega"]) == 12
    printed = invoke("model", "info", model).stdout
    assert "decoder 1 encoder_attn" in printed
    assert "MarianMTModel, folded" in printed
    invoke("model", "export", model, "--output", tmp_path / "standard")
    standard = json.loads(invoke("model", "info", tmp_path / "standard", "--json").stdout)
    assert standard["parameters"] == facts["parameters"]  # ω is no parameter


@pytest.mark.parametrize(
    "fields",
    [
        {"variant": "admin"},
        {"variant": "admin", "train_omega": True},
        {"variant": "pre_ln"},
        {"variant": "pre_ln", "share_encoder_decoder_embeddings": False},
        {"variant": "dlcl_post_ln"},
        {"positions": "fairseq"},
        {"score_padding": True},
        {"decoder_start_token_id": 0},
        {"omega": (0, 0.5)},
        {"omega": (1, 1e-4)},
    ],
    ids=str,
)
def test_info_foresees_what_the_export_says(tmp_path, tiny_model, fields):
    model = tiny_model(**{name: value for name, value in fields.items() if name != "omega"})
    if "omega" in fields:
        sublayer, value = fields["omega"]
        model.model.encoder.residual_blocks()[sublayer].omega[0] = value
    model.save_pretrained(tmp_path)
    config = read_config(tmp_path)
    outlook = export_outlook(config, stored_omega(tmp_path, config))
    try:
        assert outlook.startswith(type(standard_model(model)).__name__)
    except (ExportError, FoldingError) as refusal:
        assert outlook == f"none: {refusal}"


def test_neither_folder_nor_repository(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "nobody/nothing" in error("model", "info", "nobody/nothing")
    monkeypatch.setattr("admin_nmt.hub.model_folder.snapshot_download", lambda *_, **__: pytest.fail("asked the Hub"))
    for name in ("no/such/folder", "./nothing", "../nothing", "/nothing", "~/nothing", "nothing/", __file__):
        assert name in error("model", "info", name)


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(model):
    """As with `| head -1`."""
    source = "".join(f"{line}\n" for line in random_texts(60))
    process = started_translation(model, "--num-beams", 1, "--chunk", 1, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    process.stdin.write(source)
    process.stdin.close()
    assert process.stdout.readline()
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait() == 141
    assert "Traceback" not in stderr
    assert "BrokenPipe" not in stderr


def test_streams_that_the_shell_has_closed_are_empty(model, monkeypatch):
    """`translate` reads none of them, and writes to none."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(sys, "argv", ["admin-nmt", "translate", str(model), "--num-beams", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        (OSError(ENOSPC, "No space left on device", "/runs/x.bin"), "/runs/x.bin is full"),
        (SafetensorError("Error: IoError: No space left on device (os error 28)"), "disk is full"),
        (FileNotFoundError(2, "No such file or directory", "/runs/y"), "/runs/y: "),
    ],
)
def test_errors_of_the_system_are_told_in_words(problem, named):
    assert named in describe(problem)
