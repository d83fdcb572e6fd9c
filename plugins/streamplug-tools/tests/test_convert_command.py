from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_tools.commands.options import parse_encodings

from streamplug import MDSWriter, StreamingDataset
from streamplug.cli import main
from streamplug.plugin import open_storage

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))


@pytest.fixture
def source(tmp_path):
    columns = {"id": "int", "text": "str", "v": "ndarray:int16:2,2"}
    with MDSWriter(columns=columns, out=tmp_path / "source", size_limit=2000) as writer:
        for n in range(100):
            writer.write({"id": n, "text": f"text {n}", "v": np.full((2, 2), n, np.int16)})
    return str(tmp_path / "source")


def run(*arguments):
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_a_set_is_written_again(source, tmp_path):
    result = run(source, tmp_path / "out")
    assert result.exit_code == 0
    assert result.stdout == (
        f"{tmp_path}/out: written; 1 shard, 100 samples, {size(tmp_path / 'out'):,} bytes\n"
    )
    assert StreamingDataset(local=str(tmp_path / "out/part-00000"))[7]["text"] == "text 7"


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("shard.*"))


def test_all_options_have_an_effect(source, tmp_path):
    options = ["--columns", "n:int32,v:ndarray:int16:2,2", "--rename", "id=n", "--drop", "text"]
    options += ["--compression", "gz:9", "--hashes", "sha1, xxh64", "--size-limit", "1kb", "--json"]
    options += ["--processes", "0", "--format", "mds", "--storage-options", "{}", "--exist-ok"]
    result = run(source, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {**told, "bytes": 0} == {
        "url": f"{tmp_path}/out",
        "shards": told["shards"],
        "samples": 100,
        "bytes": 0,
        "bad": [],
    }
    entry = json.loads((tmp_path / "out/index.json").read_bytes())["shards"][0]
    assert entry["column_encodings"] == ["int32", "ndarray:int16:2,2"]
    assert entry["column_names"] == ["n", "v"]
    assert (entry["compression"], entry["hashes"]) == ("gz:9", ["sha1", "xxh64"])
    assert told["shards"] > 1


def test_digests_are_those_of_the_source_others_or_none(source, tmp_path):
    for name, asked, expected in (
        ("same", [], ["xxh3_64"]),
        ("other", ["--hashes", "sha1"], ["sha1"]),
        ("none", ["--hashes", "none"], []),
    ):
        assert run(source, tmp_path / name, *asked).exit_code == 0
        [entry] = json.loads((tmp_path / name / "index.json").read_bytes())["shards"]
        assert (entry["hashes"], list(entry["raw_data"]["hashes"])) == (expected, expected)


def test_types_may_have_commas_and_colons():
    texts = ["a:struct<x: int64, y: list<decimal128(38, 9)>>,b:int8", "v:ndarray:int16:2,2"]
    assert parse_encodings(texts) == {
        "a": "struct<x: int64, y: list<decimal128(38, 9)>>",
        "b": "int8",
        "v": "ndarray:int16:2,2",
    }


def test_errors_name_options(source, tmp_path):
    for arguments, said in (
        (["--size-limit", "many"], "Invalid value for '--size-limit': 'many': expected bytes"),
        (["--drop", "ids"], "error: --drop=['ids']: the data set has no"),
        (["--columns", "ids:int"], "error: --columns=['ids']: the new data set has no"),
    ):
        result = run(source, tmp_path / "out", *arguments)
        assert result.exit_code != 0
        assert said in result.stderr


def test_errors_are_one_line(source, tmp_path):
    for arguments, said in (
        (["--columns", "id"], "--columns 'id': expected NAME:ENCODING, such as text:str"),
        (["--rename", "id:n"], "--rename 'id:n': expected"),
        (["--select", "ids"], "Did you mean 'id'"),
        (["--storage-options", "{"], "--storage-options: not JSON"),
        (["--storage-options", "[]"], "expected a JSON object"),
        (["--format", "nothing"], "unknown format 'nothing'"),
    ):
        result = run(source, tmp_path / "out", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("error: ")
        assert said in result.stderr
    assert "index.json does not exist" in run(tmp_path / "none", tmp_path / "out").stderr
    assert not (tmp_path / "out").exists()
    run(source, tmp_path / "out")
    again = run(source, tmp_path / "out", "--drop", "id")
    assert "already holds a data set" in again.stderr
    assert run(source, tmp_path / "out", "--drop", "id", "--exist-ok").exit_code == 0


@pytest.mark.parametrize("seed", range(10 if SOAK else 1))
def test_killed_conversions_go_on_and_end_with_the_same_bytes(tmp_path, seed):
    """Of a source that is compressed, so that there are temporary files, too."""
    columns, temporary = {"id": "int", "text": "str"}, tmp_path / "tmp"
    temporary.mkdir()
    with MDSWriter(
        columns=columns, out=tmp_path / "source", size_limit="10kb", compression="gz"
    ) as writer:
        for n in range(10_000):
            writer.write({"id": n, "text": "x" * (n % 17)})
    options = ["--size-limit", "2kb", "--processes", "2" if SOAK else "0", "--hashes", "sha1"]

    def convert(out):
        # A fork has imported what it needs already.
        arguments = [str(tmp_path / "source"), str(out), *options]
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_convert, args=(arguments, str(temporary)))
        process.start()
        return process

    def finish(out):
        process = convert(out)
        process.join(120)
        assert process.exitcode == 0

    finish(tmp_path / "undisturbed")
    killed = 0
    expected, rng = content(tmp_path / "undisturbed"), random.Random(seed)
    assert sum(name.endswith("/index.json") for name in expected) > 10
    for kill in range(5 if SOAK else 3):
        out = tmp_path / "out" / str(kill)
        process = convert(out)
        deadline, parts = time.monotonic() + 120, rng.randrange(10)
        while len(list(out.glob("part-*/index.json"))) < parts and time.monotonic() < deadline:
            time.sleep(0.001)
        while not (out / "parts.json").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGKILL)
        process.join(120)
        killed += process.exitcode == -signal.SIGKILL
        finish(out)
        assert content(out) == expected
        assert list(temporary.glob("*/*")) == []
    assert killed


