from __future__ import annotations

import json
import os
import signal
from datetime import date
from decimal import Decimal

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: tox -c tests -e engines")

from streamplug_spark import dataframe_to_mds, write_dataframe
from streamplug_tools.merge import merge_index

from streamplug import Encoding, register_encoding
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, OutputExistsError, UnknownNameError, WriterError
from streamplug.write import MDSWriter

# Of sockets that pyspark leaves to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def numbers(spark):
    """A thousand rows in four partitions."""
    rows = spark.sparkContext.parallelize([(n, f"text {n}") for n in range(1000)], 4)
    return spark.createDataFrame(rows, "n bigint, text string")


def content(folder, names="**/shard.*"):
    return [path.read_bytes() for path in sorted(folder.glob(names))]


def samples(place, **options):
    dataset = StreamingDataset(remote=str(place), batch_size=1, **options)
    return [dataset[n] for n in range(dataset.num_samples)]


def test_partitions_become_parts_in_their_order(numbers, tmp_path):
    parts = write_dataframe(numbers, out=tmp_path / "set", size_limit="1kb", compression="gz")
    assert len(parts) == 4
    found = samples(tmp_path / "set", local=str(tmp_path / "cache"))
    assert found == [{"n": n, "text": f"text {n}"} for n in range(1000)]
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [
        "index.json",
        *(part.rpartition("/")[2] for part in parts),
    ]


def test_shards_are_those_of_a_writer(numbers, tmp_path):
    write_dataframe(numbers, out=tmp_path / "set", size_limit="1kb")
    for part in range(4):
        out = tmp_path / "ours" / str(part)
        with MDSWriter(out=out, columns={"n": "int64", "text": "str"}, size_limit="1kb") as writer:
            for n in range(250 * part, 250 * part + 250):
                writer.write({"n": n, "text": f"text {n}"})
    assert content(tmp_path / "set") == content(tmp_path / "ours")


def test_a_worker_that_is_killed_leaves_no_half_part(numbers, tmp_path):
    mark = tmp_path / "mark"

    def deadly(frame):
        for row in frame.to_dict("records"):
            if row["n"] == 400 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield row

    columns = {"n": "int64", "text": "str"}
    options = {"columns": columns, "size_limit": "1kb"}
    write_dataframe(numbers, out=tmp_path / "set", udf_iterable=deadly, **options)
    assert mark.exists()
    write_dataframe(numbers, out=tmp_path / "undisturbed", **options)
    assert content(tmp_path / "set") == content(tmp_path / "undisturbed")
    assert len(list((tmp_path / "set").glob("part-*/index.json"))) == 4


def test_types_become_encodings(spark, tmp_path):
    row = {
        "a": -1, "b": -2, "c": 3, "d": 4, "e": 0.5, "f": 0.25, "g": "g", "h": b"h", "i": True,
        "j": Decimal("1.50"), "k": [1, 2], "l": [0.5], "m": ["a", "b"], "n": {"x": 1, "y": [True]},
    }  # fmt: skip
    schema = (
        "a tinyint, b smallint, c int, d bigint, e float, f double, g string, h binary, i boolean, "
        "j decimal(10, 2), k array<int>, l array<double>, m array<string>, "
        "n struct<x: int, y: array<boolean>>"
    )
    frame = spark.createDataFrame([tuple(row.values())], schema)
    write_dataframe(frame, out=tmp_path / "set")
    shard = json.loads((tmp_path / "set" / "index.json").read_bytes())["shards"][0]
    assert shard["column_encodings"] == [
        "int8", "int16", "int32", "int64", "float32", "float64", "str", "bytes", "json",
        "str_decimal", "ndarray:int32", "ndarray:float64", "json", "json",
    ]  # fmt: skip
    [found] = samples(tmp_path / "set")
    assert found.pop("k").tolist() == row.pop("k")
    assert found.pop("l").tolist() == row.pop("l")
    assert found == row


def test_types_without_an_encoding_are_named(spark, tmp_path):
    frame = spark.createDataFrame(
        [(date(2026, 1, 1), 1, {b"a": 1})], "day date, n int, m map<binary, int>"
    )
    with pytest.raises(ConfigError, match=r"meant for day \(date\), m \(map<binary,int>\): cast"):
        write_dataframe(frame, out=tmp_path / "set")
    write_dataframe(frame, out=tmp_path / "set", columns={"n": "int8"})
    assert samples(tmp_path / "set") == [{"n": 1}]


def test_maps_become_json_objects_also_where_they_are_nested(spark, tmp_path):
    schema = (
        "m map<string, int>, s struct<f: map<string, array<int>>>, l array<map<string, int>>, "
        "n map<string, map<string, boolean>>, i map<int, string>"
    )
    row = {
        "m": {"a": 1, "b": None},
        "s": {"f": {"x": [1, 2]}},
        "l": [{"a": 1}, {}],
        "n": {"outer": {"inner": True}},
        "i": {7: "seven"},
    }
    dataframe_to_mds(
        spark.createDataFrame([tuple(row.values())], schema),
        mds_kwargs={"out": str(tmp_path / "set")},
    )
    [shard] = json.loads((tmp_path / "set" / "index.json").read_bytes())["shards"]
    assert shard["column_encodings"] == ["json"] * 5
    # A key that is no text becomes text, as everywhere in JSON.
    assert samples(tmp_path / "set") == [{**row, "i": {"7": "seven"}}]


