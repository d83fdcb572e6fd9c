"""The commands on whole data sets, as a user runs them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_testing.http import serving

from streamplug import MDSWriter, StreamingDataset
from streamplug.cli import main

WRITES = {
    "cat": ["{0}", "--out", "{out}"],
    "convert": ["{0}", "{out}"],
    "dedup": ["{0}", "{out}", "--by", "id"],
    "join": ["{0}", "{1}", "--by", "id", "--out", "{out}"],
    "proc": ["{0}", "{out}", "--set", "id=id + 1"],
    "select": ["{0}", "{out}", "--where", "id % 2"],
    "shuffle": ["{0}", "{out}"],
    "sort": ["{0}", "{out}", "--by", "-id"],
    "split": ["{0}", "{out}", "--fractions", "a=0.5, b=0.5"],
}
"""Commands that write, and what they are given."""


@pytest.fixture
def sets(tmp_path):
    """Two sets of 100 samples, without a column in common but the key."""
    for number, columns in enumerate(({"id": "int", "text": "str"}, {"id": "int", "half": "int"})):
        with MDSWriter(columns=columns, out=tmp_path / f"{number}", size_limit=1000) as writer:
            for n in range(100):
                sample = {"id": n, "text": f"text {n}", "half": n // 2}
                writer.write({name: sample[name] for name in columns})
    return [str(tmp_path / "0"), str(tmp_path / "1")]


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def written(command, sets, out, *options):
    given = [text.format(*sets, out=out) for text in WRITES[command]]
    return run(command, *given, *options)


def ids(place):
    return [json.loads(line)["id"] for line in run("cat", place).stdout.splitlines()]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat", range(100)),
        ("convert", range(100)),
        ("dedup", range(100)),
        ("join", range(100)),
        ("proc", range(1, 101)),
        ("select", range(1, 100, 2)),
        ("sort", range(99, -1, -1)),
    ],
)
def test_a_command_writes_what_it_says(sets, tmp_path, command, expected):
    result = written(command, sets, tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{tmp_path}/out: written; ")
    assert f" {len(expected)} samples, " in result.stdout
    assert ids(tmp_path / "out") == list(expected)


def test_shuffle_has_a_seed(sets, tmp_path):
    found = []
    for number, seed in enumerate((0, 1, 1)):
        written("shuffle", sets, tmp_path / f"out{number}", "--seed", seed)
        found.append(ids(tmp_path / f"out{number}"))
    assert found[0] != found[1] == found[2]
    assert sorted(found[0]) == list(range(100))


def test_split_makes_sets_by_fractions_samples_or_bytes(sets, tmp_path):
    result = written("split", sets, tmp_path / "a", "--json", "--seed", 3)
    assert {name: set_["samples"] for name, set_ in json.loads(result.stdout).items()} == {
        "a": 50,
        "b": 50,
    }
    assert sorted(ids(tmp_path / "a/a") + ids(tmp_path / "a/b")) == list(range(100))
    result = run("split", sets[0], tmp_path / "b", "--samples", "70")
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
        f"{tmp_path}/b/00000",
        f"{tmp_path}/b/00001",
    ]
    assert ids(tmp_path / "b/00001") == list(range(70, 100))
    result = run("split", sets[0], tmp_path / "c", "--bytes", "1kb")
    assert len(result.stdout.splitlines()) > 2
    for options in ([], ["--samples", 3, "--bytes", 3]):
        assert run("split", sets[0], tmp_path / "d", *options).exit_code == 2
    refused = run("split", sets[0], tmp_path / "d", "--fractions", "a=half")
    assert refused.stderr.startswith("error: --fractions 'a=half': could not convert")


def test_split_refuses_data_sets_of_an_earlier_split_beside_its_own(sets, tmp_path):
    out, source = tmp_path / "out", sets[0]
    before = run("split", source, out, "--samples", "30")
    count = len(before.stdout.splitlines())
    for _ in range(2):
        refused = run("split", source, out, "--samples", "70", "--exist-ok")
        assert refused.exit_code == 2
        assert f"{out}/00002 was not written by this command but before it" in refused.stderr
    for number in range(2, count):
        shutil.rmtree(out / f"{number:05d}")
    assert run("split", source, out, "--samples", "70", "--exist-ok").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["split", "{0}", "{out}", "--samples", "70", "--seed", "0"],
            "--seed: only with --fractions",
        ),
        (["inspect", "{0}", "--measured", "9"], "--measured: only with --html"),
        (["inspect", "{0}", "--allow-unsafe-types"], "--allow-unsafe-types: only with --html"),
    ],
)
def test_options_without_an_effect_are_refused(sets, tmp_path, arguments, words):
    refused = run(*(text.format(*sets, out=tmp_path / "out") for text in arguments))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"Error: {words}\n" in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["cat", "{0}", "--select", ""], "no column is left to print; take fewer of them away"),
        (
            ["cat", "{0}", "--drop", "id,text"],
            "no column is left to print; take fewer of them away",
        ),
        (["convert", "{0}", "{out}", "--select", ","], "no column is left to write; take fewer of"),
        (["convert", "{0}", "{out}", "--hashes", ""], "--hashes '': expected names of algorithms"),
    ],
)
def test_options_without_a_name_do_not_stand_for_all(sets, tmp_path, options, words):
    refused = run(*(text.format(*sets, out=tmp_path / "out") for text in options))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: {words}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "values", "advice"),
    [
        ("select --where", ["id > 3", "id < 6"], "join conditions by 'and' or 'or'"),
        ("sort --by", ["text", "id"], "a tuple is a key of several values, such as '(a, b)'"),
        ("split --fractions", ["train=0.9", "val=0.1"], "separate shares by commas"),
        ("convert --hashes", ["sha1", "xxh64"], "separate names by commas"),
    ],
)
def test_options_of_which_the_last_would_win_are_given_once(
    sets, tmp_path, command, values, advice
):
    name, option = command.split()
    refused = run(name, sets[0], tmp_path / "out", option, values[0], option, values[1])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"Error: {option} is given 2 times; give it once: {advice}\n" in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fractions", ["a=0", "a=0.6,b=0.5", "a=-1"])
def test_shares_of_nothing_or_of_more_than_all_are_refused(sets, tmp_path, fractions):
    refused = run("split", sets[0], tmp_path / "out", "--fractions", fractions)
    assert refused.exit_code == 2
    words = "each must be 0 or more, and their sum more than 0 and at most 1\n"
    assert refused.stderr.endswith(words)
    assert refused.stderr.startswith("error: --fractions={")


@pytest.mark.parametrize("name", [".", "..", "../a", "a/b", "a\\b"])
def test_split_writes_below_its_directory(sets, tmp_path, name):
    refused = run("split", sets[0], tmp_path / "out", "--fractions", f"{name}=1")
    assert refused.exit_code == 2
    assert f"{name!r} is not the name of a directory in OUT" in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["split", "--fractions", "id=0.5,id=0.5"],
        ["convert", "--rename", "id=a,id=b"],
        ["proc", "--set", "id=id + 1", "--set", "id=id + 2"],
        ["convert", "--columns", "id:int32", "--columns", "id:int16"],
    ],
)
def test_a_name_may_not_be_given_twice(sets, tmp_path, options):
    command, *options = options
    refused = run(command, sets[0], tmp_path / "out", *options)
    assert refused.exit_code == 2
    assert f"error: {options[0]}: 'id' is given twice" in refused.stderr


def test_proc_goes_through_a_program(sets, tmp_path):
    code = "import sys; [print(line, end='') for line in sys.stdin if '5' in line]"
    result = run("proc", sets[0], tmp_path / "out", "--", sys.executable, "-c", code)
    assert result.exit_code == 0, result.output
    assert ids(tmp_path / "out") == [n for n in range(100) if "5" in str(n)]
    assert run("proc", sets[0], tmp_path / "no").exit_code == 2
    assert run("proc", sets[0], tmp_path / "no", "--set", "a=1", "--", "cat").exit_code == 2
    assert "expected NAME=EXPRESSION" in run("proc", sets[0], tmp_path / "no", "--set", "a").stderr


def test_sort_may_begin_with_the_largest(sets, tmp_path):
    run("sort", sets[0], tmp_path / "out", "--by", "len(text)", "--descending", "--select", "id")
    assert ids(tmp_path / "out") == [*range(10, 100), *range(10)]


def test_cat_prints_samples(sets):
    result = run("cat", *sets[:1], sets[0], "--begin", "99", "--end", "102", "--drop", "text")
    assert result.stdout == '{"id": 99}\n{"id": 0}\n{"id": 1}\n'
    assert run("cat", sets[0], "--end", "1", "--select", "text").stdout == '{"text": "text 0"}\n'
    assert run("cat", sets[0], "--end", "1", "--traceback").exit_code == 0
    refused = run("cat", sets[0], "--format", "mds", "--json")
    assert refused.exit_code == 2
    assert "--format, --json: only with --out" in refused.stderr


def test_cat_and_inspect_print_null_for_numbers_that_json_lacks(tmp_path):
    columns = {"f": "float64", "a": "ndarray:float64", "j": "json", "s": "str"}
    odd = [float("nan"), float("inf"), float("-inf")]
    with MDSWriter(out=tmp_path / "set", columns=columns) as out:
        for number in (*odd, 0.5):
            out.write({"f": number, "a": np.array([number, 1]), "j": [number], "s": "NaN \x9b"})
    shown = run("cat", tmp_path / "set").stdout.splitlines()
    expected = [*(3 * ['{"a": [null, 1.0], "f": null, "j": [null], "s": "NaN \\u009b"}'])]
    expected += ['{"a": [0.5, 1.0], "f": 0.5, "j": [0.5], "s": "NaN \\u009b"}']
    assert shown == expected
    inspected = run("inspect", tmp_path / "set", "--samples", "4", "--json").stdout
    assert json.loads(inspected)["first"] == [json.loads(line) for line in expected]
    program = ["--", sys.executable, "-c", "import sys; sys.stdout.writelines(sys.stdin)"]
    assert run("proc", tmp_path / "set", tmp_path / "out", *program).exit_code == 0
    numbers = [sample["f"] for sample in StreamingDataset(local=str(tmp_path / "out"))[:]]
    np.testing.assert_array_equal(numbers, [*odd, 0.5])


def test_cat_joins_sets_end_to_end(sets, tmp_path):
    result = run("cat", sets[0], sets[0], "-o", tmp_path / "out", "--begin", "90", "--json")
    assert json.loads(result.stdout)["samples"] == 110
    assert ids(tmp_path / "out") == [*range(90, 100), *range(100)]


def test_diff_tells_what_differs_by_its_status(sets, tmp_path):
    same = run("diff", sets[0], sets[0])
    assert (same.exit_code, same.stdout) == (0, "100 samples compared: 0 differ\n")
    run("proc", sets[0], tmp_path / "out", "--set", "text=text if id < 98 else 'other'")
    run("cat", tmp_path / "out", "-o", tmp_path / "short", "--end", "99", "--columns", "id:int32")
    other = run("diff", sets[0], tmp_path / "short", "--max-differences", "1")
    assert other.exit_code == 1
    assert other.stdout.splitlines() == [
        f"column id is int in {sets[0]}, int32 in {tmp_path}/short",
        f"{sets[0]} has 100 samples, {tmp_path}/short has 99",
        "sample 98 differs in text",
        "99 samples compared: 1 differ",
    ]
    told = json.loads(run("diff", sets[0], tmp_path / "short", "--json", "--values").stdout)
    assert (told["same"], told["encodings"], told["samples"]) == (False, {}, [100, 99])
    assert told["first"] == [{"sample": 98, "columns": ["text"]}]
    only = run("diff", *sets)
    assert f"only {sets[0]} has the columns text\n" in only.stdout


def test_inspect_tells_what_a_set_is(sets):
    result = run("inspect", sets[0], "--samples", "2")
    assert result.exit_code == 0, result.output
    words = [line.split() for line in result.stdout.splitlines()]
    for line in (["samples", "100"], ["format", "mds"], ["text", "str"], ["1", "text", "1"]):
        assert line in words
    told = json.loads(run("inspect", sets[0], "--samples", "0", "--json").stdout)
    assert (told["samples"], told["kinds"][0]["columns"]["text"]) == (100, "str")
    assert told["first"] == []


@pytest.mark.parametrize("command", WRITES)
def test_what_is_not_there_and_what_is_there_already_is_told_in_a_line(sets, tmp_path, command):
    missing = written(command, [str(tmp_path / "none")] * 2, tmp_path / "out")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr.startswith(f"error: {tmp_path}/none/index.json does not exist")
    unknown = written(command, sets, tmp_path / "out", "--select", "ids")
    assert "Did you mean 'id'" in unknown.stderr
    assert not (tmp_path / "out").exists()
    assert written(command, sets, tmp_path / "out").exit_code == 0
    there = written(command, sets, tmp_path / "out", "--drop", "text")
    assert (there.exit_code, there.stdout) == (2, "")
    assert there.stderr.startswith(f"error: {tmp_path}/out")
    assert "already holds a data set" in there.stderr
    assert written(command, sets, tmp_path / "out", "--drop", "text", "--exist-ok").exit_code == 0


def test_inspect_prints_no_other_json_than_its_error(tmp_path):
    with MDSWriter(out=str(tmp_path / "set"), columns={"about": "json"}) as out:
        for number in range(4):
            out.write({"about": f"sample {number}"})
    shard = tmp_path / "set" / "shard.00000.mds"
    shard.write_bytes(shard.read_bytes().replace(b'"sample 3"', b"{sample 3}"))
    result = run("inspect", tmp_path / "set", "--samples", 4, "--json")
    assert result.exit_code == 2
    printed = json.loads(result.stdout)  # one object, which is the error
    assert "sample 3, column 'about'" in printed.pop("error")
    assert printed == {}
    assert len(json.loads(run("inspect", tmp_path / "set", "--json").stdout)["first"]) == 3


@pytest.mark.parametrize("command", ["diff", "inspect"])
def test_what_is_not_there_is_told_in_a_line(tmp_path, command):
    missing = run(command, *[tmp_path / "none"] * (2 if command == "diff" else 1))
    assert missing.exit_code == 2
    assert missing.stderr.startswith(f"error: {tmp_path}/none/index.json does not exist")


def test_it_works_as_a_program_and_may_be_left(sets):
    command = [sys.executable, "-m", "streamplug", "cat", *sets[:1] * 200]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b'{"id": 0, "text": "text 0"}\n'
        process.stdout.close()
        assert process.wait(60) == 0
        assert b"Traceback" not in process.stderr.read()


def test_only_the_columns_that_are_selected_must_be_in_all_sets(sets, tmp_path):
    printed = run("cat", *sets, "--select", "id").stdout.splitlines()
    assert [json.loads(line)["id"] for line in printed] == [*range(100), *range(100)]
    assert run("cat", *sets, "--select", "id", "-o", tmp_path / "a").exit_code == 0
    assert len(ids(tmp_path / "a")) == 200
    options = ["--select", "id", "--where", "id > 97"]
    assert run("select", sets[0], tmp_path / "b", *options).exit_code == 0
    for options in ([], ["--select", "id,text"], ["--drop", "id"]):
        failed = run("cat", *sets, *options)
        assert failed.exit_code == 2
        assert "only some have the columns" in failed.stderr


# -- memory ---------------------------------------------------------------------------

LIMITED = """
    import resource, sys, threading
    from pathlib import Path
    import numpy as np
    from streamplug import Writer
    from streamplug.cli import main
    import aiohttp, streamplug_fsspec.http
    import streamplug_tools.commands.cat, streamplug_tools.commands.inspect, streamplug_tools

    # A stack counts as a whole, of which next to nothing is ever used.
    threading.stack_size(1 << 19)

    home, size = Path(sys.argv[1]), 1 << 16
    # Of small shards, as some are fetched at once.
    for name, column, limit in (("a", "x", "1mb"), ("b", "y", "200kb")):
        columns = {"id": "int", column: "bytes"}
        with Writer(columns=columns, out=home / name, size_limit=limit) as writer:
            for n in range(1200):
                writer.write({"id": n * 7 % 1200, column: bytes([n % 256]) * size})
    used = next(line for line in Path("/proc/self/status").open() if line.startswith("VmData"))
    for line in sys.stdin:
        if not line.strip().isdecimal():
            main(line.split(), standalone_mode=False)
            continue
        limit = int(used.split()[1]) * 1024 + (int(line) << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        try:
            np.ones(int(line) + 8 << 20, np.uint8)
        except MemoryError:
            print("limited")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_memory_does_not_grow_with_a_set(tmp_path):
    """All commands in one process, which has 48 MiB for sets of 75 MiB, or 72 with a network's threads."""
    small = "--size-limit 1mb --processes 0"
    commands = [
        "48",
        f"convert {tmp_path}/a {tmp_path}/out {small}",
        f"diff {tmp_path}/a {tmp_path}/out",
        f"sort {tmp_path}/a {tmp_path}/out {small} --by (len(x),id)",
        f"shuffle {tmp_path}/a {tmp_path}/out {small}",
        f"select {tmp_path}/a {tmp_path}/out {small} --where x[0]>10",
        f"proc {tmp_path}/a {tmp_path}/out {small} --set x=x[1:]",
        f"split {tmp_path}/a {tmp_path}/sets {small} --fractions a=0.5,b=0.4",
        f"join {tmp_path}/a {tmp_path}/b -o {tmp_path}/out {small} --by id",
        f"cat {tmp_path}/a {tmp_path}/a -o {tmp_path}/out {small} --begin 800 --end 1600",
        f"cat {tmp_path}/a",
        f"inspect {tmp_path}/a --samples 800 --json",
        "72",
        "inspect {url}/b --samples 800",
    ]
    # Coverage would take three times as long.
    variables = {name: v for name, v in os.environ.items() if not name.startswith("COVERAGE")}
    with serving(tmp_path) as server, (tmp_path / "printed").open("w") as printed:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path)],
            input="\n".join(
                f"{each} --exist-ok" if small in each else each for each in commands
            ).replace("{url}", server.url),
            stdout=printed,
            stderr=subprocess.PIPE,
            env={**variables, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
            text=True,
            timeout=280,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    with (tmp_path / "printed").open() as printed:
        lines = [line[:100] for line in printed]
    assert lines[0] == "limited\n"
    assert lines.count("limited\n") == 2
    assert sum("written" in line for line in lines) == 9
    assert sum(line.startswith('{"id": ') for line in lines) == 1200
    assert sum(line.strip().endswith("65,536 bytes") for line in lines) == 800
    assert sum(line.startswith('      "id": ') for line in lines) == 800


def test_an_engine_is_named(sets, tmp_path):
    for number, engine in enumerate(("local:2", "local:0")):
        done = run("convert", sets[0], tmp_path / f"out{number}", "--engine", engine)
        assert done.exit_code == 0
        assert ids(tmp_path / f"out{number}") == list(range(100))
    done = run("convert", sets[0], tmp_path / "other", "--engine", "locl")
    assert done.exit_code == 2
    assert "'local'" in done.stderr
    done = run("convert", sets[0], tmp_path / "other", "--engine", "dask", "--processes", 2)
    assert "processes=2" in done.stderr


def test_inspect_tells_how_many_bytes_a_value_has(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"x": "bytes"}) as writer:
        for size in range(4):
            writer.write({"x": b"a" * size})
    shown = run("inspect", tmp_path / "set", "--samples", 4).stdout
    assert [line.strip() for line in shown.splitlines()[-4:]] == [f"{n} bytes" for n in range(4)]


