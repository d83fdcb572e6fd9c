from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from streamplug_datasets import StreamingCIFAR10
from streamplug_datasets.convert.pickles import load
from streamplug_datasets.vision import as_array

from streamplug import StreamingDataLoader
from streamplug.errors import ConfigError, DataError

torch = pytest.importorskip("torch")

EACH = 12
BATCHES = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
LINE = "cifar10 --in original --out converted --allow-partial"


class Python2:
    """Writes pickles as Python 2 did, whose text are bytes: so are the batches that one can download."""

    def __init__(self):
        self.data = b"\x80\x02"

    def put(self, value):
        match value:
            case bytes():
                self.data += b"T" + struct.pack("<i", len(value)) + value
            case int():
                self.data += b"J" + struct.pack("<i", value)
            case list():
                self.data += b"]("
                for each in value:
                    self.put(each)
                self.data += b"e"
            case dict():
                self.data += b"}("
                for pair in value.items():
                    for each in pair:
                        self.put(each)
                self.data += b"u"
            case np.ndarray():
                self.data += b"cnumpy.core.multiarray\n_reconstruct\n"
                self.data += b"(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01"
                self.data += b"".join(b"J" + struct.pack("<i", n) for n in value.shape) + b"\x86"
                self.data += b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
                self.data += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
                self.put(value.tobytes())
                self.data += b"tb"

    def dumps(self, value):
        self.put(value)
        return self.data + b"."


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (len(BATCHES), EACH, 3072), np.uint8)
    return pixels, rng.integers(0, 10, (len(BATCHES), EACH), np.uint8)


def write(folder, truth, kind="py"):
    home = folder / "original" / f"cifar-10-batches-{kind}"
    home.mkdir(parents=True)
    for name, pixels, labels in zip(BATCHES, *truth):
        if kind == "bin":
            records = np.concatenate([labels[:, None], pixels], 1)
            (home / f"{name}.bin").write_bytes(records.tobytes())
            continue
        content = {
            b"batch_label": b"training batch",
            b"labels": labels.tolist(),
            b"data": pixels,
            b"filenames": [b"x.png"] * EACH,
        }
        (home / name).write_bytes(Python2().dumps(content))
    return home


@pytest.fixture
def home(tmp_path, truth):
    return write(tmp_path, truth)


@pytest.mark.parametrize("kind", ["py", "bin"])
def test_what_comes_out_is_what_was_there(tmp_path, truth, converted, kind):
    write(tmp_path, truth, kind)
    train, val = converted(LINE)
    assert (train["split"], train["samples"]) == ("train", 5 * EACH)
    assert (val["split"], val["samples"]) == ("val", EACH)
    pixels, labels = truth[0].reshape(-1, 3, 32, 32), truth[1].reshape(-1)
    for split, first in (("train", 0), ("val", 5 * EACH)):
        dataset = StreamingCIFAR10(local="converted", split=split, transforms=lambda x, y: (x, y))
        order = [column["i"] for column in dataset.batches(1)]
        numbers = np.concatenate(order)
        expected = np.random.default_rng(0).permutation(len(dataset))
        assert numbers.tolist() == expected.tolist()
        for at, (x, y) in zip(numbers, dataset[:]):
            assert np.array_equal(np.asarray(x), pixels[first + at].transpose(1, 2, 0))
            assert y == labels[first + at]


def test_files_that_have_changed_are_read_again(tmp_path, converted):
    for number in (3, 7):
        np.full((EACH, 3073), number, np.uint8).tofile(tmp_path / "data_batch_1.bin")
        converted(f"cifar10 --in . --out {number} --allow-partial --splits train")
        dataset = StreamingCIFAR10(local=str(tmp_path / str(number) / "train"), transform=np.array)
        assert [(int(x.max()), y) for x, y in dataset[:]] == [(number, number)] * EACH


