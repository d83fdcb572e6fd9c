"""Outputs that were begun and not finished are not read as data of another format."""

from __future__ import annotations

import json
import os
from itertools import islice

import pytest
from click.testing import CliRunner
from streamplug_tools import Output, convert

from streamplug import StreamingDataset, Writer, write_parts
from streamplug.cli import main
from streamplug.errors import NotFound, StreamplugError
from streamplug.plugin import open_storage

FORMATS = {"mds": "int", "json": "int", "csv": "int", "webdataset": "txt", "parquet": "int64"}
OTHERS = ("json", "jsonl", "plain-jsonl", "csv", "tsv", "webdataset", "parquet", "folder")


def columns_of(format_):
    if format_ == "webdataset":
        return {"__key__": "str", "txt": "str"}
    return {"n": FORMATS[format_]}


def sample_of(format_, n):
    return {"__key__": f"{n:06d}", "txt": str(n)} if format_ == "webdataset" else {"n": n}


def by_writer(location, format_, **options):
    writer = Writer(
        columns=columns_of(format_),
        out=location,
        format=format_,
        max_samples_per_shard=5,
        **options,
    )
    for n in range(23):
        writer.write(sample_of(format_, n))
    writer.__exit__(RuntimeError, RuntimeError(), None)


def by_parts(location, format_, **options):
    def make(part):
        if part == 2:
            raise RuntimeError("killed")
        for n in range(7):
            yield sample_of(format_, 7 * part + n)

    with pytest.raises(StreamplugError, match="killed"):
        write_parts(
            make,
            range(3),
            columns=columns_of(format_),
            out=location,
            format=format_,
            processes=0,
            max_samples_per_shard=5,
            **options,
        )


def by_parts_before_the_first(location, format_, **_):
    """Leave what a process leaves that is killed in its first part."""
    by_parts(location, format_)
    storage = open_storage(location)
    for info in list(storage.list("part-")):
        storage.delete(info.key)


def by_removal(location, format_, **_):
    """Leave what a process leaves that is killed while it removes an old data set."""
    by_writer(location, format_)
    open_storage(location).write("parts.json", json.dumps({"removed": ["shard.00000.x"]}).encode())


def by_spark(location, format_, **options):
    by_parts(location, format_, **options)
    mark = json.dumps({"dataframe": "0f", "version": 1}).encode()
    open_storage(location).write("parts.json", mark)


WAYS = [by_writer, by_parts, by_parts_before_the_first, by_removal, by_spark]


@pytest.fixture(params=["near", "far"])
def place(request, tmp_path):
    return str(tmp_path / "set") if request.param == "near" else f"memory://{tmp_path.name}/set"


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("way", WAYS)
def test_commands_refuse_an_unfinished_output(place, tmp_path, way, format_):
    pytest.importorskip("streamplug_text")
    way(place, format_)
    before = sorted(info.key for info in open_storage(place).list(""))
    copy = tmp_path / "copy"
    for command in (
        ["verify", place],
        ["inspect", place],
        ["cat", place],
        ["diff", place, place],
        ["convert", place, copy],
        ["shuffle", place, copy],
    ):
        told = run(*command)
        assert told.exit_code == 2, (command, told.output)
        assert "index.json does not exist" in told.stderr, (command, told.output)
        assert "Traceback" not in told.stderr
    assert not copy.exists()
    assert before == sorted(info.key for info in open_storage(place).list(""))


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("way", WAYS)
def test_an_unfinished_output_is_read_by_no_format(place, tmp_path, way, format_):
    way(place, format_)
    for other in OTHERS:
        suffix = {"webdataset": "tar", "plain-jsonl": "json", "folder": "*"}.get(other, other)
        globs = f"{place}/*.{suffix}", f"{place}/**/*.{suffix}", f"{place}/part-*/*.{suffix}"
        for remote in (place, *globs):
            with pytest.raises(NotFound, match=r"has not finished|there (is|are) no"):
                StreamingDataset(remote=remote, local=str(tmp_path / "cache"), format=other)
        scanned = run("index", "scan", place, "--format", other)
        assert scanned.exit_code != 0, scanned.output
    assert not open_storage(place).exists("index.json")


