"""The data sets that streamplug-datasets converts, read by the classes of mosaicml-streaming, and by ours."""

from __future__ import annotations

import gzip
import json
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from streamplug_testing.equality import same

import streamplug

datasets = pytest.importorskip("streamplug_datasets")
cli = pytest.importorskip("streamplug_datasets.cli")
bert = pytest.importorskip("streamplug_datasets.convert.bert")
enwiki = pytest.importorskip("streamplug_datasets.convert.enwiki")
webvid = pytest.importorskip("streamplug_datasets.convert.webvid")
zstandard = pytest.importorskip("zstandard")

# mosaicml-streaming leaves the closing of files to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:.*not writable.*:UserWarning",
)

COUNT = 12
RNG = np.random.default_rng(3)


def picture(path, size=(32, 24)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (*size[::-1], 3), np.uint8)).save(path)


def cifar10(home):
    (home / "cifar-10-batches-bin").mkdir()
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        records = RNG.integers(0, 10, (COUNT, 3073), np.uint8)
        (home / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(records.tobytes())


def imagenet(home):
    for split in ("train", "val"):
        for n in range(COUNT):
            picture(home / split / f"n{n % 3:08}" / f"{n}.jpeg")


def ade20k(home):
    for split, folder in (("train", "training"), ("val", "validation")):
        for n in range(COUNT):
            name = f"ADE_{split}_{n:08}"
            picture(home / "images" / folder / f"{name}.jpg")
            (home / "annotations" / folder).mkdir(parents=True, exist_ok=True)
            classes = Image.fromarray(RNG.integers(0, 151, (24, 32), np.uint8))
            classes.save(home / "annotations" / folder / f"{name}.png")


def coco(home):
    (home / "annotations").mkdir()
    for split in ("train", "val"):
        images, boxes = [], []
        for n in range(COUNT):
            picture(home / f"{split}2017" / f"{n:012}.jpg")
            about = {"id": n, "file_name": f"{n:012}.jpg", "height": 24, "width": 32}
            images.append(about)
            for _ in range(1 + n % 3):
                box = RNG.uniform(1, 12, 4).round(2).tolist()
                boxes.append(
                    {"image_id": n, "category_id": 7, "bbox": box, "segmentation": [[1.0]]}
                )
        found = {"images": images, "annotations": boxes, "categories": [{"id": 7, "name": "train"}]}
        (home / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(found))


def c4(home):
    for split in ("train", "validation"):
        with gzip.open(home / f"c4-{split}.00000-of-00001.json.gz", "wt") as stream:
            for n in range(COUNT):
                line = {
                    "text": f"{split} ✓ {n}",
                    "timestamp": "2019-04-25T12:57:54Z",
                    "url": "http://x",
                }
                stream.write(json.dumps(line) + "\n")


def pile(home):
    lines = [{"text": f"text {n}", "meta": {"pile_set_name": "Pile-CC"}} for n in range(COUNT)]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for name in ("train/00", "val", "test"):
        path = home / f"{name}.jsonl.zst"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zstandard.compress(data))


def write_enwiki(out):
    """Write pairs as the converter does, of articles that need no tokenizer."""
    recipe, chance = bert.Recipe(64, 10, 0.15, 0.1, 2), random.Random(1)
    articles = [[[chance.randrange(6, 99) for _ in range(9)] for _ in range(7)] for _ in range(20)]
    vocabulary = bert.Vocabulary(3, 4, 5, 99)
    with streamplug.MDSWriter(out=out, columns=enwiki.COLUMNS) as writer:
        for pair in bert.pairs(articles, vocabulary, recipe, chance):
            writer.write(enwiki._stored(pair, recipe))


@pytest.fixture
def convert(tmp_path):
    def run(name, original):
        home = tmp_path / "original"
        home.mkdir()
        original(home)
        line = [name, "--in", str(home), "--out", str(tmp_path / "set"), "--allow-partial"]
        result = CliRunner().invoke(cli.main, [*line, "--processes", "0", "--compression", "zstd"])
        assert result.exit_code == 0, result.output
        return tmp_path / "set"

    return run


def plain(value):
    """Return a value with images as arrays."""
    if isinstance(value, Image.Image):
        return value.mode, np.asarray(value)
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def samples(dataset, count):
    return [plain(dataset[at]) for at in range(count)]


def assert_same(theirs, ours):
    assert theirs.num_samples == ours.num_samples > 0
    for mine, other in zip(samples(ours, ours.num_samples), samples(theirs, ours.num_samples)):
        assert same(mine, other)


def both(x, y):
    return x, y