def test_inspect_shows_json_that_looks_like_bytes(tmp_path):
    values = [{"base64": value} for value in (5, None, [1], "a", "?", "é", "YQ==\n")]
    with MDSWriter(out=tmp_path / "set", columns={"x": "json"}) as writer:
        for value in values:
            writer.write({"x": value})
    shown = run("inspect", tmp_path / "set", "--samples", len(values))
    assert shown.exit_code == 0, shown.output
    lines = [json.loads(line) for line in shown.stdout.splitlines()[-len(values) :]]
    assert lines == values


def test_inspect_writes_a_page(sets, tmp_path):
    page = tmp_path / "page.html"
    result = run("inspect", sets[0], "--html", page, "--samples", 2, "--measured", 10)
    assert (result.exit_code, result.stdout) == (0, f"{page}: written\n")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    plain = json.loads(run("inspect", sets[0], "--json").stdout)
    assert json.loads(run("inspect", sets[0], "--html", page, "--json").stdout) == plain
    refused = run("inspect", sets[0], "--html", tmp_path / "none" / "page.html")
    assert refused.exit_code == 2
    assert "none/page.html" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.fixture
def several(tmp_path):
    """The same five samples, with a column of its own each, in four formats."""
    pytest.importorskip("streamplug_text")
    pytest.importorskip("streamplug_webdataset")
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("streamplug_parquet")
    import pyarrow

    for name in ("csv", "parquet", "tar"):
        (tmp_path / name).mkdir()
    with MDSWriter(columns={"id": "int", "m": "str"}, out=tmp_path / "mds") as writer:
        for n in range(5):
            writer.write({"id": n, "m": f"m{n}"})
    lines = "".join(f"{n},c{n}\n" for n in reversed(range(5)))
    (tmp_path / "csv" / "x.csv").write_text(f"id,c\n{lines}")
    table = pyarrow.table({"id": range(5), "p": [f"p{n}" for n in range(5)]})
    parquet.write_table(table, tmp_path / "parquet" / "x.parquet")
    with tarfile.open(tmp_path / "tar" / "x.tar", "w") as tar:
        for n in range(5):
            for name, text in (("id", f"{n}"), ("txt", f"t{n}")):
                member = tarfile.TarInfo(f"{n:03d}.{name}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
    return tmp_path


OWN = {"csv": "c", "mds": "m", "parquet": "p", "tar": "txt"}
"""The column that only this one has."""
JOINS = [
    (["mds", "parquet"], ["parquet"], "id"),
    (["tar", "csv"], ["webdataset", "csv"], "int(id)"),
    (["parquet", "csv"], ["parquet", "csv"], "int(id)"),
    (["csv", "mds", "parquet", "tar"], ["csv", "mds", "parquet", "webdataset"], "int(id)"),
]


@pytest.mark.parametrize(("names", "formats", "key"), JOINS)
def test_sources_of_several_formats_are_joined(several, names, formats, key):
    sources = [several / name for name in names]
    asked = [text for name in formats for text in ("--src-format", name)]
    out = several / "out"
    told = run("join", *sources, *asked, "--by", key, "--format", "mds", "--out", out)
    assert told.exit_code == 0, told.stderr
    found = [json.loads(line) for line in run("cat", out).stdout.splitlines()]
    assert sorted(int(sample["id"]) for sample in found) == list(range(5))
    for sample in found:
        assert [sample[OWN[name]] for name in names] == [
            f"{name[0]}{sample['id']}" for name in names
        ]


def test_sources_of_two_formats_are_compared_and_taken_end_to_end(several):
    both = [several / "parquet", several / "tar"]
    asked = ["--src-format", "parquet", "--src-format", "webdataset"]
    told = run("diff", *both, *asked, "--values", "--json")
    said = json.loads(told.stdout)
    assert (said["compared"], said["differing"]) == (5, 0)
    assert said["only"] == [["p"], ["__key__", "txt"]]
    told = run("cat", *both, *asked, "--select", "id")
    assert [json.loads(line)["id"] for line in told.stdout.splitlines()] == [*range(5)] * 2


def test_formats_must_be_as_many_as_sources(several):
    told = run("diff", several / "csv", several / "tar", *(["--src-format", "csv"] * 3))
    assert told.exit_code == 2
    assert "--src-format is given 3 times for 2 sources: give it once for all" in told.stderr


def test_a_removed_working_directory_is_named(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = run("inspect", "data")
    message = "error: the working directory was removed; change to another one\n"
    assert (result.exit_code, result.output) == (2, message)


@pytest.mark.skipif(os.name != "posix", reason="closes a file descriptor in a shell")
def test_a_closed_standard_output_is_no_error(sets):
    command = f"'{sys.executable}' -m streamplug cat '{sets[0]}' >&-"
    done = subprocess.run(["sh", "-c", command], check=False, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")
