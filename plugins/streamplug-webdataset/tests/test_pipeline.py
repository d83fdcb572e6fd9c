from __future__ import annotations

import copy
import functools
import gzip
import io
import itertools
import json
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import streamplug_webdataset as wds
from PIL import Image
from streamplug_testing.http import serving
from streamplug_webdataset.decoding import basichandlers
from streamplug_webdataset.source import MAX_SAMPLES_LEFT_OUT

from streamplug import StreamingDataset, World
from streamplug.errors import ConfigError, DataError, DecodeError, StateError, UnsafeTypeError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
COUNT, SHARDS = 23, 4
TOTAL = COUNT * SHARDS
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))


def write_tars(folder, *, shards=SHARDS, count=COUNT, extra=()):
    folder.mkdir(exist_ok=True)
    for shard in range(shards):
        with wds.TarWriter(str(folder / f"x-{shard:03d}.tar"), encoder=False) as out:
            for n in range(shard * count, shard * count + count):
                out.write({"__key__": f"{n:05d}", "txt": f"text {n}", "cls": str(n), **dict(extra)})
    return f"{folder}/x-{{000..{shards - 1:03d}}}.tar"


@pytest.fixture(scope="module")
def tars(tmp_path_factory):
    return write_tars(tmp_path_factory.mktemp("tars"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for shard in range(2):
        with wds.TarWriter(str(folder / f"p-{shard}.tar")) as out:
            for n in range(shard * 10, shard * 10 + 10):
                content = io.BytesIO()
                Image.new("RGB", (6, 4), (n, 2 * n, 255)).save(content, "PNG")
                notes = {"annotations": [{"category_id": n % 3}]}
                out.write({"__key__": f"{n:03d}", "png": content.getvalue(), "json": notes})
    return f"{folder}/p-{{0..1}}.tar"


def own(sample):
    """Return a sample without the URL of its archive."""
    assert sample["__url__"].endswith(".tar")
    return {name: value for name, value in sample.items() if name != "__url__"}


def numbers(outputs):
    """Return the classes in samples, tuples or batches, one after the other."""
    found = []
    for output in outputs:
        value = output["cls"] if isinstance(output, dict) else output[-1]
        found += np.asarray(value, int).ravel().tolist()
    return found


def plain(output):
    """Return an output so that it can be compared."""
    if isinstance(output, dict):
        return {name: plain(value) for name, value in output.items()}
    if isinstance(output, (list, tuple)):
        return [plain(value) for value in output]
    return output.tolist() if isinstance(output, (np.ndarray, torch.Tensor)) else output


# -- programs as they are in the documentation of webdataset ------------------------------


def test_the_first_example_of_its_readme(pictures):
    url, shuffle_buffer = pictures, 10
    pil_dataset = wds.WebDataset(url).shuffle(shuffle_buffer).decode("pil").to_tuple("png", "json")
    assert isinstance(pil_dataset, torch.utils.data.IterableDataset)
    for image, notes in pil_dataset:  # noqa: B007 - as it is there
        break
    assert image.size == (6, 4)
    assert set(notes) == {"annotations"}

    def preprocess(sample):
        image, json = sample
        try:
            label = json["annotations"][0]["category_id"]
        except Exception:
            label = 0
        return 1 - torch.from_numpy(np.asarray(image) / 255), label

    dataset = pil_dataset.map(preprocess)
    labels = [label for _, label in dataset]
    assert sorted(labels) == sorted(n % 3 for n in range(20))


def test_the_second_example_of_its_readme(pictures):
    url, shuffle_buffer = pictures, 10
    dataset = wds.DataPipeline(
        wds.SimpleShardList(url),
        wds.shuffle(100),
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.shuffle(shuffle_buffer),
        wds.decode("torchrgb"),
        wds.to_tuple("png", "json"),
        wds.map(lambda sample: (sample[0], sample[1]["annotations"][0]["category_id"])),
        wds.batched(16),
    )
    batch = next(iter(dataset))
    assert (batch[0].shape, batch[1].shape) == (torch.Size([16, 3, 4, 6]), (16,))


def test_a_loop_for_training_as_its_users_write_it(pictures):
    dataset = (
        wds.WebDataset(pictures, resampled=True, shardshuffle=False, nodesplitter=wds.split_by_node)
        .shuffle(1000, initial=100)
        .decode("rgb8", handler=wds.warn_and_continue)
        .rename(image="jpg;png;jpeg", label="json")
        .map_dict(image=lambda pixels: pixels.astype(np.int64), label=len)
        .to_tuple("image", "label")
        .batched(4, partial=False)
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=2, shuffle=False)
    loader = loader.unbatched().shuffle(10).batched(5).with_epoch(8)
    for _ in range(2):
        shapes = [image.shape for image, _ in loader]
        assert shapes == [(5, 4, 6, 3)] * 8


# -- samples -------------------------------------------------------------------------------


def test_values_are_bytes_until_they_are_decoded(tars):
    (first, *_) = wds.WebDataset(tars)
    assert own(first) == {"__key__": "00000", "txt": b"text 0", "cls": b"0"}
    assert first["__url__"] == tars.replace("{000..003}", "000")
    (first, *_) = wds.WebDataset(tars).decode()
    assert own(first) == {"__key__": "00000", "txt": "text 0", "cls": 0}


def test_values_are_bytes_where_an_index_says_what_they_are(tmp_path):
    with wds.WebDatasetWriter(str(tmp_path / "set")) as out:
        out.write({"__key__": "a", "cls": 3, "json": {"b": 1}})
        out.write({"__key__": "b", "cls": None, "json": [2]})
    raw = list(wds.WebDataset(str(tmp_path / "set")))
    assert raw[0]["cls"] == b"3"
    assert "cls" not in raw[1]
    decoded = list(wds.WebDataset(str(tmp_path / "set")).decode())
    assert [each.get("cls") for each in decoded] == [3, None]


@pytest.mark.parametrize(
    ("spec", "kind", "shape", "value"),
    [
        ("rgb8", np.uint8, (4, 6, 3), [9, 18, 255]),
        ("rgb", np.float32, (4, 6, 3), [9 / 255, 18 / 255, 1]),
        ("rgba8", np.uint8, (4, 6, 4), [9, 18, 255, 255]),
        ("l8", np.uint8, (4, 6), 42),
        ("torchrgb8", torch.uint8, (3, 4, 6), [9, 18, 255]),
        ("torch", torch.float32, (3, 4, 6), [9 / 255, 18 / 255, 1]),
        ("torchl", torch.float32, (4, 6), 42 / 255),
    ],
)
def test_images_become_what_is_asked_for(pictures, spec, kind, shape, value):
    sample = next(s for s in wds.WebDataset(pictures).decode(spec) if s["__key__"] == "009")
    image = sample["png"]
    assert (image.dtype, tuple(image.shape)) == (kind, shape)
    pixel = image[0, 0] if spec[:5] != "torch" or len(shape) == 2 else image[:, 0, 0]
    assert np.allclose(np.asarray(pixel), value)


def test_images_of_pillow_have_the_mode_that_is_asked_for(pictures):
    for spec, mode in (("pil", "RGB"), ("pill", "L"), ("pilrgba", "RGBA")):
        (first, *_) = wds.WebDataset(pictures).decode(spec)
        assert first["png"].mode == mode
    for spec in ("pil8", "rgb16", "cmyk", ""):
        with pytest.raises(ConfigError, match="unknown image type"):
            wds.WebDataset(pictures).decode(spec)


def test_json_is_decoded_in_any_unicode_encoding(tmp_path):
    path = str(tmp_path / "a.tar")
    encodings = ("utf-8", "utf-8-sig", "utf-16", "utf-32-le")
    with wds.TarWriter(path) as out:
        for encoding in encodings:
            out.write({"__key__": encoding, "json": '{"a": "é"}'.encode(encoding)})
        out.write({"__key__": "gz", "gz": gzip.compress(b"1", mtime=0)})
    samples = list(wds.WebDataset(path).decode())
    assert [sample["json"] for sample in samples[:-1]] == [{"a": "é"}] * len(encodings)
    assert samples[-1]["gz"] == b"1"
    unfiltered = list(wds.WebDataset(path).decode(pre=[]))
    assert unfiltered[-1]["gz"] == gzip.compress(b"1", mtime=0)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'"\xff"', b"[" * 100_000, "{".encode("utf-16"), b"\xff\xfe1"],
    ids=["empty", "cut", "no text", "deep", "cut UTF-16", "half a character"],
)
def test_damaged_json_is_a_decode_error(data):
    with pytest.raises(DecodeError, match="not JSON"):
        basichandlers(".json", data)


