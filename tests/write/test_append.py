"""Shards are added to a data set; until the last step it is what it was."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from streamplug_testing.isolation import isolated_plugins

from streamplug import MDSWriter, StreamingDataset, Writer
from streamplug.builtin.local_storage import LocalStorage
from streamplug.builtin.mds import MDS, MDSShardWriter
from streamplug.errors import ConfigError, EncodeError, NotFound, OutputExistsError, WriterError
from streamplug.plugin.registry import register

COLUMNS = {"n": "int", "text": "str"}


def write(out, first, count=10, **options):
    options = {"columns": COLUMNS, "max_samples_per_shard": 4, **options}
    with MDSWriter(out=out, **options) as writer:
        for n in range(first, first + count):
            writer.write({"n": n, "text": str(n)})


def numbers(folder, **options):
    dataset = StreamingDataset(local=str(folder), batch_size=1, **options)
    return [sample["n"] for sample in dataset]


def test_what_is_added_has_the_digests_of_the_set(tmp_path):
    for name, given, expected in (
        ("a", None, ["xxh3_64"]),
        ("b", [], []),
        ("c", ["sha1"], ["sha1"]),
    ):
        write(tmp_path / name, 0, hashes=given)
        write(tmp_path / name, 10, append=True, columns=None)
        shards = json.loads((tmp_path / name / "index.json").read_bytes())["shards"]
        assert len(shards) == 6
        assert [list(shard["raw_data"]["hashes"]) for shard in shards] == [expected] * 6


class WithoutHashes(MDS):
    """A format whose entries do not name the digests."""

    def writer(self, columns, settings):
        writer = super().writer(columns, settings)
        entry = {**writer.entry(), "format": "bare"}
        del entry["hashes"]
        writer.entry = lambda: entry
        return writer


def test_what_is_added_has_the_digests_of_the_set_in_every_format(tmp_path):
    with isolated_plugins():
        register("format", "bare", WithoutHashes)
        for append in (False, True):
            with Writer(out=tmp_path, format="bare", columns=COLUMNS, append=append) as writer:
                writer.write({"n": 0, "text": ""})
    shards = json.loads((tmp_path / "index.json").read_bytes())["shards"]
    assert [list(shard["raw_data"]["hashes"]) for shard in shards] == [["xxh3_64"]] * 2


def names(folder):
    return [
        e["raw_data"]["basename"] for e in json.loads((folder / "index.json").read_text())["shards"]
    ]


def test_shards_are_added_and_their_numbers_go_on(tmp_path):
    out = tmp_path / "set"
    write(out, 0)
    write(out, 10, append=True)
    write(out, 20, append=True, columns=None, compression="gz", hashes=["sha1"])
    assert numbers(out) == list(range(30))
    assert names(out) == [f"shard.{n:05d}.mds" for n in range(9)]


class OtherRole(MDS):
    """MDS, with its file under another role than `data`."""

    roles = ("rows",)

    def open(self, shard, files, columns):
        return super().open(shard, {"data": files["rows"]}, columns)

    def writer(self, columns, settings):
        return OtherRoleWriter(columns, settings)


class OtherRoleWriter(MDSShardWriter):
    def entry(self):
        return {**super().entry(), "format": "other_role"}

    def assemble(self, parts, sizes):
        return {"rows": super().assemble(parts, sizes)["data"]}


def test_shards_may_have_no_file_of_the_role_data(tmp_path):
    with isolated_plugins():
        register("format", "other_role", OtherRole)
        for first in (0, 10):
            options = {"columns": COLUMNS, "max_samples_per_shard": 4, "append": first > 0}
            with Writer(out=tmp_path, format="other_role", **options) as writer:
                for n in range(first, first + 10):
                    writer.write({"n": n, "text": str(n)})
        assert numbers(tmp_path) == list(range(20))


def test_nothing_added_leaves_the_set_as_it_was(tmp_path):
    out = tmp_path / "set"
    write(out, 0)
    before = (out / "index.json").read_bytes()
    write(out, 10, 0, append=True)
    assert (out / "index.json").read_bytes() == before


def test_a_writer_that_was_stopped_leaves_the_set_whole_and_the_next_one_begins_where_it_began(
    tmp_path,
):
    out = tmp_path / "set"
    write(out, 0)
    before = (out / "index.json").read_bytes()
    with suppress(EncodeError), MDSWriter(out=out, append=True, max_samples_per_shard=2) as writer:
        writer.write_batch({"n": [99] * 5, "text": ["lost"] * 5})
        writer.write({"n": "wrong", "text": ""})
    assert (out / "shard.00004.mds").exists()
    assert (out / "index.json").read_bytes() == before
    assert numbers(out) == list(range(10))
    write(out, 10, append=True)
    assert numbers(out) == list(range(20))


@pytest.mark.parametrize("append", [True, False])
def test_raw_files_of_an_earlier_writer_are_not_taken_for_those_of_compressed_ones(
    append, tmp_path
):
    out = tmp_path / "set"
    options = {"columns": {"n": "int"}, "max_samples_per_shard": 4}
    with MDSWriter(out=out, **options) as writer:
        writer.write_batch({"n": [0, 1, 2, 3]})
    with suppress(KeyboardInterrupt), MDSWriter(out=out, append=True, **options) as writer:
        writer.write_batch({"n": [90] * 9})
        raise KeyboardInterrupt
    assert (out / "shard.00001.mds").exists()
    where = out if append else (tmp_path / "local", str(out))
    with MDSWriter(
        out=where, append=append, exist_ok=not append, compression="gz", **options
    ) as writer:
        writer.write_batch({"n": list(range(10, 20))})
    assert numbers(out) == [*([0, 1, 2, 3] if append else []), *range(10, 20)]


class Far(LocalStorage):
    def __init__(self, url):
        super().__init__(url.removeprefix("far://"))


def test_a_set_that_has_changed_meanwhile_is_left_alone(tmp_path, monkeypatch):
    register("storage", "far", Far, replace=True)
    out = f"far://{tmp_path}/far"
    write(out, 0)
    writer = MDSWriter(out=out, append=True)
    writer.write({"n": 1, "text": "late"})
    monkeypatch.setattr("streamplug.write.destination._owners", {})  # as in another process
    write(out, 10, append=True)
    with pytest.raises(WriterError, match="changed while"):
        writer.finish()
    assert numbers(tmp_path / "near", remote=out) == list(range(20))


def test_the_index_is_not_read_for_each_shard(tmp_path, monkeypatch):
    reads, read = [], LocalStorage.read
    write(tmp_path / "set", 0)
    monkeypatch.setattr(
        LocalStorage, "read", lambda self, key: reads.append(key) or read(self, key)
    )
    write(tmp_path / "set", 10, append=True, count=30, max_samples_per_shard=1)
    assert reads.count("index.json") == 2
    assert numbers(tmp_path / "set") == list(range(40))


def test_a_change_is_noticed_with_the_next_shard(tmp_path):
    out = tmp_path / "set"
    write(out, 0)
    writer = MDSWriter(out=out, append=True, max_samples_per_shard=1)
    writer.write({"n": 10, "text": "first"})
    (out / "index.json").write_bytes((out / "index.json").read_bytes() + b" ")
    with pytest.raises(WriterError, match="changed while"):
        writer.write({"n": 11, "text": "second"})
    with suppress(WriterError):
        writer.finish()


def test_the_index_of_a_local_copy_is_not_removed(tmp_path):
    far, near = tmp_path / "far", tmp_path / "near"
    write((str(near), f"file://{far}"), 0, keep_local=True)
    with pytest.raises(OutputExistsError, match="whose index would be removed"):
        MDSWriter(out=(str(near), f"file://{far}"), append=True)
    write((str(near), f"file://{far}"), 10, append=True, keep_local=True)
    assert numbers(near) == numbers(far) == list(range(20))


def test_shards_are_not_added_to_another_local_data_set(tmp_path):
    far, near = tmp_path / "far", tmp_path / "near"
    write(far, 0)
    write(near, 50)
    with pytest.raises(OutputExistsError, match="near holds another data set than"):
        MDSWriter(out=(str(near), f"file://{far}"), append=True, keep_local=True)
    assert numbers(near) == list(range(50, 60))


def test_a_local_copy_may_lack_shards_or_have_those_of_an_attempt_that_was_cut_off(tmp_path):
    far, near = tmp_path / "far", tmp_path / "near"
    write((str(near), f"file://{far}"), 0, keep_local=True)
    older = (far / "index.json").read_bytes()
    write((str(near), f"file://{far}"), 10, append=True, keep_local=True)
    (far / "index.json").write_bytes(older)
    write((str(near), f"file://{far}"), 10, append=True, keep_local=True)
    (near / "index.json").write_bytes(older)
    write((str(near), f"file://{far}"), 20, append=True, keep_local=True)
    assert numbers(near) == numbers(far) == list(range(30))


def test_the_index_far_away_counts_and_its_other_keys_stay(tmp_path):
    far, near = tmp_path / "far", tmp_path / "near"
    write(far, 0)
    document = json.loads((far / "index.json").read_text())
    (far / "index.json").write_text(json.dumps({**document, "note": "ours"}))
    write((str(near), f"file://{far}"), 10, append=True, keep_local=True)
    assert json.loads((far / "index.json").read_text())["note"] == "ours"
    assert (near / "index.json").read_bytes() == (far / "index.json").read_bytes()
    assert numbers(far) == list(range(20))


def test_parts_in_folders_keep_their_names(tmp_path):
    merge_index = pytest.importorskip("streamplug_tools.merge").merge_index
    for part in range(2):
        write(tmp_path / f"part-{part}", part * 10)
    merge_index(str(tmp_path))
    write(tmp_path, 20, append=True)
    assert numbers(tmp_path) == list(range(30))
    assert names(tmp_path)[-3:] == [f"shard.{n:05d}.mds" for n in (6, 7, 8)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"n": "int"}}, "has {'n': 'int', 'text': 'str'}"),
        ({"exist_ok": True}, "give one of them"),
        ({"format": "json"}, "has the format 'mds'"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message, tmp_path):
    write(tmp_path / "set", 0)
    if options.get("format") == "json":
        pytest.importorskip("streamplug_text")
    with pytest.raises(ConfigError, match=message):
        Writer(out=tmp_path / "set", append=True, **options)
    assert numbers(tmp_path / "set") == list(range(10))


def test_there_must_be_a_set_and_columns(tmp_path):
    with pytest.raises(NotFound, match="no data set to append to"):
        Writer(out=tmp_path / "set", append=True)
    assert not (tmp_path / "set").exists()
    Writer(out=tmp_path / "set", columns=COLUMNS).finish()
    with pytest.raises(ConfigError, match="no shards yet: give columns="):
        Writer(out=tmp_path / "set", append=True)
    with pytest.raises(ConfigError, match="columns=None"):
        Writer(out=tmp_path / "other")