def test_a_killed_process_leaves_nothing_that_is_read(tmp_path):
    def make(part):
        yield {"n": part}
        if part == 1:
            os._exit(9)

    if (child := os.fork()) == 0:
        write_parts(make, range(2), columns={"n": "int"}, out=tmp_path / "set", processes=0)
    assert os.waitpid(child, 0)[1] != 0
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [
        ".attempts",
        "part-00000",
        "parts.json",
    ]
    for command in ("verify", "inspect", "cat"):
        told = run(command, tmp_path / "set")
        assert told.exit_code == 2, told.output
        assert "its writer has not finished" in told.stderr
    named = [tmp_path / "set" / "parts.json"]
    with pytest.raises(NotFound, match="its writer has not finished"):
        StreamingDataset(remote=[str(path) for path in named], format="jsonl")


def test_a_killed_conversion_is_not_read(tmp_path):
    pytest.importorskip("streamplug_webdataset")
    with Writer(columns={"n": "int"}, out=tmp_path / "source") as writer:
        for n in range(10):
            writer.write({"n": n})
    convert([tmp_path / "source"], Output(tmp_path / "out", format="webdataset"))
    (tmp_path / "out" / "index.json").unlink()  # it is written last
    for remote in ("out", "out/**/*.tar", "out/part-00000/../**/*.tar"):
        with pytest.raises(NotFound, match=r"has not finished|no \.tar file"):
            StreamingDataset(remote=str(tmp_path / remote), format="webdataset")
    part = StreamingDataset(remote=str(tmp_path / "out" / "part-00000"), batch_size=1)
    assert len(list(part)) == 10  # complete by itself


# -- what is complete ---------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["json", "webdataset", "parquet"])
@pytest.mark.parametrize("batched", [False, True])
def test_an_unfinished_append_leaves_the_data_set_as_it_was(place, tmp_path, format_, batched):
    def write(first, **options):
        writer = Writer(
            columns=columns_of(format_),
            out=place,
            format=format_,
            max_samples_per_shard=5,
            **options,
        )
        for n in range(first, first + 10):
            writer.write(sample_of(format_, n))
        return writer

    write(0).finish()
    aborted = write(10, append=True)
    aborted.write(sample_of(format_, 20))
    aborted.__exit__(RuntimeError, RuntimeError(), None)
    assert len(list(open_storage(place).list("shard.00002"))) > 0
    for named in (None, format_):
        dataset = StreamingDataset(
            remote=place, local=str(tmp_path / "cache"), format=named, batch_size=5
        )
        batches = dataset.batches() if batched else dataset
        name = "txt" if format_ == "webdataset" else "n"
        got = [value for item in batches for value in (item[name] if batched else [item[name]])]
        assert [int(value) for value in got] == list(range(10))
    assert run("verify", place).exit_code == 0
    if format_ != "json":  # whose files need their index
        suffix = {"webdataset": "tar"}.get(format_, format_)
        with pytest.raises(NotFound, match=r"shard.00002.* is not in .*index.json"):
            StreamingDataset(
                remote=f"{place}/*.{suffix}", local=str(tmp_path / "other"), format=format_
            )


