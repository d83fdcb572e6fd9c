from __future__ import annotations

import json

import numpy as np
import pytest
from streamplug_datasets import StreamingCOCO

from streamplug import StreamingDataLoader, StreamingDataset

torch = pytest.importorskip("torch")

LINE = "coco --in original --out converted --allow-partial"
CATEGORIES = {1: "person", 2: "bicycle", 13: "stop sign"}
WIDTH, HEIGHT = 64, 48
EMPTY = 3
"""This image has no boxes."""


def annotations(split):
    """Make a file of annotations with all that the original's have."""
    rng = np.random.default_rng(len(split))
    images, boxes = [], []
    for n in range(6):
        number = 100 + 7 * n
        images.append(
            {
                "license": 4,
                "file_name": f"{number:012}.jpg",
                "coco_url": f"http://images.cocodataset.org/{split}2017/{number:012}.jpg",
                "height": HEIGHT,
                "width": WIDTH,
                "date_captured": "2013-11-14 17:02:52",
                "flickr_url": "http://farm7.staticflickr.com/6116/6255196340_da26cf2c9e_z.jpg",
                "id": number,
            }
        )
        for _ in range(0 if n == EMPTY else n + 1):
            left, top = rng.uniform(0, 20, 2).round(2).tolist()
            wide, high = rng.uniform(1, 20, 2).round(2).tolist()
            boxes.append(
                {
                    "segmentation": [[left, top, left + wide, top, left + wide, top + high]],
                    "area": wide * high / 2,
                    "iscrowd": 0,
                    "image_id": number,
                    "bbox": [left, top, wide, high],
                    "category_id": int(rng.choice(list(CATEGORIES))),
                    "id": len(boxes) + 1,
                }
            )
    rng.shuffle(boxes)
    return {
        "info": {"description": "COCO 2017 Dataset", "version": "1.0", "year": 2017},
        "licenses": [{"url": "http://x", "id": 4, "name": "Attribution License"}],
        "images": images,
        "annotations": boxes,
        "categories": [{"supercategory": "x", "id": i, "name": n} for i, n in CATEGORIES.items()],
    }


@pytest.fixture
def home(tmp_path, picture):
    home = tmp_path / "original"
    (home / "annotations").mkdir(parents=True)
    for split in ("train", "val"):
        found = annotations(split)
        (home / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(found))
        for image in found["images"]:
            picture(home / f"{split}2017" / image["file_name"], image["id"], (WIDTH, HEIGHT))
    return home


def test_what_comes_out_is_what_was_there(home, converted):
    assert [split["samples"] for split in converted(LINE)] == [5, 5]
    for split in ("train", "val"):
        found = annotations(split)
        wanted = [image["id"] for n, image in enumerate(found["images"]) if n != EMPTY]
        if split == "train":
            wanted = [wanted[at] for at in np.random.default_rng(0).permutation(5)]
        dataset = StreamingDataset(local=f"converted/{split}")
        assert [sample["img_id"] for sample in dataset[:]] == wanted
        for sample in dataset[:]:
            path = home / f"{split}2017" / f"{sample['img_id']:012}.jpg"
            assert sample["img"].fp.getvalue() == path.read_bytes()
            assert (sample["htot"], sample["wtot"]) == (HEIGHT, WIDTH)
            boxes = [b for b in found["annotations"] if b["image_id"] == sample["img_id"]]
            classes = [list(CATEGORIES).index(box["category_id"]) + 1 for box in boxes]
            assert sample["bbox_labels"].tolist() == classes
            sides = np.array([box["bbox"] for box in boxes])
            sides[:, 2:] += sides[:, :2]
            expected = (sides / [WIDTH, HEIGHT, WIDTH, HEIGHT]).astype(np.float32)
            assert np.array_equal(sample["bbox_sizes"], expected)


def test_it_trains(home, converted, learns):
    def first_box(image, size, boxes, labels):
        return np.asarray(image, np.float32) / 255, size, boxes[0], labels[0]

    converted(LINE)
    dataset = StreamingCOCO(local="converted/train", batch_size=4, transform=first_box)
    images, numbers, (heights, _), boxes, labels = next(iter(StreamingDataLoader(dataset)))
    assert (images.shape, boxes.shape, labels.shape) == ((4, HEIGHT, WIDTH, 3), (4, 4), (4,))
    assert heights.tolist() == [HEIGHT] * 4
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * HEIGHT * WIDTH, 4))
    learns(model, lambda model: (model(images) - boxes).square().mean())
    image, number, size, boxes, labels = StreamingCOCO(local="converted/train")[0]
    assert (image.mode, image.size, size) == ("RGB", (WIDTH, HEIGHT), (HEIGHT, WIDTH))
    assert len(boxes) == len(labels)
    assert number == int(numbers[0])


def test_real_set_must_be_whole(home, refused):
    error = refused(LINE.replace(" --allow-partial", ""))
    assert "instances_train2017.json: images with boxes: found 5, expected 117,266" in error
    (home / "val2017" / f"{107:012}.jpg").unlink()
    assert "val2017/000000000107.jpg: there is no such file" in refused(LINE)
    (home / "annotations" / "instances_val2017.json").unlink()
    assert "instances_val2017.json: there is no such file" in refused(LINE)


def change(home, edit):
    path = home / "annotations" / "instances_train2017.json"
    found = json.loads(path.read_text())
    edit(found)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda f: f["images"].append(f["images"][0]), "image 100 is there twice"),
        (lambda f: f["annotations"][0].update(image_id=5), "there is no image 5"),
        (lambda f: f["annotations"][0].update(category_id=5), "there is no category 5"),
        (lambda f: f["annotations"][0].update(bbox=[1, 2, 3]), "[1, 2, 3] is no box"),
        (lambda f: f["annotations"][0].update(bbox=[1, 2, 3, float("nan")]), "is no box"),
        (lambda f: f["images"][0].update(file_name="../x.jpg"), "is no name of a file"),
        (lambda f: f["annotations"].insert(0, [1]), "is damaged: AttributeError"),
        (lambda f: f["images"][0].update(id=[1]), "is damaged: TypeError"),
        (
            lambda f: f.pop("categories"),
            "is damaged: KeyError: 'categories'; expected annotations of COCO",
        ),
    ],
)
def test_bad_annotation_is_named(home, refused, edit, message):
    change(home, edit)
    error = refused(LINE)
    assert "instances_train2017.json" in error
    assert message in error


def test_damaged_file_is_named(home, refused):
    change(home, lambda found: found["images"][1].update(width=63))
    assert "000000000107.jpg: 64 x 48 pixels, its annotation says 63 x 48" in refused(LINE)
    path = home / "annotations" / "instances_train2017.json"
    path.write_text(path.read_text()[:-100])
    assert "instances_train2017.json is damaged: JSONDecodeError" in refused(LINE)
