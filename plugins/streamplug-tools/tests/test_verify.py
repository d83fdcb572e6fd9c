from __future__ import annotations

import json
import signal
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_tools import Output, convert
from streamplug_tools.verification import verify

from streamplug import MDSWriter, Stream, merge_index, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.builtin.mds import MDSReader
from streamplug.cli import main
from streamplug.errors import ConfigError, NotFound, Transient
from streamplug.plugin.registry import make, unregister
from streamplug.plugin_kit.cancellation import sleep

COLUMNS = {"id": "int", "text": "str", "thing": "json"}


class Flaky(LocalStorage):
    """Local files, of which each download fails the first time."""

    known: ClassVar[set[str]] = set()

    def __init__(self, url, **options):
        super().__init__(url.removeprefix("flaky://"), **options)

    def download(self, key, *args, **kwargs):
        if key not in self.known:
            self.known.add(key)
            raise Transient(f"{key}: the server is busy")
        super().download(key, *args, **kwargs)


@pytest.fixture
def flaky():
    register_storage("flaky", Flaky)
    yield "flaky"
    Flaky.known.clear()
    unregister("storage", "flaky")


@pytest.fixture(params=[None, "gz"])
def folder(tmp_path, request, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    options = {"compression": request.param, "hashes": ["xxh64", "sha1"], "size_limit": 500}
    with MDSWriter(columns=COLUMNS, out=str(tmp_path / "set"), **options) as writer:
        for n in range(50):
            writer.write({"id": n, "text": f"text {n}", "thing": [n]})
    yield tmp_path / "set"
    assert list(temporary.glob("*/*")) == []  # nothing is left


def files(folder):
    return {path: path.read_bytes() for path in folder.iterdir()}


def without_checksums(folder):
    index = json.loads((folder / "index.json").read_bytes())
    for entry in index["shards"]:
        for key in ("raw_data", "zip_data"):
            (entry[key] or {})["hashes"] = {}
    (folder / "index.json").write_text(json.dumps(index))


def test_whole_data_set_has_no_problems_and_is_not_touched(folder):
    before = files(folder)
    found = verify(Stream(remote=str(folder)))
    assert (found.problems, found.samples, found.undecoded) == ((), 50, ())
    assert found.bytes == sum(len(data) for path, data in before.items() if path.suffix != ".json")
    assert files(folder) == before
    assert verify(Stream(local=str(folder)), num_threads=1) == found


def test_damage_is_told_with_its_place(folder):
    path = min(folder.glob("shard.00002*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    min(folder.glob("shard.00003*")).unlink()
    found = verify(Stream(remote=str(folder), download_retry=0))
    assert [(p.shard, p.file, p.index) for p in found.problems] == [
        (2, "shard.00002.mds", None),
        (3, "shard.00003.mds", None),
    ]
    assert "does not exist" in found.problems[1].error
    assert found.problems[1].error.count("shard 3") == 0


@pytest.mark.parametrize("hashes", [None, []])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"?" + path.read_bytes()[1:]),
        Path.unlink,
    ],
)
def test_damage_of_sizes_of_values_is_told(tmp_path, hashes, damage):
    for name in "ab":
        columns, out = {"ids": "ndarray:uint16"}, tmp_path / "set" / name
        with MDSWriter(columns=columns, out=out, size_limit=200, hashes=hashes) as writer:
            for n in range(20):
                writer.write({"ids": np.zeros(n, np.uint16)})
    merge_index(tmp_path / "set")
    stream = Stream(remote=str(tmp_path / "set"))
    found = verify(stream)
    assert (found.problems, bool(found.checksums)) == ((), hashes is None)
    paths = list(tmp_path.glob("set/*/shard.*"))
    assert found.bytes == sum(path.stat().st_size for path in paths)
    damage(tmp_path / "set" / "b" / "shard.00000.sizes")
    [problem] = verify(stream).problems
    assert (problem.file, problem.index) == ("b/shard.00000.sizes", None)
    assert problem.shard == len([*tmp_path.glob("set/a/shard.*.mds")])


def test_samples_that_cannot_be_decoded_are_named(folder):
    if any(folder.glob("*.gz")):
        pytest.skip("damage of a compressed file does not get as far as to a sample")
    without_checksums(folder)
    path = folder / "shard.00001.mds"
    data = path.read_bytes()
    at = data.index(b"text ")
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    found = verify(Stream(remote=str(folder)))
    assert [(p.shard, p.index) for p in found.problems] == [(1, 0)]
    assert "'text'" in found.problems[0].error
    told = CliRunner().invoke(main, ["verify", str(folder)]).stdout
    assert "shard 1 (shard.00001.mds): sample 0, column 'text': " in told


def test_what_can_run_code_is_decoded_only_on_demand(tmp_path):
    with MDSWriter(columns={"id": "int", "thing": "pkl"}, out=str(tmp_path / "set")) as writer:
        writer.write({"id": 1, "thing": {1}})
    assert verify(Stream(remote=str(tmp_path / "set"))).undecoded == ("thing",)
    allowed = verify(Stream(remote=str(tmp_path / "set")), allow_unsafe_types=True)
    assert allowed.undecoded == ()


def test_missing_index_is_an_error(tmp_path):
    with pytest.raises(NotFound):
        verify(Stream(remote=str(tmp_path)))


def test_command_tells_and_exits(folder):
    whole = CliRunner().invoke(main, ["verify", str(folder)])
    assert whole.exit_code == 0
    assert whole.stdout.startswith(f"{folder}: OK: 7 shards, 50 samples decode, ")
    assert whole.stdout.endswith(" bytes; checksums: sha1, xxh64\n")
    min(folder.glob("shard.00000*")).write_bytes(b"")
    damaged = CliRunner().invoke(main, ["verify", str(folder), "--retries", "0"])
    assert damaged.exit_code == 1
    assert "shard 0 (shard.00000.mds): " in damaged.stdout
    as_json = CliRunner().invoke(main, ["verify", str(folder), "--retries", "0", "--json"])
    assert [p["shard"] for p in json.loads(as_json.stdout)["problems"]] == [0]


