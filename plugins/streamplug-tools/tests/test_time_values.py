"""Times and decimals of tables become what the error says that they can be."""

from __future__ import annotations

import json
import re
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import pytest
from click.testing import CliRunner
from streamplug_tools import Columns, Output, convert

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.cli import main
from streamplug.errors import ConfigError

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("streamplug_parquet")

NOON = datetime(2026, 1, 1, 12, 0, 0, 5)  # noqa: DTZ001 - columns without a zone
BEFORE = datetime(1969, 12, 31, 23, 59, 59)  # noqa: DTZ001 - likewise
NOON_US = 1_767_268_800_000_005
STRUCT = pa.struct([("t", pa.timestamp("us")), ("d", pa.decimal128(10, 2))])
COLUMNS = {
    "timestamp[us]": (
        pa.array([NOON, BEFORE], pa.timestamp("us")),
        {
            "int64": [NOON_US, -1_000_000],
            "float64": [NOON_US / 1e6, -1.0],
            "str": ["2026-01-01T12:00:00.000005", "1969-12-31T23:59:59.000000"],
        },
    ),
    "timestamp[ns]": (
        pa.array([1, 2_000_000_000], pa.timestamp("ns")),
        {
            "int64": [1, 2_000_000_000],
            "float64": [1e-9, 2.0],
            "str": ["1970-01-01T00:00:00.000000001", "1970-01-01T00:00:02.000000000"],
        },
    ),
    "timestamp[ms, tz=Europe/Berlin]": (
        pa.array([1, 2000], pa.timestamp("ms", "Europe/Berlin")),
        {
            "int64": [1, 2000],
            "float64": [0.001, 2.0],
            "str": ["1970-01-01T00:00:00.001Z", "1970-01-01T00:00:02.000Z"],
        },
    ),
    "timestamp[us]?": (
        pa.array([NOON, None], pa.timestamp("us")),
        {"json": ["2026-01-01T12:00:00.000005", None]},
    ),
    "date32": (
        pa.array([date(2026, 1, 1), date(1969, 12, 31)]),
        {
            "int64": [20454, -1],
            "float64": [20454 * 86400.0, -86400.0],
            "str": ["2026-01-01", "1969-12-31"],
        },
    ),
    "time64[us]": (
        pa.array([time(1, 0, 0, 5), time(0)], pa.time64("us")),
        {
            "int64": [3_600_000_005, 0],
            "float64": [3600.000005, 0.0],
            "str": ["01:00:00.000005", "00:00:00"],
        },
    ),
    "time32[ms]": (
        pa.array([time(1), time(0)], pa.time32("ms")),
        {"int64": [3_600_000, 0], "float64": [3600.0, 0.0], "str": ["01:00:00", "00:00:00"]},
    ),
    "duration[us]": (
        pa.array([timedelta(1, 5), timedelta(0, 0, -1)], pa.duration("us")),
        {
            "int64": [86_405_000_000, -1],
            "float64": [86405.0, -1e-6],
            "str": ["PT86405S", "PT-0.000001S"],
        },
    ),
    "decimal128(10, 2)?": (
        pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        {"json": ["1.50", None]},
    ),
    "list<timestamp[us]>?": (
        pa.array([[NOON], []], pa.list_(pa.timestamp("us"))),
        {"json": [["2026-01-01T12:00:00.000005"], []]},
    ),
    "struct<t: timestamp[us], d: decimal128(10, 2)>?": (
        pa.array([{"t": BEFORE, "d": Decimal("1.50")}, None], STRUCT),
        {"json": [{"t": "1969-12-31T23:59:59", "d": "1.50"}, None]},
    ),
}


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def write(tmp_path):
    def write(values):
        (tmp_path / "tables").mkdir()
        table = pa.table({"id": [1, 2], "x": values})
        parquet.write_table(table, tmp_path / "tables" / "0.parquet")
        return tmp_path / "tables"

    return write


def values(place):
    return [sample["x"] for sample in StreamingDataset(local=str(place))[:]]


