"""Whether the package works beside other releases of transformers than the one in constraints.txt; .ci/run calls this.

python tests/versions.py [README]   # with the package and its dev extra; prints a table, or puts its rows into a file

Each release gets an environment that holds what differs from this one, whose other packages it sees. Three things are
tried there: the core tests; model folders with code, without this package; exported folders, without it either.
.ci/versions does the same under other releases of Python and torch.
"""

import os
import re
import subprocess
import sys
import sysconfig
from configparser import ConfigParser
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from model_outputs import outputs

ROOT = Path(__file__).parents[1]
CORE = [
    "tests/model/test_modeling_admin.py",
    "tests/trainer/test_admin_trainer.py",
    "tests/trainer/test_hooks.py",
    "tests/trainer/test_optimizers.py",
    "tests/decoding/search/test_generation.py",
    "tests/decoding/search/test_beam_search.py",
    "tests/weights/test_folding.py",
    "tests/weights/test_exporting.py",
    "tests/hub/test_hub.py",
]
# The other columns of the table are what this one tries.
NOT_CORE = "not without_the_package"
EXPORTS = {"admin": "MarianMTModel", "deepnorm": "MarianMTModel", "pre_ln": "PegasusForConditionalGeneration"}
TEXTS = ["Bal do kitu.", "Re mun dol ba kiro tu.", "Muro rel."]
BETWEEN, LAST_4 = "5.16.0", "4.57.6"
RULE = "|---|---|---|---|---|---|"  # below the heads of the table's columns


def main(readme: Path | None = None) -> None:
    """Try every release, in the order of the table."""
    rows = []
    with TemporaryDirectory() as name:
        work = Path(name)
        write(work / "models")
        for title, requirements in releases().items():
            python = environment(work / title, requirements)
            rows.append(row(python, work, title))
            print(rows[-1], flush=True)
    if readme is not None:
        add_rows(readme, rows)
    if any("FAILED" in line for line in rows):
        sys.exit(1)


