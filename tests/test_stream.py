from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, StreamingDataset, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import (
    AccessDenied,
    CacheConflictError,
    ConfigError,
    CorruptShardError,
    NotFound,
    StorageError,
    Transient,
    UnknownNameError,
)
from streamplug.interfaces.storage import public_url
from streamplug.plugin.registry import unregister


class Counting(LocalStorage):
    """Files of a directory, as a remote that counts what is asked of it."""

    calls: ClassVar[Counter[str]] = Counter()
    failures: ClassVar[Counter[str]] = Counter()

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url.replace("counting://", "file://"), **options)
        self.url = public_url(url)

    def read(self, key: str) -> bytes:
        self._count(f"read {key}")
        return super().read(key)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        self._count(f"read {key}")
        return super().read_range(key, start, stop)

    def download(self, key: str, path: Path) -> None:
        self._count(f"download {key}", path)
        super().download(key, path)

    def _count(self, call: str, path: Path | None = None) -> None:
        type(self).calls[call] += 1
        if self.failures[call] > 0:
            type(self).failures[call] -= 1
            if path is not None:
                path.write_bytes(b"half of it")
            raise Transient(f"{call}: busy")


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    monkeypatch.setattr(Counting, "calls", Counter())
    monkeypatch.setattr(Counting, "failures", Counter())
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    register_storage("counting", Counting)
    yield Counting
    unregister("storage", "counting")


def write(out: Any, count: int = 60, **kwargs: Any) -> str:
    with MDSWriter(columns={"id": "int"}, out=out, size_limit=500, **kwargs) as writer:
        for number in range(count):
            writer.write({"id": number})
    return str(out)


def ids(dataset: StreamingDataset) -> list[int]:
    return [sample["id"] for sample in dataset[:]]


def names(folder: Path) -> list[str]:
    found = (p.relative_to(folder) for p in Path(folder).rglob("*") if p.is_file())
    return sorted(str(p) for p in found if not p.name.startswith("lock."))


def test_a_local_set_is_read_in_place(tmp_path):
    folder = write(tmp_path / "set")
    before = names(folder)
    for place in ({"local": folder}, {"remote": folder}, {"remote": f"file://{folder}"}):
        assert ids(StreamingDataset(**place)) == list(range(60))
    assert names(folder) == before


@pytest.mark.parametrize("how", ["{}", "file://{}", "{}/.", "{}-link"])
def test_one_directory_as_remote_and_local_is_read_in_place(tmp_path, how):
    folder = write(tmp_path / "set", compression="gz")
    (tmp_path / "set-link").symlink_to(folder)
    before = names(tmp_path / "set")
    dataset = StreamingDataset(remote=how.format(folder), local=folder, validate_hash=None)
    assert sorted(ids(dataset)) == list(range(60))
    assert Stream(remote=how.format(folder), local=folder).cache is None
    assert not (tmp_path / "set" / ".streamplug" / "origin.json").exists()
    assert set(before) <= set(names(tmp_path / "set"))  # nothing that was there is removed


@pytest.mark.parametrize("places", [{"local": "cache"}, {}])
def test_relative_paths_are_below_the_working_directory_of_the_start(tmp_path, monkeypatch, places):
    datasets = []
    for name, count in (("a", 10), ("b", 20)):
        write(tmp_path / name / "set", count)
        monkeypatch.chdir(tmp_path / name)
        datasets.append(StreamingDataset(remote="set", **places))
    assert ids(pickle.loads(pickle.dumps(datasets[0]))) == list(range(10))
    assert ids(datasets[0]) == list(range(10))
    monkeypatch.chdir(tmp_path / "a")
    assert ids(datasets[1]) == list(range(20))
    stream = datasets[1].streams[0]
    assert stream.url == str(tmp_path / "b" / "set")
    assert stream.directory == tmp_path / "b" / places.get("local", "set")


def test_a_list_of_one_directory_is_that_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", str(tmp_path / "user"))
    folder = write(tmp_path / "set" / "train", 10)
    for places in ({"remote": [folder]}, {"remote": [f"file://{tmp_path}/set/"], "split": "train"}):
        dataset = StreamingDataset(format="mds", **places)
        assert ids(dataset) == list(range(10))
        assert dataset.streams[0].location.in_place
    dataset = StreamingDataset(remote=[f"counting://{folder}"], format="mds")
    assert ids(dataset) == list(range(10))
    assert dataset.streams[0].directory.is_relative_to(tmp_path / "user")


