from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from streamplug_datasets import StreamingADE20K

from streamplug import StreamingDataLoader

torch = pytest.importorskip("torch")

LINE = "ade20k --in original --out converted --allow-partial"
LEFT_OUT = 1701
NUMBERS = {"train": [1, 2, 3, LEFT_OUT, 1702, 1703], "val": [1, 2, 3]}


@pytest.fixture
def home(tmp_path, picture):
    home = tmp_path / "original"
    for split, folder in (("train", "training"), ("val", "validation")):
        for n in NUMBERS[split]:
            size = (20 + n % 5, 16)
            picture(home / "images" / folder / f"ADE_{split}_{n:08}.jpg", n, size)
            classes = np.random.default_rng(n).integers(0, 151, size[::-1], np.uint8)
            path = home / "annotations" / folder / f"ADE_{split}_{n:08}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(classes).save(path)
    return home


def test_what_comes_out_is_what_was_there(home, converted):
    assert [split["samples"] for split in converted(LINE)] == [5, 3]
    for split, folder in (("train", "training"), ("val", "validation")):
        dataset = StreamingADE20K(local="converted", split=split, batch_size=1)
        uids = [batch["uid"][0].decode() for batch in dataset.batches()]
        wanted = [f"{n:08}" for n in NUMBERS[split] if n != LEFT_OUT]
        if split == "train":
            wanted = [wanted[at] for at in np.random.default_rng(0).permutation(5)]
        assert uids == wanted
        for uid, (x, y) in zip(uids, dataset[:]):
            image = home / "images" / folder / f"ADE_{split}_{uid}.jpg"
            classes = home / "annotations" / folder / f"ADE_{split}_{uid}.png"
            assert x.fp.getvalue() == image.read_bytes()
            assert y.fp.getvalue() == classes.read_bytes()


def test_it_trains(home, converted, learns):
    converted(LINE)
    dataset = StreamingADE20K(
        local="converted/train",
        batch_size=4,
        joint_transform=lambda pair: (pair[0].crop((0, 0, 8, 8)), pair[1].crop((0, 0, 8, 8))),
        transform=lambda x: np.asarray(x, np.float32).transpose(2, 0, 1) / 255,
        target_transform=lambda y: np.asarray(y, np.int64),
    )
    images, classes = next(iter(StreamingDataLoader(dataset)))
    assert (images.shape, classes.shape) == ((4, 3, 8, 8), (4, 8, 8))
    learns(
        torch.nn.Conv2d(3, 151, 1),
        lambda model: torch.nn.functional.cross_entropy(model(images), classes),
    )


def test_real_set_must_be_whole(home, refused):
    assert "training: images: found 5, expected 20,206" in refused(
        LINE.replace(" --allow-partial", "")
    )
    (home / "annotations" / "training" / "ADE_train_00000002.png").unlink()
    assert "ADE_train_00000002.png: there is no such file" in refused(LINE)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image.new("L", (21, 16), 151), "class 151, where the highest is 150"),
        (Image.new("L", (20, 16), 1), "20 x 16 pixels, its image has 21 x 16"),
        (Image.new("RGB", (21, 16)), "an image of mode RGB"),
    ],
)
def test_bad_classes_are_named(home, refused, image, message):
    image.save(home / "annotations" / "training" / "ADE_train_00000001.png")
    assert f"ADE_train_00000001.png: {message}" in refused(LINE)


@pytest.mark.parametrize(
    "name",
    ["images/training/ADE_train_00000002.jpg", "annotations/validation/ADE_val_00000003.png"],
)
def test_damaged_file_is_named(home, refused, name):
    path = home / name
    path.write_bytes(path.read_bytes()[:-60])
    assert f"{path.name}: no such image, or damaged" in refused(LINE)
