"""The command ``streamplug view``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from streamplug_tools import inspect, page_about
from streamplug_views import View, compact
from streamplug_views.commands import view

from streamplug import MDSWriter, StreamingDataset
from streamplug.cli import main
from streamplug.errors import ConfigError, OutputExistsError


@pytest.fixture(autouse=True)
def sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with MDSWriter(out="crawl", columns={"id": "str", "n": "int"}, max_samples_per_shard=30) as out:
        for n in range(100):
            out.write({"id": f"k{n}", "n": n})
    with MDSWriter(out="more", columns={"id": "str", "n": "int"}) as out:
        for n in range(100, 110):
            out.write({"id": f"k{n}", "n": n})
    with MDSWriter(out="captions", columns={"id": "str", "caption": "str"}) as out:
        for n in range(0, 110, 2):
            out.write({"id": f"k{n}", "caption": f"c{n}"})
    with MDSWriter(out="bad", columns={"id": "str"}) as out:
        for n in range(0, 110, 10):
            out.write({"id": f"k{n}"})


def run(*arguments, code=0):
    result = CliRunner().invoke(view, list(map(str, arguments)), catch_exceptions=code == 0)
    assert result.exit_code == code, result.output
    return result.output


def run_json(*arguments):
    return json.loads(run(*arguments, "--json"))


def test_a_view_is_made_listed_and_compared():
    made = run_json(
        "create", "crawl", "view", "--concat", "more", "--add", "captions", "--on", "id",
        "--missing", "drop", "--where", "n >= 20", "--where", "caption != 'c22'",
        "--exclude-keys", "bad", "--rename", "caption = text", "--drop", "id", "-m", "first",
    )  # fmt: skip
    expected = [n for n in range(20, 110, 2) if n % 10 and n != 22]
    assert (made["version"], made["samples"]) == (1, len(expected))
    assert [step["samples"] for step in made["steps"]] == [110, 55, 45, 44, 35, 35, 35]
    rows = list(StreamingDataset(remote="view"))
    assert [(int(row["n"]), row["text"]) for row in rows] == [(n, f"c{n}") for n in expected]
    text = run("create", "view", "view", "--sample", "0.2", "--seed", "3", "-m", "a sample")
    assert "7 samples after sample 0.2 with seed 3" in text
    assert "version 2 written, 7 samples" in text
    assert [v["message"] for v in run_json("log", "view")] == ["a sample", "first"]
    assert "a sample" in run("log", "view")
    assert run_json("show", "view", "1")["samples"] == 35
    assert "45 samples after where n >= 20" in run("show", "view", "1")
    assert "data sets: ../crawl, ../more, ../captions" in run("show", "view")
    assert "35 and 7 samples: 0 added, 28 removed" in run("diff", "view", "1", "2")
    assert run_json("diff", "view", "2", "1")["added"] == 28
    run("tag", "view", "good", "1")
    assert "(good)" in run("show", "view", "good")
    assert "version 1 written" in run("create", "view", "other", "--version", "good")
    assert StreamingDataset(remote="other").size == 35


def test_the_format_of_the_source_is_detected(tmp_path):
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    text = run("create", "lines", "view", "--where", "n > 1")
    assert "lines: read as jsonl, since there is no index.json" in text
    assert [row["n"] for row in StreamingDataset(remote="view")] == [2]


def test_keys_to_exclude_need_the_name_of_their_column():
    assert "--exclude-keys needs --on" in run(
        "create", "crawl", "view", "--exclude-keys", "bad", code=2
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on", "id"], "--on: only with --add or --exclude-keys"),
        (["--missing", "drop"], "--missing: only with --add and --on"),
        (["--add", "captions", "--missing", "drop"], "--missing: only with --add and --on"),
        (
            ["--exclude-keys", "bad", "--on", "id", "--missing", "drop"],
            "--missing: only with --add and --on",
        ),
        (["--seed", "0"], "--seed: only with --sample"),
        (["--engine", "ray", "--workspace", "w"], "--engine, --workspace: only with --where"),
    ],
)
def test_options_without_an_effect_are_refused(options, words):
    assert words in run("create", "crawl", "view", *options, code=2)
    assert not Path("view").exists()


def test_messages_of_a_log_are_printed_as_they_are():
    for message in ("closes [/bold]", "drops [red]", "clears \x1b[2J"):
        View.of("crawl").where("n > 3").commit("view", message=message)
    shown = run("log", "view")
    for message in ("closes [/bold]", "drops [red]", "clears \\x1b[2J"):
        assert message in shown


def test_old_versions_expire():
    for n in range(3):
        run("create", "crawl", "view", "--where", f"n > {n}")
    assert "versions 1, 2, and 4 files: would be removed; pass --yes" in run(
        "expire", "view", "--keep", "1"
    )
    assert len(run_json("log", "view")) == 3
    assert run_json("expire", "view", "--keep", "1", "--yes")["versions"] == [1, 2]
    assert len(run_json("log", "view")) == 1


def test_a_compacted_view_refers_to_its_own_samples_only():
    View.of("crawl").add("captions", on="id", missing="null").exclude([5, 6]).commit("view")
    before = list(StreamingDataset(remote="view", columns=["id", "n"]))
    View.of("view").drop(["caption"]).commit()
    assert "version 3 written, 98 samples" in run("compact", "view", "erased", "--processes", "0")
    assert list(StreamingDataset(remote="erased")) == before
    assert list(StreamingDataset(remote="view")) == before
    assert run_json("show", "view")["sources"] == ["../erased"]
    assert compact("view", "again", processes=0).version == 4


def test_another_view_is_not_compacted_to_the_same_place():
    for name, rest in (("even", 0), ("odd", 1)):
        View.of("crawl").where(f"n % 2 == {rest}").commit(name)
    compact("even", "out", processes=0)
    with pytest.raises(OutputExistsError, match="it is made of other samples"):
        compact("odd", "out", processes=0)
    assert [sample["n"] % 2 for sample in StreamingDataset(remote="odd")] == [1] * 50


def test_only_a_view_is_compacted():
    with pytest.raises(ConfigError, match="crawl is a data set, which has no versions"):
        compact("crawl", "out", processes=0)


def test_a_view_without_samples_keeps_its_columns():
    View.of("crawl").select(range(0)).commit("none")
    columns = View.of("none").columns
    with pytest.raises(ConfigError, match="none has no samples"):
        compact("none", "out", processes=0)
    assert View.of("none").columns == columns
    assert not Path("out").exists()
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["log", "crawl"], "there is no view"),
        (["show", "nowhere"], "there is no view"),
        (["expire", "nowhere", "--keep", "1", "--yes"], "there is no view"),
        (["expire", "crawl", "--keep", "1"], "there is no view"),
        (["show", "crawl", "²"], "tag '²': use letters, digits"),
        (["create", "crawl", "view", "--rename", "n"], "expected OLD=NEW"),
        (["create", "crawl", "view", "--rename", "n=a,n=b"], "--rename: 'n' is given twice"),
        (["create", "nowhere", "view"], "check the location, with the split if there is one"),
        (["diff", "crawl", "1"], "crawl has no version 1"),
        (
            ["create", "crawl", "view", "--where", "n", "--engine", "raay", "--workspace", "w"],
            "unknown engine 'raay'",
        ),
    ],
)
def test_what_cannot_be_done_is_said(arguments, words):
    result = CliRunner().invoke(view, arguments)
    assert result.exit_code == 1
    assert words in str(result.exception)


def test_locations_without_an_index_have_formats_of_their_own():
    for name, columns in (("rows", ("id", "n")), ("scores", ("id", "score"))):
        lines = [json.dumps(dict.fromkeys(columns, f"{name}{n}")) for n in range(3)]
        Path(f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    others = ("--concat", "rows.jsonl", "--add", "scores.jsonl", "--on", "id", "--missing", "null")
    created = ("create", "rows.jsonl", "view", *others)
    for formats in ([], ["jsonl"], ["jsonl", "jsonl", "jsonl"]):
        options = [part for name in formats for part in ("--src-format", name)]
        run(*created, *options)
        assert StreamingDataset(remote="view").size == 6
    refused = run(*created, "--src-format", "jsonl", "--src-format", "jsonl", code=2)
    assert "--src-format is given 2 times for 3 sources" in refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["create", "crawl", "v", "--add", "more"],
            "has columns ['id', 'n'] already; rename one first\n",
        ),
        (["compact", "view", "more"], ": it was written otherwise; choose another place\n"),
        (
            ["create", "crawl", "v", "--concat", "view/x"],
            "; check the location, with the split if there is one, or name the format",
        ),
        (["create", "gone", "v", "--where", "n"], "does not exist; check the location\n"),
    ],
)
def test_errors_advise_what_the_command_can_do(arguments, words):
    run("create", "crawl", "view", "--where", "n > 1")
    shutil.copytree("crawl", "gone")
    for path in Path("gone").glob("*.mds"):
        path.unlink()
    result = CliRunner().invoke(main, ["view", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr


def test_an_error_names_the_options_of_the_subcommand():
    result = CliRunner().invoke(main, ["view", "create", "crawl", "view", "--version", "1"])
    assert result.stderr.startswith("error: --version=1: ")


def test_a_page_says_where_columns_and_rows_come_from(tmp_path):
    View.of("crawl").where("n >= 20").add("captions", on="id", missing="drop").commit("view")
    info = inspect("view")
    assert info.origin.version == "version 1"
    assert info.origin.columns == {
        "id": [str(tmp_path / "crawl")],
        "n": [str(tmp_path / "crawl")],
        "caption": [str(tmp_path / "captions")],
    }
    assert [samples for _, samples in info.origin.steps] == [100, 80, 40]
    page = page_about("view")
    assert "This is version 1 of a view." in page
    assert "where n &gt;= 20" in page
    assert str(tmp_path / "captions") in page
    result = CliRunner().invoke(main, ["inspect", "view"])
    assert "where n >= 20" in result.output
    assert json.loads(CliRunner().invoke(main, ["inspect", "view", "--json"]).output)["origin"]
    assert inspect("crawl").origin is None
    assert "Origin" not in page_about("crawl")


def test_columns_of_other_formats_are_printed_and_compared():
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("streamplug_parquet")
    ids = [f"k{n}" for n in range(2)]
    Path("vectors").mkdir()
    rows = {"id": ids, "vector": [[1.5], [2.0, 0.5]], "label": ["a", "b"]}
    parquet.write_table(pa.table(rows), "vectors/a.parquet")
    with MDSWriter(out="objects", columns={"id": "str", "x": "pkl"}) as out:
        for name in ids:
            out.write({"id": name, "x": 7})
    expected = [
        {"id": name, "x": {"base64": "gARLBy4="}, "vector": vector, "label": label}
        for name, vector, label in zip(*rows.values())
    ]
    for first, second, out in (("objects", "vectors", "a"), ("vectors", "objects", "b")):
        run("create", first, out, "--add", second, "--on", "id")
        printed = CliRunner().invoke(main, ["cat", out])
        assert printed.exit_code == 0, printed.stderr
        assert list(map(json.loads, printed.stdout.splitlines())) == expected
    result = CliRunner().invoke(main, ["diff", "a", "b", "--values", "--allow-unsafe-types"])
    assert result.exit_code == 0, result.stderr
    assert "2 samples compared: 0 differ" in result.stdout


def test_an_older_version_is_written_to_another_location():
    for message in ("first", "second"):
        run("create", "crawl", "view", "--where", "n > 9", "-m", message)
    again = ["view", "create", "view", "view", "--version", "1", "--where", "n > 19"]
    refused = CliRunner().invoke(main, again)
    assert refused.exit_code == 2
    assert refused.stderr.endswith(
        "; run the command again, or if you read an older version, write to another location\n"
    )
    again[3] = "other"
    assert CliRunner().invoke(main, again).exit_code == 0