def test_json_is_decoded_by_its_encoding_within_the_limit(monkeypatch):
    calls = []

    class Limited:
        unsafe = False

        def decode(self, data):
            return bytes(data)

    def encoding(*arguments):
        calls.append(arguments)
        return Limited()

    monkeypatch.setattr("streamplug_webdataset.decoding.encoding", encoding)
    assert basichandlers(".json", b"{}", max_value_bytes=7) == b"{}"
    assert calls == [("json", 7)]


def test_decoders_of_ones_own(tmp_path):
    path = str(tmp_path / "a.tar")
    with wds.TarWriter(path) as out:
        out.write({"__key__": "a", "seg.png": b"1", "png": b"2", "json.gz": b"[1]", "bin": b"3"})

    def shout(key, data):
        return data + b"!" if key == ".bin" else None

    seg = wds.handle_extension("seg.png", lambda data: int(data) * 100)
    (sample,) = wds.WebDataset(path).decode(seg, shout)
    values = {"seg.png": 100, "png": b"2", "json.gz": [1], "bin": b"3!"}
    assert own(sample) == {"__key__": "a", **values}
    (sample,) = wds.WebDataset(path).decode(shout, only="bin")
    assert (sample["bin"], sample["json.gz"][:2]) == (b"3!", b"\x1f\x8b")
    (sample,) = wds.WebDataset(path).decode(seg, only=["seg.png"]).decode(partial=True)
    assert (sample["seg.png"], sample["json.gz"]) == (100, [1])
    with pytest.raises(DecodeError, match=r"is (int|list), not bytes"):
        list(wds.WebDataset(path).decode(seg).decode())
    inner = lambda key, data: wds.Continue(".txt", data) if key == ".bin" else None  # noqa: E731
    (sample,) = wds.WebDataset(path).decode(inner)
    assert sample["bin"] == "3"


def test_what_cannot_be_decoded_says_which_sample(tmp_path):
    path = str(tmp_path / "a.tar")
    with wds.TarWriter(path, encoder=False) as out:
        for n, value in enumerate(("1", "x", "3")):
            out.write({"__key__": f"k{n}", "cls": value})
    with pytest.raises(DecodeError, match=r"k1\.cls"):
        list(wds.WebDataset(path).decode())
    with pytest.warns(UserWarning, match=r"left out: .*k1\.cls"):
        assert numbers(wds.WebDataset(path).decode(handler=wds.warn_and_continue)) == [1, 3]
    noted = []
    own = lambda error: noted.append(error) or True  # noqa: E731
    assert numbers(wds.WebDataset(path).decode(handler=own)) == [1, 3]
    assert len(noted) == 1
    with pytest.raises(ConfigError, match="to end the epoch"):
        list(wds.WebDataset(path).decode(handler=lambda error: False))


@pytest.mark.parametrize("handler", [wds.ignore_and_continue, wds.warn_and_continue])
def test_handlers_do_not_leave_out_all_samples_for_an_error_of_the_pipeline(tmp_path, handler):
    archives = write_tars(tmp_path, count=2, shards=1, extra=[("pyd", pickle.dumps(1))])
    with pytest.raises(UnsafeTypeError, match="allow_unsafe_types=True"):
        list(wds.WebDataset(archives).decode(handler=handler))
    trusted = wds.WebDataset(archives, allow_unsafe_types=True).decode(handler=handler)
    assert [sample["pyd"] for sample in trusted] == [1, 1]
    with pytest.raises(ConfigError, match="takes dicts"):
        list(wds.WebDataset(archives).to_tuple("cls").decode(handler=handler))


def test_handlers_do_not_leave_out_all_samples_where_torch_is_missing(tmp_path, monkeypatch):
    archives = write_tars(tmp_path, count=2, shards=1, extra=[("pth", wds.torch_dumps([1]))])
    dataset = wds.WebDataset(archives, allow_unsafe_types=True)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match="extension pth need torch: install it"):
        list(dataset.decode(handler=wds.ignore_and_continue))
    for use in (wds.torch_loads, wds.torch_dumps):
        with pytest.raises(ConfigError, match="extension pth need torch: install it"):
            use(b"")
    with pytest.raises(ConfigError, match=r"decode\('torchrgb8'\) needs torch"):
        dataset.decode("torchrgb8")


def test_what_runs_code_needs_leave(tmp_path):
    path = str(tmp_path / "a.tar")
    with wds.TarWriter(path) as out:
        out.write({"__key__": "a", "pyd": {1, 2}, "txt": "t"})
    with pytest.raises(UnsafeTypeError, match="allow_unsafe_types=True"):
        list(wds.WebDataset(path).decode())
    (sample,) = wds.WebDataset(path, allow_unsafe_types=True).decode()
    assert sample["pyd"] == {1, 2}
    own = {"pre": lambda key, data: None, "post": lambda key, data: data.decode()}
    (sample,) = wds.WebDataset(path, allow_unsafe_types=True).decode(
        lambda key, data: "own" if key == ".pyd" else None,
        **{name: (decode for decode in [decode]) for name, decode in own.items()},
    )
    assert (sample["pyd"], sample["txt"]) == ("own", "t")
    (sample,) = wds.WebDataset(path).decode(only="txt")
    assert sample["pyd"] == pickle.dumps({1, 2}, sample["pyd"][1])


def test_stages_do_what_their_names_say(tars):
    start = wds.WebDataset(tars).decode()
    mapped = start.map(lambda s: {"twice": 2 * s["cls"]} if s["cls"] % 2 else None)
    assert next(iter(mapped)) == {"__key__": "00001", "twice": 2}
    assert numbers(start.map_dict(cls=lambda n: -n))[:3] == [0, -1, -2]
    with pytest.raises(KeyError, match="nothing"):
        next(iter(start.map_dict(nothing=int)))
    tuples = start.to_tuple("txt", "missing;cls").map_tuple(str.upper)
    assert next(iter(tuples)) == ("TEXT 0", 0)
    assert next(iter(start.to_tuple("txt cls").map_tuple(None, float))) == ("text 0", 0.0)
    assert numbers(start.select(lambda s: s["cls"] > 89)) == [90, 91]
    renamed = start.rename(text="html;txt")
    assert own(next(iter(renamed))) == {"__key__": "00000", "cls": 0, "text": "text 0"}
    assert next(iter(start.rename(keep=False, text="txt"))) == {"text": "text 0"}
    more = start.associate({"00000": {"more": 1}})
    assert [s.get("more") for s in itertools.islice(more, 2)] == [1, None]
    with pytest.raises(DataError, match=r"has none of \['png'\]"):
        next(iter(start.to_tuple("png")))
    assert next(iter(start.to_tuple("png", "cls", missing_is_error=False))) == (None, 0)
    assert numbers(start.slice(5)) == [0, 1, 2, 3, 4]
    assert numbers(start.slice(5, 20, 6)) == [5, 11, 17]
    evens = start.compose(lambda source: (s for s in source if s["cls"] % 2 == 0))
    assert numbers(evens)[:3] == [0, 2, 4]
    assert numbers(start.then(itertools.islice, 3)) == [0, 1, 2]


def test_names_are_found_by_patterns(tars):
    start = wds.WebDataset(tars).decode()
    assert next(iter(start.extract_keys("*.html;*.txt", "c*"))) == ("text 0", 0)
    assert next(iter(start.extract_keys("png", ["cls"], ignore_missing=True))) == (0,)
    assert next(iter(start.rename_keys(("text", "t?t"), number="cls"))) == {
        "text": "text 0",
        "number": 0,
    }
    kept = start.rename_keys(number="c*", keep_unselected=True)
    assert own(next(iter(kept))) == {"__key__": "00000", "number": 0, "txt": "text 0"}
    assert next(iter(start.rename_keys(a="png", must_match=False))) == {}
    assert len(next(iter(start.rename_keys(a="*", duplicate_is_error=False)))) == 1
    for wrong, message in (
        (start.extract_keys("png"), r"has nothing that \['png'\] fit"),
        (start.extract_keys("*t*;c*"), "which all fit"),
        (start.rename_keys(a="png"), r"has nothing that \['png'\] fit"),
        (start.rename_keys(a="*"), "more than one value for 'a'"),
    ):
        with pytest.raises(DataError, match=message):
            next(iter(wrong))


