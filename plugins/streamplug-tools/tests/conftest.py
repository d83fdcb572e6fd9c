"""Small data sets with columns of several kinds, and what is in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from streamplug_tools.row_access import Table, cache_locally

from streamplug import Stream, Writer

COLUMNS = {
    "id": "int",
    "name": "str",
    "score": "float32",
    "vector": "ndarray:int16:3",
    "x": "bytes",
}


def _sample(n):
    return {
        "id": n,
        "name": f"name {n % 7}",
        "score": np.float32(n / 3),
        "vector": np.arange(3, dtype=np.int16) + n,
        "x": bytes([n % 256]) * (n % 5),
    }


@pytest.fixture
def sample():
    """Makes the sample of a number."""
    return _sample


@pytest.fixture
def write():
    """Writes the samples of some numbers."""

    def write(out, numbers, columns=COLUMNS, make=_sample, **options):
        with Writer(columns=columns, out=out, **{"size_limit": 2000, **options}) as writer:
            for n in numbers:
                writer.write({name: make(n)[name] for name in columns})
        return out

    return write


@pytest.fixture
def source(tmp_path, write):
    """A set of 200 samples."""
    return write(tmp_path / "source", range(200))


@pytest.fixture
def content():
    """Returns the bytes of all files below a folder."""

    def content(folder):
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }

    return content


@pytest.fixture
def read(tmp_path):
    """Returns all values of some columns of a set, in their order."""

    def read(place, *columns, **options):
        streams = cache_locally(
            [Stream(remote=str(place))], tmp_path / "read" / Path(place).name, whole=True
        )
        table = Table(streams, columns or None, **options)
        return table.take(np.arange(table.size))

    return read


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The directory for temporary files."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(place))
    return place
