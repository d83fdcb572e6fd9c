"""Damaged views, and views of data sets that changed, are refused: with the file, and what to do."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_views import View, log
from streamplug_views.manifest import manifest_digest, parse_manifest
from streamplug_views.version_store import VersionStore

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import DataError, NotFound, StorageError, StreamplugError


def write(out, count, **options):
    with MDSWriter(
        out=out, columns={"id": "int", "n": "int"}, max_samples_per_shard=10, **options
    ) as writer:
        for n in range(count):
            writer.write({"id": n, "n": n})


@pytest.fixture
def place(tmp_path):
    write(tmp_path / "set", 100)
    with MDSWriter(out=tmp_path / "more", columns={"id": "int", "text": "str"}) as writer:
        for n in reversed(range(100)):
            writer.write({"id": n, "text": f"t{n}"})
    place = tmp_path / "view"
    View.of(tmp_path / "set").where("n % 7").add(tmp_path / "more", on="id").commit(place)
    return place


def read(place, **options):
    return list(StreamingDataset(remote=str(place), **options))


def edit(place, change):
    path = place / "versions" / "1.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def set_(*keys, value):
    def change(manifest):
        for key in keys[:-1]:
            manifest = manifest[key]
        manifest[keys[-1]] = value

    return change


GROUP = ("parts", 0, "groups", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_("format", value="other"), "is not the manifest of a view"),
        (set_("format_version", value=2), "format_version 2; .*install a newer one"),
        (set_("version", value=7), "it is version 7"),
        (set_("version", value="1"), "'version' is '1'"),
        (set_("sources", value={}), "'sources' is {}"),
        (set_("sources", 0, "samples", value=99), r"set changed since .*has 100 samples, and had 99"),
        (set_("sources", 0, "samples", value=-1), "'samples' is -1"),
        (set_("sources", 0, "digest", value="0"), "its columns or shards differ; make the view again"),
        (set_("sources", 0, "url", value="../gone"), "gone/index.json does not exist"),
        (set_("sources", 0, "url", value=3), "'url' is 3"),
        (set_("sources", 0, "url", value="../view"), "its source .* is a view"),
        (set_("parts", value=[]), "'parts' is empty"),
        (set_("parts", 0, "groups", value=[]), "'groups' is empty"),
        (set_(*GROUP, "source", value=9), "source 9 of 2"),
        (set_(*GROUP, "rows", "file", value="../../set/index.json"), "no file of the view"),
        (set_(*GROUP, "rows", "file", value="data/../x"), "no file of the view"),
        (set_(*GROUP, "rows", "file", value="data/x.rows"), "x.rows does not exist: the view is incomplete"),
        (set_(*GROUP, "rows", "size", value=3), "part 0 has 3 samples, but 85 rows"),
        (set_(*GROUP, "rows", value=None), "part 0 has 100 samples, but 85 rows"),
        (set_(*GROUP, "starts", value="x"), "no file of the view"),
        (set_(*GROUP, "columns", value={"n": 3}), "columns"),
        (set_(*GROUP, "columns", value={"missing": "n"}), r"has no columns \['missing'\]"),
        (set_("steps", value=[3]), "'steps'"),
        (set_("message", value=None), "'message' is None"),
    ],
)  # fmt: skip
def test_a_damaged_manifest_is_refused(place, change, words):
    edit(place, change)
    with pytest.raises(StreamplugError, match=words) as refused:
        read(place)
    assert type(refused.value).__module__.startswith("streamplug")


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_truncated_manifest_is_refused(place, cut):
    path = place / "versions" / "1.json"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"versions/1\.json is truncated or damaged"):
        read(place)
    with pytest.raises(DataError, match=r"versions/1\.json is truncated or damaged"):
        log(place)


def test_a_damaged_hint_is_refused(place):
    for content in (b"", b"[]", b"{}", b'{"format": "streamplug-view", "format_version": 1}'):
        (place / "view.json").write_bytes(content)
        with pytest.raises(DataError, match=r"view\.json is"):
            read(place)


@settings(suppress_health_check=list(HealthCheck))
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["format", "format_version", "version", "sources", "parts", "groups", "rows"]),
        inner,
    ),
))  # fmt: skip
def test_any_json_is_parsed_or_refused(value):
    if isinstance(value, dict):
        value = {"format": "streamplug-view", "format_version": 1, **value}
    with pytest.raises(DataError, match="here"):
        parse_manifest(json.dumps(value).encode(), "here")


def test_manifests_have_digests(place):
    data = (place / "versions" / "1.json").read_bytes()
    assert log(place)[0].digest == manifest_digest(data)
    assert parse_manifest(data, "here").to_bytes() == data


def test_a_data_set_that_changed_is_refused(place, tmp_path):
    shutil.rmtree(tmp_path / "set")
    write(tmp_path / "set", 101)
    with pytest.raises(
        DataError, match=r"view, version 1: its source .*set changed.*101 samples, and had"
    ):
        read(place)
    shutil.rmtree(tmp_path / "set")
    write(tmp_path / "set", 100, compression="gz")
    with pytest.raises(DataError, match=r"its columns or shards differ"):
        read(place)
    shutil.rmtree(tmp_path / "set")
    write(tmp_path / "set", 100)
    assert len(read(place)) == 85


def test_damaged_rows_are_refused(place):
    for path in sorted((place / "data").iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=path.name):
            read(place)
        path.write_bytes(content)
    [path] = (place / "data").glob("*.rows")
    path.write_bytes(b"")
    with pytest.raises(DataError, match="not a set of rows"):
        read(place)
    path.unlink()
    with pytest.raises(NotFound, match=f"{path.name} does not exist: the view is incomplete"):
        read(place)


def test_rows_beyond_the_end_are_refused(place):
    [path] = [p for p in (place / "data").glob("*.npy") if np.load(p).dtype == np.int32]
    rows = np.load(path)
    rows[3] = 100
    np.save(path, rows)
    with pytest.raises(DataError, match=f"{path.name} has rows beyond the 100 of its data set"):
        read(place)


def test_a_downloaded_file_is_checked(tmp_path, place):
    memory = MemoryFileSystem()
    for folder in ("set", "more", "view"):
        memory.put(str(tmp_path / folder), f"/bad-{tmp_path.name}/{folder}", recursive=True)
    url = f"memory://bad-{tmp_path.name}/view"
    assert len(read(url, local=str(tmp_path / "cache"))) == 85
    [name] = [p for p in memory.find(f"/bad-{tmp_path.name}/view/data") if p.endswith(".rows")]
    content = bytearray(memory.cat_file(name))
    content[-1] ^= 1
    memory.pipe_file(name, bytes(content))
    assert len(read(url, local=str(tmp_path / "cache"))) == 85  # it was downloaded before
    with pytest.raises(DataError, match="differs from the digest in its name"):
        read(url, local=str(tmp_path / "other"))
    memory.rm(f"/bad-{tmp_path.name}", recursive=True)


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_a_cache_that_cannot_be_written_to_is_not_the_fault_of_the_url(tmp_path):
    memory = MemoryFileSystem()
    memory.pipe_file(f"/{tmp_path.name}/data/c-0.rows", bytes(1 << 17))
    store, folder = VersionStore(f"memory://{tmp_path.name}"), tmp_path / "cache"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(
            StorageError,
            match=rf"^{folder}/data/.*: File too large; raise the limit of the file size",
        ):
            store.local_file("data/c-0.rows", folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((folder / "data").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(
        StorageError, match=rf"^{tmp_path}/file/data: Not a directory; streamplug needs"
    ):
        store.local_file("data/c-0.rows", tmp_path / "file")
    memory.rm(f"/{tmp_path.name}", recursive=True)


class _SlowStorage:
    """A storage that writes a file in two parts, which forked processes do at once."""

    def __init__(self, folder, barrier):
        self._folder, self._barrier = folder, barrier

    def download(self, name, path):
        content = (self._folder / name).read_bytes()
        with path.open("wb") as file:
            file.write(content[:10])
            file.flush()
            self._barrier.wait(10)
            file.write(content[10:])


def test_forked_processes_download_a_file_at_once(place, tmp_path):
    store = VersionStore("memory://view")  # in all processes at the same address
    context = multiprocessing.get_context("fork")
    store._storage = _SlowStorage(place, context.Barrier(2))
    [path] = (place / "data").glob("*.rows")
    arguments = (f"data/{path.name}", tmp_path / "cache")
    processes = [context.Process(target=store.local_file, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert [p.name for p in (tmp_path / "cache" / "data").iterdir()] == [path.name]


def test_a_view_without_a_version_is_refused(place):
    shutil.rmtree(place / "versions")
    (place / "view.json").write_text(
        '{"format": "streamplug-view", "format_version": 1, "latest": 0}'
    )
    with pytest.raises(NotFound, match="has no version yet: its first commit did not finish"):
        read(place)
    assert log(place) == []


def test_a_source_that_is_missing_is_named_with_its_view(place):
    shutil.rmtree(place.parent / "more")
    with pytest.raises(
        NotFound, match=r"view, version 1: its source: .*/more/index\.json does not"
    ):
        StreamingDataset(remote=str(place))
    with pytest.raises(
        NotFound, match=r"view, version 1: its source: .*/more/index\.json does not"
    ):
        StreamingDataset(remote=str(place), select="n > 5")
