"""mosaicml-streaming reads data sets with files of the sizes of values, which it does not know."""

from __future__ import annotations

import tempfile

import numpy as np

from streamplug import MDSWriter


def test_sizes_of_values_are_ignored(mosaic, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # it leaves its locks there
    columns = {"id": "str", "tokens": "ndarray:uint16"}
    with MDSWriter(out=tmp_path / "set", columns=columns, size_limit=2000) as out:
        for number in range(50):
            out.write({"id": str(number), "tokens": np.arange(1 + number, dtype=np.uint16)})
    assert list((tmp_path / "set").glob("*.sizes"))
    theirs = mosaic.StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    for number in range(50):
        assert theirs[number]["id"] == str(number)
        assert theirs[number]["tokens"].tolist() == list(range(1 + number))