def test_a_part_of_the_samples_is_drawn(tars):
    dataset = wds.WebDataset(tars).rsample(0.5).decode()
    first, second = numbers(dataset), numbers(dataset)
    assert TOTAL / 4 < len(first) < TOTAL * 3 / 4
    assert first == sorted(first) != second  # another part in each epoch
    again = wds.WebDataset(tars).rsample(0.5).decode()
    assert [numbers(again), numbers(again)] == [first, second]
    assert (numbers(again.rsample(0)), len(numbers(wds.WebDataset(tars).rsample(1).decode()))) == (
        [],
        TOTAL,
    )
    many = list(wds.rsample(0.25)(range(100_000)))
    assert 24_000 < len(many) < 26_000


def test_functions_become_stages(tars):
    @wds.pipelinefilter
    def every(source, step, start=0):
        return itertools.islice(source, start, None, step)

    dataset = wds.WebDataset(tars).decode()
    assert numbers(dataset.compose(every(10, start=3)))[:3] == [3, 13, 23]
    assert list(every(4)(range(9))) == [0, 4, 8]
    listed = wds.DataPipeline(
        wds.SimpleShardList(tars), wds.detshuffle(), wds.tarfile_to_samples(), wds.decode()
    )
    assert sorted(numbers(listed)) == list(range(TOTAL)) != numbers(listed)


@pytest.mark.parametrize("add", ["batched", "repeat", "with_epoch", "with_batch_size"])
def test_functions_that_cannot_be_pickled_are_called_as_they_are(tars, add):
    lock, seen = threading.Lock(), []

    def note(sample):
        with lock:
            seen.append(sample["__key__"])
        return sample

    list(getattr(wds.WebDataset(tars).map(note), add)(4))
    assert set(seen) <= {f"{number:05d}" for number in range(TOTAL)}
    assert len(seen) >= 4


def test_batches_are_made_and_taken_apart(tars):
    start = wds.WebDataset(tars).decode()
    batches = list(start.batched(10))
    assert [len(b["cls"]) for b in batches] == [10] * 9 + [2]
    assert isinstance(batches[0]["cls"], np.ndarray)
    assert batches[0]["txt"][:2] == ["text 0", "text 1"]
    assert [len(b["cls"]) for b in start.batched(10, partial=False)] == [10] * 9
    assert len(start.batched(10)), len(start.batched(10, partial=False)) == (10, 9)
    assert numbers(start.batched(10).unbatched()) == list(range(TOTAL))
    lists = list(start.to_tuple("cls").listed(50))
    assert [len(each) for each in lists] == [50, 42]
    assert list(start.to_tuple("cls").listed(50).unlisted()) == [(n,) for n in range(TOTAL)]
    assert next(iter(start.batched(3, collation_fn=len))) == 3
    ragged = start.map(lambda s: (np.zeros(s["cls"] % 2),))
    with pytest.raises(DataError, match="a batch has shapes"):
        next(iter(ragged.batched(4)))
    with pytest.raises(DataError, match=r"not all samples of a batch have \['__url__', 'cls'\]"):
        next(iter(start.map(lambda s: s if s["cls"] else {"__key__": "", "txt": ""}).batched(2)))


@pytest.mark.parametrize(
    "values",
    [[2**63 + 1, 5], [np.uint64(2**63 + 1), np.int64(5)], [2**63 + 1, -5], [2**53 + 1, 2**64]],
)
def test_batches_keep_integers_that_no_real_number_is(values):
    [batch] = wds.batched(2)([{"id": value} for value in values])
    assert batch["id"].tolist() == values
    assert batch["id"].dtype in (np.uint64, object)


def test_batches_keep_numbers_among_texts():
    assert list(wds.batched(2)([(1,), ("b",)])) == [([1, "b"],)]


@pytest.mark.parametrize(
    "samples",
    [
        [(np.zeros(2),), ([1, 2],)],
        [(np.zeros(2),), (None,)],
        [(torch.zeros(2),), (np.zeros(2),)],
        [(1,), ([1, 2],)],
        [{"a": 1}, (1,)],
        [(1,), None],
    ],
)
def test_batches_of_different_types_are_refused(samples):
    with pytest.raises(DataError, match="a batch has values of the types"):
        list(wds.batched(2)(samples))


@pytest.mark.parametrize("batch", [([1, 2, 3], np.arange(2)), {"a": [1, 2, 3], "b": [4, 5]}])
def test_batches_whose_fields_differ_in_length_are_not_taken_apart(batch):
    with pytest.raises(DataError, match="the fields of a batch differ in length"):
        list(wds.unbatched()([batch]))


def test_the_order_is_that_of_the_plan(tars):
    assert numbers(wds.WebDataset(tars).decode()) == list(range(TOTAL))
    shards = wds.WebDataset(tars, shardshuffle=100)
    first, second = (numbers(shards.decode()) for _ in range(2))
    assert first == second != list(range(TOTAL))
    assert [n % COUNT for n in first] == list(range(COUNT)) * SHARDS
    mixed = wds.WebDataset(tars, seed=1).decode().shuffle(50)
    one, two = numbers(mixed), numbers(mixed)
    assert sorted(one) == sorted(two) == list(range(TOTAL))
    assert one != two
    assert numbers(wds.WebDataset(tars).shuffle(50, seed=1).decode()) == one
    assert numbers(wds.WebDataset(tars, seed=2).shuffle(50).decode()) != one
    assert numbers(wds.WebDataset(tars).shuffle(0)) == list(range(TOTAL))


def test_a_shuffle_of_archives_has_a_size_and_a_seed(tars):
    def found(*stages, seed=None):
        shards = wds.SimpleShardList(tars, seed)
        return numbers(wds.DataPipeline(shards, *stages, wds.tarfile_to_samples()))

    assert found(wds.shuffle(0, seed=1)) == found() == list(range(TOTAL))
    assert found(wds.shuffle(10)) == found(wds.shuffle(0, seed=1), wds.shuffle(10))
    for stage in (wds.shuffle, wds.detshuffle):
        orders = [found(stage(10, seed=seed)) for seed in range(4)]
        assert len(set(map(tuple, orders))) > 1
        assert orders == [found(seed=seed) for seed in range(4)]
        assert orders == [found(stage(10, seed=seed), seed=5) for seed in range(4)]


def test_batches_are_mixed_within_blocks(tars):
    mixed = wds.WebDataset(tars).decode().batched(4).unbatched().shuffle(10)
    found = numbers(mixed)
    assert found != list(range(TOTAL))
    assert [sorted(found[at : at + 10]) for at in range(0, TOTAL, 10)] == [
        list(range(at, min(at + 10, TOTAL))) for at in range(0, TOTAL, 10)
    ]
    assert numbers(mixed) != found  # in the next epoch

    def seeded(seed, own=None, make=lambda dataset: dataset):
        batches = make(wds.WebDataset(tars, seed=seed).decode().batched(4))
        return numbers(batches.unbatched().shuffle(10, seed=own))

    assert seeded(1) == seeded(2, own=1) != seeded(2)
    loader = functools.partial(wds.WebLoader, batch_size=None)
    assert seeded(1, make=loader) == seeded(2, own=1, make=loader) != seeded(2, make=loader)


def test_keys_are_noted_in_a_file(tars, tmp_path):
    log = tmp_path / "keys"
    noted = wds.WebDataset(tars).log_keys(str(log)).log_keys(None).decode()
    assert len(list(noted)) == TOTAL
    lines = [line.split("\t") for line in log.read_text().splitlines()]
    assert [key for _, _, key in lines] == [f"{n:05d}" for n in range(TOTAL)]
    assert [int(number) for _, number, _ in lines] == list(range(TOTAL))


