"""Files with sizes of values go with their shards when data sets are merged, extended, copied and deleted."""

from __future__ import annotations

import numpy as np
import pytest
from streamplug_tools import Output, append, copy_files, delete

from streamplug import MDSWriter, Stream, merge_index

pytest.importorskip("streamplug_ranges")
from streamplug_ranges import ValueSizes


def write(out, lengths):
    with MDSWriter(
        out=out, columns={"id": "str", "ids": "ndarray:uint16"}, size_limit=300
    ) as writer:
        for length in lengths:
            writer.write({"id": "x", "ids": np.zeros(length, np.uint16)})
    return out


def lengths_of(folder):
    stream = Stream(local=str(folder)).open()
    sizes = ValueSizes(stream, "ids")
    return [int(size - 2) // 2 for shard in range(len(stream.index)) for size in sizes.of(shard)]


def test_merged_parts_keep_them(tmp_path):
    write(tmp_path / "set" / "a", [1, 2, 30])
    write(tmp_path / "set" / "b", [4])
    merge_index(tmp_path / "set")
    assert lengths_of(tmp_path / "set") == [1, 2, 30, 4]
    write(tmp_path / "more" / "x", [5])
    merge_index([tmp_path / "set" / "a", tmp_path / "set" / "b"], tmp_path / "set")
    assert lengths_of(tmp_path / "set") == [1, 2, 30, 4]


def test_appended_data_sets_keep_them(tmp_path):
    home = write(tmp_path / "set", [1, 2])
    append(write(tmp_path / "new", [3, 40]), Output(home))
    assert lengths_of(home) == [1, 2, 3, 40]


def test_copies_have_them_and_removals_remove_them(tmp_path):
    home = write(tmp_path / "set", [1, 2])
    copy_files(home, tmp_path / "copy")
    assert lengths_of(tmp_path / "copy") == [1, 2]
    delete(tmp_path / "copy", dry_run=False)
    assert not list(tmp_path.glob("copy/*"))


def test_stale_files_are_ignored(tmp_path):
    home = write(tmp_path / "set", [1, 2])
    sizes = next(home.glob("*.sizes")).read_bytes()
    with MDSWriter(
        out=home, columns={"ids": "ndarray:uint16"}, value_sizes=False, exist_ok=True
    ) as writer:
        writer.write({"ids": np.zeros(7, np.uint16)})
    (home / "shard.00000.sizes").write_bytes(sizes)
    assert lengths_of(home) == [7]