@pytest.mark.parametrize("spec", COLUMNS)
def test_each_way_that_the_error_names_works_in_the_same_place(spec, write, tmp_path):
    array, expected = COLUMNS[spec]
    source, out = write(array), tmp_path / "set"
    command = ["convert", source, out, "--src-format", "parquet", "--format", "mds"]
    refused = run(*command)
    assert refused.exit_code == 2
    assert f"column 'x' ({spec}): format mds has no encoding for such values" in refused.stderr
    named = re.findall(r"(x:\S+) \(", refused.stderr)
    assert [name.partition(":")[2] for name in named] == list(expected)
    for name in named:
        done = run(*command, "--columns", name, "--exist-ok")
        assert done.exit_code == 0, done.stderr
        right = expected[name.partition(":")[2]]
        assert values(out) == (pytest.approx(right) if "float" in name else right)
    left_out = run(*command, "--drop", "x", "--exist-ok")
    assert left_out.exit_code == 0, left_out.stderr


@pytest.mark.parametrize("spec", COLUMNS)
def test_lines_have_the_text_that_conversions_store(spec, write, tmp_path):
    array, expected = COLUMNS[spec]
    source, out = write(array), tmp_path / "set"
    printed = run("cat", source)
    text = expected["json"] if "json" in expected else expected["str"]
    assert [json.loads(line)["x"] for line in printed.stdout.splitlines()] == text
    run("proc", source, out, "--format", "mds", "--columns", "id:int,x:json", "--", "cat")
    assert values(out) == text


@pytest.mark.parametrize(
    ("kinds", "encoding", "alike"),
    [
        ((pa.timestamp("us"), pa.timestamp("ns")), "int64", "float64"),
        ((pa.date32(), pa.timestamp("s")), "int", "float64"),
        ((pa.timestamp("us"), pa.timestamp("us", "UTC")), "str", "int64"),
        ((pa.timestamp("us", "UTC"), pa.timestamp("us")), "json", "float64"),
    ],
)
def test_times_of_several_units_or_zones_are_not_mixed_up(kinds, encoding, alike, tmp_path):
    sources = []
    for number, kind in enumerate(kinds):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        values = pa.array([date(2026, 1, 1)], pa.date32()).cast(kind)
        parquet.write_table(pa.table({"when": values}), folder / "a.parquet")
        sources.append(Stream(local=str(folder), format="parquet"))

    def run(spec):
        out = tmp_path / spec
        columns = Columns(encodings={"when": spec})
        convert(sources, Output(out, format="mds", processes=0), columns=columns)
        return {sample["when"] for sample in StreamingDataset(local=str(out), batch_size=1)}

    with pytest.raises(ConfigError, match=r"in some shards and .* would mix up"):
        run(encoding)
    assert len(run(alike)) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_times_of_some_data_sets_only_are_not_mixed_up_in_either_order(order, tmp_path):
    def write(name, values):
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table({"when": values}), tmp_path / name / "a.parquet")
        return Stream(local=str(tmp_path / name), format="parquet")

    def run(other, spec):
        out = tmp_path / f"{spec}-out"
        columns = Columns(encodings={"when": spec})
        sources = [times, other][::order]
        convert(sources, Output(out, format="mds", processes=0), columns=columns)
        samples = StreamingDataset(local=str(out), batch_size=1)
        return [sample["when"] for sample in samples][::order]

    times = write("times", pa.array([NOON], pa.timestamp("us")))
    numbers, texts = write("numbers", pa.array([7])), write("texts", pa.array(["2025"]))
    with pytest.raises(ConfigError, match=r"int64.* in (some|others).* would mix up"):
        run(numbers, "int64")
    assert run(numbers, "float64") == [NOON_US / 10**6, 7.0]
    assert run(texts, "str") == ["2026-01-01T12:00:00.000005", "2025"]


def test_decimals_become_exact_text_without_being_asked_for(write, tmp_path):
    source = write(pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(10, 2)))
    done = run("convert", source, tmp_path / "set", "--src-format", "parquet", "--format", "mds")
    assert done.exit_code == 0, done.stderr
    assert values(tmp_path / "set") == [Decimal("1.50"), Decimal("-2.00")]
    rounded = ["--columns", "x:float64", "--format", "mds"]
    done = run("convert", source, tmp_path / "rounded", "--src-format", "parquet", *rounded)
    assert values(tmp_path / "rounded") == [1.5, -2.0]
    whole = ["--columns", "x:int64", "--format", "mds"]
    refused = run("convert", source, tmp_path / "whole", "--src-format", "parquet", *whole)
    assert "1.50 is no whole number; store decimals as str_decimal or float64" in refused.stderr


