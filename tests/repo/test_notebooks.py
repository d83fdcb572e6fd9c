"""The notebooks of the documentation run, and print what is stored in them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = runpy.run_path(str(DOCS / "notebooks.py"), run_name="notebooks")
EACH = pytest.mark.parametrize("path", NOTEBOOKS["NOTEBOOKS"], ids=lambda path: path.stem)
MAX_BYTES = 300_000


@EACH
def test_a_notebook_prints_what_is_stored(path, tmp_path, monkeypatch):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path / "data"
    folder.mkdir()
    found, stored = NOTEBOOKS["run"](path, folder), path.read_text("utf-8")
    outputs = NOTEBOOKS["comparable_outputs"]
    assert outputs(found) == outputs(stored), "if that is right: python docs/notebooks.py"


@EACH
def test_a_notebook_is_small_and_has_no_trace_of_a_machine(path):
    text = path.read_text("utf-8")
    assert len(text.encode()) < MAX_BYTES
    notebook = json.loads(text)
    assert [cell["metadata"] for cell in notebook["cells"]] == [{}] * len(notebook["cells"])
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert "/tmp/" not in text
    assert "/home/" not in text