# -- how long an epoch is ------------------------------------------------------------------


def test_a_nominal_epoch_goes_on_where_the_last_one_ended(tars):
    dataset = wds.WebDataset(tars).shuffle(20).decode().with_epoch(30)
    assert len(dataset) == 30
    seen = [numbers(dataset) for _ in range(7)]
    assert [len(each) for each in seen] == [30] * 7
    flat = list(itertools.chain.from_iterable(seen))
    for start in (0, TOTAL):
        assert sorted(flat[start : start + TOTAL]) == list(range(TOTAL))[: len(flat) - start]
    batches = wds.WebDataset(tars).with_epoch(nbatches=5).decode().batched(8)
    assert [len(b["cls"]) for b in batches] == [8] * 5
    assert numbers(batches) == list(range(40, 80))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_makes_batches_of_the_outputs_of_a_nominal_epoch(tars, workers):
    dataset = wds.WebDataset(tars).decode().with_epoch(30)
    loader = wds.WebLoader(dataset, batch_size=10, num_workers=workers)
    assert [len(batch["cls"]) for batch in loader] == [10] * 3
    assert (len(loader), numbers(loader)) == (3, list(range(30, 60)))
    for drop_last, batches in ((False, 5), (True, 4)):
        loader = wds.WebLoader(dataset, batch_size=7, drop_last=drop_last, num_workers=workers)
        assert [len(batch["cls"]) for batch in loader] == [7] * batches
    chosen = dataset.select(lambda sample: sample["cls"] % 2)
    loader = wds.WebLoader(chosen, batch_size=10, num_workers=workers)
    assert [len(batch["cls"]) for batch in loader] == [10] * 3


def test_a_data_set_is_repeated_pass_after_pass(tars):
    twice = wds.WebDataset(tars).shuffle(20).decode().repeat(2)
    for dataset in (twice, twice, twice.batched(10), twice.batched(10)):
        for _ in range(2):
            found = numbers(dataset)
            assert sorted(found[:TOTAL]) == sorted(found[TOTAL:]) == list(range(TOTAL))
    worlds = [World(ranks_per_node=2, rank=rank) for rank in range(2)]
    halves = [numbers(list(wds.WebDataset(tars, world=w).decode().repeat(3))) for w in worlds]
    assert sorted(halves[0] + halves[1]) == sorted(3 * list(range(TOTAL)))
    with pytest.raises(ConfigError, match="no whole batches of batch_size=8"):
        wds.WebDataset(tars, batch_size=8).with_epoch(30)
    assert len(twice) == 2 * TOTAL
    endless = wds.WebDataset(tars, repeat=True).decode()
    assert numbers(itertools.islice(endless, 200)) == [n % TOTAL for n in range(200)]
    assert len(list(wds.WebDataset(tars, resampled=True).decode().repeat(nbatches=7))) == 7
    chosen = wds.WebDataset(tars).decode().select(lambda s: s["cls"] % 5 == 0).with_epoch(25)
    assert [len(numbers(chosen)) for _ in range(2)] == [25, 25]


def test_stages_that_end_do_not_shorten_a_nominal_epoch_in_silence(tars):
    sliced = wds.WebDataset(tars).decode().slice(10)
    with pytest.raises(ConfigError, match="ended the loop after 10 of 25 outputs"):
        list(sliced.with_epoch(25))
    assert numbers(sliced.with_epoch(7)) == list(range(7))
    ended = wds.WebDataset(tars).batched(1).compose(lambda source: itertools.islice(source, 3))
    with pytest.raises(ConfigError, match="after 3 of 5"):
        list(wds.WebLoader(ended, batch_size=None).unbatched().with_epoch(5))
    loaded = wds.WebLoader(wds.WebDataset(tars), batch_size=None).slice(10)
    for repeated in (
        lambda: sliced.repeat(2),
        lambda: wds.WebDataset(tars).repeat(2).slice(10),
        lambda: loaded.repeat(2),
        loaded.repeat,
    ):
        with pytest.raises(ConfigError, match=r"slice\(\) counts over all passes"):
            repeated()
    assert len(list(loaded.repeat(1))) == 10
    assert len(list(wds.FluidWrapper(loaded).repeat(2))) == 20
    wrapped = wds.FluidWrapper(sliced)
    assert numbers(wrapped.repeat(2)) == [*range(10)] * 2
    assert numbers(wrapped.with_epoch(15)) == [*range(10), *range(5)]


@pytest.mark.timeout(20)
def test_stages_that_leave_out_all_samples_of_endless_passes_are_an_error(tars):
    nothing = wds.WebDataset(tars).select(lambda sample: False)
    for dataset in (nothing.with_epoch(5), nothing.batched(4).repeat()):
        with pytest.raises(
            DataError, match=f"left out {TOTAL + MAX_SAMPLES_LEFT_OUT} samples in a row"
        ):
            next(iter(dataset))
        with pytest.raises(
            DataError, match=f"left out {TOTAL + MAX_SAMPLES_LEFT_OUT} samples in a row"
        ):
            next(iter(wds.WebLoader(dataset, batch_size=None)))
    assert not list(nothing.repeat(2))
    few = wds.WebDataset(tars).decode().select(lambda sample: sample["cls"] == 3).listed(3)
    assert [len(outputs) for outputs in few.with_epoch(2)] == [3, 3]
    state = few.with_epoch(2).state_dict()
    resumed = few.with_epoch(2)
    resumed.load_state_dict(state)
    assert [len(outputs) for outputs in resumed] == [3, 3]


def test_few_samples_at_random_may_leave_out_a_pass(tars):
    assert len(list(wds.WebDataset(tars, resampled=True).rsample(0.005).with_epoch(20))) == 20


def test_map_that_leaves_samples_out_does_not_shorten_a_nominal_epoch_in_silence(tars):
    dataset = wds.WebDataset(tars).decode().map(lambda s: s if s["cls"] % 2 else None)
    with pytest.raises(ConfigError, match=r"map\(\) left 5 samples out; use select"):
        list(dataset.with_epoch(10))


def test_batches_are_made_by_functions(tars):
    dataset = wds.WebDataset(tars)
    for make in (
        lambda: dataset.batched(3, collation_fn=3),
        lambda: wds.WebLoader(dataset, batch_size=3, collate_fn=3),
        lambda: wds.WebLoader(dataset, batch_size=None, collate_fn=3),
    ):
        with pytest.raises(ConfigError, match=r"3.* function of"):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.map(3), "takes functions"),
        (lambda d: d.associate(3), "takes a dict or a function of a key"),
        (lambda d: d.rename(a=3), "takes names as text"),
        (lambda d: d.to_tuple(3), "takes names as text"),
        (lambda d: d.extract_keys(["cls", 3]), "takes names as text"),
        (lambda d: d.rename_keys(a=3), "takes pairs of a name and a pattern"),
        (lambda d: d.rename_keys(("a",)), "takes pairs of a name and a pattern"),
        (lambda d: d.rsample("x"), "expected a probability"),
        (lambda d: d.log_keys(3), "expected a path"),
        (
            lambda d: next(iter(d.compose(lambda source: None))),
            "returned NoneType: a stage returns",
        ),
    ],
)
def test_arguments_that_no_stage_can_use_are_refused(tars, make, message):
    with pytest.raises(ConfigError, match=message):
        make(wds.WebDataset(tars))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_errors_of_stages_name_the_sample(tars):
    def fail_at_30(sample):
        return 1 / (sample["cls"] - 30)

    dataset = wds.WebDataset(tars, shardshuffle=False).decode()
    for failing in (dataset.map(fail_at_30), dataset.select(fail_at_30)):
        with pytest.raises(ZeroDivisionError) as caught:
            list(failing)
        [note] = caught.value.__notes__
        assert re.fullmatch(r"raised by \w+\(\) for sample '00030' of .*/x-001\.tar", note)
    with pytest.raises(DataError, match="are those of dicts, not of tuple"):
        list(dataset.to_tuple("cls").to_tuple("cls"))
    with pytest.raises(DataError, match=r"unbatched\(\) takes fields of several values"):
        list(dataset.unbatched())