@pytest.mark.parametrize("number", ["1e30000000", "-1E+999999999999", "Infinity", "NaN", "sNaN"])
def test_decimals_of_more_digits_than_memory_are_refused_as_integers(tmp_path, number):
    with MDSWriter(out=tmp_path / "set", columns={"x": "str_decimal"}) as out:
        out.write({"x": Decimal(number)})
    options = ["--columns", "x:int64", "--format", "mds"]
    refused = run("convert", tmp_path / "set", tmp_path / "whole", *options)
    assert refused.exit_code == 2
    assert "store decimals as str_decimal" in refused.stderr


def test_decimals_of_mds_are_not_taken_for_times(tmp_path):
    pytest.importorskip("streamplug_text")
    numbers = {"int64": 7, "str_decimal": Decimal(-2)}
    for encoding, value in numbers.items():
        with MDSWriter(out=str(tmp_path / encoding), columns={"x": encoding}) as writer:
            writer.write({"x": value})
    refused = run("convert", tmp_path / "str_decimal", tmp_path / "set", "--format", "csv")
    assert re.findall(r"(x:\S+) \((\w+)\)", refused.stderr) == [
        ("x:str", "exact"),
        ("x:float", "rounded"),
    ]
    columns = Columns(encodings={"x": "int64"})
    sources = [str(tmp_path / encoding) for encoding in numbers]
    convert(sources, Output(tmp_path / "set", processes=0), columns=columns)
    assert values(tmp_path / "set") == [7, -2]


@pytest.mark.parametrize("format_", ["mds", "parquet"])
def test_a_program_gives_back_the_decimals_that_it_reads(format_, write, tmp_path):
    source = write(pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(10, 2)))
    done = run("proc", source, tmp_path / "set", "--format", format_, "--", "cat")
    assert done.exit_code == 0, done.stderr
    assert values(tmp_path / "set") == [Decimal("1.50"), Decimal("-2.00")]
    encodings = ["--format", "mds", "--columns", "id:int,x:str_decimal"]
    wrong = [sys.executable, "-c", 'print(\'{"id": 0, "x": "much"}\')']
    refused = run("proc", source, tmp_path / "wrong", *encodings, "--", *wrong)
    assert "column 'x': " in refused.stderr
    assert "much" in refused.stderr


def test_other_formats_are_offered_what_they_have(write, tmp_path):
    pytest.importorskip("streamplug_text")
    source = write(pa.array([NOON, BEFORE], pa.timestamp("us")))
    command = ["convert", source, tmp_path / "set", "--src-format", "parquet", "--format", "csv"]
    refused = run(*command)
    named = re.findall(r"(x:\S+) \(", refused.stderr)
    assert named == ["x:int", "x:float", "x:str"]
    done = run(*command, "--columns", "x:int")
    assert done.exit_code == 0, done.stderr
    assert values(tmp_path / "set") == [NOON_US, -1_000_000]


def test_proc_changes_a_type_while_it_changes_the_format(write, tmp_path):
    source = write(pa.array([NOON, BEFORE], pa.timestamp("us")))
    command = ["proc", source, tmp_path / "set", "--src-format", "parquet", "--format", "mds"]
    done = run(*command, "--set", "x=str(x.year)", "--columns", "x:str")
    assert done.exit_code == 0, done.stderr
    found = StreamingDataset(local=str(tmp_path / "set"))[:]
    assert found == [{"id": 1, "x": "2026"}, {"id": 2, "x": "1969"}]


def test_proc_may_replace_every_column(write, tmp_path):
    source = write(pa.array([NOON, BEFORE], pa.timestamp("us")))
    command = ["proc", source, tmp_path / "set", "--src-format", "parquet", "--format", "mds"]
    command += ["--select", "x", "--set", "x=x.year"]
    done = run(*command, "--columns", "x:int")
    assert done.exit_code == 0, done.stderr
    assert StreamingDataset(local=str(tmp_path / "set"))[:] == [{"x": 2026}, {"x": 1969}]


def test_a_program_is_given_times_that_the_new_format_cannot_store(write, tmp_path):
    source = write(pa.array([NOON, BEFORE], pa.timestamp("us")))
    command = ["proc", source, tmp_path / "set", "--src-format", "parquet", "--format", "mds"]
    command += ["--columns", "day:str", "--rename", "x=day", "--drop", "id"]
    done = run(*command, "--", "sed", "-E", 's/"day": "([-0-9]+)[^"]*"/"day": "\\1"/')
    assert done.exit_code == 0, done.stderr
    found = StreamingDataset(local=str(tmp_path / "set"))[:]
    assert found == [{"day": "2026-01-01"}, {"day": "1969-12-31"}]
