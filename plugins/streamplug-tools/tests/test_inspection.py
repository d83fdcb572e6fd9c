from __future__ import annotations

import pytest
from streamplug_tools import ShardKind, inspect
from streamplug_tools.merge import merge_index
from streamplug_tools.report import page_about
from streamplug_tools.statistics import collect_statistics
from streamplug_tools.verification import verify

from streamplug import Stream
from streamplug.errors import ConfigError


def test_a_set_is_described(tmp_path, write, content):
    source = write(tmp_path / "source", range(100), compression="gz", hashes=["sha1"])
    before = content(source)
    found = inspect(source, samples=2)
    stored = [len(data) for name, data in before.items() if name.startswith("shard.")]
    assert (found.url, found.samples, found.shards) == (str(source), 100, len(stored))
    assert found.stored_bytes == sum(stored) < found.raw_bytes
    assert found.shard_bytes[0] <= found.shard_bytes[1] <= found.shard_bytes[2] <= 2000
    assert found.shard_samples[0] <= found.shard_samples[1] <= found.shard_samples[2]
    columns = {
        "id": "int",
        "name": "str",
        "score": "float32",
        "vector": "ndarray:int16:3",
        "x": "bytes",
    }
    assert found.kinds == (ShardKind("mds", "gz", ("sha1",), columns, len(stored), 100),)
    assert [sample["id"] for sample in found.first] == [0, 1]
    assert content(source) == before


def test_files_that_a_scan_writes_are_not_those_of_a_set(tmp_path):
    pytest.importorskip("streamplug_text")
    text = "".join(f"{n},{n}\n" for n in range(100))
    (tmp_path / "a.csv").write_text(f"a,b\n{text}")
    size = (tmp_path / "a.csv").stat().st_size
    source = Stream(remote=str(tmp_path), format="csv")
    found, shown, verified = inspect(source), collect_statistics(source), verify(source)
    assert (found.stored_bytes, found.raw_bytes, found.shard_bytes) == (size, size, (size,) * 3)
    assert [cell.stored_bytes for cell in shown.cells] == [size]
    assert (verified.bytes, verified.checksums, verified.without_checksums) == (size, (), 1)


@pytest.mark.parametrize("rows", [range(5), "id < 5"])
@pytest.mark.parametrize("describe", [inspect, page_about])
def test_a_part_of_a_set_is_not_described(tmp_path, write, describe, rows):
    source = write(tmp_path / "source", range(10))
    with pytest.raises(ConfigError, match="select=: a whole data set is described"):
        describe(Stream(local=str(source), select=rows))


def test_shards_of_several_kinds_are_told_apart(tmp_path, write):
    write(tmp_path / "all/a", range(10), {"id": "int"})
    write(tmp_path / "all/b", range(5), {"id": "int64"}, compression="gz")
    merge_index(str(tmp_path / "all"))
    found = inspect(tmp_path / "all", samples=0)
    assert [(kind.columns, kind.compression, kind.samples) for kind in found.kinds] == [
        ({"id": "int"}, None, 10),
        ({"id": "int64"}, "gz", 5),
    ]
    assert found.first == ()
    shown = found._repr_html_()
    for text in ("DatasetInfo", ">15<", ">none, gz<", ">int<", ">int64<"):
        assert text in shown


def test_a_set_may_be_empty(tmp_path, write):
    found = inspect(write(tmp_path / "empty", ()))
    assert (found.samples, found.shards, found.kinds, found.first) == (0, 0, (), ())
