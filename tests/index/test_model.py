from __future__ import annotations

import numpy as np

from streamplug.index.model import FileTable, Index, Schema
from streamplug.interfaces import Format
from streamplug.types import FileInfo


class TwoFiles(Format):
    suffix = "two"
    roles = ("data", "meta")

    def columns(self, entry, make_encoding):
        return ()

    def open(self, shard, files, columns):
        raise NotImplementedError


def table(*names: str, size: int = 5) -> FileTable:
    sizes = np.array([size if name else 0 for name in names], np.int64)
    return FileTable(names, sizes, [{}] * len(names))


def test_a_shard_has_the_files_of_its_format_only():
    index = Index(
        np.array([0, 1, 3]),
        [Schema(TwoFiles(), (), "gz")],
        np.zeros(2, np.int64),
        {
            "raw_data": table("a", "b"),
            "zip_data": table("a.gz", "", size=3),
            "raw_meta": table("m", ""),
            "zip_meta": table("", ""),
        },
    )
    first, second = index.shard(0), index.shard(1)
    assert first.files["data"].zip == FileInfo("a.gz", 3, {})
    assert first.files["meta"].raw.basename == "m"
    assert set(second.files) == {"data"}
    assert index.raw_bytes == 15
    assert index.raw_shard_bytes.tolist() == [10, 5]
    assert index.stored_shard_bytes.tolist() == [8, 5]
