"""The files of tables are not read as plain Parquet files, which would bring deleted rows back."""

from __future__ import annotations

import io
import uuid

import pytest
from click.testing import CliRunner
from streamplug_files import table_check

from streamplug import StreamingDataset
from streamplug.cli import main
from streamplug.errors import ConfigError
from streamplug.plugin import open_storage

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
for plugin in ("parquet", "tools"):
    pytest.importorskip(f"streamplug_{plugin}")

LOGS = {
    "delta": "_delta_log/00000000000000000000.json",
    "iceberg": "metadata/00001-aa.metadata.json",
    "hudi": ".hoodie/20240101.commit",
}


@pytest.fixture(params=LOGS)
def kind(request):
    return request.param


@pytest.fixture(params=["near", "far"])
def lake(request, tmp_path):
    if request.param == "far":
        pytest.importorskip("streamplug_fsspec")
    return (
        str(tmp_path / "lake") if request.param == "near" else f"memory://{uuid.uuid4().hex}/lake"
    )


def write(url, *names):
    """Write a Parquet file of one row for each name."""
    for name in names:
        out = io.BytesIO()
        pa.parquet.write_table(pa.table({"n": [1]}), out)
        open_storage(url).write(name, out.getvalue())


@pytest.fixture
def table(lake, kind):
    """The location of a table with files in it, in a partition, and in a directory of data."""
    write(f"{lake}/table", "a-0.parquet", "p=1/q=x/a-1.parquet", "data/a-2.parquet")
    write(f"{lake}/table", "data/p=1/a-3.parquet")
    write(lake, "plain/a-4.parquet", "plain/data/a-5.parquet", "plain/metadata/x.parquet")
    open_storage(f"{lake}/table").write(LOGS[kind], b"{}")
    return f"{lake}/table"


def size(remote):
    return StreamingDataset(remote=remote, format="parquet").size


@pytest.mark.parametrize(
    "below",
    [
        "",
        "/",
        "/*.parquet",
        "/a-*.parquet",
        "/**/*.parquet",
        "/p=1/q=x",
        "/p=1/**/*.parquet",
        "/p=1/q=x/a-*.parquet",
        "/*/*/a-*",
        "/data",
        "/data/a-*.parquet",
        "/data/p=1",
        "/data/p=1/*",
        "/{p=1/q=x,data}/*.parquet",
    ],
)
def test_directories_and_patterns_in_a_table_are_refused(table, kind, below):
    with pytest.raises(
        ConfigError, match=rf"/lake/table is a table of the format {kind}"
    ) as caught:
        size(table + below)
    assert f"format='{kind}'" in str(caught.value) or "is not supported" in str(caught.value)


def test_tables_among_other_files_are_refused(table, lake, kind):
    with pytest.raises(ConfigError, match=f"/lake/table is a table of the format {kind}"):
        size(f"{lake}/**/*.parquet")
    with pytest.raises(ConfigError, match=f"/lake/table is a table of the format {kind}"):
        size([f"{lake}/plain/a-*.parquet", f"{table}/a-*.parquet"])
    assert size(f"{lake}/plain/**/*.parquet") == 3
    assert size(f"{lake}/plain/data") == 1
    assert size([f"{lake}/plain/", f"{lake}/plain/data/*"]) == 2


def test_files_of_a_table_that_are_named_are_read_with_a_warning(table, kind, caplog):
    assert size(f"{table}/a-0.parquet") == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"/lake/table is a table of the format {kind}" in caplog.text
    caplog.clear()
    assert size([f"{table}/p=1/q=x/a-1.parquet", f"{table}/data/a-2.parquet"]) == 2
    assert f"/lake/table is a table of the format {kind}" in caplog.text


@pytest.mark.parametrize("name", ["croissant.metadata.json", "a-4.metadata.json", "x.json"])
def test_other_files_with_metadata_make_no_table(lake, name):
    write(lake, "a-4.parquet", "data/a-5.parquet")
    open_storage(lake).write(f"metadata/{name}", b"{}")
    assert size(lake) == size(f"{lake}/data") == 1
    assert size(f"{lake}/**/*.parquet") == 2


@pytest.mark.parametrize(
    "name", ["v3.metadata.json", "00000-5f3c.gz.metadata.json", "v1.metadata.json.gz"]
)
def test_metadata_of_iceberg_has_several_names(lake, name):
    write(lake, "data/a-5.parquet")
    open_storage(lake).write(f"metadata/{name}", b"{}")
    with pytest.raises(ConfigError, match="is a table of the format iceberg"):
        size(f"{lake}/data")


def test_commands_recognize_or_refuse_them(table, kind, tmp_path):
    for arguments in (
        ["inspect", table],
        ["verify", table],
        ["convert", f"{table}/*.parquet", str(tmp_path / "out"), "--src-format", "parquet"],
        ["index", "scan", table, "--format", "parquet"],
        ["index", "scan", f"{table}/data", "--format", "parquet"],
    ):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code != 0
        said = done.stderr.replace("\n", " ")
        recognized = f"/lake/table: read as {kind}, since it is a table of the format {kind}"
        assert recognized in said or f"/lake/table is a table of the format {kind}" in said


def test_directories_and_whole_patterns_cost_no_request_more(tmp_path, monkeypatch):
    write(str(tmp_path), "a-1.parquet", "a-2.parquet")
    looked = []
    monkeypatch.setattr(table_check, "find_table", lambda storage, *_: looked.append(storage.url))
    assert size(str(tmp_path)) == size(f"{tmp_path}/*") == size(f"{tmp_path}/**/*.parquet") == 2
    assert looked == []
    assert size(f"{tmp_path}/a-{{1,2}}.parquet") == 2
    assert looked == []  # the result of the same files is cached
    assert size(f"{tmp_path}/a-[1].parquet") == 1
    assert looked == [str(tmp_path)]
