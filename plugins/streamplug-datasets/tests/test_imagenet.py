from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from streamplug_datasets import StreamingImageNet

from streamplug import StreamingDataLoader, StreamingDataset

torch = pytest.importorskip("torch")

CLASSES = ["n01440764", "n01443537", "n01484850"]
LINE = "imagenet --in original --out converted --allow-partial"
EACH = 5


@pytest.fixture
def home(tmp_path, picture):
    """Three classes; as in the original, one file is a PNG and one is CMYK, both called JPEG."""
    home = tmp_path / "original"
    for split in ("train", "val"):
        for label, name in enumerate(CLASSES):
            for n in range(EACH):
                options = {"format": "JPEG", "mode": "RGB"}
                if (split, label, n) == ("train", 1, 2):
                    options = {"format": "PNG"}
                if (split, label, n) == ("train", 2, 3):
                    options = {"format": "JPEG", "mode": "CMYK"}
                picture(home / split / name / f"{name}_{n}.JPEG", 10 * label + n, **options)
    return home


def files(home, split):
    return [(path, CLASSES.index(path.parent.name)) for path in sorted((home / split).glob("*/*"))]


def test_what_comes_out_is_what_was_there(home, converted):
    train, val = converted(LINE)
    assert (train["samples"], val["samples"]) == (3 * EACH, 3 * EACH)
    for split in ("train", "val"):
        originals = files(home, split)
        stored = list(
            StreamingDataset(local=f"converted/{split}", columns=["i", "y"], batch_size=1)
        )
        raw = StreamingDataset(local=f"converted/{split}", batch_size=1)
        assert [s["i"] for s in stored] == np.random.default_rng(0).permutation(3 * EACH).tolist()
        for at, sample in enumerate(stored):
            path, label = originals[sample["i"]]
            assert sample["y"] == label
            image = raw[at]["x"]
            assert image.format == "JPEG"
            with Image.open(path) as original:
                if original.format == "JPEG":
                    assert image.fp.getvalue() == path.read_bytes()
                else:
                    difference = np.asarray(image, int) - np.asarray(original.convert("RGB"))
                    assert abs(difference).max() < 12


def test_it_trains(home, converted, learns):
    converted(f"{LINE} --splits train")
    dataset = StreamingImageNet(
        local="converted/train",
        batch_size=6,
        transform=lambda x: np.asarray(x.convert("RGB").resize((8, 8)), np.float32) / 255,
    )
    images, labels = next(iter(StreamingDataLoader(dataset)))
    assert images.shape == (6, 8, 8, 3)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    learns(model, lambda model: torch.nn.functional.cross_entropy(model(images), labels))


def test_same_seed_gives_the_same_bytes(home, converted, tmp_path):
    def digests(out, seed):
        converted(f"{LINE.replace('converted', out)} --seed {seed} --splits val")
        return [path.read_bytes() for path in sorted((tmp_path / out).rglob("shard*"))]

    assert digests("a", 3) == digests("b", 3) != digests("c", 4)


def test_real_set_must_be_whole(home, refused):
    line = LINE.replace(" --allow-partial", "")
    assert "original/train: classes: found 3, expected 1,000" in refused(line)
    assert "there is no such folder" in refused(line.replace("--in original", "--in original/val"))


@pytest.mark.parametrize("kept", [0, 200, -100])
def test_damaged_image_is_named(home, refused, kept):
    path = home / "train" / CLASSES[0] / f"{CLASSES[0]}_1.JPEG"
    path.write_bytes(path.read_bytes()[:kept])
    assert f"{CLASSES[0]}_1.JPEG: " in refused(LINE)
    assert not (home.parent / "converted" / "train" / "index.json").exists()


def test_bytes_behind_an_image_are_no_damage(home, converted):
    path = home / "val" / CLASSES[0] / f"{CLASSES[0]}_1.JPEG"
    path.write_bytes(path.read_bytes() + b"\0" * 7)
    assert converted(f"{LINE} --splits val")[0]["samples"] == 3 * EACH


def test_tree_must_be_one_of_classes(home, refused):
    extra = home / "train" / CLASSES[0] / "x.png"
    extra.write_bytes(b"x")
    assert "x.png: not one of .jpeg" in refused(LINE)
    extra.rename(home / "train" / "x.JPEG")
    assert "train/x.JPEG: a file where there are only folders" in refused(LINE)
    (home / "train" / "x.JPEG").unlink()
    (home / "val" / CLASSES[0]).rename(home / "val" / "n00000001")
    assert "val: other classes than in train: ['n00000001', 'n01440764']" in refused(LINE)
