"""Runs the notebooks of the documentation and stores their outputs: python docs/notebooks.py

A stored notebook has no path of a machine and no time. What a notebook writes goes to a temporary directory,
which its outputs call /data. The build of the documentation shows the stored outputs and runs nothing.
"""

from __future__ import annotations

import json
import re
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
NOTEBOOKS = sorted(DOCS.glob("*/*.ipynb"))
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def run(path: Path, folder: Path) -> str:
    """Run a notebook in a directory, and return the text of its file with the new outputs."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbclient.execute(notebook, cwd=str(folder), timeout=60, record_timing=False)
    notebook.metadata = _METADATA
    for cell in notebook.cells:
        cell.metadata = {}
    return f"{nbformat.writes(notebook)}\n".replace(str(folder), "/data")


def comparable_outputs(text: str) -> list[Any]:
    """Return the outputs of a notebook without what depends on versions of other libraries."""
    found = []
    for cell in json.loads(text)["cells"]:
        for output in cell.get("outputs", ()):
            data = {kind: "".join(lines) for kind, lines in output.get("data", {}).items()}
            if data.get("text/html", "").startswith("<iframe"):  # sizes of files, and thumbnails
                page = unescape(data["text/html"])
                data = {"page": re.findall(r"<h\d>(.*?)</h\d>", page)}
            images = {kind: "" for kind in data if kind.startswith("image/")}
            found.append({**output, "data": {**data, **images}})
    return found


if __name__ == "__main__":
    for notebook_path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as directory:
            notebook_path.write_text(run(notebook_path, Path(directory).resolve()), "utf-8")