def test_a_length_is_known_or_given(tars):
    dataset = wds.WebDataset(tars)
    assert (len(dataset), len(dataset.batched(10)), bool(dataset)) == (TOTAL, 10, True)
    chosen = dataset.select(bool)
    with pytest.raises(TypeError, match="with_length"):
        len(chosen)
    assert len(chosen.with_length(5)) == 5
    with pytest.warns(UserWarning, match=f"a loop has {TOTAL} outputs"):
        assert len(dataset.with_length(5)) == 5
    assert len(dataset.with_length(5, silent=True)) == 5
    assert len(chosen.with_epoch(5)) == 5
    for size in (None, 10):
        rank = wds.WebDataset(tars, world=World(ranks_per_node=3), batch_size=size)
        repeated = rank.repeat(2) if size is None else rank.batched(size).repeat(2)
        assert len(repeated) == sum(1 for _ in repeated)
        with pytest.raises(TypeError, match="with_length"):
            len(rank.repeat())


# -- states --------------------------------------------------------------------------------

PIPELINES = {
    "samples": lambda d: d,
    "batches": lambda d: d.batched(8),
    "selected": lambda d: d.select(odd_ones).batched(7),
    "rebatched": lambda d: d.batched(8).unbatched().select(odd_ones).batched(5),
    "mixed": lambda d: d.batched(6).unbatched().shuffle(11).batched(4),
    "drawn": lambda d: d.rsample(0.6).batched(7),
    "sliced": lambda d: d.select(odd_ones).slice(3, 40, 2).batched(3),
    "own": lambda d: d.compose(in_pairs).batched(3),
    "nominal": lambda d: d.batched(5).with_epoch(11),
    "nominal-selected": lambda d: d.select(odd_ones).with_epoch(70),
    "repeated": lambda d: d.batched(9).repeat(2),
}


def odd_ones(sample):
    return sample["cls"] % 3 != 1


def in_pairs(source):
    for one in source:
        yield next(source, one)
        yield one


def made(tars, name, **options):
    return PIPELINES[name](wds.WebDataset(tars, **options).shuffle(30).decode())


@pytest.mark.parametrize("name", PIPELINES)
def test_a_state_is_exact_after_every_output(tars, name):
    dataset = made(tars, name)
    list(dataset)
    whole = [plain(output) for output in dataset]
    follows = [plain(output) for output in itertools.islice(dataset, 3)]
    dataset = made(tars, name)
    list(dataset)
    assert dataset.state_dict()["epoch"] == 1
    states = [dataset.state_dict()]
    states += [json.loads(json.dumps(dataset.state_dict())) for _ in dataset]
    for at in {0, 1, 2, 3, 5, len(whole) // 2, len(whole) - 1, len(whole)}:
        again = made(tars, name)
        again.load_state_dict(states[at])
        assert again.state_dict() == states[at]
        rest = [plain(output) for output in again]
        if at == len(whole) and states[at]["epoch"] == 2:
            assert rest[:3] == follows
            continue
        assert rest == whole[at:], at
        assert [plain(output) for output in itertools.islice(again, 3)] == follows


def test_a_state_of_a_state_is_exact(tars):
    whole = [plain(output) for output in made(tars, "mixed")]
    found, state = [], None
    for _ in range(200):
        dataset = made(tars, "mixed")
        if state:
            dataset.load_state_dict(state)
        outputs = iter(dataset)
        output = next(outputs, None)
        if output is None:
            break
        found.append(plain(output))
        state = dataset.state_dict()
    assert found == whole


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("batches", 2),
        ("selected", 2),
        ("own", 2),
        ("mixed", 0),
        ("nominal-selected", 2),
    ],
)
def test_a_loader_resumes_exactly(tars, name, workers):
    settings = {"batch_size": None, "num_workers": workers}
    loader = wds.WebLoader(made(tars, name), **settings)
    whole = [plain(output) for output in loader]
    follows = plain(next(iter(loader)))
    if name == "batches":
        assert whole == [plain(output) for output in made(tars, name)]
    loader = wds.WebLoader(made(tars, name), **settings)
    outputs = iter(loader)
    begun = [plain(next(outputs)) for _ in range(3)]
    state = json.loads(json.dumps(loader.state_dict()))
    del outputs
    again = wds.WebLoader(made(tars, name), **settings)
    again.load_state_dict(state)
    assert begun + [plain(output) for output in again] == whole
    assert plain(next(iter(again))) == follows


def few(cls):
    return cls % 5 not in (1, 2) and not 6 < cls < 11


LOADERS = {
    "samples": lambda d, w: as_loader(d.select(few), w),
    "limited": lambda d, w: as_loader(d, w).shuffle(3).with_epoch(3),
    "no share": lambda d, w: as_loader(d.select(few).rsample(0.7).with_epoch(1), w),
    "nothing": lambda d, w: as_loader(d.slice(0), w),
}


def as_loader(dataset, workers):
    return wds.WebLoader(dataset, batch_size=None, collate_fn=int, num_workers=workers)


def of_class(sample):
    return int(sample["cls"])


