from __future__ import annotations

import gzip
import io
import json
import logging
import multiprocessing
import os
import re
import tarfile

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from streamplug_files import scanner as scanning
from streamplug_testing.http import serving
from streamplug_tools.index_writer import scan_index

from streamplug import MDSWriter, Stream, StreamingDataset, World
from streamplug.cli import main
from streamplug.errors import (
    CacheConflictError,
    ConfigError,
    CorruptShardError,
    NotFound,
    OutputExistsError,
    UnsafeTypeError,
)
from streamplug.plugin import make

COUNT = 30


def sample(i):
    found = {"__key__": f"d/{i:05d}", "txt": f"text {i}", "cls": i if i % 3 else None}
    return {**found, "bin": bytes([i % 256]) * (i * 37 % 3000)}


def write_tar(path, first, count=COUNT, *, mode="w", extra=()):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for i in range(first, first + count):
            for extension, value in sample(i).items():
                if extension != "__key__" and value is not None:
                    add(tar, f"d/{i:05d}.{extension}", encoded(value))
        for name, content in extra:
            add(tar, name, content)


def encoded(value):
    return value if isinstance(value, bytes) else str(value).encode()


def add(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def tars(tmp_path):
    folder = tmp_path / "tars"
    for number in range(4):
        write_tar(folder / f"x-{number:04d}.tar", number * COUNT)
    return folder


def by_key(dataset):
    return {each["__key__"]: each for each in dataset}


def expected(*shards):
    return {
        sample(i)["__key__"]: sample(i) for n in shards for i in range(n * COUNT, (n + 1) * COUNT)
    }


# -- which files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remote", "shards"),
    [
        ("", (0, 1, 2, 3)),
        ("/x-{0001..0002}.tar", (1, 2)),
        ("/x-{0003,0000}.tar", (3, 0)),
        ("/*.tar", (0, 1, 2, 3)),
        ("/x-000[13].tar", (1, 3)),
        ("/x-0002.tar", (2,)),
        (["/x-0002.tar", "/x-000{0..1}.tar"], (2, 0, 1)),
    ],
)
def test_a_directory_a_glob_braces_or_a_list_name_files(tars, remote, shards):
    where = [f"{tars}{each}" for each in remote] if isinstance(remote, list) else f"{tars}{remote}"
    dataset = StreamingDataset(remote=where, format="webdataset")
    assert list(dataset) == list(expected(*shards).values())
    assert dataset[COUNT * len(shards) - 1] == sample(COUNT * shards[-1] + COUNT - 1)


def test_files_below_directories_are_found_by_a_glob(tmp_path):
    for number, folder in enumerate(("a", "b/c")):
        write_tar(tmp_path / "set" / folder / "x.tar", number * COUNT)
    for remote in ("set/**/*.tar", "set/{a,b/c}/x.tar"):
        dataset = StreamingDataset(remote=f"{tmp_path}/{remote}", format="webdataset")
        assert by_key(dataset) == expected(0, 1)
    with pytest.raises(NotFound, match=r"a glob such as \*\*/\*.tar"):
        StreamingDataset(remote=f"{tmp_path}/set", format="webdataset")
    split = Stream(remote=f"{tmp_path}/set", split="a", format="webdataset")
    assert by_key(StreamingDataset(streams=[split])) == expected(0)


def test_the_format_of_a_data_set_is_that_of_its_streams(tars):
    streams = [Stream(remote=[f"{tars}/x-0002.tar"]), Stream(remote=f"{tars}/x-000{{0..1}}.tar")]
    dataset = StreamingDataset(streams=streams, format="webdataset")
    assert list(dataset) == list(expected(2, 0, 1).values())


def test_what_cannot_be_meant_is_refused(tars):
    with pytest.raises(NotFound, match="x-0008"):
        StreamingDataset(remote=f"{tars}/x-000{{8..9}}.tar", format="webdataset")
    with pytest.raises(ConfigError, match="needs a format="):
        StreamingDataset(streams=[Stream(remote=[f"{tars}/x-0000.tar"])])
    with pytest.raises(ConfigError, match="a split is of a directory"):
        Stream(remote=f"{tars}/*.tar", split="train", format="webdataset")
    patterns = [Stream(remote=str(tars)), Stream(remote=f"{tars}/*.tar")]
    with pytest.raises(ConfigError, match=r"split='a' with remote='.*\*\.tar': a split is of a"):
        StreamingDataset(streams=patterns, split="a", format="webdataset")
    with pytest.raises(ConfigError, match="neither a choice nor a count"):
        Stream(remote=f"{tars}/{{1}}.tar", format="webdataset")
    with pytest.raises(ConfigError, match="no directory in common"):
        Stream(remote=["s3://a/x.tar", "s3://b/x.tar"], format="webdataset")
    (tars / "x.mds").write_bytes(b"x")
    with pytest.raises(NotFound, match=r"index.json does not exist: there is no data set"):
        StreamingDataset(remote=str(tars), format="mds")


