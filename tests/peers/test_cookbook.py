"""What the cookbook says of scripts for other libraries is what these scripts do with the libraries."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

COOKBOOK = Path(__file__).parents[2] / "docs" / "cookbook"


def blocks_of(name):
    """Return the Python blocks of a page."""
    text = (COOKBOOK / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_mosaicml_streaming_writes_the_files_and_reads_the_same_batches(shown):
    data, old, *_ = blocks_of("from-mosaicml-streaming")
    data = data.replace("from streamplug import MDSWriter", "from streaming import MDSWriter")
    old = old.replace("import streamplug_mosaic\n\nstreamplug_mosaic.install()\n", "")
    program = f"{data}\n{old}\nprint(ids)\n"
    assert "streamplug" not in program
    assert "assert digest()" in program
    theirs, ours = shown(program, "theirs"), shown(program, "ours")
    assert theirs == ours
    assert theirs.count("web-train-") > 500


def test_litdata_writes_the_chunks(shown):
    pytest.importorskip("litdata")
    shared, old, data, *_ = blocks_of("from-litdata")
    check = indent(data[data.index("files = sorted(") :], "    ")  # not in the workers of litdata
    program = f"import hashlib\nfrom pathlib import Path\n\n{shared}\n{old}{check}"
    assert "litdata.optimize(" in program
    assert "assert digest" in program
    assert "last loss" in shown(program, "theirs")