@pytest.mark.parametrize("workers", [0, 2, 3] if SOAK else [0, 2])
@pytest.mark.parametrize("name", LOADERS)
def test_loops_after_a_state_of_a_loader_are_those_that_would_have_come(tmp_path, name, workers):
    tars = write_tars(tmp_path / "few", shards=2, count=9)

    def make():
        dataset = wds.WebDataset(tars, shardshuffle=False).decode().map(of_class)
        return LOADERS[name](dataset, workers)

    loader = make()
    epochs = [list(loader) for _ in range(3)]
    assert loader.state_dict()["epoch"] == 3
    loader = make()
    for epoch in range(2):
        outputs, states = iter(loader), []
        for _ in epochs[epoch]:
            next(outputs)
            states.append(json.loads(json.dumps(loader.state_dict())))
        assert next(outputs, None) is None
        # Processes take long to start, and what they do between outputs is the same.
        tried = {len(states) // 2} if epoch else {1, len(states)}
        for number, state in enumerate(states, 1):
            if workers and not SOAK and number not in tried:
                continue
            again = make()
            again.load_state_dict(state)
            assert list(again) == epochs[epoch][number:]
            assert list(again) == epochs[epoch + 1]
        again = make()
        again.load_state_dict(loader.state_dict())
        assert list(again) == epochs[epoch + 1]


def rebatched(tars):
    loader = wds.WebLoader(made(tars, "selected"), batch_size=None, num_workers=2)
    return loader.unbatched().shuffle(9).batched(4)


def test_a_loader_with_stages_of_its_own_resumes_exactly(tars):
    whole = [plain(output) for output in rebatched(tars)]
    assert sorted(numbers(whole_of(whole))) == [n for n in range(TOTAL) if n % 3 != 1]
    loader = rebatched(tars)
    states = []
    for number, _ in enumerate(loader):
        states.append(loader.state_dict())
        if number == 6:
            break
    for at in (0, 3, 6):
        again = rebatched(tars)
        again.load_state_dict(MappingProxyType(json.loads(json.dumps(states[at]))))
        assert [plain(output) for output in again] == whole[at + 1 :]


def whole_of(batches):
    return [{"cls": batch["cls"]} for batch in batches]


def test_a_state_between_batches_is_good_for_other_workers_and_ranks(tars):
    whole = [plain(output) for output in made(tars, "batches")]
    loader = wds.WebLoader(made(tars, "batches"), batch_size=None, num_workers=2)
    outputs = iter(loader)
    for _ in range(5):
        next(outputs)
    state = loader.state_dict()
    assert state["pipeline"] == ""
    for workers in (0, 3):
        again = wds.WebLoader(made(tars, "batches"), batch_size=None, num_workers=workers)
        again.load_state_dict(state)
        assert [plain(output) for output in again] == whole[5:]
    parts = []
    for rank in range(2):
        world = World(ranks_per_node=2, rank=rank)
        half = wds.WebDataset(tars, world=world).shuffle(30).decode().batched(4)
        half.load_state_dict(state)
        parts.append(next(iter(half))["cls"].tolist())
    assert sorted(parts[0] + parts[1]) == sorted(whole[5]["cls"])


def parts_of(state):
    """Return the positions of the processes of rank 0."""
    return json.loads(state["pipeline"])["ranks"]["0"][2]


def with_record(state, record):
    return {
        **state,
        "pipeline": json.dumps({**json.loads(state["pipeline"]), "ranks": {0: record}}),
    }


OLD_STATES = json.loads(Path(__file__).with_name("states_of_version_1.json").read_text())


@pytest.mark.parametrize("name", OLD_STATES)
def test_states_of_version_1_are_loaded(tars, name):
    data = rebatched(tars) if name == "loader" else made(tars, name)
    data.load_state_dict(OLD_STATES[name]["state"])
    state = data.state_dict()
    for _ in range(2):
        found = [numbers([output]) for output in itertools.islice(data, 3)]
        assert found == OLD_STATES[name]["after"]
        data.load_state_dict(state)
    damaged = {**OLD_STATES[name]["state"], "loader": [1, 2]}
    with pytest.raises(StateError, match="an invalid position"):
        data.load_state_dict(damaged)


def test_a_state_in_the_middle_is_refused_elsewhere(tars):
    loader = wds.WebLoader(made(tars, "selected"), batch_size=None, num_workers=2)
    outputs = iter(loader)
    next(outputs)
    state = loader.state_dict()
    assert len(parts_of(state)) == 2
    other = wds.WebLoader(made(tars, "selected"), batch_size=None, num_workers=3)
    other.load_state_dict(state)
    with pytest.raises(StateError, match=r"of 2 processes .* there are 3"):
        next(iter(other))
    with pytest.raises(StateError, match=r"stages \['decode', 'select', 'batched'\]"):
        made(tars, "mixed").load_state_dict(state)
    with pytest.raises(StateError, match=r"of the ranks \[0\] of 1, .*, and this is rank 0 of 2"):
        made(tars, "selected", world=World(2)).load_state_dict(state)
    # A plain loader's workers would repeat the output, and skip samples again in the next epoch.
    with pytest.raises(StateError, match="load it into a WebLoader over this pipeline"):
        made(tars, "selected").load_state_dict(state)
    for part in ([1, 2], "x", [-1, 0, []], [0, 0, [[1]]]):
        with pytest.raises(StateError, match="an invalid position"):
            made(tars, "selected").load_state_dict(
                with_record(state, [0, 0, [part, part], 0, None])
            )
    for record, error in (
        ([0, 0, [], 0], "an invalid position"),
        ([0, 0, 3, 0, None], "an invalid position"),
        ([-1, 0, [], 0, None], "epoch=-1"),
        ([0, None, [], 0, None], "step=None"),
        ([0, 0, [], "x", None], "given='x'"),
    ):
        with pytest.raises(StateError, match=error):
            made(tars, "selected").load_state_dict(with_record(state, record))
    for text in ("{", "[]", '{"ranks": {"x": 1}}', 3):
        with pytest.raises(StateError, match="no text of positions"):
            made(tars, "selected").load_state_dict({**state, "pipeline": text})
    with pytest.raises(StateError, match="another run"):
        wds.WebDataset(tars).decode().batched(8).load_state_dict(made(tars, "batches").state_dict())


def test_the_state_after_an_error_before_the_first_output_is_the_begin_of_the_loop(tars):
    fails = [False]

    def check(sample):
        if fails[0]:
            raise ValueError("too dark")
        return sample

    def make():
        dataset = wds.WebDataset(tars).map(check).batched(8)
        return wds.WebLoader(dataset, batch_size=None)

    loader = make()
    next(iter(loader))
    state = loader.state_dict()
    loader = make()
    loader.load_state_dict(state)
    for expected in (state, {**state, "epoch": 1, "sample_in_epoch": 0}):
        fails[0] = True
        with pytest.raises(ValueError, match="too dark"):
            next(iter(loader))
        assert loader.state_dict() == expected
        fails[0] = False
        loader.load_state_dict(expected)
        list(loader)
    fails[0] = True
    loader = make()
    before = loader.state_dict()
    with pytest.raises(ValueError, match="too dark"):
        next(iter(loader))
    assert loader.state_dict() == before


def test_a_pipeline_whose_first_sample_is_damaged_is_before_its_loop(tars, monkeypatch):
    dataset = made(tars, "batches")
    next(iter(dataset))
    state = dataset.state_dict()
    dataset = made(tars, "batches")
    dataset.load_state_dict(state)
    list(dataset)
    after = dataset.state_dict()

    def damaged(_):
        raise DataError("damaged")

    monkeypatch.setattr(type(dataset.dataset), "__iter__", damaged)
    with pytest.raises(DataError, match="damaged"):
        list(dataset)
    assert dataset.state_dict() == after


def test_a_damaged_state_leaves_a_loader_where_it_was(tars):
    def make():
        return wds.WebLoader(made(tars, "batches"), batch_size=None).unbatched().batched(5)

    loader, fresh = make(), make()
    outputs = iter(loader)
    for _ in range(9):
        next(outputs)
    state, before = loader.state_dict(), fresh.state_dict()
    with pytest.raises(StateError, match="an invalid position"):
        fresh.load_state_dict(with_record(state, [0, 0, [], 0, [1, 2]]))
    assert fresh.state_dict() == before
    fresh.load_state_dict(state)
    assert plain(next(fresh.__iter__())) == plain(next(outputs))


# -- loaders -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fork", "spawn" if SOAK else "forkserver"])
def test_a_plain_loader_of_torch_reads_each_sample_once_in_an_epoch(tars, how):
    dataset = made(tars, "batches")
    context = multiprocessing.get_context(how)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=None,
        num_workers=2 if how == "fork" else 1,
        multiprocessing_context=context,
        persistent_workers=True,
    )
    first, second = ([plain(output) for output in loader] for _ in range(2))
    assert (
        sorted(numbers(whole_of(first))) == sorted(numbers(whole_of(second))) == list(range(TOTAL))
    )
    assert first != second
    assert first == [plain(output) for output in made(tars, "batches")]
    with pytest.raises(StateError, match=r"WebLoader.state_dict\(\)"):
        dataset.state_dict()


def test_a_loader_makes_batches_as_torch_does(tars):
    dataset = wds.WebDataset(tars).decode().to_tuple("__key__", "cls")
    loader = wds.WebLoader(dataset, batch_size=10, num_workers=2)
    batches = list(loader)
    assert len(loader) == len(batches) == 10
    assert isinstance(batches[0][1], torch.Tensor)
    assert [len(keys) for keys, _ in batches] == [10] * 9 + [2]
    assert numbers(batches) == list(range(TOTAL))
    assert len(list(wds.WebLoader(dataset, batch_size=10, drop_last=True))) == 9
    assert next(iter(wds.WebLoader(dataset)))[1].tolist() == [0]


def test_values_that_webdataset_leaves_as_bytes_are_left(tmp_path):
    names = ["class", "count", "htm", "html", "seg.html", "count.gz"]
    with wds.TarWriter(tmp_path / "a.tar") as out:
        out.write({"__key__": "a", "cls": "1", **dict.fromkeys(names, b"1")})
    [sample] = wds.WebDataset(str(tmp_path / "a.tar")).decode()
    assert sample["cls"] == 1
    assert [sample[name] for name in names] == [b"1"] * len(names)
    [sample] = StreamingDataset(remote=str(tmp_path / "a.tar"), format="webdataset")
    assert [sample[name] for name in ("class", "html")] == [1, "1"]


@pytest.mark.parametrize("partial", [True, False])
def test_a_short_last_list_is_left_out_if_that_is_asked_for(tars, partial):
    lists = list(wds.WebDataset(tars).decode().listed(TOTAL - 1, partial=partial))
    assert [len(each) for each in lists] == ([TOTAL - 1, 1] if partial else [TOTAL - 1])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_converts_outputs_to_tensors_as_torch_does(tars, workers):
    settings = {"batch_size": None, "num_workers": workers}
    dataset = wds.WebDataset(tars).decode().to_tuple("__key__", "cls").batched(10)
    batch = next(iter(wds.WebLoader(dataset, **settings)))
    assert type(batch) is list
    assert type(batch[0]) is list
    assert isinstance(batch[1], torch.Tensor)
    assert batch[1].tolist() == list(range(10))
    arrays = wds.WebDataset(tars).decode().map(lambda sample: {"x": np.full(2, sample["cls"])})
    sample = next(iter(wds.WebLoader(arrays, **settings)))
    assert torch.equal(sample["x"], torch.zeros(2, dtype=torch.int64))