def test_a_map_with_keys_that_json_cannot_have_is_refused(spark, tmp_path):
    frame = spark.createDataFrame([({b"a": 1},)], "m map<binary, int>")
    with pytest.raises(
        WriterError, match=r"column 'm': json takes what JSON can express .*keys must"
    ):
        write_dataframe(frame, out=tmp_path / "set", columns={"m": "json"})


def test_a_function_makes_samples_of_rows(numbers, tmp_path):
    def halves(frame, *, by):
        for n in frame["n"]:
            yield {"half": np.float32(n / by)}

    places = dataframe_to_mds(
        numbers,
        mds_kwargs={"out": str(tmp_path / "set"), "columns": {"half": "float32"}},
        udf_iterable=halves,
        udf_kwargs={"by": 2},
    )
    assert places == (str(tmp_path / "set"), "")
    assert [sample["half"] for sample in samples(places[0])] == [n / 2 for n in range(1000)]


def test_names_that_were_registered_are_known_to_executors(numbers, tmp_path):
    class Reversed(Encoding):
        def encode(self, value):
            return value[::-1].encode()

        def decode(self, data):
            return bytes(data).decode()[::-1]

    register_encoding("reversed-in-spark", Reversed)
    columns = {"n": "int", "text": "reversed-in-spark"}
    write_dataframe(numbers, out=tmp_path / "set", columns=columns)
    assert samples(tmp_path / "set")[7] == {"n": 7, "text": "text 7"}


def test_the_index_may_wait(numbers, tmp_path):
    out = tmp_path / "set"
    parts = write_dataframe(numbers, out=out, merge=False)
    assert not (out / "index.json").exists()
    assert merge_index(parts, str(out)) == 4
    assert len(samples(out)) == 1000


def test_both_a_path_and_a_url(numbers, tmp_path):
    out = (tmp_path / "near", str(tmp_path / "far"))
    write_dataframe(numbers, out=out, keep_local=True)
    assert content(tmp_path / "near") == content(tmp_path / "far") != []
    assert (tmp_path / "near" / "index.json").exists()
    assert len(samples(tmp_path / "far")) == 1000


def test_empty_partitions_do_no_harm(numbers, tmp_path):
    write_dataframe(numbers.where("n < 10 or n > 990"), out=tmp_path / "set")
    assert len(samples(tmp_path / "set")) == 19


def test_what_is_there_is_kept_unless_told(numbers, tmp_path):
    write_dataframe(numbers, out=tmp_path / "set")
    with pytest.raises(OutputExistsError, match="already holds a data set"):
        write_dataframe(numbers, out=tmp_path / "set")
    write_dataframe(numbers.limit(5), out=tmp_path / "set", exist_ok=True)
    assert len(samples(tmp_path / "set")) == 5


def test_parts_that_were_not_merged_are_replaced(numbers, tmp_path):
    write_dataframe(numbers, out=tmp_path / "set", merge=False)
    with pytest.raises(OutputExistsError, match="already holds a data set"):
        write_dataframe(numbers, out=tmp_path / "set")
    write_dataframe(numbers.limit(5), out=tmp_path / "set", exist_ok=True)
    assert len(samples(tmp_path / "set")) == 5


def test_files_of_others_are_left_alone(numbers, tmp_path):
    numbers.write.parquet(str(tmp_path / "set"))
    before = content(tmp_path / "set")
    for exist_ok in (False, True):
        with pytest.raises(OutputExistsError, match="holds other files"):
            write_dataframe(numbers, out=tmp_path / "set", exist_ok=exist_ok)
    assert content(tmp_path / "set") == before


def test_a_wrong_option_removes_nothing(numbers, tmp_path):
    write_dataframe(numbers, out=tmp_path / "set")
    with pytest.raises(UnknownNameError, match="zstdd"):
        write_dataframe(numbers, out=tmp_path / "set", exist_ok=True, compression="zstdd")
    assert len(samples(tmp_path / "set")) == 1000


def test_errors_say_what_is_wrong(spark, numbers, tmp_path):
    with pytest.raises(ConfigError, match="columns= is needed"):
        write_dataframe(numbers, out=tmp_path / "a", udf_iterable=lambda frame: [])
    with pytest.raises(
        ConfigError, match="udf_kwargs= are arguments of udf_iterable=, which is not"
    ):
        write_dataframe(numbers, out=tmp_path / "a", udf_kwargs={"times": 2})
    with pytest.raises(ConfigError, match="exist_ok='no': must be True or False"):
        write_dataframe(numbers, out=tmp_path / "a", exist_ok="no")
    with pytest.raises(ConfigError, match="names 'm', which the DataFrame has not; it has 'n'"):
        write_dataframe(numbers, out=tmp_path / "a", columns={"m": "int"})
    with pytest.raises(ConfigError, match="names no `out`"):
        dataframe_to_mds(numbers)
    nulls = spark.createDataFrame([(1, None)], "n int, text string")
    with pytest.raises(
        WriterError, match=r"Spark gave up: EncodeTypeError: column 'text': str takes"
    ):
        write_dataframe(nulls, out=tmp_path / "b")
    arrays = spark.createDataFrame([([1.0, None],)], "a array<double>")
    with pytest.raises(WriterError, match="column 'a': an array has a null in it"):
        write_dataframe(arrays, out=tmp_path / "c")
    with pytest.raises(WriterError, match=r"finds nothing from the driver in memory://"):
        write_dataframe(numbers, out=f"memory://{tmp_path.name}")
