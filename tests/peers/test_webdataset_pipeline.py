"""Pipelines of streamplug give the samples that the same pipelines of webdataset give."""

from __future__ import annotations

import gc
import io
import warnings
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from streamplug_testing.equality import same

wds = pytest.importorskip("webdataset")
ours = pytest.importorskip("streamplug_webdataset")
torch = pytest.importorskip("torch")

COUNT, SHARDS = 17, 3
TOTAL = COUNT * SHARDS
BOTH = pytest.mark.parametrize("side", [wds, ours], ids=["theirs", "ours"])
pytestmark = pytest.mark.filterwarnings("ignore")


def image_of(n):
    content = io.BytesIO()
    mode, color = (("RGB", (n, 99, 255 - n)), ("L", n), ("RGBA", (n, 1, 2, 9 * n)))[n % 3]
    Image.new(mode, (5, 3), color).save(content, "PNG")
    return content.getvalue()


def sample(n):
    return {
        "__key__": f"d/{n:04d}",
        "png": image_of(n),
        "txt": f"tëxt {n}",
        "cls": n,
        "json": {"n": n, "of": [None, "x"]},
        "npy": np.arange(n, dtype=np.int16),
        "note.txt.gz": f"note {n}",
    }


@pytest.fixture(scope="module", params=[wds, ours], ids=["written-by-them", "written-by-us"])
def url(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tars")
    with request.param.ShardWriter(f"{folder}/x-%06d.tar", maxcount=COUNT, verbose=0) as out:
        for n in range(TOTAL):
            out.write(sample(n))
    return f"{folder}/x-{{000000..{SHARDS - 1:06d}}}.tar"


def dataset(side, url, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return side.WebDataset(url, **{"shardshuffle": False, **options})


def listed(outputs):
    """Return outputs without what only webdataset says of a sample."""
    found = list(outputs)
    gc.collect()
    return [without(each) for each in found]


def without(output):
    if isinstance(output, dict):
        kept = {k: v for k, v in output.items() if k not in ("__url__", "__local_path__")}
        return dict(sorted(kept.items()))
    return output


def assert_same(mine, theirs):
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs):
        assert same(comparable(one), comparable(other)), (one, other)


def comparable(value):
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [comparable(each) for each in value]
    if isinstance(value, Image.Image):
        return (value.mode, value.size, value.tobytes())
    return (str(value.dtype), value.numpy()) if isinstance(value, torch.Tensor) else value


SPECS = ["l", "l8", "rgb", "rgb8", "rgba", "rgba8", "torch", "torchl", "torchl8", "torchrgb"]
SPECS += ["torchrgb8", "torchrgba", "torchrgba8", "pil", "pill", "pilrgb", "pilrgba"]


@pytest.mark.parametrize("spec", SPECS)
def test_images_are_decoded_alike(url, spec):
    theirs, mine = (listed(dataset(side, url).decode(spec)) for side in (wds, ours))
    assert_same(mine, theirs)


CHAINS = {
    "raw": lambda d, w: d,
    "decoded": lambda d, w: d.decode(),
    "only": lambda d, w: d.decode("rgb8", only=["png", "cls"]),
    "own": lambda d, w: d.decode(w.handle_extension("npy json", len), lambda k, v: None),
    "unpacked": lambda d, w: d.decode(lambda k, v: w.Continue(".txt", v) if k == ".cls" else None),
    "imagehandler": lambda d, w: d.decode(w.imagehandler("l8", ["png"])),
    "tuples": lambda d, w: d.decode("rgb8").to_tuple("jpg;png", "cls"),
    "words": lambda d, w: d.decode().to_tuple("txt cls"),
    "lenient": lambda d, w: d.decode().to_tuple("flac", "cls", missing_is_error=False),
    "map": lambda d, w: d.decode().map(lambda s: {"double": 2 * s["cls"]}),
    "dropping": lambda d, w: d.decode().map(lambda s: s if s["cls"] % 3 else None),
    "map_dict": lambda d, w: d.decode().map_dict(cls=float, txt=str.upper),
    "map_tuple": lambda d, w: d.decode().to_tuple("txt", "cls").map_tuple(len, None),
    "select": lambda d, w: d.decode().select(lambda s: s["cls"] > 9),
    "rename": lambda d, w: d.decode().rename(image="jpg;png", label="cls"),
    "rename-only": lambda d, w: d.decode().rename(keep=False, image="jpg;png", label="cls"),
    "extract_keys": lambda d, w: d.decode().extract_keys("*.txt", "c*;n*x", "js*"),
    "extract_keys-missing": lambda d, w: d.extract_keys("flac", "cls", ignore_missing=True),
    "rename_keys": lambda d, w: d.decode().rename_keys(("a", "t*"), ("b", "js*"), d="cls", c="npy"),
    "rename_keys-kept": lambda d, w: d.rename_keys(a="t*", keep_unselected=True),
    "rename_keys-first": lambda d, w: d.rename_keys(a="[ct]*", duplicate_is_error=False),
    "rename_keys-missing": lambda d, w: d.rename_keys(a="flac", b="cls", must_match=False),
    "pipelinefilter": lambda d, w: d.compose(
        w.pipelinefilter(lambda source, n: list(source)[n:])(9)
    ),
    "batched": lambda d, w: d.decode("rgb8").to_tuple("png", "cls", "txt").batched(8),
    "dicts": lambda d, w: d.decode().to_tuple("cls").map(lambda t: {"c": t[0]}).batched(8),
    "whole": lambda d, w: d.decode().to_tuple("cls").batched(8, partial=False),
    "torch": lambda d, w: d.decode("torchrgb").to_tuple("png", "cls").batched(5).unbatched(),
    "listed": lambda d, w: d.to_tuple("cls").listed(7),
    "unlisted": lambda d, w: d.to_tuple("cls").listed(7).unlisted(),
    "slice": lambda d, w: d.decode().slice(4, 30, 3),
    "slice-of-batches": lambda d, w: d.decode().to_tuple("cls").batched(4).slice(3),
    "compose": lambda d, w: d.decode().compose(lambda source: (s["cls"] for s in source)),
    "stages": lambda d, w: d.compose(w.decode(), w.to_tuple("cls"), w.batched(6)),
    "repeat": lambda d, w: d.decode().to_tuple("cls").repeat(2),
    "epoch": lambda d, w: d.decode().to_tuple("cls").with_epoch(TOTAL + 5),
    "epoch-of-batches": lambda d, w: d.with_epoch(9).decode().to_tuple("cls").batched(17),
    "handler": lambda d, w: d.map(lambda s: 1 // int(s["cls"]), handler=lambda error: True),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_stages_do_the_same(url, chain):
    theirs, mine = (listed(CHAINS[chain](dataset(side, url), side)) for side in (wds, ours))
    assert_same(mine, theirs)


@BOTH
def test_a_list_of_stages_is_a_pipeline(url, side):
    pipeline = side.DataPipeline(
        side.SimpleShardList(url),
        side.split_by_worker,
        side.tarfile_to_samples(),
        side.decode("l8"),
        side.to_tuple("png", "cls"),
        side.batched(16),
    )
    batches = list(pipeline)
    assert [each[0].shape for each in batches] == [(16, 3, 5)] * 3 + [(3, 3, 5)]
    assert np.concatenate([each[1] for each in batches]).tolist() == list(range(TOTAL))


@BOTH
def test_shuffled_samples_are_the_same_samples(url, side):
    shuffled = dataset(side, url, shardshuffle=10, seed=3).shuffle(20, initial=5).decode()
    found = [each["cls"] for each in listed(shuffled)]
    assert found != list(range(TOTAL))
    assert sorted(found) == list(range(TOTAL))


@BOTH
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_hand_over_the_same_samples(url, side, workers):
    pipeline = dataset(side, url).shuffle(20).decode().to_tuple("txt", "cls").batched(4)
    loader = side.WebLoader(pipeline, batch_size=None, num_workers=workers)
    again = loader.unbatched().shuffle(30).batched(5)
    found = Counter()
    for texts, numbers in again:
        assert list(texts) == [f"tëxt {n}" for n in numbers.tolist()]
        found.update(numbers.tolist())
    assert found == Counter(range(TOTAL))


def test_values_are_decoded_to_the_same(tmp_path):
    texts = ["txt", "text", "transcript", "htm", "html", "seg.html", "csv", "xml"]
    numbers = ["cls", "cls2", "class", "count", "id", "index", "inx", "x.count", "count.gz"]
    with wds.TarWriter(f"{tmp_path}/a.tar") as out:
        out.write({"__key__": "a", "json": "[1]", **dict.fromkeys([*texts, *numbers], "1")})
    found = [next(iter(dataset(side, f"{tmp_path}/a.tar").decode())) for side in (wds, ours)]
    for name in (*texts, *numbers, "json"):
        assert type(found[0][name]) is type(found[1][name]), name
        assert found[0][name] == found[1][name]


@BOTH
@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_convert_outputs_to_tensors(url, side, workers):
    settings = {"batch_size": None, "num_workers": workers}
    pipeline = dataset(side, url).decode().to_tuple("txt", "cls").batched(4)
    batch = next(iter(side.WebLoader(pipeline, **settings)))
    assert [type(values) for values in batch] == [list, torch.Tensor]
    assert type(batch) is list
    sample = next(iter(side.WebLoader(dataset(side, url).decode().to_tuple("cls"), **settings)))
    assert sample == [0]
    assert type(sample) is list


@BOTH
def test_a_nominal_epoch_has_so_many_batches(url, side):
    pipeline = dataset(side, url, resampled=True).shuffle(20).decode().to_tuple("cls").batched(4)
    loader = side.WebLoader(pipeline.with_epoch(20), batch_size=None, num_workers=1)
    assert [len(batch[0]) for batch in loader] == [4] * 20
    loader = side.WebLoader(pipeline, batch_size=None, num_workers=2).with_epoch(7)
    assert len(list(loader)) == 7


def test_what_is_written_is_the_same_to_either(tmp_path):
    for side, name in ((wds, "theirs"), (ours, "ours")):
        with side.TarWriter(f"{tmp_path}/{name}.tar", encoder=False) as out:
            out.write({"__key__": "a", "txt": b"x", "__skip": "y"})
        for reader in (wds, ours):
            found = listed(dataset(reader, f"{tmp_path}/{name}.tar"))
            assert found == [{"__key__": "a", "txt": b"x"}]