def test_persistent_workers_go_on(tars):
    settings = {"batch_size": None, "num_workers": 2, "persistent_workers": True}
    loader = wds.WebLoader(made(tars, "selected"), **settings)
    epochs = [[plain(output) for output in loader] for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    outputs = iter(loader)
    next(outputs)
    state = loader.state_dict()
    rest = [plain(output) for output in outputs]
    loader.load_state_dict(state)
    assert [plain(output) for output in loader] == rest
    assert state["epoch"] == 3


def worker_that_fails(_):
    assert isinstance(torch.utils.data.get_worker_info().dataset, wds.WebDataset)
    raise OSError("no worker")


@pytest.mark.parametrize("where", ["sample", "start"])
def test_workers_end_with_an_error_of_one_while_it_is_kept(tars, where):
    pipeline = wds.WebDataset(tars).decode()
    options = {"batch_size": None, "num_workers": 2}
    if where == "sample":
        loader = wds.WebLoader(pipeline.map(refuse_thirty), **options)
    else:
        loader = wds.WebLoader(pipeline, worker_init_fn=worker_that_fails, **options)
    before = {child.pid for child in multiprocessing.active_children()}
    with pytest.raises(OSError) as kept:
        list(loader)
    assert {child.pid for child in multiprocessing.active_children()} <= before
    assert kept.value is not None


def test_a_loop_whose_workers_could_not_start_is_begun_again_where_it_was(tars, tmp_path):
    broken = tmp_path / "broken"

    def start(_):
        if broken.exists():
            raise OSError("no worker")

    def loader():
        options = {"batch_size": 4, "num_workers": 2, "worker_init_fn": start}
        return wds.WebLoader(made(tars, "selected"), collate_fn=list, **options)

    expected = list(loader())
    outputs, resumed = loader(), loader()
    for _, _ in zip(range(3), outputs):
        state = outputs.state_dict()
    assert json.loads(state["pipeline"])["ranks"]["0"][3]
    resumed.load_state_dict(state)
    broken.touch()
    with pytest.raises(OSError, match="no worker"):
        next(iter(resumed))
    broken.unlink()
    assert resumed.state_dict() == state
    assert list(resumed) == expected[3:]


def test_a_data_set_refuses_a_state_in_the_middle_of_batches(tars):
    pipeline = made(tars, "selected")
    outputs = iter(pipeline)
    next(outputs)
    state = pipeline.state_dict()
    assert parts_of(state)
    with pytest.raises(StateError, match="load it into that pipeline or its WebLoader"):
        made(tars, "selected").dataset.load_state_dict(state)


def start_late(worker):
    time.sleep(worker)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["selected", "mixed"])
def test_loops_side_by_side_have_an_epoch_each(tars, name):
    options = {"batch_size": None, "num_workers": 2}
    loader = wds.WebLoader(made(tars, name), **options)
    expected = [[plain(output) for output in loader] for _ in range(2)]
    loader = wds.WebLoader(made(tars, name), worker_init_fn=start_late, **options)
    pairs = [(plain(one), plain(other)) for one, other in zip(loader, loader)]
    assert [list(outputs) for outputs in zip(*pairs)] == [e[: len(pairs)] for e in expected]
    assert len(pairs) == min(map(len, expected))


def refuse_thirty(sample):
    if sample["cls"] == 30:
        raise OSError("no sample")
    return sample


def test_a_loop_after_an_interrupt_has_new_persistent_workers(tars):
    settings = {"batch_size": None, "num_workers": 1, "persistent_workers": True}
    loader = wds.WebLoader(made(tars, "selected"), **settings)
    expected = [[plain(output) for output in loader] for _ in range(2)]
    before = set(multiprocessing.active_children())
    loader = wds.WebLoader(made(tars, "selected"), **settings)
    outputs = iter(loader)
    assert plain(next(outputs)) == expected[0][0]
    (worker,) = set(multiprocessing.active_children()) - before
    os.kill(worker.pid, signal.SIGINT)  # as Ctrl-C sends it to all processes of a terminal
    worker.join(60)
    del outputs
    assert [plain(output) for output in loader] == expected[1]


def test_loops_do_not_take_each_others_outputs_of_persistent_workers(tars):
    settings = {"batch_size": None, "num_workers": 1, "persistent_workers": True}
    loader = wds.WebLoader(made(tars, "selected"), **settings)
    expected = [[plain(output) for output in loader] for _ in range(2)]
    loader = wds.WebLoader(made(tars, "selected"), **settings)
    first = iter(loader)
    next(first)
    second = iter(loader)
    outputs = [plain(next(second))]
    assert [plain(output) for output in first] == expected[0][1:]
    assert outputs + [plain(output) for output in second] == expected[1]


def test_a_loop_does_not_go_on_after_a_state_was_loaded(tars):
    loader = wds.WebLoader(made(tars, "selected"), batch_size=None, num_workers=1)
    outputs = iter(loader)
    next(outputs)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(ConfigError, match="a state was loaded; leave the loop"):
        next(outputs)


def test_ranks_share_an_epoch(tars):
    parts = [
        numbers(wds.WebDataset(tars, world=World(ranks_per_node=2, rank=rank)).decode())
        for rank in range(2)
    ]
    assert sorted(parts[0] + parts[1]) == list(range(TOTAL))
    nominal = [
        numbers(
            wds.WebDataset(tars, world=World(ranks_per_node=2, rank=rank))
            .decode()
            .batched(5)
            .with_epoch(6)
        )
        for rank in range(2)
    ]
    assert sorted(nominal[0] + nominal[1]) == list(range(60))


def test_a_batch_size_makes_batches_of_a_plain_loader_the_same(tars):
    dataset = wds.WebDataset(tars, batch_size=8).shuffle(30).decode().to_tuple("cls")
    found = [
        numbers(torch.utils.data.DataLoader(copy.deepcopy(dataset), batch_size=8, num_workers=n))
        for n in (0, 2)
    ]
    assert found[0] == found[1]
    with pytest.raises(ConfigError, match="leave batch_size= out"):
        dataset.batched(9)


WITHOUT_TORCH = """
import importlib.util, sys
sys.modules["torch"] = None
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
import streamplug_webdataset as wds
dataset = wds.WebDataset(sys.argv[1]).shuffle(100).decode().to_tuple("cls").batched(10)
assert len(list(dataset)) == 10 and dataset.state_dict()["epoch"] == 1
try:
    wds.WebLoader
except ImportError as error:
    print(error)
"""


def test_pipelines_need_no_torch(tars):
    command = [sys.executable, "-c", WITHOUT_TORCH, tars]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    assert "pip install torch" in done.stdout


def test_a_copy_for_a_worker_does_not_have_the_index_twice(tars):
    dataset = made(tars, "batches")
    stream = dataset.dataset.streams[0]
    assert stream.known
    assert not pickle.loads(pickle.dumps(stream)).known


# -- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"urls": "pipe:curl -s http://x/{0..9}.tar"}, "name the URL itself"),
        ({"urls": "-"}, "name the URL itself"),
        ({"urls": "mix.yaml"}, "mix data sets with streams"),
        ({"urls": {"datasets": []}}, "expected paths or URLs"),
        ({"urls": []}, "expected paths or URLs"),
        ({"handler": wds.warn_and_continue}, "an archive that cannot be read is an error"),
        ({"mode": "keep"}, "None and 'resampled'"),
        ({"nodesplitter": list}, "dealt to ranks and workers by the plan"),
        ({"url_to_name": str}, "the cache keeps archives apart"),
        ({"urls": "${MISSING}/x.tar"}, "WDS_MISSING, which is not set"),
        ({"shuffle": True}, "set by the pipeline"),
        ({"detshuffle": 3}, "expected True or False"),
        ({"cache_size": -5}, "cache_size=-5: expected bytes"),
        ({"cache_size": "much"}, "cache_size='much': expected bytes"),
        ({"repeat": 3}, "repeat=3: expected True or False"),
        ({"resampled": "no"}, "resampled='no': expected True or False"),
        ({"empty_check": "no"}, "empty_check='no': expected True or False"),
        ({"verbose": "no"}, "verbose='no': expected True or False"),
        ({"allow_unsafe_types": "no"}, "allow_unsafe_types='no': must be True or False"),
    ],
)
def test_what_is_not_supported_is_refused(tars, arguments, message):
    with pytest.raises(ConfigError, match=message):
        wds.WebDataset(**{"urls": tars, **arguments})


