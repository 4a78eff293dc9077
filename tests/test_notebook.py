"""The notebook, cell by cell as a reader runs it, with fewer updates and pushing to a Hub in memory."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "training" / "notebooks" / "quickstart.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_it_is_stored_without_outputs_and_its_links_lead_somewhere():
    """Outputs would be of another state of the code, and differ in every commit."""
    for cell in cells("code"):
        assert not cell["outputs"] and cell["execution_count"] is None, cell["source"]
    for cell in cells("markdown"):
        for target in re.findall(r"\]\(([^)]+)\)", "".join(cell["source"])):
            assert "://" in target or (NOTEBOOK.parent / target).is_file(), target


@pytest.mark.slow
def test_it_runs_and_pushes(hub, tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    settings = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_HOME", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    (place,) = [index for index, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ())]
    settings = nbformat.v4.new_code_cell("pairs, updates = 1000, 8\nhub_name = 'user/phrasebook'")
    notebook.cells.insert(place + 1, settings)
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": tmp_path}}).execute()
    printed = {output.name: output.text for cell in notebook.cells[-2:] for output in cell.get("outputs", ())}
    assert "pushed user/phrasebook and user/phrasebook-admin" in printed["stdout"]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    for name, kind in (("phrasebook", "MarianMTModel"), ("phrasebook-admin", "AdminForConditionalGeneration")):
        files = hub.repos[f"user/{name}"].head
        assert json.loads(files["config.json"].content)["architectures"] == [kind]
        assert {"model.safetensors", "tokenizer.json", "README.md"} <= files.keys()
