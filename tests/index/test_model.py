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


def table(*names: str) -> FileTable:
    return FileTable(names, np.full(len(names), 5, np.int64), [{}] * len(names))


def test_a_shard_has_the_files_of_its_format_only():
    index = Index(
        np.array([0, 1, 3]),
        [Schema(TwoFiles(), (), "gz")],
        np.zeros(2, np.int64),
        {
            "raw_data": table("a", "b"),
            "zip_data": table("a.gz", ""),
            "raw_meta": table("m", ""),
            "zip_meta": table("", ""),
        },
    )
    first, second = index.shard(0), index.shard(1)
    assert first.files["data"].zip == FileInfo("a.gz", 5, {})
    assert first.files["meta"].raw.basename == "m"
    assert set(second.files) == {"data"}
    assert index.raw_bytes == 20