@pytest.mark.parametrize(
    "make",
    [
        lambda url: wds.WebDataset(f"{url}/a.yaml"),
        lambda url: wds.WebDataset([f"{url}/a.json?token=secret.json"]),
        lambda url: wds.WebDataset({"datasets": [url]}),
        lambda url: wds.WebDataset(f"pipe:curl -H 'Authorization: Bearer secret' {url}"),
        lambda url: wds.WebDataset("https://host/${LOOP}"),
        lambda url: wds.TarWriter(f"{url}/a.tar"),
        lambda url: wds.TarWriter(f"pipe:curl -T - {url}/a.tar"),
        lambda url: wds.ShardWriter(f"{url}/a.tar"),
        lambda url: wds.Decoder(["rgb8"])({"__key__": "a", "__url__": f"{url}/a.tar", "png": b""}),
    ],
)
def test_errors_have_no_credentials(monkeypatch, make):
    monkeypatch.setenv("WDS_LOOP", "secret${LOOP}")
    with pytest.raises((ConfigError, DecodeError)) as caught:
        make("https://user:secret@host")
    assert "secret" not in str(caught.value)


def test_stages_that_would_lose_samples_or_mean_nothing_are_refused(tars):
    dataset = wds.WebDataset(tars)
    for handler in (wds.ignore_and_stop, wds.warn_and_stop):
        with pytest.raises(ConfigError, match="lost in silence; use warn_and_continue"):
            dataset.map(int, handler=handler)
        with pytest.raises(ConfigError, match="lost in silence"):
            handler(ValueError())
    for wrong in (
        lambda: dataset.batched(0),
        lambda: dataset.shuffle(True),
        lambda: dataset.slice(-1),
        lambda: dataset.rsample(1.5),
        dataset.slice,
        dataset.with_epoch,
        lambda: dataset.with_length(-1),
        dataset.map_dict,
        lambda: dataset.map_tuple(3),
        lambda: dataset.compose(3),
        lambda: dataset.decode(3),
        lambda: dataset.decode(allow_unsafe_types="no"),
        lambda: dataset.decode(max_value_bytes=-1),
        lambda: dataset.decode(max_value_bytes="much"),
        lambda: dataset.repeat(2, 3),
        lambda: dataset.repeat(2.5),
        lambda: dataset.repeat("2"),
        lambda: dataset.with_epoch("3"),
        lambda: dataset.shuffle(2.5),
        lambda: dataset.batched(2).unbatched().shuffle(3, seed=1.5),
        lambda: wds.DataPipeline(wds.shuffle(3)),
        wds.DataPipeline,
        lambda: wds.DataPipeline(3),
        lambda: dataset.shuffle(10, rng=3),
        lambda: dataset.shuffle(bufsize=10, handler=wds.warn_and_continue),
        lambda: wds.RandomMix([dataset], probs=[0]),
        lambda: wds.DataPipeline([1, 2], predownload=3),
        lambda: wds.WebLoader([1]),
        lambda: wds.WebLoader(dataset, shuffle=True),
        lambda: wds.WebLoader(dataset, batch_size=None, drop_last=True),
        lambda: wds.WebLoader(dataset, in_order=False),
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_lists_of_archives_and_a_cache(tars, tmp_path):
    folder = tars.rpartition("/")[0]
    names = [f"{folder}/x-00{n}.tar" for n in range(SHARDS)]
    for urls in (names, "::".join(names), folder, f"{folder}/*.tar"):
        assert numbers(wds.WebDataset(urls)) == list(range(TOTAL))
    cached = wds.WebDataset(tars, cache_dir=str(tmp_path), cache_size=10**9, verbose=True)
    assert len(list(cached)) == TOTAL
    assert len(list(tmp_path.glob("*.tar"))) == SHARDS


def test_a_size_limits_the_directory_for_temporary_files_too(tmp_path, monkeypatch):
    with serving(tmp_path) as server:
        write_tars(tmp_path / "tars")
        urls = f"{server.url}/tars/x-{{000..{SHARDS - 1:03d}}}.tar"
        (stream,) = wds.WebDataset(urls, cache_size="1gb").dataset.streams
        assert stream.cache == (stream.directory, 1 << 30)
        (stream,) = wds.WebDataset(urls).dataset.streams
        assert stream.cache == (stream.directory, None)


def test_archives_on_a_server_are_read_with_several_options_at_once(tmp_path):
    with serving(tmp_path) as server:
        write_tars(tmp_path / "tars")
        urls = f"{server.url}/tars/x-{{000..{SHARDS - 1:03d}}}.tar"
        plain, chosen = wds.WebDataset(urls), wds.WebDataset(urls, select_files=bool)
        whole = StreamingDataset(remote=urls, format="webdataset")
        assert len(list(plain)) == len(list(chosen)) == len(list(whole)) == TOTAL
        assert len({s.directory for d in (plain.dataset, whole) for s in d.streams}) == 2


def test_credentials_are_in_no_error_of_a_list_of_urls():
    pipeline = wds.DataPipeline(["https://user:secret@host/x.tar"], wds.tarfile_to_samples())
    with pytest.raises(DataError, match="got str: begin with SimpleShardList") as caught:
        next(iter(pipeline))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loop_after_the_state_of_a_last_output_starts_at_the_beginning(tars, workers):
    def load():
        pipeline = wds.WebDataset(tars, resampled=True, seed=3).decode(only="cls").to_tuple("cls")
        pipeline = pipeline.compose(iter)  # of which it is unknown what it holds
        loader = wds.WebLoader(pipeline, batch_size=None, num_workers=workers)
        return loader.listed(2).unlisted().with_epoch(4)

    loader, paused = load(), load()
    first, second = numbers(loader), numbers(loader)
    outputs = iter(paused)
    assert numbers(next(outputs) for _ in range(4)) == first
    resumed = load()
    resumed.load_state_dict(paused.state_dict())
    assert list(resumed) == []
    assert numbers(resumed) == second


def test_storage_options_are_in_no_text(tars, caplog):
    options = {"key": "secret"}
    dataset = wds.WebDataset(tars, storage_options=options, cache_limit=5)
    assert "secret" not in repr(dataset.dataset.streams)
    assert "cache_limit=5 is ignored" in caplog.text
    assert "secret" not in caplog.text


def test_a_set_without_samples_is_an_error_unless_asked_for(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with pytest.raises(ConfigError, match="no samples"):
        list(wds.WebDataset(str(tmp_path)))
    assert list(wds.WebDataset(str(tmp_path), empty_check=False).decode().batched(3)) == []


@pytest.mark.parametrize("selects", [False, True])
def test_extensions_begin_at_the_last_dot_if_told_so(tmp_path, selects):
    names = ["Mr. A.jpg", "Mr. A.json", "Mr. B.jpg", "v1.5.jpg"]
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    url = str(tmp_path / "0.tar")
    options = {"select_files": lambda name: not name.endswith("json")} if selects else {}
    expected = [
        ("Mr. A", ["jpg"] if selects else ["jpg", "json"]),
        ("Mr. B", ["jpg"]),
        ("v1.5", ["jpg"]),
    ]
    stages = wds.SimpleShardList([url]), wds.tarfile_to_samples(last_dot=True, **options)
    for pipeline in (
        wds.WebDataset(url, last_dot=True, **options),
        wds.DataPipeline(*stages),
        wds.DataPipeline([{"url": url}], stages[1]),
    ):
        found = [
            (s["__key__"], sorted(k for k in s if k[:2] != "__" and s[k] is not None))
            for s in pipeline
        ]
        assert found == expected
    with pytest.raises(ConfigError, match="last_dot="):
        wds.WebDataset(url, last_dot="yes")
    with pytest.raises(ConfigError, match="last_dot="):
        wds.tarfile_to_samples(last_dot="yes")