HTML = b"<!DOCTYPE html>\n<html><body>Sign in</body></html>"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1234\n"


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.tar", gzip.compress(bytes(1024), mtime=0), "gzip data"),
        ("a.tar", HTML, "an HTML page, such as one that asks for a login"),
        ("a.tar", LFS, "a pointer of Git LFS: run `git lfs pull`"),
        ("a.tar.gz", LFS, "a pointer of Git LFS: run `git lfs pull`"),
        ("a.tar.gz", None, "a tar archive"),
        (
            "a.tar.gz",
            gzip.compress(HTML, mtime=0),
            "an HTML page, such as one that asks for a login",
        ),
        ("a.tar.xz", gzip.compress(bytes(1024), mtime=0), "gzip data"),
    ],
)
@pytest.mark.parametrize("local", [None, "cache"])
def test_files_that_are_no_archives_are_named_as_what_they_are(
    tmp_path, name, content, found, local
):
    folder = tmp_path / "set"
    folder.mkdir()
    if content is None:
        write_tar(folder / name, 0)
    else:
        (folder / name).write_bytes(content)
    cache = None if local is None else str(tmp_path / local)
    with pytest.raises(CorruptShardError, match=f"{name}: it is {re.escape(found)} "):
        StreamingDataset(remote=str(folder), local=cache, format="webdataset", batch_size=1)


def test_compressed_archives_are_read_in_place_and_through_a_cache(tars, tmp_path):
    write_tar(tars / "x-0004.tar.gz", 4 * COUNT, mode="w:gz")
    write_tar(tars / "x-0005.tgz", 5 * COUNT, mode="w:gz")
    names = sorted(path.name for path in tars.iterdir())
    for _ in range(2):
        dataset = StreamingDataset(remote=str(tars), format="webdataset")
        assert by_key(dataset) == expected(*range(6))
        assert sorted(path.name for path in tars.iterdir()) == names
    local = str(tmp_path / "cache")
    assert by_key(StreamingDataset(remote=str(tars), local=local, format="webdataset")) == (
        expected(*range(6))
    )


# -- what is kept ------------------------------------------------------------------------


@pytest.fixture
def looked(monkeypatch):
    """Return a list that gets the name of each file that is looked through."""
    names, really = [], scanning._open_source
    monkeypatch.setattr(
        scanning,
        "_open_source",
        lambda found, *rest: names.append(found.stored.key) or really(found, *rest),
    )
    return names


def test_files_are_looked_through_once_and_again_when_they_change(tars, looked):
    for _ in range(2):
        assert len(StreamingDataset(remote=str(tars), format="webdataset")) == 4 * COUNT
    assert sorted(looked) == [f"x-{number:04d}.tar" for number in range(4)]
    looked.clear()
    write_tar(tars / "x-0001.tar", 7 * COUNT)
    write_tar(tars / "x-0004.tar", 8 * COUNT)
    dataset = StreamingDataset(remote=str(tars), format="webdataset")
    assert by_key(dataset) == expected(0, 7, 2, 3, 8)
    assert sorted(looked) == ["x-0001.tar", "x-0004.tar"]


def test_a_cache_is_not_used_for_files_that_have_changed(tars, tmp_path):
    local = str(tmp_path / "cache")
    StreamingDataset(remote=str(tars), local=local, format="webdataset")
    os.utime(tars / "x-0001.tar", (1, 1))
    with pytest.raises(
        CacheConflictError, match="was written again since; pass another local=, or remove"
    ):
        StreamingDataset(remote=str(tars), local=local, format="webdataset")


