"""Pipelines over iterables, lists of archives and arguments of writers, as with webdataset."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

wds = pytest.importorskip("webdataset")
ours = pytest.importorskip("streamplug_webdataset")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

COUNT = 12
IMAGE = (np.arange(4 * 6 * 3).reshape(4, 6, 3) / 100).astype(np.float32)


@pytest.fixture(scope="module")
def tars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tars")
    for name, begin in (("a", 0), ("b", COUNT)):
        with wds.TarWriter(f"{folder}/{name}.tar", mtime=0) as out:
            for n in range(begin, begin + COUNT):
                out.write({"__key__": f"{n:04d}", "cls": n, "txt": f"text {n}", "pyd": {"n": n}})
    return str(folder)


def keep_text(name):
    return not name.endswith(".pyd")


def renamed(name):
    return name.replace(".cls", ".number.txt")


def merged(name):
    return f"{int(name[:4]) // 2:03d}.{name[3]}{name[4:]}"


PROGRAMS = {
    "function": lambda w, _: w.DataPipeline(lambda: iter([1, 2, 3]), w.map(lambda x: x + 1)),
    "list": lambda w, _: (
        w.DataPipeline([1, 2, 3], w.map(lambda x: x + 1))
        if w is ours
        else w.DataPipeline(lambda: iter([1, 2, 3]), w.map(lambda x: x + 1))
    ),
    "loader": lambda w, t: w.DataPipeline(
        torch.utils.data.DataLoader(
            w.WebDataset(f"{t}/a.tar", shardshuffle=False).decode(only="cls").to_tuple("cls"),
            batch_size=5,
        ),
        w.unbatched(),
        w.map(lambda s: int(s[0])),
    ),
    "urls": lambda w, _: w.DataPipeline(w.SimpleShardList("x-{0..3}.tar::y.tar"), w.non_empty),
    "urls-seeded": lambda w, _: w.DataPipeline(w.SimpleShardList("x-{0..9}.tar", seed=17)),
    "split": lambda w, _: w.DataPipeline(
        w.SimpleShardList("x-{0..3}.tar"), w.split_by_node, w.split_by_worker, w.slice(1, 3)
    ),
    "own-filter-of-urls": lambda w, t: w.DataPipeline(
        w.SimpleShardList(f"{t}/{{a,b,a}}.tar"),
        lambda source: (each for each in source if "b" in each["url"].rpartition("/")[2]),
        w.tarfile_to_samples(),
        w.to_tuple("txt"),
    ),
    "tarfile_samples": lambda w, t: w.DataPipeline(
        w.shardspec(f"{t}/a.tar::{t}/a.tar"), w.tarfile_samples, w.to_tuple("txt", "cls")
    ),
    "select_files": lambda w, t: w.DataPipeline(
        w.SimpleShardList(f"{t}/a.tar"),
        w.tarfile_to_samples(select_files=keep_text),
        w.map(sorted),
    ),
    "rename_files": lambda w, t: w.DataPipeline(
        w.SimpleShardList(f"{t}/a.tar"),
        w.tarfile_to_samples(rename_files=renamed),
        w.map(lambda s: sorted(s.items())),
    ),
    "rename_keys_of_files": lambda w, t: w.DataPipeline(
        w.SimpleShardList(f"{t}/a.tar"),
        w.tarfile_to_samples(rename_files=merged),
        w.map(lambda s: sorted(s.items())),
    ),
    "select_in_dataset": lambda w, t: w.WebDataset(
        f"{t}/a.tar", shardshuffle=False, select_files=keep_text, rename_files=renamed
    ).map(lambda s: sorted(item for item in s.items() if item[0] != "__local_path__")),
    "listed-twice": lambda w, t: w.WebDataset(
        [f"{t}/{name}.tar" for name in "aba"], shardshuffle=False
    ).to_tuple("txt"),
    "variable": lambda w, _: w.WebDataset("${FOLDER}/a.tar", shardshuffle=False).to_tuple("txt"),
    "round-robin": lambda w, _: w.RoundRobin([[1, 2, 3], [10], [100, 200]], longest=True),
    "round-robin-shortest": lambda w, _: w.RoundRobin([[1, 2, 3], [10], [100, 200]]),
    "mix-of-one": lambda w, _: w.RandomMix([[1, 2, 3], [10]], probs=[1, 0]),
    "wrapped": lambda w, _: w.FluidWrapper(w.MockDataset((1, "x"), 7)).batched(3).map(len),
    "loader-of-a-mixture": lambda w, _: w.WebLoader(
        w.RoundRobin([w.MockDataset(1, 3), w.MockDataset(2, 3)]), batch_size=2
    ).map(lambda b: b.tolist()),
    "repeat": lambda w, _: w.DataPipeline(lambda: iter([1, 2, 3])).repeat(nepochs=3),
    "with_epoch": lambda w, _: w.DataPipeline(lambda: iter([1, 2, 3])).with_epoch(7),
    "repeatedly": lambda w, _: list(w.repeatedly([[[1, 1], [2, 2]]] * 3, nsamples=10)),
    "xdecode": lambda w, t: (
        w.WebDataset(f"{t}/a.tar", shardshuffle=False)
        .xdecode(("*.pyd", False), cls=lambda stream: int(stream.read()))
        .map(lambda s: (s["txt"], s["cls"]))
    ),
    "cached": lambda w, t: w.DataPipeline(
        w.SimpleShardList(f"{t}/a.tar"), w.tarfile_to_samples(), w.Cached(), w.to_tuple("cls")
    ),
    "getfirst": lambda w, _: [
        w.getfirst({"a": 1}, "b;a"),
        w.getfirst({"a": 1}, "b", default=7, missing_is_error=False),
        w.transform_with([1, 2, 3], [None, str]),
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_same_outputs(name, tars, monkeypatch):
    monkeypatch.setenv("WDS_FOLDER", tars)
    theirs, mine = (PROGRAMS[name](side, tars) for side in (wds, ours))
    for _epoch in range(2):
        assert list(mine) == list(theirs)


@pytest.mark.parametrize("side", [wds, ours], ids=["theirs", "ours"])
def test_programs_in_random_order_have_the_same_outputs(side, tars):
    both = [f"{tars}/a.tar", f"{tars}/b.tar"]
    stages = side.shuffle(bufsize=10), side.to_tuple("cls")
    with side.WebDataset(both, shardshuffle=100).compose(*stages) as dataset:
        assert sorted(int(cls) for (cls,) in dataset) == list(range(2 * COUNT))
    drawn = side.DataPipeline(side.SimpleShardList(both), side.resampled(5))
    assert [each["url"] in both for each in drawn] == [True] * 5
    shards = side.ResampledShards(both, 7, 0, lambda: 1, deterministic=True)
    assert (shards.nshards, shards.seed, shards.epoch, shards.urls) == (7, 0, -1, both)
    assert len(list(side.DataPipeline(shards, side.tarfile_samples, side.shuffle()))) == 7 * COUNT
    mix = side.RandomMix([side.MockDataset(1, 30), side.MockDataset(2, 30)], longest=True)
    assert sorted(mix) == [1] * 30 + [2] * 30
    mixed = side.FluidWrapper(lambda: iter(range(100))).shuffle(20)
    assert sorted(mixed) == list(range(100))
    assert list(mixed) != list(range(100))


@pytest.mark.parametrize("side", [wds, ours], ids=["theirs", "ours"])
def test_an_error_of_a_decoder_is_a_decoding_error(side, tars):
    def faulty(key, data):
        raise ValueError("nothing")

    with pytest.raises(side.DecodingError) as error:
        list(side.WebDataset(f"{tars}/a.tar", shardshuffle=False).decode(faulty))
    assert (error.value.key, error.value.url) == ("0000", f"{tars}/a.tar")
    kept = side.WebDataset(f"{tars}/a.tar", shardshuffle=False).decode(
        faulty, handler=side.ignore_and_continue
    )
    assert list(kept) == []


def test_members_have_the_owner_mode_and_time_that_were_asked_for(tmp_path):
    found = []
    for side in (wds, ours):
        path = tmp_path / f"{side.__name__}.tar"
        settings = {"user": "ann", "group": "lab", "mode": 0o640, "mtime": 1_000_000}
        with side.TarWriter(str(path), **settings, keep_meta=True) as out:
            out.write({"__key__": "a", "cls": 3, "_note": "x", "ten": np.arange(3)})
        with tarfile.open(path) as archive:
            found.append(
                [
                    (m.name, m.uname, m.gname, m.mode, m.mtime, archive.extractfile(m).read())
                    for m in archive
                ]
            )
    assert found[0] == found[1]
    with ours.TarWriter(str(path)) as out:
        out.write({"__key__": "a", "cls": 3})
    with tarfile.open(path) as archive:
        (member,) = archive
        assert (member.uname, member.gname, member.mode) == ("bigdata", "bigdata", 0o444)


def test_writers_store_the_same_values_in_the_same_archives(tmp_path):
    samples = [
        {"__key__": "a", "json": '{"n": 1}', "cls": "7", "txt": "é", "bin": "x", "png": "y"},
        {"__key__": "b", "json": None, "jsn": [None], "pyd": None, "npy": np.zeros(9)},
        *({"__key__": f"{n}", "txt": "x" * n} for n in range(1, 40)),
    ]
    found, sizes = [], []
    for side in (wds, ours):
        folder = tmp_path / side.__name__
        folder.mkdir()
        with side.ShardWriter(f"{folder}/%d.tar", maxsize=100, mtime=0, verbose=0) as out:
            for sample in samples:
                out.write(sample)
        archives = {}
        for path in sorted(folder.iterdir()):
            with tarfile.open(path) as archive:
                members = [(m.name, archive.extractfile(m).read()) for m in archive]
            archives[path.name] = members
        found.append(archives)
        with side.TarWriter(f"{folder}/x.tar") as archive:
            sizes.append([archive.write(sample) for sample in samples])
    assert found[0] == found[1]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("extension", ["jpg", "jpeg", "png", "ppm", "tif", "tiff", "img"])
def test_arrays_become_image_files(tmp_path, extension):
    whole = (IMAGE * 255).astype(np.uint8)
    images = {
        "real": IMAGE,
        "bytes": whole,
        "grey": whole[:, :, 0],
        "pil": Image.fromarray(whole),
    }
    for name, image in images.items():
        found = []
        for side in (wds, ours):
            path = f"{tmp_path}/{side.__name__}.tar"
            with side.TarWriter(path, mtime=0) as out:
                out.write({"__key__": "a", extension: image})
            with tarfile.open(path) as archive:
                content = archive.extractfile(archive.next()).read()
            found.append(Image.open(io.BytesIO(content)))
        assert found[0].format == found[1].format, name
        assert (np.array(found[0]) == np.array(found[1])).all(), name
    for side in (wds, ours):
        with pytest.raises(ValueError):
            side.TarWriter(f"{tmp_path}/bad.tar").write({"__key__": "a", extension: IMAGE * 99})