def _convert(arguments, temporary):
    os.setsid()
    os.environ["TMPDIR"], tempfile.tempdir = temporary, None
    main(["convert", *arguments])


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def test_formats_of_files_without_an_index_are_detected_and_named(tmp_path):
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "a.jsonl").write_text('{"a": 1}\n')
    for source in (lines, lines / "a.jsonl"):
        done = CliRunner().invoke(main, ["cat", str(source)])
        assert (done.exit_code, done.stdout) == (0, '{"a": 1}\n'), done.output
        assert f"{source}: read as jsonl" in done.stderr
    (lines / "b.csv").write_text("a\n1\n")
    done = CliRunner().invoke(main, ["cat", str(lines)])
    assert done.exit_code == 2
    assert "jsonl (1), csv (1); choose one by --src-format" in done.stderr
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(main, ["cat", str(tmp_path / "empty")])
    assert "no files of a format that is known" in done.stderr


def test_the_line_that_names_the_format_shows_no_credentials():
    open_storage("memory://me:secret@host/detected").write("a.jsonl", b'{"a": 1}\n')
    done = CliRunner().invoke(main, ["cat", "memory://me:secret@host/detected"])
    assert (done.exit_code, done.stdout) == (0, '{"a": 1}\n'), done.output
    assert done.stderr.startswith("memory://host/detected: read as jsonl")


def test_an_index_of_another_library_is_recognized(tmp_path):
    pytest.importorskip("streamplug_litdata")
    chunks = tmp_path / "chunks"
    chunks.mkdir()
    (chunks / "index.json").write_text('{"chunks": [], "config": {}}')
    done = CliRunner().invoke(main, ["inspect", str(chunks)])
    assert f"{chunks}: read as litdata, since its index.json begins with 'chunks'" in done.stderr
    (chunks / "index.json").write_text('{"pieces": []}')
    done = CliRunner().invoke(main, ["inspect", str(chunks)])
    assert "read as" not in done.stderr
    assert "is not a data set's index" in done.stderr