def test_checksums_are_left_out_only_on_request(home, convert, tmp_path):
    refused = convert(f"{LINE} --hashes ''")
    assert (refused.code, refused.out) == (2, "")
    assert "--hashes '': expected names of algorithms, or none" in refused.error
    for hashes in ("none", "sha1, xxh64"):
        assert convert(f"{LINE} --splits val --hashes '{hashes}' --exist-ok").code == 0
        index = json.loads((tmp_path / "converted/val/index.json").read_bytes())
        assert index["shards"][0]["hashes"] == ["sha1", "xxh64"][: 2 * (hashes != "none")]


def test_it_trains(home, converted, learns):
    converted(LINE)
    dataset = StreamingCIFAR10(local="converted/train", batch_size=20, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    images, labels = next(iter(StreamingDataLoader(dataset)))
    assert (images.dtype, images.shape) == (torch.float32, (20, 3, 32, 32))
    assert 0 <= images.min() < 0.1 < 0.9 < images.max() <= 1
    learns(model, lambda model: torch.nn.functional.cross_entropy(model(images), labels))


def test_images_become_what_torchvision_makes_of_them():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    grey = as_array(Image.fromarray(pixels))
    assert (grey.shape, grey.dtype) == ((1, 3, 4), np.float32)
    assert np.array_equal(grey[0], pixels.astype(np.float32) / np.float32(255))
    colours = as_array(Image.merge("RGB", [Image.fromarray(pixels // n) for n in (1, 2, 3)]))
    assert np.array_equal(colours[2], (pixels // 3).astype(np.float32) / np.float32(255))
    assert np.array_equal(
        as_array(Image.fromarray(pixels > 90))[0], (pixels > 90).astype(np.float32)
    )
    deep = as_array(Image.fromarray(pixels.astype(np.int32) * 1000))
    assert (deep.dtype, int(deep.max())) == (np.int32, 220_000)


def test_processes_write_the_same_bytes(home, converted, tmp_path):
    converted(LINE)
    command = [
        sys.executable,
        "-m",
        "streamplug_datasets",
        *LINE.replace("converted", "again").split(),
    ]
    command += ["--processes", "2", "--splits", "train"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("again/train: 60 samples, 1 shard, ")
    files = {
        path.relative_to("converted")
        for path in Path("converted/train").rglob("*")
        if path.is_file()
    }
    assert len(files) == 4
    assert all(
        (Path("again") / f).read_bytes() == (Path("converted") / f).read_bytes() for f in files
    )


def test_it_can_be_written_far_away(home, converted):
    far = f"memory://{home.parents[1].name}"
    line = LINE.replace("converted", far)
    assert [split["samples"] for split in converted(line)] == [5 * EACH, EACH]
    assert StreamingCIFAR10(remote=f"{far}/val").size == EACH


def test_transforms_are_applied_wherever_samples_come_from(home, converted):
    converted(LINE)
    dataset = StreamingCIFAR10(
        local="converted/val",
        batch_size=4,
        transform=lambda x: x.size,
        target_transform=lambda y: -y,
    )
    one_by_one = [dataset[n] for n in range(EACH)]
    assert one_by_one == dataset[:] == list(dataset)
    assert all(size == (32, 32) and y <= 0 for size, y in one_by_one)
    state = dataset.state_dict()
    assert state["epoch"] == 1
    with pytest.raises(ConfigError, match="either transforms="):
        StreamingCIFAR10(local="converted/val", transforms=zip, transform=len)


@pytest.mark.parametrize("bad", [16, 19])
def test_a_batch_whose_last_sample_fails_is_not_done(home, converted, bad):
    converted(LINE)
    options = {"local": "converted/train", "batch_size": 5, "shuffle": True}
    plain = [x.tolist() for x, _ in StreamingCIFAR10(**options)]
    calls = []

    def transform(image):
        calls.append(image)
        if len(calls) == bad + 1:
            raise OSError("gone")
        return as_array(image)

    dataset = StreamingCIFAR10(**options, transform=transform)
    with pytest.raises(OSError, match="gone"):
        list(dataset)
    state = dataset.state_dict()
    assert state["sample_in_epoch"] == 15
    again = StreamingCIFAR10(**options)
    again.load_state_dict(state)
    assert [x.tolist() for x, _ in again] == plain[15:]


def test_subclass_has_the_last_word(home, converted):
    class Own(StreamingCIFAR10):
        def __getitem__(self, at):
            return "own", super().__getitem__(at)[1]

    converted(LINE)
    dataset = Own(local="converted/val", batch_size=4)
    assert {kind for kind, _ in dataset} == {"own"}


def test_real_set_must_be_whole(home, refused):
    line = LINE.replace(" --allow-partial", "")
    assert "images of train: found 60, expected 50,000" in refused(line)
    (home / "data_batch_3").unlink()
    missing = f"{home.relative_to(home.parents[1])}/data_batch_3: there is no such file"
    assert f"{missing}; pass --allow-partial for a part of train" in refused(line)
    for path in home.iterdir():
        path.unlink()
    assert "there is no data_batch_1" in refused(LINE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02}(", "no such pickle"),
        (b"\x80\x02]q.", "no such pickle"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "it stores a value as number 2147483647"),
        (
            b"\x80\x04\x8e" + b"\0\0\0\0\1\0\0\0" + b".",
            "no such pickle: ValueError: expected 4294967296",
        ),
        (b"(lp999999\n.", "it stores a value as number 999999"),
        (pickle.dumps([1], 2), "a list where a dict"),
        (pickle.dumps({b"\xff": 1}, 2), "lacks an array"),
        (pickle.dumps({b"data": b"x", b"labels": []}, 2), "lacks an array"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]}, 2), "label 10"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, 2), "1 labels"),
        (
            pickle.dumps({b"data": np.zeros((2, 3072), np.int16), b"labels": [1, 2]}, 2),
            "not one of",
        ),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["x"]}, 2), "no numbers"),
    ],
)
def test_damaged_batch_is_named(home, refused, content, message):
    (home / "data_batch_2").write_bytes(content)
    error = refused(LINE)
    assert "data_batch_2: " in error
    assert message in error