def test_files_of_finished_outputs_are_read_by_globs(place, tmp_path):
    pytest.importorskip("streamplug_webdataset")

    def make(part):
        for n in range(7):
            yield sample_of("webdataset", 7 * part + n)

    for folder in ("a", "b"):
        write_parts(
            make,
            range(2),
            columns=columns_of("webdataset"),
            out=f"{place}/{folder}",
            format="webdataset",
            processes=0,
        )
    for number, (glob, count) in enumerate({"a/part-*/*.tar": 14, "**/*.tar": 28}.items()):
        dataset = StreamingDataset(
            remote=f"{place}/{glob}",
            local=str(tmp_path / f"cache{number}"),
            format="webdataset",
            batch_size=1,
        )
        assert [int(sample["txt"]) for sample in dataset] == [*range(14)] * (count // 14)
    json_lines = {"remote": f"{place}/a/*.json", "local": str(tmp_path / "c"), "format": "jsonl"}
    with pytest.raises(NotFound, match=r"no \.jsonl or \.ndjson or \.json file"):
        StreamingDataset(**json_lines)  # the plan and the index are no data


def test_whole_files_with_the_names_of_shards_are_read_if_each_is_named(tmp_path):
    by_writer(tmp_path, "webdataset")
    dataset = StreamingDataset(
        remote=f"{tmp_path}/shard.{{00000..00003}}.tar", format="webdataset", batch_size=1
    )
    assert [int(sample["txt"]) for sample in dataset] == list(range(20))
    scanned = run(
        "index", "scan", f"{tmp_path}/shard.{{00000..00003}}.tar", "--format", "webdataset"
    )
    assert scanned.exit_code == 0, scanned.output
    assert len(list(StreamingDataset(remote=str(tmp_path), batch_size=1))) == 20


@pytest.mark.parametrize(
    "content", ['{"a": 1}\n{"a": 2}\n', '{"parts_digest": 1}\n{"a": 2}\n', '{"a": 1}']
)
def test_a_file_of_the_name_of_a_plan_may_be_data(tmp_path, content):
    (tmp_path / "parts.json").write_text(content)
    dataset = StreamingDataset(remote=str(tmp_path), format="jsonl", batch_size=1)
    assert len(list(dataset)) == content.count('a": ') + content.count("parts_digest")


def test_an_output_inside_of_its_inputs_does_not_hide_them(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    by_parts(str(tmp_path / "out"), "mds")
    told = run("cat", tmp_path)
    assert (told.exit_code, told.stdout.strip()) == (0, '{"a": 1}'), told.output


# -- manifests ----------------------------------------------------------------------------------

DOCUMENTS = {
    "config.json": {"model": "x", "layers": [1, 2]},
    "dataset_info.json": {"splits": {}},
    "meta.json": [1, 2, 3],
    "unknown.json": {"any": 1},
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_folder_with_a_document_is_no_data_set(place, tmp_path, name, indent):
    pytest.importorskip("streamplug_text")
    storage = open_storage(place)
    storage.write(name, json.dumps(DOCUMENTS[name], indent=indent).encode() + b"\n")
    storage.write("weights.bin", bytes(10))
    for command in (["verify"], ["inspect"], ["cat"], ["diff", place], ["convert", tmp_path / "c"]):
        told = run(command[0], place, *command[1:])
        assert told.exit_code == 2, told.output
        assert f"{name} is a single JSON document" in told.stderr, told.output
    assert not (tmp_path / "c").exists()


def test_binary_files_are_token_files_if_their_index_is_beside_them(place):
    pytest.importorskip("streamplug_tokens")
    storage = open_storage(place)
    storage.write("text.bin", bytes(10))
    told = run("inspect", place)
    assert told.exit_code == 2
    assert "no files of a format that is known" in told.stderr
    storage.write("text.idx", bytes(10))
    told = run("inspect", f"{place}/")
    assert told.exit_code != 0
    assert "read as megatron, since there is no index.json" in told.stderr
    assert "text.bin" in told.stderr


@pytest.mark.parametrize("folder", ["sub", "part-00000"])
def test_an_index_in_a_folder_below_is_no_json_lines(tmp_path, folder):
    with Writer(columns={"n": "int"}, out=tmp_path / folder) as writer:
        writer.write({"n": 1})
    told = run("verify", tmp_path)
    assert told.exit_code == 2
    assert "there is no data set, or its writer has not finished" in told.stderr


def test_json_lines_in_json_files_are_still_detected(place):
    pytest.importorskip("streamplug_text")
    storage = open_storage(place)
    for name in ("a.json", "b.json"):
        storage.write(name, b'\n{"a": 1}\n{"a": 2}\n')
    assert run("verify", place).exit_code == 0
    assert len(run("cat", place).stdout.splitlines()) == 4
    storage.write("a.json", b'{"a": 1}')
    refused = run("cat", place)
    assert refused.exit_code == 2
    assert len(run("cat", place, "--src-format", "json").stdout.splitlines()) == 3


def test_a_view_is_no_json_lines(tmp_path):
    pytest.importorskip("streamplug_views")
    with Writer(columns={"n": "int"}, out=tmp_path / "source") as writer:
        for n in range(3):
            writer.write({"n": n})
    made = run("view", "create", tmp_path / "source", tmp_path / "view")
    assert made.exit_code == 0, made.output
    assert len(list(islice(StreamingDataset(remote=str(tmp_path / "view"), batch_size=1), 5))) == 3
    with pytest.raises(NotFound, match=r"no .jsonl or .ndjson or .json file"):
        StreamingDataset(remote=str(tmp_path / "view"), format="jsonl")