def releases() -> dict[str, list[str]]:
    """What pip is to install for each row of the table, by the row's name."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    bounds = re.findall(r"^(\w+)>=([\d.]+)", setup["options"]["install_requires"], re.MULTILINE)
    lowest = [f"{name}=={bound}" for name, bound in bounds if name != "torch"]
    if sys.version_info >= (3, 13):  # for which the lowest numpy, matplotlib and pydantic have no wheels
        lowest = [requirement for requirement in lowest if requirement.startswith("transformers==")]
    return {
        "4.x": [f"transformers=={LAST_4}"],
        "oldest": lowest,
        "between": [f"transformers=={BETWEEN}"],
        "newest": ["transformers"],
    }


def environment(folder: Path, requirements: list[str]) -> Path:
    """The Python of a new environment which has the requirements, and behind them the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    found = list(folder.glob("lib/python*/site-packages"))
    # Editable packages of this environment, such as ours, cannot be imported there: they have .pth files of their own.
    (found[0] / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--upgrade", "--only-binary", ":all:"]
    done = subprocess.run([*pip, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"pip cannot install {' '.join(requirements)}:\n{done.stdout}{done.stderr}")
    return python


def row(python: Path, work: Path, title: str) -> str:
    """A line of the table."""
    program = "import torch, transformers; print(torch.__version__.split('+')[0], transformers.__version__)"
    torch_release, release = run([python, "-c", program], work).stdout.split()
    if title == "4.x":
        cells = [refusal(python, work), "not there in 4.x", loads(python, work, "standard")]
    else:
        cells = [core_tests(python, work), loads(python, work, "final"), loads(python, work, "standard")]
    name = f"{release}, all others as low as allowed" if title == "oldest" and sys.version_info < (3, 13) else release
    return f"| {sys.version_info.major}.{sys.version_info.minor} | {torch_release} | {name} | {' | '.join(cells)} |"


def run(command: list, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
    """A process that inherits no PYTHONPATH, and keeps the code of models that it loads in `cwd`."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = inherited | {"HF_MODULES_CACHE": str(cwd / "modules"), "HF_HUB_OFFLINE": "1"} | variables
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def core_tests(python: Path, work: Path) -> str:
    """How many of them passed."""
    marked = ["-m", "not slow and not gpu and not shared", "-k", NOT_CORE]
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *marked, *CORE]
    done = run(pytest, ROOT, PYTHONPATH=str(ROOT), HF_MODULES_CACHE=str(work / "modules"), HF_HUB_OFFLINE="0")
    if done.returncode:
        print(done.stdout[-20000:], done.stderr[-5000:], file=sys.stderr)
        return "FAILED"
    return re.search(r"\d+ passed", done.stdout)[0]


def refusal(python: Path, work: Path) -> str:
    """Whether the package refuses this release."""
    done = run([python, "-c", "from admin_nmt import AdminConfig"], work, PYTHONPATH=str(ROOT))
    if done.returncode and "admin_nmt needs it" in done.stderr.splitlines()[-1]:
        return "refused in a sentence"
    print(done.stderr, file=sys.stderr)
    return "FAILED"


def loads(python: Path, work: Path, kind: str) -> str:
    """Whether this environment runs the folders as the one that wrote them."""
    done = run([python, __file__, "check", work / "models", kind], work, PYTHONPATH=str(ROOT / "tests"))
    if done.returncode:
        print(done.stderr[-5000:], file=sys.stderr)
    return "FAILED" if done.returncode else "the same"


def write(folder: Path) -> None:
    """A small trained model of each kind with its export, and the logits, beams and translations of both."""
    from toy import learn_to_copy, random_texts, small_config, toy_tokenizer

    from admin_nmt import AdminForConditionalGeneration, export_standard
    from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers

    tokenizer = toy_tokenizer()
    for variant in EXPORTS:
        torch.manual_seed(0)
        config = small_config(variant=variant, vocab_size=len(tokenizer), d_model=32, encoder_layers=4)
        model = AdminForConditionalGeneration(config)
        learn_to_copy(model, tokenizer, tokenizer, random_texts(24, seed=7), updates=60)
        export_standard(model, tokenizer, folder / variant / "standard")
        model.save_pretrained(folder / variant / "final")
        save_tokenizers(folder / variant / "final", tokenizer)
        torch.save(expected(model, tokenizer), folder / f"{variant}.pt")


def expected(model, tokenizer) -> dict:
    """What [`outputs`] says about a model, given `TEXTS`."""
    inputs = dict(tokenizer(TEXTS, return_tensors="pt", padding=True))
    return outputs(model, tokenizer, TEXTS, **inputs, decoder_input_ids=inputs["input_ids"].roll(1, 1))


def check(models: Path, kind: str) -> None:
    """Compare every model's folder `kind`, as this environment runs it without the package, with what is expected."""
    from importlib.util import find_spec

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    assert find_spec("admin_nmt") is None
    for variant, stock_class in EXPORTS.items():
        folder, code = models / variant / kind, {"trust_remote_code": kind == "final"}
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, **code)
        found = expected(model.eval(), AutoTokenizer.from_pretrained(folder, **code))
        wanted = torch.load(models / f"{variant}.pt")
        assert found["class"] == ("AdminForConditionalGeneration" if kind == "final" else stock_class), found["class"]
        torch.testing.assert_close(found["logits"][..., :-1], wanted["logits"][..., :-1], rtol=1e-4, atol=1e-4)
        assert found["beams"] == wanted["beams"], variant
        assert found["translations"] == wanted["translations"], variant


def add_rows(readme: Path, rows: list[str]) -> None:
    """Put the rows on top of a file's table, in place of those of the same Python and torch."""
    lines = readme.read_text(encoding="utf-8").splitlines()
    top = lines.index(RULE) + 1
    kept = [line for line in lines[top:] if line.split("|")[1:3] != rows[0].split("|")[1:3]]
    readme.write_text("\n".join([*lines[:top], *rows, *kept]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(Path(sys.argv[2]), sys.argv[3])
    else:
        main(*map(Path, sys.argv[1:]))
