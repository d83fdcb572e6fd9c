"""Indexes of DALI say where headers are, and are not believed."""

from __future__ import annotations

import io
import logging
import shutil
import tarfile

import pytest
from streamplug_testing.http import serving

from streamplug import StreamingDataset
from streamplug.cache.user_cache import source_cache_dir

SIZE = 1 << 20
COUNT = 12


@pytest.fixture
def folder(tmp_path):
    """An archive of large samples, and what `wds2idx` writes beside it."""
    folder = tmp_path / "set"
    folder.mkdir()
    with tarfile.open(folder / "x.tar", "w") as tar:
        for i in range(COUNT):
            for name, content in (
                (f"{i:03d}.bin", bytes([i]) * 2 * SIZE),
                (f"{i:03d}.cls", b"%d" % i),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    write_index(folder)
    return folder


def write_index(folder, moved=0):
    with tarfile.open(folder / "x.tar") as tar:
        members = [
            f"{m.name.partition('.')[2]} {m.offset_data + moved} {m.size} {m.name}" for m in tar
        ]
    lines = [" ".join(pair) for pair in zip(members[::2], members[1::2])]
    (folder / "x.idx").write_text("\n".join([f"v1.2 {COUNT}", *lines]) + "\n")


def opened(server, spec):
    dataset = StreamingDataset(remote=f"{server.url}/set/x.tar", format=spec, access="range")
    assert [sample["cls"] for sample in dataset] == list(range(COUNT))
    assert dataset[5]["bin"] == bytes([5]) * 2 * SIZE
    return dataset


def test_headers_are_read_where_the_index_says(folder, monkeypatch, tmp_path):
    sent = {}
    for spec in ("webdataset", "webdataset:idx"):
        own = tmp_path / spec
        own.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(own))  # where what was found is kept
        with serving(tmp_path) as server:
            StreamingDataset(remote=f"{server.url}/set/x.tar", format=spec, access="range")
            sent[spec] = server.bytes_sent
            opened(server, spec)
    # All of the index, and three blocks of each member.
    assert 2 * COUNT * 1536 < sent["webdataset:idx"] < 3 * COUNT * 1536 + 10_000
    assert sent["webdataset"] > 10 * sent["webdataset:idx"]


@pytest.mark.parametrize("moved", [512, -512, 1 << 40, 7])
def test_a_wrong_index_is_noticed_and_does_no_harm(folder, monkeypatch, tmp_path, caplog, moved):
    write_index(folder, moved)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serving(tmp_path) as server, caplog.at_level(logging.WARNING):
        opened(server, "webdataset:idx")
    assert "index beside it is that of another archive" in caplog.text


def test_an_archive_on_this_machine_is_read_by_its_index_as_well(folder, caplog):
    for moved in (0, 512):
        write_index(folder, moved)
        shutil.rmtree(source_cache_dir(str(folder)), ignore_errors=True)
        dataset = StreamingDataset(remote=str(folder), format="webdataset:idx")
        assert [sample["cls"] for sample in dataset] == list(range(COUNT))
        assert ("index beside it" in caplog.text) == bool(moved)


@pytest.mark.parametrize("text", ["", "v9 3\n", "v1.2 1\nbin x y z\n", "\0\xff"])
def test_what_is_no_index_is_left_alone(folder, monkeypatch, tmp_path, text):
    (folder / "x.idx").write_text(text)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serving(tmp_path) as server:
        opened(server, "webdataset:idx")
