"""An archive that is listed several times is read as often, and scanned, downloaded and kept once."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import streamplug_webdataset as wds
from streamplug_testing.http import serving
from streamplug_tools.index_writer import scan_index
from streamplug_tools.verification import verify

from streamplug import Stream, StreamingDataset
from streamplug.errors import InvalidIndexError

SIZES = {"a": 5, "b": 3}
A, B = list(range(5)), [5, 6, 7]


@pytest.fixture
def folder(tmp_path):
    begin = 0
    for name, size in SIZES.items():
        (tmp_path / "set").mkdir(exist_ok=True)
        with wds.TarWriter(tmp_path / "set" / f"{name}.tar") as out:
            for number in range(begin, begin + size):
                out.write({"__key__": f"{number:03d}", "cls": number, "bin": bytes(5000)})
        begin += size
    return tmp_path / "set"


def numbers(remote, **options):
    dataset = StreamingDataset(remote=remote, format="webdataset", **options)
    return [sample["cls"] for sample in dataset]


def listed(folder, *names):
    return [f"{folder}/{name}.tar" for name in names]


def test_remote_lists_an_archive_twice(folder):
    assert numbers(listed(folder, "a", "a", "b")) == A + A + B
    assert numbers(listed(folder, "a", "b", "a")) == A + B + A
    assert numbers(f"{folder}/{{a,a,b}}.tar") == A + A + B
    assert numbers([f"{folder}/*.tar", f"{folder}/a.tar"]) == A + B + A
    assert (
        numbers(listed(folder, "a", "b")) == A + B
    )  # what was found for other lists is not in the way


def test_web_dataset_lists_an_archive_twice(folder):
    def classes(urls, **options):
        return [int(s["cls"]) for s in wds.WebDataset(urls, shardshuffle=False, **options).decode()]

    assert classes(listed(folder, "a", "a", "b")) == A + A + B
    assert classes("::".join(listed(folder, "a", "a", "b"))) == A + A + B
    assert classes([f"{folder}/{{a,b,a}}.tar"]) == A + B + A
    shuffled = wds.WebDataset(listed(folder, "a", "a", "b"), shardshuffle=True).shuffle(20).decode()
    for _epoch in range(2):
        assert Counter(s["cls"] for s in shuffled) == {**dict.fromkeys(A, 2), **dict.fromkeys(B, 1)}


@pytest.mark.parametrize("access", ["shard", "range"])
def test_it_is_scanned_downloaded_and_kept_once(folder, tmp_path, access):
    cache = tmp_path / "cache"
    whole = sum(path.stat().st_size for path in folder.iterdir())
    with serving(folder) as server:
        remote = [f"{server.url}/{name}.tar" for name in "aab"]
        limit = {"cache_limit": 2 * whole} if access == "shard" else {}
        found = numbers(remote, local=str(cache), access=access, **limit)
        assert found == A + A + B
        if access == "shard":
            assert numbers(remote, local=str(cache)) == A + A + B
            assert sorted(path.name for path in cache.glob("*.tar")) == ["a.tar", "b.tar"]
            assert server.bytes_sent <= 2 * whole + 10_000  # scanned, and downloaded
    assert len(list(cache.rglob("scan/*.json"))) == len(SIZES)


def test_a_cache_too_small_for_copies_is_large_enough(folder, tmp_path):
    largest = max(path.stat().st_size for path in folder.iterdir())
    with serving(folder) as server:
        remote = [f"{server.url}/{name}.tar" for name in "abaab"]
        found = numbers(remote, local=str(tmp_path / "cache"), cache_limit=largest + 4096)
        assert found == A + B + A + A + B


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_run_is_resumed_exactly_in_any_copy(folder, shuffle):
    urls = listed(folder, "a", "b", "a", "a")

    def dataset():
        return StreamingDataset(remote=urls, format="webdataset", shuffle=shuffle, batch_size=3)

    whole = [sample["cls"] for sample in dataset()]
    assert Counter(whole) == {**dict.fromkeys(A, 3), **dict.fromkeys(B, 1)}
    for stop in (1, 6, 17):
        first = dataset()
        samples = iter(first)
        head = [next(samples)["cls"] for _ in range(stop)]
        again = dataset()
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert head[: stop // 3 * 3] + [sample["cls"] for sample in again] == whole


def test_a_list_of_wids_names_an_archive_twice(folder):
    def shards(*pairs):
        return [{"url": f"{name}.tar", "nsamples": count} for name, count in pairs]

    path = folder / "shardindex.json"
    once, again = ("a", 5), ("a", 4)
    for pairs in ((once, ("b", 3), once), (once, again)):
        path.write_text(json.dumps({"wids_version": 1, "shardlist": shards(*pairs)}))
        if again not in pairs:
            assert numbers(str(path)) == A + B + A
    with pytest.raises(
        InvalidIndexError, match=r"a\.tar' more than once.* 5 samples, and 4 samples"
    ):
        numbers(str(path))


def test_an_index_of_a_list_is_written_and_verified(folder):
    summary = scan_index(f"{folder}/{{a,b,a}}.tar", "webdataset")
    assert (summary.shards, summary.samples) == (3, 13)
    assert [s["cls"] for s in StreamingDataset(remote=str(folder))] == A + B + A
    result = verify(Stream(remote=str(folder)), num_threads=4)
    assert not result.problems
    assert (result.shards, result.samples) == (3, 13)
    (folder / "a.tar").write_bytes(bytes((folder / "a.tar").stat().st_size))
    damaged = verify(Stream(remote=str(folder)), num_threads=4).problems
    assert {problem.shard for problem in damaged} == {0}  # told of once
