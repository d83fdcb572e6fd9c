from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from streamplug_tools import Columns, Output, append, convert
from streamplug_tools.row_access import Table

from streamplug import Stream, Writer, merge_index, register_encoding, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.builtin.mds import MDS
from streamplug.errors import (
    ConfigError,
    NotFound,
    OutputExistsError,
    StreamplugError,
    UnsafeTypeError,
)
from streamplug.interfaces import Column, Encoding
from streamplug.plugin import registry


class Lossy(Encoding):
    """Text that loses its last character whenever it is written."""

    def encode(self, value):
        return value[:-1].encode()

    def decode(self, data):
        return str(data, "utf-8")


@pytest.fixture
def lossy():
    register_encoding("lossy", Lossy)
    yield "lossy"
    registry.unregister("encoding", "lossy")


def entries(folder):
    return json.loads((folder / "index.json").read_bytes())["shards"]


def test_another_set_has_the_same_samples(source, tmp_path, read):
    written = convert(source, Output(tmp_path / "out", size_limit="1kb", processes=0))
    shards = entries(tmp_path / "out")
    assert (written.samples, written.shards) == (200, len(shards))
    assert written.bytes == sum(shard["raw_data"]["bytes"] for shard in shards)
    assert written.url == str(tmp_path / "out")
    before, after = read(source), read(tmp_path / "out")
    assert list(before) == list(after)
    for name, values in before.items():
        assert np.array_equal(values, after[name])


def test_directories_may_have_names_that_are_not_utf8(source, tmp_path, read):
    renamed = source.rename(tmp_path / os.fsdecode(b"caf\xe9"))
    out = tmp_path / os.fsdecode(b"out-caf\xe9")
    assert convert(renamed, Output(out, processes=0)).samples == 200
    assert list(read(out)["id"]) == list(range(200))


@pytest.mark.parametrize("compression", [None, "gz"])
def test_nothing_stays_behind_and_the_source_is_left_alone(
    tmp_path, write, content, temporary, compression
):
    source = write(tmp_path / "source", range(50), compression=compression)
    before = content(source)
    convert(source, Output(tmp_path / "out", size_limit="1kb", processes=0))
    assert content(source) == before
    assert list(temporary.glob("*/*")) == []
    names = {path.rpartition("/")[2] for path in content(tmp_path / "out")} - {"parts.json"}
    ending = ".mds" if compression is None else ".mds.gz"
    assert all(name == "index.json" or name.endswith(ending) for name in names)


def test_workers_write_a_format_that_was_registered(source, tmp_path, read):
    class Mine(MDS):
        """A format that workers cannot import."""

    registry.register("format", "mine", Mine)
    try:
        convert(source, Output(tmp_path / "out", format="mine", size_limit="1kb", processes=1))
    finally:
        registry.unregister("format", "mine")
    assert len(entries(tmp_path / "out")) > 5
    assert list(read(tmp_path / "out")) == list(read(source))


def test_a_source_without_digests_gets_those_of_writers_unless_none_are_asked_for(tmp_path, write):
    source = write(tmp_path / "source", range(5), hashes=[])
    for name, given, expected in (("new", None, ["xxh3_64"]), ("none", [], [])):
        convert(source, Output(tmp_path / name, hashes=given))
        [shard] = entries(tmp_path / name)
        assert (shard["hashes"], list(shard["raw_data"]["hashes"])) == (expected, expected)


def test_compression_and_hashes_are_those_of_the_source_unless_others_are_asked_for(
    tmp_path, write
):
    source = write(tmp_path / "source", range(5), compression="gz:1", hashes=["sha1"])
    convert(source, Output(tmp_path / "same"))
    shard = entries(tmp_path / "same")[0]
    assert (shard["compression"], list(shard["raw_data"]["hashes"])) == ("gz:1", ["sha1"])
    convert(source, Output(tmp_path / "other", compression="none", hashes=["xxh64"]))
    shard = entries(tmp_path / "other")[0]
    assert (shard["compression"], list(shard["raw_data"]["hashes"])) == (None, ["xxh64"])


