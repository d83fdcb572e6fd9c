"""Data sets of plain files of lines are read in every way that others are."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_files import scanner as scanning
from streamplug_testing.http import serving
from streamplug_text import CSVWriter, JSONLWriter

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.cli import main
from streamplug.errors import (
    CacheConflictError,
    CorruptShardError,
    DecodeError,
    InvalidIndexError,
    NotFound,
)
from streamplug.interfaces import Encoding
from streamplug.plugin.registry import is_known

COUNT = 40


def row(i):
    return {"id": i, "text": f'naïve "{i}",\n ' + "x" * (i % 7), "more": [i] if i % 3 else None}


def json_lines(first):
    rows = [{k: v for k, v in row(i).items() if v is not None} for i in range(first, first + COUNT)]
    return "\n".join(json.dumps(each) for each in rows).encode()


def table(first):
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["id", "text"])
    writer.writerows([i, row(i)["text"]] for i in range(first, first + COUNT))
    return out.getvalue().encode()


KINDS = {"jsonl": (json_lines, "jsonl"), "csv": (table, "csv:id=int")}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def files(tmp_path, kind):
    for number in range(4):
        place = tmp_path / "set" / ("a" if number < 2 else "b/c") / f"x-{number:02d}.{kind}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(KINDS[kind][0](COUNT * number))
    return tmp_path / "set"


def expected(kind, *shards):
    rows = [row(i) for shard in shards for i in range(shard * COUNT, (shard + 1) * COUNT)]
    return rows if kind == "jsonl" else [{"id": r["id"], "text": r["text"]} for r in rows]


def opened(kind, remote, **options):
    options = {"format": KINDS[kind][1], "batch_size": 8, **options}
    return StreamingDataset(remote=remote if isinstance(remote, list) else str(remote), **options)


def by_id(rows):
    return sorted(rows, key=lambda each: each["id"])


def test_directories_globs_braces_and_lists_name_files(files, kind):
    every = (0, 1, 2, 3)
    for remote, shards in (
        (f"{files}/a", (0, 1)),
        (f"{files}/**/*.{kind}", every),
        (f"{files}/b/c/x-{{02..03}}.{kind}", (2, 3)),
        ([f"{files}/b/c/x-03.{kind}", f"{files}/a/*"], (3, 0, 1)),
        (f"{files}/**", every),
        ([f"{files}/b/c/x-03.{kind}", f"{files}/a/*", f"{files}/b/c/x-03.{kind}"], (3, 0, 1, 3)),
        (f"{files}/b/c/x-{{02,03,02}}.{kind}", (2, 3, 2)),
    ):
        dataset = opened(kind, remote)
        assert list(dataset) == expected(kind, *shards), remote
        assert dataset[COUNT] == expected(kind, *shards)[COUNT]
    with pytest.raises(NotFound, match=rf"a glob such as \*\*/\*.{kind}"):
        opened(kind, files)


def test_batches_have_the_same_values(files, kind):
    dataset = opened(kind, f"{files}/**", shuffle=True)
    batches = list(dataset.batches())
    rows = [dict(zip(batch, values)) for batch in batches for values in zip(*batch.values())]
    assert by_id(rows) == expected(kind, 0, 1, 2, 3)
    assert [each["id"] for each in dataset[[99, 3, 3]]] == [99, 3, 3]
    assert opened(kind, f"{files}/**", columns=["text"])[50] == {"text": row(50)["text"]}


def test_order_is_that_of_shards_of_these_sizes(files, kind, tmp_path):
    with MDSWriter(out=tmp_path / "mds", columns={"id": "int"}, max_samples_per_shard=COUNT) as out:
        out.write_batch({"id": np.arange(4 * COUNT)})
    options = {"shuffle": True, "shuffle_seed": 3, "batch_size": 8}
    plain = opened(kind, f"{files}/**", **options)
    shards = StreamingDataset(local=str(tmp_path / "mds"), **options)
    for _ in range(2):
        assert [each["id"] for each in plain] == [each["id"] for each in shards]


def test_a_mixture_continues_where_it_stopped(files, kind, tmp_path):
    with MDSWriter(out=tmp_path / "mds", columns={"id": "int", "text": "str"}) as out:
        for i in range(1000, 1060):
            out.write({"id": i, "text": "m"})

    def mixture():
        return StreamingDataset(
            streams=[
                Stream(remote=f"{files}/**", format=KINDS[kind][1], proportion=0.6),
                Stream(local=str(tmp_path / "mds"), proportion=0.4),
            ],
            columns=["id", "text"],
            shuffle=True,
            batch_size=8,
        )

    whole = [each["id"] for each in mixture()]
    first = mixture()
    batches = first.batches()
    begun = [i for _ in range(5) for i in list(next(batches)["id"])]
    state = first.state_dict()
    second = mixture()
    second.load_state_dict(state)
    assert begun + [each["id"] for each in second] == whole


@pytest.mark.parametrize("access", ["shard", "range"])
def test_files_come_from_far_away(files, kind, tmp_path, access):
    with serving(files) as server:
        remote = [f"{server.url}/a/x-{{00..01}}.{kind}", f"{server.url}/b/c/x-02.{kind}"]
        local = str(tmp_path / "near")
        dataset = opened(kind, remote, local=local, access=access, shuffle=True)
        assert by_id(dataset) == expected(kind, 0, 1, 2)
        assert dataset[3 * COUNT - 1] == expected(kind, 2)[-1]
        kept = list((tmp_path / "near").rglob(f"x-*.{kind}"))
        assert len(kept) == (3 if access == "shard" else 0)


def test_selected_rows_of_cached_files_are_not_fetched_again(files, kind, tmp_path):
    with serving(files) as server:
        options = {"remote": f"{server.url}/a/x-00.{kind}", "local": str(tmp_path / "near")}
        assert list(opened(kind, **options)) == expected(kind, 0)
        stream = Stream(**options, format=KINDS[kind][1], select=[3], access="auto")
        dataset = StreamingDataset(streams=[stream], batch_size=1)
        assert list(dataset) == expected(kind, 0)[3:4]
        assert dataset.stats().range_requests == 0
        assert dataset.stats().cache_hits == 1


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_compressed_files_are_read_in_place_and_through_a_cache(files, kind, tmp_path, ending):
    if ending == "zst" and not is_known("compression", "zstd"):
        pytest.skip("streamplug-zstandard is not installed")
    for path in list(files.rglob(f"*.{kind}")):
        data = path.read_bytes()
        if ending == "zst":
            import zstandard

            packed = zstandard.compress(data)
        else:
            packed = {"gz": gzip, "bz2": bz2}[ending].compress(data)
        path.with_name(f"{path.name}.{ending}").write_bytes(packed)
        path.unlink()
    glob = f"{files}/**/*.{kind}.{ending}"
    assert list(opened(kind, glob)) == expected(kind, 0, 1, 2, 3)
    cached = opened(kind, glob, local=str(tmp_path / "near"), cache_limit=20_000, shuffle=True)
    assert by_id(cached) == by_id(cached) == expected(kind, 0, 1, 2, 3)


def test_a_damaged_copy_of_a_compressed_file_is_unpacked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", str(tmp_path / "cache"))
    data = json_lines(0)
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(data))
    path = str(tmp_path / "x.jsonl.gz")
    assert list(opened("jsonl", path)) == expected("jsonl", 0)
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    [copy] = [file for file in files if file.read_bytes() == data]
    copy.write_bytes(bytes(len(data)))
    dataset = opened("jsonl", path)
    assert list(dataset) == expected("jsonl", 0)
    assert dataset.stats().repairs == 1


@pytest.fixture
def looked(monkeypatch):
    """Names of the files that are scanned."""
    looked = []
    look = scanning.scan_file

    def noting(format_, found, *rest):
        looked.append(found.stored.key)
        return look(format_, found, *rest)

    monkeypatch.setattr("streamplug_files.scan_cache.scan_file", noting)
    return looked


def test_compressed_files_are_scanned_once(tmp_path, kind, looked):
    for number in range(2):
        data = KINDS[kind][0](COUNT * number)
        (tmp_path / f"x-{number}.{kind}.gz").write_bytes(gzip.compress(data))
        assert list(opened(kind, tmp_path)) == expected(kind, *range(number + 1))
    assert looked == [f"x-0.{kind}.gz", f"x-1.{kind}.gz"]


def test_files_are_looked_through_once(files, kind, looked):
    for _ in range(2):
        assert len(opened(kind, f"{files}/a")) == 2 * COUNT
    assert sorted(looked) == [f"x-00.{kind}", f"x-01.{kind}"]
    (files / "a" / f"x-02.{kind}").write_bytes(KINDS[kind][0](2 * COUNT))
    assert list(opened(kind, f"{files}/a")) == expected(kind, 0, 1, 2)
    assert looked[2:] == [f"x-02.{kind}"]


def test_files_that_change_are_noticed(files, kind, tmp_path):
    far, near = f"{files}/a", str(tmp_path / "near")
    assert len(opened(kind, far, local=near)) == 2 * COUNT
    dataset = opened(kind, far)
    path = files / "a" / f"x-00.{kind}"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptShardError, match=f"x-00.{kind} has .* the index says"):
        list(dataset)
    if kind == "jsonl":
        with pytest.raises(CorruptShardError, match=rf"x-00.jsonl.* \(line {COUNT}\): not JSON"):
            list(opened(kind, far))
    path.write_bytes(KINDS[kind][0](0) + b"\n")
    with pytest.raises(CacheConflictError):
        opened(kind, far, local=near)


def test_an_index_beside_the_files_makes_them_a_data_set(files, kind):
    for force in ([], ["--force"]):  # the second takes no index.json for a file of the set
        scan = ["index", "scan", f"{files}/a", "--format", KINDS[kind][1], *force]
        result = CliRunner().invoke(main, scan)
        assert result.exit_code == 0, result.output
    names = {path.name for path in (files / "a").iterdir() if path.is_file()}
    assert names == {"index.json", *(f"x-0{n}.{kind}{end}" for n in "01" for end in ("", ".meta"))}
    assert list(StreamingDataset(local=str(files / "a"), batch_size=8)) == expected(kind, 0, 1)
    with serving(files / "a") as server:
        far = StreamingDataset(remote=server.url, access="range", batch_size=8)
        assert far[COUNT + 1] == expected(kind, 0, 1)[COUNT + 1]


def test_damage_names_file_line_and_column(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"id,text\n1,a\n\nno,b\n")
    dataset = StreamingDataset(remote=str(tmp_path), format="csv:id=int", batch_size=1)
    message = r"x\.csv.*sample 1 \(line 4\): column 'id': not int as text: 'no'"
    with pytest.raises(DecodeError, match=message):
        dataset[1]
    with pytest.raises(DecodeError, match=message):
        list(dataset.batches())


class Length(Encoding):
    def encode(self, value):
        raise NotImplementedError

    def decode(self, data):
        return len(data)


def length(encoding):
    return Length()


def test_columns_are_decoded_as_their_reader_asks(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"a": "12345"}\n{"b": 1}\n{"a": [1, 2]}\n')
    options = {"decoders": {"a": length}, "batch_size": 3}
    dataset = StreamingDataset(remote=str(tmp_path), format="jsonl", **options)
    assert [each["a"] for each in dataset] == [7, 4, 6]
    assert [dataset[i]["a"] for i in range(3)] == [7, 4, 6]


def test_shards_that_were_written_are_read_as_plain_files_too(tmp_path):
    rows = [{"id": i, "text": f"é {i}"} for i in range(COUNT)]
    for writer, name in ((JSONLWriter, "jsonl"), (CSVWriter, "csv:id=int")):
        folder = tmp_path / name
        with writer(out=folder, columns={"id": "int", "text": "str"}, size_limit=200) as out:
            for each in rows:
                out.write(each)
        remote = f"{folder}/shard.*.{'json' if name == 'jsonl' else 'csv'}"
        assert list(StreamingDataset(remote=remote, format=name, batch_size=8)) == rows


def test_files_whose_names_end_in_upper_case_are_read_with_the_others(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id\n1\n")
    (tmp_path / "B.CSV").write_bytes(b"id\n2\n")
    (tmp_path / "C.CSV.GZ").write_bytes(gzip.compress(b"id\n3\n"))
    whole = StreamingDataset(remote=str(tmp_path), format="csv:id=int", batch_size=1)
    assert sorted(sample["id"] for sample in whole) == [1, 2, 3]
    for name, number in (("B.CSV", 2), ("C.CSV.GZ", 3)):
        single = StreamingDataset(remote=str(tmp_path / name), format="csv:id=int", batch_size=1)
        assert list(single) == [{"id": number}]
    printed = CliRunner().invoke(main, ["cat", str(tmp_path / "B.CSV")])
    assert printed.output.endswith('{"id": "2"}\n')


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_files_without_lines_of_json_are_empty_parts_of_a_data_set(tmp_path, content):
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "b.jsonl").write_bytes(b'{"id": 1}')
    dataset = StreamingDataset(remote=str(tmp_path), format="jsonl", batch_size=1)
    assert list(dataset) == [{"id": 1}]
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(InvalidIndexError, match="no line has a key, so the names of columns"):
        StreamingDataset(remote=str(tmp_path), format="jsonl", batch_size=1)


def test_objects_without_keys_are_samples_beside_those_with_keys(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    with pytest.raises(InvalidIndexError, match=r"a\.jsonl: no line has a key"):
        StreamingDataset(remote=str(tmp_path), format="jsonl", batch_size=1)
    (tmp_path / "b.jsonl").write_text('{"id": 1}')
    dataset = StreamingDataset(remote=str(tmp_path), format="jsonl", batch_size=1)
    assert list(dataset) == [{"id": None}, {"id": None}, {"id": 1}]
