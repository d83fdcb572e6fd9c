"""Outputs of DataFrames, without a Spark that writes them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from streamplug_spark import write_dataframe

from streamplug import StreamingDataset
from streamplug.errors import OutputExistsError

pa = pytest.importorskip("pyarrow")


class Frame:
    """A DataFrame of one column and two partitions, of which the first is written twice."""

    schema = SimpleNamespace(names=["n"])

    def __init__(self, monkeypatch):
        self._part = 0
        context = SimpleNamespace(get=lambda: SimpleNamespace(partitionId=lambda: self._part))
        monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(TaskContext=context))

    def select(self, *names):
        return self

    def mapInArrow(self, write, result):
        rows = []
        for self._part in (0, 0, 1):
            [batch] = write([pa.record_batch({"n": [self._part]})])
            rows += batch.to_pylist()
        return SimpleNamespace(collect=lambda: rows[1:])


@pytest.fixture
def numbers(monkeypatch):
    return Frame(monkeypatch)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.glob("**/*") if path.is_file())


def test_a_kept_copy_has_the_files_of_the_data_set_alone(numbers, tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    options = {"out": (near, f"file://{far}"), "columns": {"n": "int"}, "keep_local": True}
    write_dataframe(numbers, **options)
    assert files(near) == files(far)
    assert len(files(near)) == 5
    write_dataframe(numbers, **options, exist_ok=True)
    assert files(near) == files(far)
    assert len(files(near)) == 5


def test_a_copy_does_not_replace_another_data_set(numbers, tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    write_dataframe(numbers, out=near, columns={"n": "int"})
    options = {"out": (near, f"file://{far}"), "columns": {"n": "int"}, "keep_local": True}
    with pytest.raises(OutputExistsError, match="near already holds a data set"):
        write_dataframe(numbers, **options)
    assert [sample["n"] for sample in StreamingDataset(local=str(near), batch_size=1)] == [0, 1]
    assert not far.exists()
