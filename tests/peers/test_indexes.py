"""The lists and indexes that wids and Megatron-Energon write of archives are read."""

from __future__ import annotations

import io
import json
import logging
import sys
import tarfile

import numpy as np
import pytest
from streamplug_testing.http import serving

from streamplug import StreamingDataset
from streamplug.errors import InvalidIndexError

wids = pytest.importorskip("wids")
prepare = pytest.importorskip("megatron.energon.flavors.webdataset.prepare")

# wids leaves files open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

SIZES = (5, 3, 4)
LARGE = 1 << 20


def write_set(folder, large=0, prefix=""):
    """Write archives of samples of two or three files; keys of every third sample have a prefix."""
    folder.mkdir()
    number = 0
    for shard, size in enumerate(SIZES):
        with tarfile.open(folder / f"x-{shard}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            for _ in range(size):
                key = f"{number:04d}" if number % 3 else f"{prefix}{number:04d}"
                values = {"bin": bytes([number]) * (large + number), "cls": b"%d" % number}
                values.update({"json": b"[1]"} if number % 2 else {})
                for extension, content in values.items():
                    member = tarfile.TarInfo(f"{key}.{extension}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                number += 1
    return [f"x-{shard}.tar" for shard in range(len(SIZES))]


def write_wids(folder, names, monkeypatch, **options):
    from wids import wids_index

    monkeypatch.chdir(folder)
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", ["widsindex", "create", "--name", "x", *given, *names])
    wids_index.main()
    return folder / options.get("output", "shardindex.json")


def write_energon(folder, names):
    prepare.WebdatasetPreparator.prepare_dataset(
        folder, names, split_parts_ratio=[("train", 1.0)], workers=1
    )


def numbers(remote, spec="webdataset", **options):
    dataset = StreamingDataset(remote=str(remote), format=spec, **options)
    found = [sample["cls"] for sample in dataset]
    assert found == [dataset[i]["cls"] for i in range(len(dataset))]
    return found


@pytest.mark.parametrize("output", ["shardindex.json", "index.json"])
def test_a_list_of_wids_is_a_set(tmp_path, monkeypatch, output):
    names = write_set(tmp_path / "set")
    listed = write_wids(tmp_path / "set", names[:2], monkeypatch, output=output)
    theirs = wids.ShardListDataset(
        str(listed), cache_dir=str(tmp_path / "cache"), transformations=[]
    )
    expected = [int(theirs[i][".cls"].read()) for i in range(len(theirs))]
    assert numbers(listed) == expected == list(range(8))
    assert numbers(tmp_path / "set", "webdataset:idx") == expected


def test_the_list_of_wids_may_name_whole_paths(tmp_path, monkeypatch):
    names = write_set(tmp_path / "set")
    listed = write_wids(tmp_path / "set", [str(tmp_path / "set" / n) for n in names], monkeypatch)
    assert numbers(listed) == list(range(12))


def test_what_wids_counted_is_compared(tmp_path, monkeypatch):
    names = write_set(tmp_path / "set")
    listed = write_wids(tmp_path / "set", names, monkeypatch)
    said = json.loads(listed.read_bytes())
    del said["shardlist"][1]["filesize"]
    listed.write_text(json.dumps(said))
    (tmp_path / "set" / names[1]).write_bytes((tmp_path / "set" / names[2]).read_bytes())
    with pytest.raises(InvalidIndexError, match=r"x-1\.tar has 4 samples, .*json says 3"):
        numbers(listed)


@pytest.mark.parametrize("large", [0, LARGE])
def test_the_index_of_energon_is_read(tmp_path, monkeypatch, caplog, large):
    # Names that are too long for a plain header, too.
    names = write_set(tmp_path / "set", large, prefix="long" * 30)
    write_energon(tmp_path / "set", names[:2])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert numbers(tmp_path / "set", "webdataset:idx") == list(range(8))
    with serving(tmp_path) as server, caplog.at_level(logging.WARNING):
        dataset = StreamingDataset(
            remote=f"{server.url}/set", format="webdataset:idx", access="range"
        )
        sent = server.bytes_sent
        assert [sample["cls"] for sample in dataset] == list(range(8))
    assert not caplog.records
    assert not large or sent < 200_000


def test_places_of_energon_are_those_where_samples_begin(tmp_path):
    names = write_set(tmp_path / "set")
    write_energon(tmp_path / "set", names)
    for name, size in zip(names, SIZES):
        places = np.fromfile(tmp_path / "set" / f"{name}.idx", "<u8")
        assert len(places) == size + 1
        with tarfile.open(tmp_path / "set" / name) as tar:
            first = [m.offset for m in tar if m.name.endswith(".bin")]
        assert places[:-1].tolist() == first


def test_an_archive_that_changed_since_energon_indexed_it(tmp_path, monkeypatch):
    names = write_set(tmp_path / "set")
    write_energon(tmp_path / "set", names)
    (tmp_path / "set" / names[0]).write_bytes((tmp_path / "set" / names[1]).read_bytes())
    with pytest.raises(InvalidIndexError, match=r"x-0\.tar has 3 samples, .*info\.json says 5"):
        numbers(tmp_path / "set", "webdataset:idx")
