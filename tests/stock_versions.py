"""Whether exported folders run alike with nothing but torch and some release of transformers; .ci/run calls this.

python tests/stock_versions.py write FOLDER   # in the environment of the tests: models and what they should give
python tests/stock_versions.py releases       # what to check: the newest and the oldest that setup.cfg allows, and 4.x
python tests/stock_versions.py check FOLDER   # in one that has only torch and transformers
"""

import configparser
import re
import sys
from pathlib import Path

import torch
import transformers
from stock_worker import outputs
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

VARIANTS = {"admin": "MarianMTModel", "deepnorm": "MarianMTModel", "pre_ln": "PegasusForConditionalGeneration"}
LAST_4 = "transformers==4.57.6"
TEXTS = ["Bal do kitu.", "Re mun dol ba kiro tu.", "Muro rel."]


def releases() -> None:
    """Print the requirements of pip that .ci/run checks, in its order."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[1] / "setup.cfg")
    allowed = re.search(r"^transformers(>=([\d.]+)\S*)$", setup["options"]["install_requires"], re.MULTILINE)
    print(f"transformers{allowed[1]}", f"transformers=={allowed[2]}", LAST_4, sep="\n")


def write(folder: Path) -> None:
    """Export a small trained model of each kind, with the logits, beams and translations of the model it came from."""
    from toy import random_texts, toy_tokenizer

    from admin_nmt import AdminConfig, AdminForConditionalGeneration
    from admin_nmt.exporting import export_standard

    tokenizer = toy_tokenizer()
    batch = tokenizer(random_texts(24, seed=7), return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for variant in VARIANTS:
        torch.manual_seed(0)
        size = {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
        config = AdminConfig(
            variant=variant, vocab_size=len(tokenizer), d_model=32, encoder_layers=4, decoder_layers=2, dropout=0.0,
            encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=64, **size,
        )  # fmt: skip
        model = AdminForConditionalGeneration(config).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(60):
            optimizer.zero_grad()
            model(**batch, labels=labels).loss.backward()
            optimizer.step()
        export_standard(model.eval(), tokenizer, folder / variant)
        torch.save(expected(model, tokenizer), folder / f"{variant}.pt")


def expected(model, tokenizer) -> dict:
    """What [`outputs`] says about a model, given `TEXTS`."""
    inputs = dict(tokenizer(TEXTS, return_tensors="pt", padding=True))
    return outputs(model, tokenizer, TEXTS, **inputs, decoder_input_ids=inputs["input_ids"].roll(1, 1))


def check(folder: Path) -> None:
    """Compare every model of the folder, as this environment runs it, with what is expected."""
    for variant, name in VARIANTS.items():
        tokenizer = AutoTokenizer.from_pretrained(folder / variant)
        found = expected(AutoModelForSeq2SeqLM.from_pretrained(folder / variant), tokenizer)
        wanted = torch.load(folder / f"{variant}.pt")
        assert found["class"] == name, found["class"]
        torch.testing.assert_close(found["logits"][..., :-1], wanted["logits"][..., :-1], rtol=1e-4, atol=1e-4)
        assert found["beams"] == wanted["beams"], variant
        assert found["translations"] == wanted["translations"], variant
    assert "admin_nmt" not in sys.modules
    print(f"transformers {transformers.__version__}: {', '.join(VARIANTS)} run alike")


if __name__ == "__main__":
    {"write": write, "releases": releases, "check": check}[sys.argv[1]](*map(Path, sys.argv[2:]))
