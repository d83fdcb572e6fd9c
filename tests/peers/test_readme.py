"""The first programs that mosaicml-streaming's own README shows run by the alias, but for their places."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata

import pytest

pytest.importorskip("streamplug_image")


def test_its_first_programs_run(tmp_path):
    try:
        description = metadata("mosaicml-streaming").get_payload()
    except PackageNotFoundError:
        pytest.skip("mosaicml-streaming is not installed")
    blocks = re.findall(r"```python\n(.*?)```", description, re.DOTALL)
    [write] = [block for block in blocks if "with MDSWriter(" in block]
    [read] = [block for block in blocks if "DataLoader(dataset)" in block]
    read = read.replace("/tmp/", "cache/").replace("s3://my-bucket", str(tmp_path))
    program = tmp_path / "program.py"
    program.write_text(f"{write}{read}\nprint(img.size, len(dataloader), type(dataset).__module__)")
    command = [sys.executable, "-m", "streamplug.compat", str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(32, 32) 10000 streamplug.compat.names\n"