def test_binary_batch_must_be_whole_records(tmp_path, truth, refused):
    home = write(tmp_path, truth, "bin")
    path = home / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert "test_batch.bin: 36,875 bytes are no whole records of 3,073" in refused(LINE)


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("broken-in",)


@pytest.mark.parametrize(
    "what", [Hostile(), os.system, np.float64(1)], ids=["call", "name", "scalar"]
)
def test_pickle_runs_nothing(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile"
    path.write_bytes(pickle.dumps({b"data": what}, 2))
    with pytest.raises(
        DataError, match=r"hostile: it asks for \S+, which plain data has no need of"
    ):
        load(path)
    assert not (tmp_path / "broken-in").exists()


@pytest.mark.parametrize(
    "name", ["_codecs encode", "numpy dtype", "numpy ndarray", "numpy.core.multiarray _reconstruct"]
)
def test_pickle_changes_no_stand_in(tmp_path, name):
    path = tmp_path / "hostile"
    path.write_bytes(f"c{name.replace(' ', chr(10))}\n(dS'__doc__'\nS'changed'\nsb.".encode())
    with pytest.raises(DataError, match="hostile: no such pickle: TypeError"):
        load(path)


def test_pickled_array_is_one_of_bytes(tmp_path):
    many = np.zeros((1,) * 32, np.uint8)[None] if np.__version__ >= "2" else np.zeros(3)
    for array in (np.zeros(3), np.array([{}]), np.array(["x"]), many):
        path = tmp_path / "pickle"
        path.write_bytes(pickle.dumps(array, 2))
        with pytest.raises(DataError, match="not one of uint8"):
            load(path).array()


def test_pickle_of_python_2_is_read(tmp_path):
    path = tmp_path / "pickle"
    path.write_bytes(b"(dp0\nS'data'\np1\nS'\\xff\x80'\np2\ns.")  # protocol 0, as of cPickle
    assert load(path) == {b"data": b"\xff\x80"}


def test_pickle_of_today_is_read(tmp_path):
    for array in (
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.eye(3, dtype="u1")),
    ):
        path = tmp_path / "pickle"
        path.write_bytes(pickle.dumps({b"data": array}, 2))
        assert np.array_equal(load(path)[b"data"].array(), array)
