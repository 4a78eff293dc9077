"""Output of translate for a line, and the options that decide it."""

import json

import numpy as np
from toy import invoke, random_texts
from typer.testing import Result

from admin_nmt import Translator
from admin_nmt.decoding.file_translation import one_line
from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search.forced_decoding import default_layer
from admin_nmt.decoding.translation_formats import json_line, nbest_lines, text_line
from admin_nmt.decoding.translator import Translation

ALIGNED = Translation("x\ny", -0.5, -1.5, [" x", " y"], [" a", " b"], np.array([[0.1, 0.9], [0.8, 0.2]]))
PLAIN = Translation("z", -0.75, -1.5, [" z"], [" a", " b"])


def test_a_line_of_each_format():
    assert text_line("a b", [PLAIN]) == "z"
    assert text_line("a b", [ALIGNED, PLAIN]) == "x y ||| 0-1 1-0"
    assert nbest_lines("a b", [ALIGNED, PLAIN]) == "x y ||| -0.5000 ||| 0-1 1-0\nz ||| -0.7500"
    first = {"text": "x\ny", "score": -0.5, "log_prob": -1.5, "tokens": [" x", " y"], "alignment": [[0, 1], [1, 0]]}
    second = {"text": "z", "score": -0.75, "log_prob": -1.5, "tokens": [" z"]}
    expected = {"source": "a b", "source_tokens": [" a", " b"], "translations": [first, second]}
    assert json.loads(json_line("a b", [ALIGNED, PLAIN])) == expected
    assert "\n" not in json_line("a b", [ALIGNED])


def lines(result: Result) -> list[str]:
    """Lines that a command wrote, where toy models write any character."""
    return result.stdout_bytes.decode().split("\n")[:-1]


def test_the_command_writes_what_the_library_gives(model_folder):
    translator, texts = Translator.from_pretrained(model_folder, num_beams=3), [*random_texts(3), ""]
    stdin, beams = "".join(f"{text}\n" for text in texts), ("--num-beams", 3)
    found = translator.translations(texts, nbest=2, alignment_layer=default_layer(translator.model))
    lists = [nbest_lines(text, rows).split("\n") for text, rows in zip(texts, found, strict=True)]
    expected = [f"{number} ||| {line}" for number, rows in enumerate(lists) for line in rows]
    result = invoke("translate", model_folder, *beams, "--nbest", 2, "--alignment", "--chunk", 2, stdin=stdin)
    assert lines(result) == expected
    result = invoke(
        "translate", model_folder, *beams, "--alignment-layer", -2, "--format", "jsonl", "--nbest", 2, stdin=stdin
    )
    objects = [json.loads(json_line(text, rows)) for text, rows in zip(texts, found, strict=True)]
    assert [json.loads(line) for line in lines(result)] == objects
    sampling = "--sampling --seed 5 --top-k 9 --temperature 0.5 --batch-tokens 9"
    drawn = invoke("translate", model_folder, *sampling.split(), stdin=stdin)
    assert lines(drawn) == list(map(one_line, translator.translate(texts, sampling=Sampling(5, 9, 0.5))))
    prefixed = "\n".join(f"{text}\tki" for text in texts[:2])
    wanted = translator.translate(texts[:2], target_prefixes=["ki", "ki"], forbidden=["ba", "do"])
    wanted = list(map(one_line, wanted))
    forbid = ("--forbid", "ba", "--forbid", "do")
    assert lines(invoke("translate", model_folder, *beams, *forbid, "--prefixed-input", stdin=prefixed)) == wanted
    result = invoke("translate", model_folder, *beams, *forbid, "--target-prefix", "ki", stdin="\n".join(texts[:2]))
    assert lines(result) == wanted
    ensemble = Translator.from_pretrained([model_folder, model_folder], num_beams=3).translate(texts)
    assert lines(invoke("translate", model_folder, model_folder, *beams, stdin=stdin)) == list(map(one_line, ensemble))


def test_the_beam_is_that_of_the_model_unless_told_otherwise(model_folder):
    """As its card was made; 5 where it has none."""

    def refusal(nbest: int) -> str:
        return " ".join(invoke("translate", model_folder, "--text", "ba do.", "--nbest", nbest, code=1).stderr.split())

    assert "num_beams is 5" in refusal(6)
    path = model_folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_beams": 2}))
    assert "num_beams is 2" in refusal(3)
    for options, beams in (((), 2), (("--num-beams", 1), 1)):
        expected = Translator.from_pretrained(model_folder, num_beams=beams).translate(["ba do."])
        assert lines(invoke("translate", model_folder, "--text", "ba do.", *options)) == expected
