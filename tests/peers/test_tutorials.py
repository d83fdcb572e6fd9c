"""Programs that make the calls of mosaicml-streaming's guides do the same by the alias as with the library.

Its guides are notebooks that no package holds, so the programs are our own; where a folder with the notebooks
themselves is named by STREAMPLUG_TEST_NOTEBOOKS, they are run as they are.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("streamplug_image")

QUICK_START = """
from shutil import rmtree
from uuid import UUID

import numpy as np
from PIL import Image
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader

def write(place):
    columns = {"uuid": "str", "img": "jpeg", "clf": "int"}
    draw = np.random.default_rng(5)
    with MDSWriter(out=place, columns=columns, compression="zstd", hashes=("sha1", "xxh64")) as out:
        for number in range(200):
            pixels = draw.integers(0, 256, (32, 48, 3), np.uint8)
            out.write({"uuid": str(UUID(int=number)), "img": Image.fromarray(pixels), "clf": number % 10})

write("dirname")
rmtree("dirname")
write("dirname")
dataset = StreamingDataset(local="local_dir", remote="dirname", split=None, shuffle=True)
dataloader = DataLoader(dataset)
print(len(dataloader), dataset[7]["uuid"], dataset[7]["clf"])
print(np.asarray(dataset[7]["img"]).tolist())
"""

TEXTS = """
import os
import shutil

import numpy as np
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader
from tqdm import tqdm

digits = "zero one two three four five six seven eight nine".split()
samples = [{"number": n, "words": " ".join(digits[int(c)] for c in str(n))} for n in range(3000)]
splits = [("train", samples[:2500]), ("val", samples[2500:])]
for split, chosen in splits:
    place = os.path.join("./sds", split)
    with MDSWriter(out=place, columns={"number": "int", "words": "str"}, compression="zstd:12",
                   hashes=["sha1", "xxh3_64"], size_limit=1 << 14) as out:
        for sample in tqdm(chosen, leave=False):
            out.write(sample)

loaders = []
for split, chosen in splits:
    dataset = StreamingDataset(remote="./sds", local="./local", batch_size=512, split=split, shuffle=False)
    for old, new in tqdm(zip(chosen, dataset), total=len(chosen), leave=False):
        assert old == new
    for at in (10, -1, 30, [12, -14], slice(-1, -10, -2), np.array([10, -20])):
        print(at, dataset[at])
    print(dataset.num_samples, len(dataset.shards), dataset.samples_per_shard)
    loaders.append(DataLoader(dataset, batch_size=512))
for loader in loaders:
    print([(batch["number"].tolist(), batch["words"]) for batch in loader])
shutil.rmtree("./sds", ignore_errors=True)
shutil.rmtree("./local", ignore_errors=True)
"""

IMAGES = """
import os

import numpy as np
import torch
from streaming import MDSWriter, StreamingDataset
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import CIFAR10

torch.manual_seed(0)
torch.set_num_threads(1)
for train, place in ((True, "./sds/train"), (False, "./sds/test")):
    images = CIFAR10(root="./dataset", train=train, download=True)
    order = np.random.default_rng(1).permutation(len(images))
    with MDSWriter(out=place, columns={"x": "pil", "y": "int"}, hashes=["sha1", "xxh64"],
                   size_limit=1 << 25) as out:
        for number in order:
            x, y = images[number]
            out.write({"x": x, "y": y})

class Images(StreamingDataset):
    def __init__(self, remote, local, shuffle, batch_size, transforms):
        super().__init__(local=local, remote=remote, shuffle=shuffle, batch_size=batch_size)
        self.transforms = transforms

    def __getitem__(self, idx):
        obj = super().__getitem__(idx)
        return self.transforms(obj["x"]), obj["y"]

change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))])
train = Images("./sds/train", "./local/train", True, batch_size=32, transforms=change)
test = Images("./sds/test", "./local/test", False, batch_size=32, transforms=change)
model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.MaxPool2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    for images, labels in DataLoader(train, batch_size=32):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        print(epoch, labels.tolist(), round(loss.item(), 4))
    with torch.no_grad():
        for images, labels in DataLoader(test, batch_size=32):
            print(labels.tolist(), model(images).argmax(1).tolist())
print(len(train), len(DataLoader(train, batch_size=32)))
"""

IN_PARALLEL = """
import os
from glob import glob
from multiprocessing import Pool

from streaming import MDSWriter, StreamingDataset
from streaming.base.util import merge_index

def fetched(number):
    return {"number": number}

def began():
    os.environ["BEGAN"] = "yes"

def converted(task):
    place, first, last = task
    with MDSWriter(out=place, columns={"number": "int"}) as out:
        for number in range(first, last + 1):
            out.write({"number": number})

with Pool(initializer=began, processes=4) as pool:
    with MDSWriter(out="./data", columns={"number": "int"}) as out:
        for sample in pool.imap(fetched, range(25)):
            out.write(sample)
dataset = StreamingDataset(local="./data", remote=None, shuffle=False, batch_size=1)
print([sample["number"] for sample in dataset])

tasks = ((os.path.join("./groups", str(group)), 10 * group, 10 * group + 9) for group in range(4))
with Pool(initializer=began, processes=2) as pool:
    for _ in pool.imap(converted, tasks):
        pass
merge_index("./groups", keep_local=True)
print(sorted(glob("./groups/**", recursive=True)))
dataset = StreamingDataset(local="./groups", remote=None, shuffle=False, batch_size=1)
print([sample["number"] for sample in dataset])
"""

PROGRAMS = {
    "quick start": QUICK_START,
    "texts": TEXTS,
    "images": IMAGES,
    "in parallel": IN_PARALLEL,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same(shown, name):
    theirs, ours = (shown(PROGRAMS[name], side) for side in ("theirs", "ours"))
    assert ours == theirs != ""


# -- the notebooks themselves -------------------------------------------------------------

FOLDER = os.environ.get("STREAMPLUG_TEST_NOTEBOOKS")
NOTEBOOKS = sorted(Path(FOLDER).glob("**/*.ipynb")) if FOLDER else []


def program_of(notebook):
    """Return the code of a notebook as a program; of its commands, those that matter to the rest."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    code = re.sub(
        r"^%rm -rf \$(\w+)$", r"__import__('shutil').rmtree(\1, True)", code, flags=re.MULTILINE
    )
    return re.sub(r"^[%!].*$", "pass", code, flags=re.MULTILINE)


@pytest.mark.skipif(not NOTEBOOKS, reason="STREAMPLUG_TEST_NOTEBOOKS names no folder of notebooks")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(shown, notebook):
    shown(program_of(notebook), "ours")
