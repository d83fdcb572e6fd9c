"""The table of what each client can do, compared with the storages."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamplug_fsspec import FsspecStorage

from streamplug.errors import ConfigError, StorageError
from streamplug.interfaces import Storage
from streamplug.plugin import open_storage

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "clouds.md"
LOCATIONS = {
    "az": "az://container@account.blob.core.windows.net/set",
    "dbfs": "dbfs:/Volumes/a/b/c",
    "hf": "hf://datasets/owner/name",
    "obstore+az": "obstore+az://container@account.blob.core.windows.net/set",
    "oci": "oci://bucket@namespace/set",
}


def rows() -> dict[str, list[str]]:
    """Return the cells of each scheme."""
    text = PAGE.read_text("utf-8").partition("## What each client can do\n")[2].partition("\n- ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {scheme.strip("`"): others for scheme, *others in cells}


def opened(scheme: str, **options: object) -> Storage:
    return open_storage(LOCATIONS.get(scheme, f"{scheme}://place/set"), options)


@pytest.mark.parametrize("scheme", rows())
def test_each_cell_is_true(scheme):
    ranges, version, hedges, limits, _, lists, writes = rows()[scheme]
    storage = opened(scheme)
    calls = {8: "at once", 64: "64 in one request"}
    assert ranges == (calls[storage.parts_per_call] if storage.supports_read_many else "by threads")
    assert (version == "by `stat`") == tells_versions_by_stat(storage)
    if hedges == "no":
        with pytest.raises(ConfigError, match="hedge"):
            opened(scheme, hedge=True)
    else:
        assert hedges == "yes"
        opened(scheme, hedge=True)
    if limits == "no":
        with pytest.raises(ConfigError, match="rate_limit"):
            opened(scheme, rate_limit=100)
    else:
        assert limits == "yes"
        opened(scheme, rate_limit=100)
    if lists == "no":
        with pytest.raises(StorageError, match="cannot list"):
            storage.list()
    if writes != "yes":
        with pytest.raises(StorageError, match=r"only for reading|cannot be written"):
            storage.write("k", b"")


def tells_versions_by_stat(storage: Storage) -> bool:
    cls = type(storage)
    if cls.read_version is FsspecStorage.read_version:
        return cls.version_reader is FsspecStorage.version_reader
    return cls.read_version is Storage.read_version


def test_the_table_has_the_clients_of_the_table_of_clouds():
    first = PAGE.read_text("utf-8").partition("## ")[0]
    schemes = {line.split("`")[1] for line in first.splitlines() if line.startswith("| `")}
    assert schemes <= rows().keys()