def test_bytes_do_not_depend_on_the_number_of_processes(source, tmp_path, content):
    for processes in (0, 2):
        convert(source, Output(tmp_path / f"{processes}", size_limit="400", processes=processes))
    assert content(tmp_path / "0") == content(tmp_path / "2")
    assert "part-00002/index.json" in content(tmp_path / "0")


def test_values_whose_encoding_stays_are_not_encoded_again(tmp_path, write, read, lossy):
    source = write(tmp_path / "source", range(3), {"name": lossy})
    assert read(source)["name"] == ["name ", "name ", "name "]
    convert(source, Output(tmp_path / "out"))
    assert read(tmp_path / "out")["name"] == ["name ", "name ", "name "]
    convert(source, Output(tmp_path / "bytes"), columns=Columns(encodings={"name": "bytes"}))
    assert read(tmp_path / "bytes")["name"] == [b"name ", b"name ", b"name "]
    convert(source, Output(tmp_path / "text"), columns=Columns(encodings={"name": "str"}))
    assert read(tmp_path / "text")["name"] == ["name ", "name ", "name "]


def test_values_of_a_stream_with_a_limit_are_not_encoded_again(tmp_path, write, read, lossy):
    source = write(tmp_path / "source", range(3), {"name": lossy})
    convert(Stream(local=str(source), max_value_bytes="1mb"), Output(tmp_path / "out", processes=0))
    assert read(tmp_path / "out")["name"] == ["name ", "name ", "name "]


def test_decoders_of_columns_of_bytes_are_used_as_those_of_others(tmp_path, write, read):
    source = write(tmp_path / "source", range(3), {"name": "str", "x": "bytes"})
    decoders = {"name": WithEnding("!"), "x": WithEnding(b"!")}
    stream = Stream(local=str(source), decoders=decoders)
    convert(stream, Output(tmp_path / "out", processes=0))
    assert read(tmp_path / "out")["name"] == ["name 0!", "name 1!", "name 2!"]
    assert read(tmp_path / "out")["x"] == [b"!", b"\x01!", b"\x02\x02!"]


def test_what_could_run_code_is_copied_without_running_it(tmp_path, write, read):
    source = write(tmp_path / "source", range(3), {"id": "pkl"})
    convert(source, Output(tmp_path / "out"))
    assert read(tmp_path / "out", allow_unsafe_types=True)["id"] == [0, 1, 2]
    asked = Columns(encodings={"id": "int"})
    with pytest.raises(UnsafeTypeError, match="column 'id'"):
        convert(source, Output(tmp_path / "int"), columns=asked)
    assert not (tmp_path / "int").exists()
    allowed = Columns(encodings={"id": "int"}, allow_unsafe_types=True)
    convert(source, Output(tmp_path / "int"), columns=allowed)
    assert read(tmp_path / "int")["id"].tolist() == [0, 1, 2]


def test_columns_are_chosen_renamed_and_stored_otherwise(source, tmp_path, read):
    columns = Columns(
        select=["id", "score", "x"],
        drop=["x"],
        rename={"score": "grade"},
        encodings={"grade": "float64", "id": "str_int"},
    )
    convert(source, Output(tmp_path / "out"), columns=columns)
    found, before = read(tmp_path / "out"), read(source)
    assert list(found) == ["grade", "id"]
    assert found["grade"].dtype == np.float64
    assert found["grade"].tolist() == before["score"].tolist()
    assert found["id"] == before["id"].tolist()


def test_many_columns_take_time_that_grows_with_their_number(tmp_path, monkeypatch):
    names = [f"column {n}" for n in range(300)]
    with Writer(out=str(tmp_path), columns=dict.fromkeys(names, "int")) as writer:
        writer.write(dict.fromkeys(names, 1))
    looked_at = []

    def look_at(column, name):
        looked_at.append(name)
        return object.__getattribute__(column, name)

    monkeypatch.setattr(Column, "__getattribute__", look_at)
    table = Table([Stream(local=str(tmp_path))])
    assert table.columns.keys() == set(names)
    assert len(looked_at) < 50 * len(names)


def test_samples_may_be_fetched_alone(source, tmp_path, read):
    stream = Stream(remote=str(source), access="range")
    convert(stream, Output(tmp_path / "out"), begin=-30, end=-10)
    assert read(tmp_path / "out")["id"].tolist() == list(range(170, 190))


