"""Samples that cannot be read, computed or stored are named, or left out."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_tools import (
    BadSample,
    Columns,
    Output,
    convert,
    delete,
    join,
    process,
    process_with,
    select,
    sort,
)
from streamplug_tools.bad_samples import BadSampleError

from streamplug import Stream, Writer
from streamplug.cli import main
from streamplug.errors import StreamplugError, WriterError

DAMAGED = (30, 31, 77)
"""Samples whose text is not UTF-8."""
ROWS = 20
"""Samples of a shard."""


@pytest.fixture
def source(tmp_path):
    """A data set of 100 samples, of which some are damaged."""
    with Writer(
        columns={"id": "int", "text": "str", "raw": "bytes"},
        out=tmp_path / "source",
        max_samples_per_shard=ROWS,
        hashes=[],
    ) as writer:
        for n in range(100):
            raw = b"\xff" if n == 5 else b"x"
            writer.write({"id": n, "text": f"<{n:04d}>", "raw": raw})
    for n in DAMAGED:
        path = tmp_path / "source" / f"shard.{n // ROWS:05d}.mds"
        path.write_bytes(path.read_bytes().replace(f"<{n:04d}>".encode(), b"<\xff\xff\xff\xff>"))
    return tmp_path / "source"


def to(place, **options):
    return Output(place, **{"size_limit": 400, "processes": 0, **options})


def places(bad):
    return [(one.file.rpartition("/")[2], one.row) for one in bad]


EXPECTED = [(f"shard.{n // ROWS:05d}.mds", n % ROWS) for n in DAMAGED]


@pytest.mark.parametrize("processes", [0, 2])
def test_damaged_samples_are_left_out_and_listed(source, tmp_path, read, processes):
    # Reading as text, not copying the stored bytes.
    columns = Columns(encodings={"text": "json"})
    out = to(tmp_path / "out", processes=processes)
    written = convert(source, out, columns=columns, skip_bad=3)
    assert places(written.bad) == EXPECTED
    assert all("not UTF-8" in one.reason for one in written.bad)
    kept = [n for n in range(100) if n not in DAMAGED]
    assert read(tmp_path / "out")["id"].tolist() == kept
    assert written.samples == len(kept)
    reports = sorted((tmp_path / "out" / "failures").glob("*.json"))
    listed = [
        BadSample(**one) for path in reports for one in json.loads(path.read_bytes())["failed"]
    ]
    assert listed == list(written.bad)
    assert convert(source, out, columns=columns, skip_bad=3) == written  # it is kept
    assert not delete(tmp_path / "out").kept


def test_too_many_are_an_error_and_a_larger_number_goes_on(source, tmp_path):
    columns, out = Columns(encodings={"text": "json"}), to(tmp_path / "out")
    with pytest.raises(
        WriterError, match=r"^2 samples were left out before; .*shard\.00003\.mds, row 17"
    ):
        convert(source, out, columns=columns, skip_bad=2)
    assert not (tmp_path / "out" / "index.json").exists()
    finished = {path: path.stat().st_ino for path in (tmp_path / "out").glob("part-*/index.json")}
    assert finished
    assert places(convert(source, out, columns=columns, skip_bad=3).bad) == EXPECTED
    assert {path: path.stat().st_ino for path in finished} == finished


@pytest.mark.parametrize("processes", [0, 2])
def test_samples_that_an_earlier_call_left_out_are_an_error_without_skip_bad(
    source, tmp_path, read, processes
):
    columns = Columns(encodings={"text": "json"})
    out = to(tmp_path / "out", processes=processes)
    convert(source, out, columns=columns, skip_bad=3)
    with pytest.raises(BadSampleError, match=r"shard\.00001\.mds, row 10: .*not UTF-8"):
        convert(source, out, columns=columns)
    # A part that is written again without loss has no report.
    for n in DAMAGED:
        path = source / f"shard.{n // ROWS:05d}.mds"
        status = path.stat()
        path.write_bytes(path.read_bytes().replace(b"<\xff\xff\xff\xff>", f"<{n:04d}>".encode(), 1))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for index in (tmp_path / "out").glob("part-*/index.json"):
        index.unlink()
    assert convert(source, out, columns=columns).samples == 100
    assert not list((tmp_path / "out").glob("failures/*"))
    assert read(tmp_path / "out")["id"].tolist() == list(range(100))


@pytest.mark.parametrize(
    ("job", "named"),
    [
        (lambda s, o: convert(s, o, columns=Columns(encodings={"text": "json"})), (1, 10)),
        (
            lambda s, o: convert(s, o, columns=Columns(drop=["text"], encodings={"raw": "str"})),
            (0, 0),
        ),
        (lambda s, o: sort(s, o, "text"), (1, 10)),
        (lambda s, o: select(s, o, "1 // (id - 63) < 9", columns=Columns(drop=["text"])), (3, 3)),
        (
            lambda s, o: process(s, o, {"id": "1 // (id - 63)"}, columns=Columns(drop=["text"])),
            (3, 3),
        ),
        (lambda s, o: join([s, s], o, "text", columns=Columns(select=["id"])), None),
    ],
)
def test_errors_name_the_file_and_the_row(source, tmp_path, job, named):
    with pytest.raises(StreamplugError) as caught:
        job(source, to(tmp_path / "out"))
    if named is not None:
        shard, row = named
        assert str(caught.value).startswith(f"{source}/shard.{shard:05d}.mds, row {row}: ")
    assert "of the new data set" not in str(caught.value)


@pytest.mark.parametrize(
    "job",
    [
        lambda s, o: convert(s, o, columns=Columns(encodings={"text": "json"})),
        lambda s, o: sort(s, o, "text"),
        lambda s, o: select(s, o, "len(text) > 3"),
        lambda s, o: process(s, o, {"raw": "text.encode()"}),
        lambda s, o: process_with(s, o, [sys.executable, "-c", ""]),
    ],
)
def test_errors_name_the_file_the_row_and_the_column_once(source, tmp_path, job):
    with pytest.raises(StreamplugError) as caught:
        job(source, to(tmp_path / "out"))
    place = f"{source}/shard.00001.mds, row 10: DecodeError: column 'text': not UTF-8"
    assert str(caught.value).startswith(place)
    assert str(caught.value).count("shard") == 1
    assert "sample 10" not in str(caught.value)


@pytest.mark.parametrize(
    "job", [lambda s, o: sort(s, o, "x"), lambda s, o: process(s, o, {"x": "1"})]
)
def test_errors_of_a_file_of_lines_name_it_once(tmp_path, job):
    pytest.importorskip("streamplug_text")
    lines = [f'{{"id": {n}, "x": {n}}}\n' for n in range(20)]
    lines[13] = '{"id": 13, "x": {\n'
    (tmp_path / "a.jsonl").write_text("".join(lines))
    source = Stream(remote=str(tmp_path / "a.jsonl"), local=str(tmp_path / "near"), format="jsonl")
    with pytest.raises(StreamplugError) as caught:
        job(source, to(tmp_path / "out", format="mds"))
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/a.jsonl, row 13: CorruptShardError: line 14: not JSON")
    assert str(tmp_path) not in said.removeprefix(str(tmp_path))


def test_samples_without_a_partner_are_kept_if_the_first_of_others_is_bad(tmp_path, read):
    left, right = tmp_path / "left", tmp_path / "right"
    for place, ids, columns in (
        (left, range(6), {"id": "int"}),
        (right, (1, 3), {"id": "int", "text": "json"}),
    ):
        with Writer(columns=columns, out=place, hashes=[]) as writer:
            for n in ids:
                sample = {"id": n, "text": f"text {n}"}
                writer.write({name: sample[name] for name in columns})
    shard = right / "shard.00000.mds"
    shard.write_bytes(shard.read_bytes().replace(b'"text 1"', b"'text 1'"))
    joined = join([left, right], to(tmp_path / "out"), "id", how="left", skip_bad=1)
    assert places(joined.bad) == [("shard.00000.mds", 0)]
    found = read(tmp_path / "out")
    assert found["id"].tolist() == [0, 2, 3, 4, 5]
    assert found["text"] == [None, None, "text 3", None, None]


def test_expressions_that_fail_leave_samples_out(source, tmp_path, read):
    columns = Columns(drop=["text"])
    chosen = select(source, to(tmp_path / "a"), "10 // (id - 63) == 0", columns=columns, skip_bad=1)
    assert places(chosen.bad) == [("shard.00003.mds", 3)]
    assert read(tmp_path / "a")["id"].tolist() == [n for n in range(100) if n > 73]
    made = process(
        source, to(tmp_path / "b"), {"id": "10 // (id - 63)"}, columns=columns, skip_bad=1
    )
    assert places(made.bad) == [("shard.00003.mds", 3)]
    assert read(tmp_path / "b")["id"].tolist() == [10 // (n - 63) for n in range(100) if n != 63]


def test_values_that_cannot_be_stored_are_left_out(source, tmp_path, read):
    columns = Columns(drop=["text"], encodings={"raw": "utf8"})
    made = process(
        source,
        to(tmp_path / "out"),
        {"number": "id if id % 50 else 'none'"},
        columns=Columns(drop=["text", "raw"], encodings={"number": "int"}),
        skip_bad=5,
    )
    assert columns.drop == ["text"]
    assert places(made.bad) == [("shard.00000.mds", 0), ("shard.00002.mds", 10)]
    assert all("EncodeTypeError: column 'number'" in one.reason for one in made.bad)
    assert read(tmp_path / "out")["number"].tolist() == [n for n in range(100) if n % 50]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_bad_keys_of_a_join_are_left_out(source, tmp_path, read, write, how):
    other = write(
        tmp_path / "other",
        range(100),
        {"key": "str", "half": "json"},
        lambda n: {"key": f"<{n:04d}>", "half": n // 2},
    )
    with pytest.raises(StreamplugError, match="'text'"):
        join([source, other], to(tmp_path / "out"), "text", skip_bad=3)
    process(
        other,
        to(tmp_path / "named"),
        {"text": "key"},
        columns=Columns(drop=["key"], encodings={"text": "str"}),
    )
    written = join([source, tmp_path / "named"], to(tmp_path / "out"), "text", how=how, skip_bad=3)
    assert places(written.bad) == EXPECTED
    kept = [n for n in range(100) if n not in DAMAGED]
    found = read(tmp_path / "out")
    assert found["id"].tolist() == kept
    assert list(found["half"]) == [n // 2 for n in kept]


def test_a_program_reads_only_good_samples(source, tmp_path, read):
    code = "import sys; sys.stdout.writelines(sys.stdin)"
    written = process_with(
        source,
        to(tmp_path / "out"),
        [sys.executable, "-c", code],
        columns=Columns(drop=["raw"]),
        skip_bad=3,
    )
    assert places(written.bad) == EXPECTED
    assert len(read(tmp_path / "out")["id"]) == 97


def test_the_command_lists_what_it_leaves_out(source, tmp_path):
    def run(*options):
        given = ["convert", str(source), str(tmp_path / "out"), "--columns", "text:json"]
        return CliRunner().invoke(main, [*given, "--processes", "0", *options])

    refused = run()
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: {source}/shard.00001.mds, row 10: DecodeError: ")
    assert refused.stderr.endswith("; --skip-bad leaves out that many such samples\n")
    done = run("--skip-bad", "3")
    assert done.exit_code == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["left out"] * 3
    assert f"{source}/shard.00003.mds, row 17: DecodeError: " in lines[2]
    bad = json.loads(run("--skip-bad", "3", "--json").stdout)["bad"]
    assert [(one["file"].rpartition("/")[2], one["row"]) for one in bad] == EXPECTED
    assert bad[0].keys() == {"file", "row", "reason"}


def test_numbers_of_samples_of_parts():
    from streamplug_tools.part_sizes import samples_per_part

    limit = 1 << 26
    for total_mb, parts in ((1, 1), (64, 2), (300, 6), (512, 9), (2000, 12), (100_000, 218)):
        size = total_mb * 1024
        assert -(-size // samples_per_part(size, 1024, limit, None)) == parts
        assert -(-size // samples_per_part(size, 1024, limit, 4)) >= 4
    assert samples_per_part(0, 10, limit, 4) == 1
    assert samples_per_part(3, 10, limit, 4) == 1
    assert samples_per_part(10**8, 4, limit, None) <= 1 << 20
    assert samples_per_part(10, 10**9, limit, None) == 1
    assert np.all([samples_per_part(n, 7, 50, None) >= 1 for n in range(50)])


def test_small_jobs_are_divided_among_the_processes_that_are_chosen(tmp_path, write, read):
    source = write(tmp_path / "source", range(50))
    for processes, parts in ((None, 1), (2, 2), (3, 3)):
        out = tmp_path / f"out-{processes}"
        convert(source, Output(out, processes=processes))
        assert len(list(out.glob("part-*"))) == parts
        assert read(out)["id"].tolist() == list(range(50))