def test_a_cached_data_set_may_have_a_name_that_is_not_utf8(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", str(tmp_path / "user"))
    folder = write(tmp_path / os.fsdecode(b"caf\xe9"), 10)
    assert ids(StreamingDataset(remote=f"counting://{folder}")) == list(range(10))


def test_a_split_is_a_directory_below(tmp_path):
    write(tmp_path / "train", 10)
    write(tmp_path / "val" / "a", 20)
    assert StreamingDataset(local=str(tmp_path), split="train").size == 10
    assert StreamingDataset(remote=str(tmp_path), split="val/a").size == 20
    with pytest.raises(ConfigError, match="split='/val': must be a path below"):
        StreamingDataset(streams=[Stream(local=tmp_path)], split="/val")
    cached = StreamingDataset(
        remote=f"counting://{tmp_path}", local=str(tmp_path / "cache"), split="train"
    )
    assert ids(cached) == list(range(10))
    assert "train/index.json" in names(tmp_path / "cache")


def test_a_split_of_a_url_with_a_query_is_a_directory_of_its_path(tmp_path):
    write(tmp_path / "set", 10)
    write(tmp_path / "set" / "train", 20)
    with serving(tmp_path) as server:
        dataset = StreamingDataset(
            remote=f"{server.url}/set?token=1", split="train", local=str(tmp_path / "cache")
        )
        assert ids(dataset) == list(range(20))


@pytest.mark.parametrize("compression", [None, "gz", "xz:1"])
@pytest.mark.parametrize("keep_zip", [False, True])
def test_a_remote_set_is_downloaded_once(tmp_path, compression, keep_zip):
    folder = write(tmp_path / "set", compression=compression)
    shards = sum(name.startswith("shard") for name in names(folder))
    cache = tmp_path / "cache"
    arguments = {"remote": f"counting://{folder}", "local": str(cache), "keep_zip": keep_zip}
    assert ids(StreamingDataset(**arguments)) == list(range(60))
    downloads = {c: n for c, n in Counting.calls.items() if c.startswith("download")}
    assert set(downloads.values()) == {1}
    assert len(downloads) == shards
    files = [name for name in names(cache) if not name.startswith(".streamplug/boot-")]
    assert len(files) == shards * (1 + (keep_zip and compression is not None)) + 3
    assert not [name for name in files if "tmp" in name]
    # Another run finds all of it there.
    Counting.calls.clear()
    again = StreamingDataset(**arguments)
    assert ids(again) == list(range(60))
    assert next(again.batches(60))["id"].tolist() == list(range(60))
    assert dict(Counting.calls) == {"read index.json": 1}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("predownload", [0, 7, 1000])
def test_iterating_downloads_each_shard_once(tmp_path, shuffle, predownload):
    folder = write(tmp_path / "set")
    dataset = StreamingDataset(
        remote=f"counting://{folder}",
        local=str(tmp_path / "cache"),
        batch_size=4,
        shuffle=shuffle,
        predownload=predownload,
    )
    for _ in range(2):
        assert sorted(sample["id"] for sample in dataset) == list(range(60))
    assert set(Counting.calls.values()) == {1}


def test_only_the_shards_that_are_needed_are_downloaded(tmp_path):
    folder = write(tmp_path / "set")
    dataset = StreamingDataset(remote=f"counting://{folder}", local=str(tmp_path / "cache"))
    assert dataset[25] == {"id": 25}
    assert sum(call.startswith("download") for call in Counting.calls) == 1


def test_without_local_a_remote_is_kept_among_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    folder = write(tmp_path / "set")
    dataset = StreamingDataset(remote=f"counting://{folder}")
    assert ids(dataset) == list(range(60))
    kept = tmp_path / "tmp" / f"streamplug-{os.getuid()}" / "kept"
    assert len(list(kept.iterdir())) == 1
    Counting.calls.clear()
    assert ids(StreamingDataset(remote=f"counting://{folder}")) == list(range(60))
    assert dict(Counting.calls) == {"read index.json": 1}
    assert str(kept) in repr(dataset.streams[0])


def test_a_place_that_others_can_write_to_is_no_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = tmp_path / f"streamplug-{os.getuid()}"
    (tmp_path / "theirs").mkdir()
    home.symlink_to(tmp_path / "theirs")
    with pytest.raises(AccessDenied, match="remove it, or set TMPDIR"):
        StreamingDataset(remote=f"counting://{write(tmp_path / 'set')}")
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.parametrize(("failures", "retries"), [(0, 0), (2, 2), (3, 5)])
def test_passing_failures_are_tried_again_so_often(tmp_path, failures, retries):
    folder = write(tmp_path / "set", 10)
    calls = ["read index.json", "download shard.00000.mds"]
    Counting.failures.update(dict.fromkeys(calls, failures))
    dataset = StreamingDataset(
        remote=f"counting://{folder}", local=str(tmp_path / "cache"), download_retry=retries
    )
    assert ids(dataset) == list(range(10))
    assert [Counting.calls[call] for call in calls] == [failures + 1] * 2


def test_a_stream_without_a_data_set_tries_as_often(tmp_path):
    folder = write(tmp_path / "set", 10)
    Counting.failures["read index.json"] = 2
    stream = Stream(remote=f"counting://{folder}", local=str(tmp_path / "cache"))
    assert stream.open().index.size == 10
    assert Counting.calls["read index.json"] == 3


def test_failures_that_go_on_are_raised(tmp_path):
    folder = write(tmp_path / "set", 10)
    Counting.failures["read index.json"] = 3
    with pytest.raises(Transient, match=r"^read index\.json: busy; gave up after 3 attempts; "):
        StreamingDataset(remote=f"counting://{folder}", local=str(tmp_path / "c"), download_retry=2)
    assert Counting.calls["read index.json"] == 3
    Counting.failures["download shard.00000.mds"] = 3
    dataset = StreamingDataset(
        remote=f"counting://{folder}", local=str(tmp_path / "c"), download_patience=0
    )
    with pytest.raises(
        Transient, match=r"^shard 0: download shard\.00000\.mds: busy; gave up after 3"
    ):
        list(dataset)
    assert names(tmp_path / "c") == [".streamplug/origin.json", "index.json"]
    assert ids(dataset) == list(range(10))


def test_a_stream_overrides_the_defaults_of_its_data_set(tmp_path):
    folder = write(tmp_path / "set", 10)
    Counting.failures["read index.json"] = 1
    stream = Stream(remote=f"counting://{folder}", local=str(tmp_path / "c"), download_retry=0)
    with pytest.raises(Transient):
        StreamingDataset(streams=[stream], download_retry=5)


# -- whose cache is it? -------------------------------------------------------


def test_a_cache_of_another_set_is_refused(tmp_path):
    one, two = write(tmp_path / "one", 10), write(tmp_path / "two", 20)
    cache = str(tmp_path / "cache")
    StreamingDataset(remote=f"counting://{one}", local=cache)
    with pytest.raises(CacheConflictError) as caught:
        StreamingDataset(remote=f"counting://{two}", local=cache)
    assert str(caught.value) == (
        f"{cache} is the cache of counting://{one}, not of counting://{two}; "
        "pass another local=, or remove the directory"
    )


def test_a_cache_of_another_version_is_refused(tmp_path):
    folder = write(tmp_path / "set", 10)
    cache = str(tmp_path / "cache")
    StreamingDataset(remote=f"counting://{folder}", local=cache)
    write(tmp_path / "set", 20, exist_ok=True)
    with pytest.raises(CacheConflictError) as caught:
        StreamingDataset(remote=f"counting://{folder}", local=cache)
    assert str(caught.value).startswith(
        f"{cache} already holds a data set: counting://{folder} was written again since; "
    )


def test_a_directory_that_holds_another_set_is_refused(tmp_path):
    one, two = write(tmp_path / "one", 10), write(tmp_path / "two", 20)
    with pytest.raises(CacheConflictError) as caught:
        StreamingDataset(remote=f"counting://{one}", local=two)
    assert f"already holds a data set: it is not the one at counting://{one}" in str(caught.value)
    assert StreamingDataset(local=two).size == 20


def test_a_copy_of_the_set_serves_as_its_cache(tmp_path):
    one, two = write(tmp_path / "one", 60), write(tmp_path / "two", 60)
    assert ids(StreamingDataset(remote=f"counting://{one}", local=two)) == list(range(60))
    assert dict(Counting.calls) == {"read index.json": 1}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": "x"}', "\x00", "5"])
def test_a_damaged_mark_is_refused(tmp_path, content):
    folder = write(tmp_path / "set", 10)
    cache = tmp_path / "cache"
    StreamingDataset(remote=f"counting://{folder}", local=str(cache))
    (cache / ".streamplug" / "origin.json").write_text(content)
    with pytest.raises(CacheConflictError, match=r"origin\.json is damaged; pass another local="):
        StreamingDataset(remote=f"counting://{folder}", local=str(cache))


@pytest.mark.parametrize("missing", ["index.json", ".streamplug/origin.json"])
def test_a_cache_that_was_made_by_half_is_completed(tmp_path, missing):
    folder = write(tmp_path / "set", 10)
    cache = tmp_path / "cache"
    StreamingDataset(remote=f"counting://{folder}", local=str(cache))
    (cache / missing).unlink()
    (cache / "index.json").with_name(".index.json.tmp").write_text("left behind")
    assert ids(StreamingDataset(remote=f"counting://{folder}", local=str(cache))) == list(range(10))
    assert (cache / missing).exists()


def test_credentials_in_a_url_do_not_reach_the_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = "counting://me:secret@host/stream-test"
    write(url, 10)
    dataset = StreamingDataset(remote=url, local=str(tmp_path / "cache"))
    assert ids(dataset) == list(range(10))
    origin = (tmp_path / "cache" / ".streamplug" / "origin.json").read_text()
    assert json.loads(origin)["remote"] == "counting://host/stream-test"
    assert "secret" not in origin
    assert "secret" not in repr(dataset.streams)


@pytest.mark.parametrize(
    "arguments",
    [
        {"remote": ["https://me:secret@host/a?sig=secret"]},
        {"remote": "https://host/set", "local": "https://me:secret@host/a?sig=secret"},
    ],
)
def test_errors_show_no_credentials_of_a_url(arguments):
    with pytest.raises(ConfigError, match="https://host/") as caught:
        StreamingDataset(**arguments)
    assert "secret" not in str(caught.value)


def test_errors_of_a_writer_show_no_credentials_of_its_urls():
    url = "https://me:secret@host/a?sig=secret"
    for out in ((url, "out"), ("a", url, "b"), [url]):
        with pytest.raises(ConfigError, match="https://host/a") as caught:
            MDSWriter(out=out, columns={"id": "int"})
        assert "secret" not in str(caught.value)


# -- processes ----------------------------------------------------------------


def read_as_one_of_many(barrier: Any, results: Any, remote: str, local: str) -> None:
    try:
        barrier.wait(60)
        dataset = StreamingDataset(remote=remote, local=local)
        results.put(ids(dataset))
    except BaseException as error:  # whatever it is, the test shall show it
        results.put(repr(error))


@pytest.mark.parametrize("compression", [None, "gz"])
def test_processes_may_fill_one_cache_at_once(tmp_path, compression):
    folder = write(tmp_path / "set", compression=compression)
    fork = multiprocessing.get_context("fork")
    for round_ in range(4):
        barrier, results = fork.Barrier(4), fork.Queue()
        arguments = (barrier, results, f"counting://{folder}", str(tmp_path / f"cache{round_}"))
        processes = [fork.Process(target=read_as_one_of_many, args=arguments) for _ in range(4)]
        for process in processes:
            process.start()
        found = [results.get(timeout=60) for _ in processes]
        for process in processes:
            process.join(60)
        assert found == [list(range(60))] * 4
        assert not [n for n in names(tmp_path / f"cache{round_}") if "tmp" in n]


def open_without_permission(results: Any, remote: str, local: str) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(65534)
    try:
        results.put(ids(StreamingDataset(remote=remote, local=local)))
    except BaseException as error:
        results.put((type(error), str(error)))


@pytest.fixture
def public():
    """A folder that other users may read: each start of pytest keeps them out of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def unprivileged(public):
    """Runs in a process that may read `public`, and write nothing there."""
    fork = multiprocessing.get_context("fork")

    def run(remote: str, local: str) -> Any:
        # What is imported late may lie where only this user can read.
        ids(StreamingDataset(remote=remote, local=str(public / "warm")))
        results = fork.Queue()
        process = fork.Process(target=open_without_permission, args=(results, remote, local))
        process.start()
        found = results.get(timeout=60)
        process.join(60)
        return found

    return run


def test_a_cache_that_cannot_be_written_to_says_so(public, unprivileged):
    folder = write(public / "set", 10)
    cache = public / "cache"
    cache.mkdir(mode=0o555)
    kind, text = unprivileged(f"counting://{folder}", str(cache))
    assert kind is AccessDenied
    assert f"{cache}" in text
    assert "Permission denied" in text
    assert "streamplug needs local= to be a directory that it can write to" in text


def test_a_full_cache_need_not_be_writable(public, unprivileged):
    folder = write(public / "set", 10)
    cache = public / "cache"
    assert ids(StreamingDataset(remote=f"counting://{folder}", local=str(cache))) == list(range(10))
    for path in [cache, *cache.rglob("*")]:
        path.chmod(0o555)
    assert unprivileged(f"counting://{folder}", str(cache)) == list(range(10))
    for path in [cache, *cache.rglob("*")]:
        path.chmod(0o755)


def test_a_file_in_the_place_of_the_cache_is_named(tmp_path):
    folder = write(tmp_path / "set", 10)
    (tmp_path / "file").touch()
    for local in ("file", "file/cache"):
        with pytest.raises(
            StorageError, match=r"/file.*; streamplug needs local= to be a directory"
        ):
            StreamingDataset(remote=f"counting://{folder}", local=str(tmp_path / local))


# -- what a stream is ---------------------------------------------------------


def test_a_stream_needs_a_place():
    with pytest.raises(ConfigError, match=r"a stream needs remote=, local= or both"):
        Stream()
    with pytest.raises(ConfigError, match=r"a stream needs remote=, local= or both"):
        Stream(split="train")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"download_retry": -1}, "download_retry=-1: must be a whole number of at least 0"),
        ({"download_retry": 1.5}, "download_retry=1.5: must be a whole number of at least 0"),
        ({"download_timeout": 0}, "download_timeout=0: must be a number of seconds above 0"),
        ({"download_timeout": "1m"}, "download_timeout='1m': must be a number of seconds above 0"),
        ({"download_timeout": True}, "download_timeout=True: must be a number of seconds above 0"),
        ({"keep_zip": "no"}, "keep_zip='no': must be True or False"),
        ({"max_value_bytes": "1 value"}, "max_value_bytes='1 value': expected bytes"),
        (
            {"access": "auto", "validate_hash": "sha1"},  # what it reads by ranges is not verified
            "validate_hash='sha1' with access='auto': parts of a file have no digest",
        ),
        ({"remote": ""}, "remote='' names no place"),
        ({"local": ""}, "local='' names no place"),
        ({"remote": []}, "remote=[]: expected a path or a URL"),
        ({"local": True}, "local=True: expected a path or a URL"),
        ({"remote": b"set"}, "remote=b'set': expected a path or a URL"),
        ({"remote": {"set"}}, "remote={'set'}: expected a path or a URL"),
        ({"remote": ["a.csv", None], "format": "csv"}, "remote=None: expected a path or a URL"),
        ({"split": 0}, "split=0: expected a path or a URL"),
        ({"split": "/train"}, "split='/train': must be a path below remote= and local="),
        ({"split": "a/../../b"}, "split='a/../../b': must be a path below remote= and local="),
        ({"split": Path("..")}, "split='..': must be a path below remote= and local="),
    ],
)
def test_arguments_that_mean_nothing_are_refused(arguments, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        Stream(**{"local": "x", **arguments})


def test_a_list_of_files_may_get_its_format_and_be_shown_before(tmp_path):
    pytest.importorskip("streamplug_text")
    files = ["http://me:secret@host/set/a.jsonl", "http://me:secret@host/set/b.jsonl"]
    stream = Stream(remote=files, local=str(tmp_path / "cache"), cache_limit="1mb")
    shown = "http://host/set/a.jsonl, http://host/set/b.jsonl"
    assert repr(stream) == f"Stream({shown!r})"
    assert ("data set", shown) in stream.object_summary().facts
    assert stream.with_defaults(format="jsonl").cache == (tmp_path / "cache", 1 << 20)


@pytest.mark.parametrize("options", ["key=secret", [("key", "secret")], {1: "secret"}])
def test_options_of_a_storage_have_names(tmp_path, options):
    write(tmp_path / "set", 10)
    with pytest.raises(ConfigError, match="storage_options: expected a mapping") as caught:
        StreamingDataset(local=str(tmp_path / "set"), storage_options=options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["shuffle", "allow_unsafe_types"])
def test_flags_are_flags(tmp_path, name):
    write(tmp_path / "set", 10)
    with pytest.raises(ConfigError, match=f"{name}='no': must be True or False"):
        StreamingDataset(local=str(tmp_path / "set"), **{name: "no"})


def test_paths_will_do(tmp_path):
    write(tmp_path / "set" / "train", 10)
    stream = Stream(local=tmp_path / "set", split=Path("train"))
    assert stream.open().index.size == 10
    assert stream.local == str(tmp_path / "set")


def test_a_home_directory_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "set", 10)
    assert StreamingDataset(local="~/set").size == 10


def test_local_must_be_local(tmp_path):
    stream = Stream(remote="memory://x", local="memory://y")
    with pytest.raises(ConfigError, match=r"local='memory://y' must be a path on this machine"):
        stream.open()


def test_a_missing_set_is_named():
    with pytest.raises(NotFound, match=r"^counting:///nothing/here/index\.json does not exist"):
        StreamingDataset(remote="counting:///nothing", split="here")


def test_an_unknown_scheme_is_named():
    with pytest.raises(UnknownNameError, match=r"unknown storage 'nope'"):
        StreamingDataset(remote="nope://bucket/set")


def test_defaults_fill_what_is_left_open():
    stream = Stream(local="x", keep_zip=False).with_defaults(keep_zip=True, download_retry=3)
    assert (stream.keep_zip, stream.download_retry) == (False, 3)


def test_a_stream_shows_no_options():
    stream = Stream(remote="memory://x", local="/c", storage_options={"key": "secret"})
    assert "secret" not in repr(stream)
    assert repr(stream) == "Stream('memory://x', local='/c')"


def test_a_stream_travels(tmp_path):
    stream = pickle.loads(pickle.dumps(Stream(local=write(tmp_path / "set", 10))))
    assert stream.open().index.size == 10


def test_a_download_that_was_cut_is_refused_every_time(tmp_path):
    folder = write(tmp_path / "set", 10)
    path = tmp_path / "set" / "shard.00000.mds"
    path.write_bytes(path.read_bytes()[:-1])
    dataset = StreamingDataset(remote=f"counting://{folder}", local=str(tmp_path / "cache"))
    for way in (lambda: dataset[0], lambda: list(dataset), lambda: list(dataset.batches(2))):
        with pytest.raises(
            CorruptShardError, match=r"^shard 0: counting://.*/shard\.00000\.mds has"
        ):
            way()


def test_decoders_by_other_keys_than_names_are_refused():
    with pytest.raises(ConfigError, match=r"decoders={3: …}: expected the name of a column"):
        Stream(local="set", decoders={3: lambda encoding: encoding})  # type: ignore[dict-item]


def test_a_list_of_hashes_is_no_unknown_hash():
    with pytest.raises(
        ConfigError, match=r"validate_hash=\['sha1'\]: expected the name of one hash"
    ):
        Stream(remote="nowhere", validate_hash=["sha1"])
    with pytest.raises(ConfigError, match=r"validate_hash='sha': unknown hash; available: .*sha1"):
        Stream(remote="nowhere", validate_hash="sha")