def test_several_sets_become_one(tmp_path, write, read):
    first = write(tmp_path / "a", range(30))
    second = write(tmp_path / "b", range(30, 50), compression="gz")
    written = convert([first, Stream(remote=str(second))], Output(tmp_path / "out", processes=0))
    assert written.samples == 50
    assert read(tmp_path / "out")["id"].tolist() == list(range(50))


def test_sets_whose_encodings_differ_become_one_with_those_of_the_first(tmp_path, write, read):
    first = write(tmp_path / "a", range(3), {"id": "int"})
    second = write(tmp_path / "b", range(3, 6), {"id": "uint8"})
    convert([first, second], Output(tmp_path / "out"))
    assert read(tmp_path / "out")["id"].tolist() == list(range(6))
    assert entries(tmp_path / "out")[0]["column_encodings"] == ["int"]


def test_numbers_are_not_rounded_to_the_encoding_of_the_first(tmp_path, write, read):
    narrow = write(tmp_path / "a", range(3), {"x": "float32"}, lambda n: {"x": n})
    wide = write(tmp_path / "b", range(3), {"x": "float64"}, lambda n: {"x": 0.1})
    large = write(tmp_path / "c", range(3), {"x": "int"}, lambda n: {"x": 2**24 + 1})
    small = write(tmp_path / "d", range(3), {"x": "int16"}, lambda n: {"x": n})
    for other, spec in ((wide, "float64"), (large, "int")):
        said = (
            f"'x' is float32 in some shards and {spec} in others, whose numbers float32 would round"
        )
        with pytest.raises(ConfigError, match=rf"{said}; name an encoding .* \(x:float64\)"):
            convert([narrow, other], Output(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    convert([narrow, small], Output(tmp_path / "exact", processes=0))
    assert read(tmp_path / "exact")["x"].tolist() == [0, 1, 2, 0, 1, 2]
    columns = Columns(encodings={"x": "float64"})
    convert([narrow, wide], Output(tmp_path / "out", processes=0), columns=columns)
    assert read(tmp_path / "out")["x"].tolist() == [0, 1, 2, 0.1, 0.1, 0.1]


def test_sets_with_other_columns_are_refused(tmp_path, write):
    first = write(tmp_path / "a", range(3), {"id": "int"})
    second = write(tmp_path / "b", range(3, 6), {"id": "int", "name": "str"})
    with pytest.raises(
        ConfigError, match=r"a/index.json and .*b/index.json: only some.*\['name'\]"
    ):
        convert([first, second], Output(tmp_path / "out"))


def test_what_cannot_be_is_refused(source, tmp_path):
    out = Output(tmp_path / "out")
    for asked, said in (
        (Columns(select=["ids"]), "no .'ids'., .*Did you mean 'id'"),
        (Columns(drop=["nothing"]), "drop="),
        (Columns(rename={"id": "name"}), "two columns would be called 'name'"),
        (Columns(encodings={"names": "str"}), "Did you mean 'name'"),
        (Columns(select=["id"], drop=["id"]), "no column is left"),
        (Columns(drop=["id"], rename={"id": "n"}), "rename=.'id'.: column 'id' is left out"),
    ):
        with pytest.raises(ConfigError, match=said):
            convert(source, out, columns=asked)
    with pytest.raises(ConfigError, match="is or contains a source"):
        convert(source, Output(source, exist_ok=True))
    with pytest.raises(ConfigError, match="is or contains a source"):
        convert(source, Output(tmp_path, exist_ok=True))
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(ConfigError, match="is or contains a source"):
        convert(tmp_path / "link", Output(source, exist_ok=True))
    with pytest.raises(NotFound, match=r"index\.json does not exist"):
        convert(tmp_path / "none", out)
    with pytest.raises(ConfigError, match="no data set is given"):
        convert([], out)
    assert not (tmp_path / "out").exists()
    assert (source / "index.json").exists()


@pytest.mark.parametrize("url", ["file:{}", "FILE://{}", "local://{}", "simplecache::file://{}"])
def test_a_source_is_not_replaced_by_itself_under_another_name(source, read, url):
    for names in ((url.format(source), source), (source, url.format(source))):
        with pytest.raises(ConfigError, match="is or contains a source"):
            convert(names[0], Output(names[1], exist_ok=True))
    assert len(read(source)["id"]) == 200


class AtEndpoint(LocalStorage):
    """A bucket of a server, whose files are in a folder named after the server's address."""

    def __init__(self, url, endpoint_url):
        server, path = endpoint_url.rstrip("/").rpartition("/")[2], url.removeprefix("bucket://b")
        super().__init__(f"{os.environ['SERVERS']}/{server}{path}")
        self.url, self._endpoint = url, endpoint_url

    @property
    def endpoint(self):
        return self._endpoint


def test_one_url_at_two_endpoints_is_two_places(tmp_path, write, read, monkeypatch):
    monkeypatch.setenv("SERVERS", str(tmp_path))
    register_storage("bucket", AtEndpoint)
    try:
        write(tmp_path / "a", range(20))
        source = Stream(remote="bucket://b", storage_options={"endpoint_url": "http://a"})
        for same in ("http://a", "http://a/"):
            out = Output("bucket://b", storage_options={"endpoint_url": same})
            with pytest.raises(ConfigError, match="is or contains a source"):
                convert(source, replace(out, exist_ok=True))
            with pytest.raises(ConfigError, match="is a source"):
                append(source, out)
        out = Output("bucket://b", processes=0, storage_options={"endpoint_url": "http://b"})
        assert convert(source, out).samples == 20
        assert append(Stream(local=str(tmp_path / "a")), out).appended == 20
        both = [source, Stream(remote="bucket://b", storage_options=out.storage_options)]
        assert convert(both, Output(tmp_path / "c", processes=0)).samples == 60
    finally:
        registry.unregister("storage", "bucket")
    assert read(tmp_path / "a")["id"].tolist() == [*range(20)]
    assert read(tmp_path / "b")["id"].tolist() == [*range(20)] * 2


def test_files_that_a_source_links_to_are_not_replaced(source, tmp_path, read):
    (tmp_path / "links").mkdir()
    for path in source.iterdir():
        (tmp_path / "links" / path.name).symlink_to(path)
    with pytest.raises(ConfigError, match="is or contains a source"):
        convert(tmp_path / "links", Output(source, exist_ok=True))
    assert len(read(source)["id"]) == 200


def test_a_data_set_that_a_source_reads_from_is_not_replaced(tmp_path, write, read):
    views = pytest.importorskip("streamplug_views")
    write(tmp_path / "all" / "a", range(100))
    write(tmp_path / "all" / "b", range(100, 200))
    merge_index(tmp_path / "all")
    views.View.of(str(tmp_path / "all")).where("id < 150").commit(str(tmp_path / "view"))
    for source, out in (("all", "all/a"), ("view", "all"), ("view", "all/b"), ("view", "view")):
        with pytest.raises(ConfigError, match="is or contains a source"):
            convert(tmp_path / source, Output(tmp_path / out, exist_ok=True))
    assert len(read(tmp_path / "all")["id"]) == 200
    convert(tmp_path / "view", Output(tmp_path / "all" / "c"))
    assert len(read(tmp_path / "all" / "c")["id"]) == 150


def test_another_set_is_not_written_over(source, tmp_path, write, read):
    there = write(tmp_path / "out", range(3))
    with pytest.raises(OutputExistsError, match="already holds a data set"):
        convert(source, Output(there))
    convert(source, Output(there, exist_ok=True))
    assert len(read(there)["id"]) == 200


def test_nothing_is_written_among_other_files(source, tmp_path):
    (tmp_path / "home").mkdir()
    convert(source, Output(tmp_path / "home" / "empty"))
    (tmp_path / "home" / "empty" / "index.json").unlink()  # as if it had been killed
    convert(source, Output(tmp_path / "home" / "empty"))
    (tmp_path / "home2" / "a").mkdir(parents=True)
    (tmp_path / "home2" / "a" / "letter.txt").write_text("Dear me")
    for exist_ok in (False, True):
        with pytest.raises(OutputExistsError, match=r"other files, such as .*letter\.txt"):
            convert(source, Output(tmp_path / "home2", exist_ok=exist_ok))


def test_a_run_is_not_continued_with_another_source_or_other_columns(source, tmp_path, write):
    convert(source, Output(tmp_path / "out"))
    convert(source, Output(tmp_path / "out"))  # all is there
    with pytest.raises(OutputExistsError, match=r"columns was .*--exist-ok"):
        convert(source, Output(tmp_path / "out"), columns=Columns(rename={"x": "y"}))
    with pytest.raises(OutputExistsError, match="made of other samples"):
        convert(write(tmp_path / "other", range(1, 201)), Output(tmp_path / "out"))


def test_another_file_of_the_same_size_is_another_source(tmp_path):
    def lines(name, label):
        path = tmp_path / name
        path.write_text(f'{{"label": {label}}}\n' * 5)
        return Stream(remote=str(path), format="jsonl")

    out = Output(tmp_path / "out", format="mds", processes=0)
    convert(lines("a.jsonl", 1), out)
    convert(Stream(remote=str(tmp_path / "a.jsonl"), format="jsonl"), out)
    with pytest.raises(OutputExistsError, match="made of other samples"):
        convert(lines("b.jsonl", 2), out)
    with pytest.raises(OutputExistsError, match="made of other samples"):
        convert(lines("a.jsonl", 2), out)


@pytest.mark.parametrize("size_limit", [2000, 190])  # few shards, and so many that they are listed
def test_a_source_without_digests_that_is_written_again_is_another_one(tmp_path, write, size_limit):
    options = {"hashes": [], "size_limit": size_limit, "exist_ok": True, "columns": {"id": "int"}}
    source, out = tmp_path / "source", Output(tmp_path / "out", processes=0)
    write(source, range(200), **options)
    assert (len(entries(source)) > 64) == (size_limit < 2000)
    convert(source, out)
    convert(source, out)
    convert(Stream(remote=str(source), local=str(tmp_path / "cache")), out)
    write(source, range(1, 201), **options)
    with pytest.raises(OutputExistsError, match="made of other samples"):
        convert(source, out)


@pytest.mark.parametrize("wrong", [{"compression": "zst"}, {"hashes": ["sha"]}])
def test_a_wrong_name_leaves_nothing_behind(source, tmp_path, wrong):
    with pytest.raises(StreamplugError, match=r"unknown.*(zst|sha)"):
        convert(source, Output(tmp_path / "out", **wrong))
    assert convert(source, Output(tmp_path / "out")).samples == 200


def test_a_set_without_shards_is_refused(tmp_path, write):
    write(tmp_path / "empty", ())
    with pytest.raises(ConfigError, match="there are no shards, so nothing says which columns"):
        convert(tmp_path / "empty", Output(tmp_path / "out"))


class Ending(Encoding):
    """Text with something at its end."""

    def __init__(self, stored, end):
        self._stored, self._end = stored, end

    def encode(self, value):
        return self._stored.encode(value)

    def decode(self, data):
        return self._stored.decode(data) + self._end


@dataclass(frozen=True)
class WithEnding:
    end: str

    def __call__(self, encoding):
        return Ending(encoding, self.end)


class AddsEnding:
    """Decoder that shows nothing of its arguments."""

    def __init__(self, end):
        self._end = end

    def __call__(self, encoding):
        return Ending(encoding, self._end)


@pytest.mark.parametrize(
    "make",
    [
        WithEnding,
        AddsEnding,
        lambda end: partial(Ending, end=end),
        lambda end: lambda encoding: Ending(encoding, end),
    ],
)
def test_a_run_is_not_continued_with_other_arguments_of_a_decoder(source, tmp_path, read, make):
    def run(decoder):
        stream = Stream(local=str(source), decoders={"name": decoder, "x": None})
        return convert(stream, Output(tmp_path / "out", processes=0))

    run(make("!"))
    run(make("!"))  # it is complete
    assert {name[-1] for name in read(tmp_path / "out")["name"]} == {"!"}
    with pytest.raises(OutputExistsError):
        run(make("?"))
