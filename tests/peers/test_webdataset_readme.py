"""webdataset's README runs from its first line to its last, but for the import and where the archives are."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image

wds = pytest.importorskip("streamplug_webdataset")
COUNT, SHARDS = 12, 10


@pytest.fixture
def archives(tmp_path):
    """Return a directory of archives such as the README reads from the web."""
    for shard in range(SHARDS):
        with wds.TarWriter(f"{tmp_path}/publaynet-train-{shard:06d}.tar") as out:
            for n in range(COUNT):
                content = io.BytesIO()
                Image.new("RGB", (30 + n, 20), (9 * shard, 9 * n, 7)).save(content, "PNG")
                notes = {"annotations": [{"category_id": n % 5}] if n else []}
                out.write(
                    {"__key__": f"PMC{shard}_{n:05d}", "png": content.getvalue(), "json": notes}
                )
    return f"{tmp_path}/"


@pytest.fixture
def blocks(readme):
    """Return its programs, in which commands of the notebook they come from mean nothing."""
    found = re.findall(r"^```python\n(.*?)^```$", readme("webdataset"), re.DOTALL | re.MULTILINE)
    assert len(found) == 7  # a README that shows more is to be looked at
    return [re.sub(r"^[%!].*$", "", block, flags=re.MULTILINE) for block in found]


@pytest.mark.parametrize("package", ["webdataset", "streamplug_webdataset"])
def test_the_whole_of_it_runs(blocks, shown, archives, package):
    # The last line of a block is what a notebook shows.
    after = ["", "", "", "print(isinstance(pil_dataset, torch.utils.data.IterableDataset))"]
    after += ["print(sorted(json))", "print(tuple(image.shape), type(label).__name__)"]
    after += ["print(batch[0].shape, batch[1].shape, batch[0].dtype, len(list(dataset)))"]
    program = "\n".join(f"{block}\n{line}\n" for block, line in zip(blocks, after))
    program = program.replace("https://storage.googleapis.com/webdataset/testdata/", archives)
    program = program.replace("import webdataset as wds", f"import {package} as wds")
    assert archives in program
    told = shown(program, "ours")  # the alias of another library does not matter here
    assert re.sub(r"shown \(20, \d+, 3\)", "shown", told) == (
        "True\n"
        "shown\n"
        "['annotations']\n"
        "shown (224, 224, 3)\n"
        "(3, 224, 224) int\n"
        "torch.Size([16, 3, 224, 224]) (16,) torch.float32 8\n"
    )
