"""The lists of wids and Megatron-Energon say which archives there are, and are not believed."""

from __future__ import annotations

import io
import json
import logging
import struct
import tarfile

import pytest
from streamplug_testing.http import serving
from streamplug_tools.index_writer import scan_index

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, InvalidIndexError, NotFound

SIZES = {"a.tar": 3, "b.tar": 2, "other.tar": 4}
LARGE = 1 << 20


def archive(path, begin, size, content=0):
    """Write samples, and return where each begins and the last one ends."""
    path.parent.mkdir(exist_ok=True)
    places = []
    with tarfile.open(path, "w") as tar:
        for number in range(begin, begin + size):
            places.append(tar.offset)
            for name, data in (("cls", b"%d" % number), ("bin", bytes(content)), ("txt", b"x")):
                member = tarfile.TarInfo(f"{number:03d}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return [*places, tar.offset]


@pytest.fixture
def folder(tmp_path):
    """Archives of 3, 2 and 4 samples, which count from 0 through all."""
    begin = 0
    for name, size in SIZES.items():
        archive(tmp_path / "set" / name, begin, size)
        begin += size
    return tmp_path / "set"


def wids(folder, shards, name="shardindex.json", **further):
    document = {"wids_version": 1, "shardlist": shards, **further}
    (folder / name).write_text(json.dumps(document))
    return folder / name


def shard(name, samples=None, **further):
    return {"url": name, "nsamples": SIZES[name] if samples is None else samples, **further}


def energon(folder, counts, name=".info.json"):
    (folder / ".nv-meta").mkdir(exist_ok=True)
    said = {"energon_version": "7.4.1", "shard_counts": counts}
    path = folder / ".nv-meta" / name
    path.write_text(json.dumps(said))  # which is YAML, too
    return path


def numbers(remote, spec="webdataset", **options):
    return [s["cls"] for s in StreamingDataset(remote=str(remote), format=spec, **options)]


def test_a_set_is_what_the_list_of_wids_says(folder):
    listed = wids(folder, [shard("b.tar"), shard("a.tar", filesize=10_240)])
    assert numbers(listed) == [3, 4, 0, 1, 2]
    assert numbers(folder, "webdataset:idx") == [3, 4, 0, 1, 2]
    assert len(numbers(folder)) == 9  # nobody asked for the list


def test_an_index_json_of_wids_is_a_list(folder, tmp_path):
    wids(folder, [shard("b.tar")], "index.json")
    assert numbers(folder) == numbers(folder / "index.json") == [3, 4]
    with serving(tmp_path) as server:
        assert numbers(f"{server.url}/set", local=str(tmp_path / "cache")) == [3, 4]
        assert numbers(f"{server.url}/set", local=str(tmp_path / "cache")) == [3, 4]


def test_a_far_list_spares_the_listing(folder, tmp_path):
    wids(folder, [shard("a.tar"), shard("b.tar")])
    with serving(tmp_path) as server:  # it lists nothing
        assert numbers(f"{server.url}/set/shardindex.json", access="range") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("base", ["{root}/set", "file://{root}/set"])
def test_names_may_be_whole_paths_or_have_a_base(folder, tmp_path, base):
    base = base.format(root=tmp_path)
    assert numbers(wids(folder, [shard("b.tar")], base=base)) == [3, 4]
    assert numbers(wids(folder, [{"url": f"{base}/b.tar", "nsamples": 2}])) == [3, 4]
    parts = [{"base": base, "shardlist": [shard("b.tar")]}, {"shardlist": [shard("a.tar")]}]
    assert numbers(wids(folder, [], datasets=parts)) == [3, 4, 0, 1, 2]


def test_counts_and_sizes_are_compared(folder):
    listed = wids(folder, [shard("a.tar"), shard("b.tar", 5)])
    for _ in range(2):  # also when what was found is known
        with pytest.raises(
            InvalidIndexError, match=r"b\.tar has 2 samples, .*shardindex\.json says 5"
        ):
            numbers(listed)
    listed = wids(folder, [shard("a.tar", filesize=1)])
    with pytest.raises(InvalidIndexError, match=r"a\.tar has 10240 bytes, .* says 1"):
        numbers(listed)


@pytest.mark.parametrize(
    ("shards", "error", "why"),
    [
        ([], InvalidIndexError, "names no files"),
        ([shard("a.tar"), shard("a.tar", 9)], InvalidIndexError, "more than once"),
        ([{"url": "../a.tar", "nsamples": 1}], InvalidIndexError, "no file below"),
        ([{"url": "*.tar", "nsamples": 1}], InvalidIndexError, "no file below"),
        ([{"url": "/etc/a.tar", "nsamples": 1}], ConfigError, "not below its directory"),
        ([{"url": "s3://b/a.tar", "nsamples": 1}], ConfigError, "not below its directory"),
        ([{"url": "missing.tar", "nsamples": 1}], NotFound, r"missing\.tar does not exist"),
        ([{"url": "a.tar", "nsamples": "1"}], InvalidIndexError, r"shardlist\[0\]\.nsamples"),
        ([{"nsamples": 1}], InvalidIndexError, r"shardlist\[0\]\.url"),
        ([7], InvalidIndexError, r"shardlist\[0\] is 7"),
        ({}, InvalidIndexError, "shardlist is"),
    ],
)
def test_a_damaged_list_is_refused(folder, shards, error, why):
    with pytest.raises(error, match=why):
        numbers(wids(folder, shards))


def test_what_is_no_list_is_refused(folder):
    listed = wids(folder, [shard("a.tar")])
    listed.write_text("{}")
    with pytest.raises(ConfigError, match="no list of files that this format knows"):
        numbers(listed)
    listed.write_text("[" * 100_000)
    with pytest.raises(InvalidIndexError, match=r"shardindex\.json: it is damaged"):
        numbers(listed)
    listed.write_text('{"wids_version": 2, "shardlist": []}')
    with pytest.raises(InvalidIndexError, match="wids_version 2, expected 1"):
        numbers(listed)
    wids(folder, [], datasets=[{"source_url": "s3://x/y.json"}])
    with pytest.raises(ConfigError, match=r"list elsewhere, 's3://x/y\.json'"):
        numbers(listed)
    with pytest.raises(ConfigError, match="a stream of its own"):
        StreamingDataset(remote=[str(listed), str(folder / "a.tar")], format="webdataset")


def test_a_list_that_was_cut_short_is_read_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    wids(folder, [shard("a.tar")])
    cuts = [-1]
    with serving(folder) as server:
        server.lie = lambda path, wanted, data: (
            data[: cuts.pop()] if path.endswith("x.json") and cuts else data
        )
        remote = {"remote": f"{server.url}/shardindex.json", "local": str(tmp_path / "near")}
        assert len(StreamingDataset(**remote, format="webdataset")) == 3
    assert not cuts


def test_aliases_in_yaml_are_refused(folder):
    path = energon(folder, {}, ".info.yaml")
    laughs = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    path.write_text(f"a0: &a0 [lol]\n{laughs}shard_counts: *a11\n")
    with pytest.raises(InvalidIndexError, match=r"\.info\.yaml: it is damaged: an alias"):
        numbers(folder, "webdataset:idx")


@pytest.mark.parametrize("name", [".info.json", ".info.yaml"])
def test_a_set_is_what_energon_counted(folder, name):
    energon(folder, {"b.tar": 2, "a.tar": 3}, name)
    assert numbers(folder, "webdataset:idx") == [3, 4, 0, 1, 2]
    energon(folder, {"b.tar": 2, "a.tar": 4}, name)
    with pytest.raises(InvalidIndexError, match=r"a\.tar has 3 samples, .* says 4"):
        numbers(folder, "webdataset:idx")


def test_the_directory_says_where_the_archives_of_energon_are(folder):
    energon(folder, {"b.tar": 2})
    with pytest.raises(
        ConfigError, match=r"format='webdataset:idx' and the directory of \.nv-meta"
    ):
        numbers(folder / ".nv-meta" / ".info.json")


def test_an_index_json_can_be_written_of_a_list(folder):
    wids(folder, [shard("b.tar")])
    assert scan_index(str(folder / "shardindex.json"), "webdataset").samples == 2
    assert [s["cls"] for s in StreamingDataset(local=str(folder))] == [3, 4]


def large(folder, places=None, size=LARGE):
    """Write an archive of large samples and the index that Energon has of it."""
    true = archive(folder / "x.tar", 0, 6, size)
    content = places(true) if places else struct.pack(f"<{len(true)}Q", *true)
    (folder / "x.tar.idx").write_bytes(content)


def opened(tmp_path, monkeypatch, spec):
    (tmp_path / spec).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / spec))  # where what was found is kept
    with serving(tmp_path) as server:
        dataset = StreamingDataset(
            remote=f"{server.url}/set/x.tar", format=spec, access="range", columns=["cls"]
        )
        sent = server.bytes_sent
        assert [sample["cls"] for sample in dataset] == list(range(6))
    return sent