def test_without_checksums_it_says_that_changed_values_cannot_be_found(tmp_path):
    with MDSWriter(columns={"id": "int"}, out=tmp_path / "set", hashes=[]) as writer:
        for n in range(10):
            writer.write({"id": n})
    path = tmp_path / "set" / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1  # of the last number, which then is another one
    path.write_bytes(data)
    told = CliRunner().invoke(main, ["verify", str(tmp_path / "set")])
    assert told.exit_code == 0
    assert "checksums: none, so changed bytes in values cannot be found" in told.stdout
    said = json.loads(CliRunner().invoke(main, ["verify", str(tmp_path / "set"), "--json"]).stdout)
    assert (said["ok"], said["checksums"], said["without_checksums"]) == (True, [], 1)


def test_a_set_of_which_some_shards_have_checksums_says_how_many_have_none(tmp_path):
    for name, hashes in (("a", ["sha1"]), ("b", [])):
        with MDSWriter(columns={"id": "int"}, out=tmp_path / name, hashes=hashes) as writer:
            writer.write({"id": 1})
    merge_index(tmp_path)
    told = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert "checksums: sha1, but 1 shard lacks them, where changed bytes" in told.stdout


def test_shards_whose_columns_differ_are_a_problem(tmp_path):
    both = {"a": {"id": "int", "text": "str"}, "b": {"id": "str", "label": "int"}}
    shards = []
    for name, columns in both.items():
        with MDSWriter(columns=columns, out=tmp_path / name) as writer:
            writer.write({column: 1 if spec == "int" else "x" for column, spec in columns.items()})
        [entry] = json.loads((tmp_path / name / "index.json").read_bytes())["shards"]
        entry["raw_data"]["basename"] = f"{name}/shard.00000.mds"
        shards.append(entry)
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    told = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert told.exit_code == 1
    for line in (
        "shard 1 (b/shard.00000.mds): column 'id' is 'str' in it, but 'int' in shard 0",
        "shard 1 (b/shard.00000.mds): it has no column 'text', which is 'str' in shard 0",
        "shard 1 (b/shard.00000.mds): it has a column 'label' ('int'), which shard 0 has not",
        f"{tmp_path}: 3 problems: 2 shards, 2 samples, ",
    ):
        assert line in told.stdout


def test_split_is_verified(tmp_path):
    with MDSWriter(columns={"id": "int"}, out=str(tmp_path / "set" / "val")) as writer:
        writer.write({"id": 1})
    told = CliRunner().invoke(main, ["verify", str(tmp_path / "set"), "--split", "val"])
    assert (told.exit_code, Path(tmp_path / "set" / "val").exists()) == (0, True)


@pytest.mark.parametrize("threads", [0, 1.5, "four"])
def test_number_of_threads_is_checked_before_anything_is_read(threads, tmp_path):
    with pytest.raises(ConfigError, match=r"num_threads=.* must be a whole number of at least 1"):
        verify(Stream(remote=str(tmp_path / "nowhere")), num_threads=threads)


def test_selected_rows_are_refused_as_all_are_verified(folder):
    with pytest.raises(ConfigError, match="select=: every sample"):
        verify(Stream(remote=str(folder), select=[0]))


def test_a_busy_server_is_no_damage(folder, flaky, tmp_path):
    assert verify(Stream(remote=f"{flaky}://{folder}")).ok
    Flaky.known.clear()
    written = convert(f"{flaky}://{folder}", Output(tmp_path / "out", processes=0))
    assert written.samples == 50


def test_an_interrupt_ends_downloads(folder, flaky, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Flaky, "download", lambda *_: sleep(20))
    previous = signal.signal(signal.SIGALRM, interrupt)
    started = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            verify(Stream(remote=f"{flaky}://{folder}"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("method", ["decode_batch", "decode"])
def test_a_library_that_is_not_installed_is_no_damage(folder, monkeypatch, method):
    def decode(self, *_):
        raise ConfigError("these values need cbor2: pip install cbor2")

    monkeypatch.setattr(type(make("encoding", "json")), method, decode)
    with pytest.raises(ConfigError, match="pip install cbor2"):
        verify(Stream(remote=str(folder)))
    result = CliRunner().invoke(main, ["verify", str(folder)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: these values need cbor2" in result.stderr


def test_a_shard_that_cannot_be_read_in_batches_is_a_problem(folder, monkeypatch):
    def fail(*_):
        raise ValueError("no batches")

    monkeypatch.setattr(MDSReader, "take", fail)
    problems = verify(Stream(local=str(folder))).problems
    assert {problem.index for problem in problems} == {0}
    assert all("samples together: no batches" in problem.error for problem in problems)


def test_a_shard_with_many_damaged_samples_says_that_the_rest_was_not_decoded(tmp_path):
    with MDSWriter(columns={"thing": "json"}, out=tmp_path / "set", hashes=[]) as writer:
        for _ in range(50):
            writer.write({"thing": "text"})
    shard = tmp_path / "set" / "shard.00000.mds"
    shard.write_bytes(shard.read_bytes().replace(b'"text"', b"{text}"))
    *samples, last = verify(Stream(local=str(tmp_path / "set"))).problems
    assert [problem.index for problem in samples] == list(range(20))
    assert last.index is None
    assert last.error == "20 samples are damaged; those after sample 19 were not decoded"
