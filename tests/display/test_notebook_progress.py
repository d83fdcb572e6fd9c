"""Progress in the kernel of a notebook."""

from __future__ import annotations

import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")

WRITE = """
from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset  # without torch

with MDSWriter(out="set", columns={"n": "int"}, max_samples_per_shard=10, progress_bar=True) as out:
    for n in range(100):
        out.write({"n": n})
"""
DOWNLOAD = """
dataset = StreamingDataset(remote="set", local="cache", batch_size=10)
for batch in dataset.batches():
    print(batch["n"][0])
"""
SCAN = """
from pathlib import Path

Path("lines").mkdir()
for n in range(10):
    Path(f"lines/{n}.jsonl").write_text('{"n": 1}')
dataset = StreamingDataset(remote="lines/*.jsonl", format="jsonl")
"""
JOB = """
from streamplug_tools import Output, progress_bars, sort

with progress_bars() as on_progress:
    sort("set", Output("sorted"), by="-n", on_progress=on_progress)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return the outputs of the cells, and the number of messages that updated each."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(source) for source in (WRITE, DOWNLOAD, SCAN, JOB)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        nbclient.execute(notebook, cwd=str(folder), timeout=60)
    return [cell.outputs for cell in notebook.cells]


def displayed(outputs):
    (output,) = [output for output in outputs if output.output_type == "display_data"]
    return output.data["text/plain"]


def test_a_writer_shows_one_line(outputs):
    assert len(outputs[0]) == 1
    assert "100 samples, 10 shards" in displayed(outputs[0])


def test_downloads_are_one_line_beside_what_the_loop_prints(outputs):
    assert "10 files (0 cached)" in displayed(outputs[1])
    printed = "".join(output.get("text", "") for output in outputs[1])
    assert printed.split() == [str(n) for n in range(0, 100, 10)]


def test_a_scan_shows_its_bar(outputs):
    assert len(outputs[2]) == 1
    shown = displayed(outputs[2])
    assert shown.startswith("scanning ")
    assert shown.endswith(" 10/10")


def test_a_job_has_a_bar_for_each_task(outputs):
    assert len(outputs[3]) == 1
    lines = displayed(outputs[3]).splitlines()
    assert len(lines) == 2
    assert all(" 100% " in line for line in lines)