def test_without_a_cache_directory_temporary_files_take_its_place(tars, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    dataset = StreamingDataset(remote=str(tars), format="webdataset")
    assert by_key(dataset) == expected(0, 1, 2, 3)
    assert list((tmp_path / "temporary").glob("streamplug-*/kept/*"))


def test_compressed_archives_are_unpacked_there_as_well(tars, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    write_tar(tars / "x-0004.tar.gz", 4 * COUNT, mode="w:gz")
    for _ in range(2):
        dataset = StreamingDataset(remote=str(tars), format="webdataset")
        assert by_key(dataset) == expected(0, 1, 2, 3, 4)
    assert not (tars / ".streamplug").exists()


def test_images_are_bytes_or_images_of_pillow(tmp_path):
    content = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(content, "PNG")
    write_tar(tmp_path / "x.tar", 0, 0, extra=[("a.seg.png", content.getvalue())])
    (plain,) = StreamingDataset(remote=str(tmp_path), format="webdataset")
    assert plain["seg.png"] == content.getvalue()
    (opened,) = StreamingDataset(remote=str(tmp_path), format="webdataset:pil")
    assert opened["seg.png"].size == (4, 3)
    with pytest.raises(ConfigError, match="either bytes or images"):
        StreamingDataset(remote=str(tmp_path), format="webdataset:raw,pil")


def test_columns_are_decoded_as_their_reader_asks(tars):
    decoders = {"cls": as_bytes}
    dataset = StreamingDataset(remote=str(tars), format="webdataset", decoders=decoders)
    assert [dataset[i]["cls"] for i in (3, 4)] == [None, b"4"]


def as_bytes(encoding):
    return make("encoding", "bytes")


def open_and_count(folder, local, log, barrier, results):
    really = scanning._open_source

    def opened(found, *rest):
        with open(log, "a") as out:  # noqa: PTH123 - appended to by several at once
            out.write(f"{found.stored.key}\n")
        return really(found, *rest)

    scanning._open_source = opened
    barrier.wait(60)
    dataset = StreamingDataset(remote=folder, local=local, format="webdataset")
    results.put(len(list(dataset)))


def test_of_many_processes_that_open_at_once_one_looks_through_the_files(tars, tmp_path):
    spawned = multiprocessing.get_context("fork")
    barrier, results = spawned.Barrier(4), spawned.Queue()
    arguments = (str(tars), str(tmp_path / "cache"), str(tmp_path / "log"), barrier, results)
    processes = [spawned.Process(target=open_and_count, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    try:
        assert [results.get(timeout=60) for _ in processes] == [4 * COUNT] * 4
    finally:
        for process in processes:
            process.join(60)
    names = (tmp_path / "log").read_text().splitlines()
    assert sorted(names) == [f"x-{number:04d}.tar" for number in range(4)]


def test_what_one_file_lacks_is_none_and_notes_come_once(tmp_path, caplog):
    write_tar(tmp_path / "a.tar", 0, 2)
    write_tar(tmp_path / "b.tar", 2, 2, extra=[("README", b"?"), ("e/1.json", b"[1]")])
    with caplog.at_level(logging.WARNING):
        dataset = StreamingDataset(remote=str(tmp_path), format="webdataset", batch_size=5)
        assert [each["json"] for each in dataset] == [None, None, None, None, [1]]
        (batch,) = dataset.batches()
        StreamingDataset(remote=str(tmp_path), format="webdataset")
    assert batch["json"] == [None, None, None, None, [1]]
    assert batch["cls"] == [None, 1, 2, None, None]
    (record,) = caplog.records
    assert (
        "b.tar: files without an extension, or of macOS (._*), belong to no sample, such as 'README'"
        in record.message
    )


def test_damage_names_the_file_and_the_place(tars):
    whole = (tars / "x-0002.tar").read_bytes()
    (tars / "x-0002.tar").write_bytes(whole[:2000])
    with pytest.raises(CorruptShardError, match=r"x-0002.tar: member 'd/.*byte .* was cut short"):
        StreamingDataset(remote=str(tars), format="webdataset")
    (tars / "x-0002.tar").write_bytes(whole)
    dataset = StreamingDataset(remote=str(tars), format="webdataset")
    (tars / "x-0002.tar").write_bytes(whole[:-512])
    with pytest.raises(CorruptShardError, match=r"x-0002.tar"):
        dataset[2 * COUNT]


def test_what_runs_code_needs_leave(tmp_path):
    write_tar(tmp_path / "a.tar", 0, 1, extra=[("e/1.pkl", b"cos\nsystem\n(S'true'\ntR.")])
    with pytest.raises(UnsafeTypeError, match="'pkl'"):
        StreamingDataset(remote=str(tmp_path), format="webdataset")
    assert (
        len(list(StreamingDataset(remote=str(tmp_path), format="webdataset", columns=["txt"]))) == 2
    )
    raw = StreamingDataset(remote=str(tmp_path), format="webdataset:raw")
    assert raw[1]["pkl"].startswith(b"cos")


# -- far away ------------------------------------------------------------------------------


def test_files_on_a_server_are_read_by_ranges(tars, tmp_path):
    write_tar(
        tars / "y-0000.tar", 4 * COUNT, 3, extra=[("e/1.bin", bytes(6 << 20)), ("e/2.txt", b"t")]
    )
    with serving(tars) as server:
        remote = f"{server.url}/{{x-{{0000..0003}},y-0000}}.tar"
        dataset = StreamingDataset(
            remote=remote, format="webdataset", access="range", local=str(tmp_path / "cache")
        )
        assert server.bytes_sent < 2 << 20  # of what is large only the header was read
        assert dataset[4] == sample(4)
        assert dataset[-1]["txt"] == "t"
        assert server.bytes_sent < 3 << 20
        requests = len(server.requests)
        again = StreamingDataset(
            remote=remote, format="webdataset", access="range", local=str(tmp_path / "cache")
        )
        assert {method for method, *_ in server.requests[requests:]} == {"HEAD"}
        rows = again[[3, 100, 7]]
    assert rows == [sample(3), sample(100), sample(7)]


def test_files_on_a_server_without_ranges_are_read_whole(tars, tmp_path):
    with serving(tars) as server:
        server.ranges = False
        remote = f"{server.url}/x-{{0000..0003}}.tar"
        dataset = StreamingDataset(
            remote=remote, format="webdataset", local=str(tmp_path / "cache"), cache_limit="700kb"
        )
        assert by_key(dataset) == expected(0, 1, 2, 3)
    assert not (tmp_path / "cache" / ".streamplug" / "tmp").is_dir() or not list(
        (tmp_path / "cache" / ".streamplug" / "tmp").iterdir()
    )


# -- an index.json of what was found -------------------------------------------------------


def test_an_index_can_be_written_beside_the_files(tars, tmp_path):
    write_tar(tars / "x-0004.tar.gz", 4 * COUNT, mode="w:gz")
    result = CliRunner().invoke(
        main, ["index", "scan", str(tars), "--format", "webdataset", "--json"]
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["shards"], said["samples"]) == (5, 5 * COUNT)
    assert said["columns"] == {"__key__": "str", "bin": "bytes", "cls": "str_int", "txt": "str"}
    assert (tars / "x-0004.tar.places").exists()
    for place in ({}, {"local": str(tmp_path / "cache")}):
        assert by_key(StreamingDataset(remote=str(tars), **place)) == expected(*range(5))
    with pytest.raises(OutputExistsError, match="--force"):
        scan_index(str(tars), "webdataset")
    assert scan_index(f"{tars}/x-*.tar", "webdataset", exist_ok=True).samples >= 4 * COUNT


def test_scan_needs_a_format(tars):
    result = CliRunner().invoke(main, ["index", "scan", str(tars)])
    assert result.exit_code == 2
    assert "Missing option '--format'" in result.stderr


# -- mixed and resumed ----------------------------------------------------------------------


def mixed(folder, ranks, rank):
    streams = [
        Stream(remote=str(folder / "tars" / "*.tar"), format="webdataset", proportion=0.6),
        Stream(local=str(folder / "mds"), proportion=0.4),
    ]
    return StreamingDataset(
        streams=streams,
        shuffle=True,
        batch_size=12 // ranks,
        num_canonical_nodes=2,
        shuffle_block_size=40,
        columns=["txt"],
        world=World(ranks_per_node=ranks, rank=rank),
    )


def batches(folder, ranks, state=None, stop=None):
    """Return the texts of each global batch, read by all ranks, and the state after the last."""
    parts, states = [], []
    for rank in range(ranks):
        dataset = mixed(folder, ranks, rank)
        if state is not None:
            dataset.load_state_dict(state)
        found = []
        for number, batch in enumerate(dataset.batches(), 1):
            found.append(list(batch["txt"]))
            if number == stop:
                break
        parts.append(found)
        states.append(dataset.state_dict())
    assert all(each == states[0] for each in states)
    return [sorted(text for part in step for text in part) for step in zip(*parts)], states[0]


def test_archives_and_mds_mix_and_resume_in_another_world(tars, tmp_path):
    with MDSWriter(out=str(tmp_path / "mds"), columns={"txt": "str"}, size_limit=2000) as out:
        out.write_batch({"txt": [f"mds {i}" for i in range(80)]})
    whole, _ = batches(tmp_path, 1)
    assert any(text.startswith("mds") for text in whole[0])
    assert any(text.startswith("text") for text in whole[0])
    begun, state = batches(tmp_path, 2, stop=3)
    rest, _ = batches(tmp_path, 4, state=json.loads(json.dumps(state)))
    assert begun + rest == whole


def test_random_access_equals_iteration(tars):
    dataset = StreamingDataset(remote=str(tars), format="webdataset")
    ids = np.random.default_rng(0).integers(0, dataset.size, 50)
    assert dataset[ids] == [sample(int(i)) for i in ids]