@pytest.mark.parametrize(
    ("name", "original", "kind", "options"),
    [
        ("cifar10", cifar10, "StreamingCIFAR10", {"transforms": both}),
        ("imagenet", imagenet, "StreamingImageNet", {"transforms": both}),
        ("ade20k", ade20k, "StreamingADE20K", {"target_transform": np.asarray}),
        ("coco", coco, "StreamingCOCO", {}),
    ],
)
def test_images_are_the_same_to_both(mosaic, convert, tmp_path, name, original, kind, options):
    import streaming.vision

    classes = {
        "StreamingCIFAR10": streaming.vision.StreamingCIFAR10,
        "StreamingImageNet": streaming.vision.StreamingImageNet,
        "StreamingADE20K": streaming.vision.StreamingADE20K,
        "StreamingCOCO": streaming.vision.StreamingCOCO,
    }
    out = convert(name, original)
    for split in ("train", "val"):
        local = str(tmp_path / "cache" / split)
        theirs = classes[kind](remote=str(out / split), local=local, batch_size=2, **options)
        ours = getattr(datasets, kind)(remote=str(out / split), batch_size=2, **options)
        assert_same(theirs, ours)


class Letters:
    """A tokenizer as those of transformers are called."""

    pad_token, eos_token = None, "\0"

    @classmethod
    def from_pretrained(cls, name):
        assert name == "letters"
        return cls()

    def __call__(self, text, *, truncation, padding, max_length):
        assert (truncation, padding, self.pad_token) == (True, "max_length", "\0")
        return {"input_ids": list(text.encode()[:max_length].ljust(max_length, b"\0"))}


@pytest.mark.parametrize(("name", "original", "kind"), [("c4", c4, "C4"), ("pile", pile, "Pile")])
def test_text_is_the_same_to_both(mosaic, convert, tmp_path, monkeypatch, name, original, kind):
    import streaming.text

    monkeypatch.setattr(getattr(streaming.text, name), "AutoTokenizer", Letters)
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=Letters))
    out = convert(name, original)
    options = {"tokenizer_name": "letters", "max_seq_len": 16, "group_method": "truncate"}
    for split in ("train", "val"):
        local = str(tmp_path / "cache" / split)
        theirs = getattr(streaming.text, f"Streaming{kind}")(
            remote=str(out / split), local=local, batch_size=2, **options
        )
        ours = getattr(datasets, f"Streaming{kind}")(
            remote=str(out / split), batch_size=2, **options
        )
        assert_same(theirs, ours)


def test_pairs_are_the_same_to_both_but_for_what_is_padding(mosaic, tmp_path):
    import streaming.text

    write_enwiki(tmp_path / "set")
    theirs = streaming.text.StreamingEnWiki(local=str(tmp_path / "set"), batch_size=2)
    ours = datasets.StreamingEnWiki(local=str(tmp_path / "set"), batch_size=2)
    assert theirs.num_samples == ours.num_samples > 50
    padded = 0
    for at in range(ours.num_samples):
        mine, other = ours[at], theirs[at]
        # There, padding among the positions makes the first token one to be predicted as [PAD].
        padded += other["labels"][0] == 0
        assert mine["labels"][0] == -100
        mine["labels"][0] = other["labels"][0]
        assert same(mine, other)
    assert padded


def test_videos_are_the_same_to_both(mosaic, tmp_path):
    import streaming.multimodal

    about = {
        "videoid": "1",
        "name": "a",
        "page_idx": "",
        "page_dir": "d",
        "duration": 3,
        "contentUrl": "u",
    }
    with streamplug.MDSWriter(out=tmp_path / "inside", columns=webvid.INSIDE) as out:
        for n in range(COUNT):
            out.write({**about, "content": bytes([n]) * n})
    with streamplug.MDSWriter(out=tmp_path / "outside", columns=webvid.OUTSIDE) as out:
        for n in range(COUNT):
            (tmp_path / "videos" / "00000").mkdir(parents=True, exist_ok=True)
            (tmp_path / "videos" / "00000" / f"{n:05}.mp4").write_bytes(bytes([n]) * n)
            out.write({**about, "content_path": f"00000/{n:05}.mp4"})
    inside = {"local": str(tmp_path / "inside"), "batch_size": 2}
    assert_same(
        streaming.multimodal.StreamingInsideWebVid(**inside),
        datasets.StreamingInsideWebVid(**inside),
    )
    outside = {
        "local": str(tmp_path / "outside"),
        "batch_size": 2,
        "extra_remote": str(tmp_path / "videos"),
    }
    for kind in ("StreamingOutsideGIWebVid", "StreamingOutsideDTWebVid"):
        places = [str(tmp_path / f"{who}-{kind}") for who in ("theirs", "ours")]
        theirs = getattr(streaming.multimodal, kind)(**outside, extra_local=places[0])
        ours = getattr(datasets, kind)(**outside, extra_local=places[1])
        assert_same(theirs, ours)


def test_set_that_they_converted_is_read(mosaic, tmp_path):
    from streaming.vision.convert.base import convert_image_class_dataset

    images = [
        (Image.fromarray(RNG.integers(0, 256, (32, 32, 3), np.uint8)), n % 10) for n in range(COUNT)
    ]
    convert_image_class_dataset(images, str(tmp_path), "train", hashes=["sha1"], progress_bar=False)
    raw = streamplug.StreamingDataset(local=str(tmp_path / "train"))
    ours = datasets.StreamingCIFAR10(local=str(tmp_path / "train"), transforms=both)
    assert ours.num_samples == COUNT
    for sample, found in zip(raw[:], ours[:]):
        assert same(plain(found), plain(list(images[sample["i"]])))