def test_headers_of_all_samples_are_read_at_once(tmp_path, monkeypatch, caplog):
    large(tmp_path / "set")
    with caplog.at_level(logging.WARNING):
        assert opened(tmp_path, monkeypatch, "webdataset:idx") < 6 * 3 * 1536 + 5_000
    assert not caplog.records
    assert opened(tmp_path, monkeypatch, "webdataset") > 3 * LARGE


@pytest.mark.parametrize(
    "places",
    [
        lambda true: struct.pack(f"<{len(true)}Q", *(at + 512 for at in true)),
        lambda true: struct.pack(f"<{len(true)}Q", *(at + 7 for at in true)),
        lambda true: struct.pack("<3Q", true[0], true[2], true[-1]),
        lambda true: struct.pack("<2Q", 0, 1 << 63),
        lambda true: struct.pack("<3Q", 0, 1024, 512),
        lambda true: struct.pack(f"<{len(true)}Q", *true)[:-3],
        lambda true: b"",
    ],
)
def test_an_index_of_energon_that_does_not_fit_does_no_harm(tmp_path, monkeypatch, caplog, places):
    monkeypatch.setattr("streamplug_webdataset.header_index._MIN_HEADER_DISTANCE_BYTES", 4096)
    large(tmp_path / "set", places, size=8192)
    with caplog.at_level(logging.WARNING):
        opened(tmp_path, monkeypatch, "webdataset:idx")
    assert "index beside it is that of another archive" in caplog.text


def test_a_link_to_a_directory_is_not_left_out_in_silence(folder, tmp_path):
    (tmp_path / "all").mkdir()
    archive(tmp_path / "all" / "own" / "x.tar", 0, 1)
    (tmp_path / "all" / "linked").symlink_to(folder)
    for glob in ("*/*.tar", "**/*.tar"):
        with pytest.raises(ConfigError, match="linked is a link to a directory"):
            numbers(tmp_path / "all" / glob)
    assert numbers(tmp_path / "all" / "own*/*.tar") == [0]
