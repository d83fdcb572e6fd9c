"""Whatever a data set holds, only errors of ours escape, and none is silent about the place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DataError,
    DecompressError,
    HashMismatchError,
    InvalidIndexError,
    NotFound,
    StreamplugError,
    UnknownNameError,
    UnsafeTypeError,
)

COLUMNS = {
    "array": "ndarray",
    "big": "str_int",
    "fixed": "ndarray:int16:2",
    "id": "int",
    "json": "json",
    "number": "float32",
    "text": "str",
}


def sample(number: int) -> dict[str, Any]:
    return {
        "array": np.arange(number % 4, dtype=np.float32),
        "big": number**20,
        "fixed": np.array([number, -number], np.int16),
        "id": number,
        "json": {"number": [number]},
        "number": number / 2,
        "text": f"sample number {number}",
    }


def write(out: Path, count: int = 12, **kwargs: Any) -> Path:
    options = {"size_limit": 1200, "hashes": [], **kwargs}
    with MDSWriter(columns=COLUMNS, out=out, **options) as writer:
        for number in range(count):
            writer.write(sample(number))
    return out


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sets")
    return {
        "plain": write(folder / "plain"),
        "hashed": write(folder / "hashed", hashes=["xxh64"]),
        "zipped": write(folder / "zipped", compression="gz"),
    }


def read_all(folder: Path, **kwargs: Any) -> None:
    """Read everything, in all ways there are; data errors stop one way, not the others."""
    dataset = StreamingDataset(local=str(folder), **kwargs)
    ways: list[Callable[[], object]] = [
        lambda: [dataset[i] for i in range(dataset.size)],
        lambda: dataset[:],
        lambda: dataset[[0, -1]],
        lambda: list(dataset),
        lambda: list(dataset.batches(4)),
    ]
    errors = []
    for way in ways:
        try:
            way()
        except StreamplugError as error:
            errors.append(error)
        except IndexError:
            assert not dataset.size
    if errors:
        raise errors[0]


def attempt(folder: Path, **kwargs: Any) -> StreamplugError | None:
    try:
        read_all(folder, **kwargs)
    except StreamplugError as error:
        return error
    return None


damages = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "cut", "insert", "repeat"]),
        st.floats(0, 1),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=3,
)


def damage(data: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    for kind, place, value in changes:
        at = min(int(place * len(data)), max(len(data) - 1, 0))
        if kind == "flip" and data:
            data = data[:at] + bytes([data[at] ^ (1 << value % 8)]) + data[at + 1 :]
        elif kind == "set" and data:
            data = data[:at] + bytes([value]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + bytes([value]) * (value % 5 + 1) + data[at:]
        elif kind == "repeat":
            data = data[:at] + data[max(at - value, 0) :]
    return data


@pytest.fixture
def scratch(tmp_path):
    """A copy of a data set for each example, in one place."""

    def copy(source: Path) -> Path:
        target = tmp_path / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        return target

    return copy


no_fixture_check = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@settings(no_fixture_check, max_examples=150)
@given(changes=damages, name=st.sampled_from(["plain", "hashed", "zipped"]))
def test_a_damaged_shard_gives_errors_of_ours_or_other_values(sets, scratch, changes, name):
    folder = scratch(sets[name])
    path = next(p for p in sorted(folder.iterdir()) if p.name.startswith("shard.00000"))
    before = path.read_bytes()
    path.write_bytes(damage(before, changes))
    error = attempt(folder)
    if error is not None:
        assert path.name.removesuffix(".gz") in str(error)
        assert "shard 0" in str(error)


@settings(no_fixture_check, max_examples=80)
@given(changes=damages)
def test_a_damaged_shard_is_always_noticed_with_hashes(sets, scratch, changes):
    folder = scratch(sets["hashed"])
    path = folder / "shard.00000.mds"
    before = path.read_bytes()
    path.write_bytes(damage(before, changes))
    error = attempt(folder, validate_hash="xxh64")
    if path.read_bytes() == before:
        assert error is None
    else:
        assert isinstance(error, CorruptShardError)
        assert f"shard 0: {path} has" in str(error)


@settings(no_fixture_check, max_examples=40)
@given(changes=damages)
def test_a_damaged_download_is_always_noticed_with_hashes(sets, scratch, tmp_path, changes):
    folder = scratch(sets["hashed"])
    path = folder / "shard.00000.mds"
    before = path.read_bytes()
    path.write_bytes(damage(before, changes))
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    dataset = StreamingDataset(remote=str(folder), local=str(tmp_path / "cache"), download_retry=0)
    if path.read_bytes() == before:
        assert len(dataset[:]) == 12
        return
    with pytest.raises(CorruptShardError, match=r"^shard 0: .*copy/shard\.00000\.mds has"):
        dataset[0]
    assert not (tmp_path / "cache" / path.name).exists()


@settings(no_fixture_check, max_examples=150)
@given(changes=damages, name=st.sampled_from(["plain", "hashed", "zipped"]))
def test_a_damaged_index_gives_errors_of_ours_or_other_values(sets, scratch, changes, name):
    folder = scratch(sets[name])
    path = folder / "index.json"
    path.write_bytes(damage(path.read_bytes(), changes))
    attempt(folder)


KEYS = [
    "version",
    "format",
    "compression",
    "hashes",
    "samples",
    "size_limit",
    "zip_data",
    "raw_data",
    "column_names",
    "column_encodings",
    "column_sizes",
    "raw_data.basename",
    "raw_data.bytes",
    "raw_data.hashes",
]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.sampled_from(
        ["", "mds", "gz", "int", "str", "../x", "index.json", "ndarray:int8:9999999999", "pkl"]
    )
    | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(no_fixture_check, max_examples=200)
@given(
    key=st.sampled_from(KEYS),
    value=json_values,
)
def test_any_value_in_an_index_gives_errors_of_ours_or_other_values(sets, scratch, key, value):
    folder = scratch(sets["hashed"])
    index = json.loads((folder / "index.json").read_bytes())
    outer, _, inner = key.partition(".")
    entry = index["shards"][1]
    if inner:
        entry[outer][inner] = value
    else:
        entry[outer] = value
    (folder / "index.json").write_bytes(json.dumps(index).encode())
    attempt(folder)
    before = sorted(p.name for p in folder.parent.iterdir())
    assert before == ["copy"]


@settings(no_fixture_check, max_examples=60)
@given(data=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_in_the_place_of_an_index_give_errors_of_ours(sets, scratch, data):
    folder = scratch(sets["plain"])
    (folder / "index.json").write_bytes(data)
    error = attempt(folder)
    assert isinstance(error, InvalidIndexError)
    assert str(folder / "index.json") in str(error)


def edit(folder: Path, **changes: Any) -> Path:
    index = json.loads((folder / "index.json").read_bytes())
    index["shards"][0].update(changes)
    (folder / "index.json").write_bytes(json.dumps(index).encode())
    return folder


def test_a_missing_index_says_what_may_be_wrong(tmp_path):
    with pytest.raises(NotFound) as caught:
        StreamingDataset(local=str(tmp_path), split="train")
    assert str(caught.value) == (
        f"{tmp_path}/train/index.json does not exist: there is no data set, or its writer has not "
        "finished; check remote=, local= and split=; files "
        "of formats that need no index, such as Parquet, are read with their format= (--src-format)"
    )


@pytest.mark.parametrize("data", [b"", b'{"shards": [', b"[]", b'{"version": 3, "shards": []}'])
def test_an_index_that_is_none_names_its_file(tmp_path, data):
    (tmp_path / "index.json").write_bytes(data)
    with pytest.raises(InvalidIndexError, match=rf"^{tmp_path}/index\.json "):
        StreamingDataset(local=str(tmp_path))


def test_a_hostile_file_name_reads_nothing_outside(sets, scratch, tmp_path):
    folder = scratch(sets["plain"])
    size = (folder / "shard.00000.mds").stat().st_size
    shutil.move(folder / "shard.00000.mds", tmp_path / "outside.mds")
    file = {"basename": "../outside.mds", "bytes": size, "hashes": {}}
    with pytest.raises(InvalidIndexError, match=r"index\.json: shard 0: raw_data\.basename"):
        StreamingDataset(local=str(edit(folder, raw_data=file)))


def test_an_unknown_compression_is_named_when_it_is_needed(sets, scratch):
    folder = edit(scratch(sets["zipped"]), compression="gzz:3")
    with pytest.raises(UnknownNameError, match=r"unknown compression 'gzz'.* Did you mean 'gz'"):
        StreamingDataset(local=str(folder))[0]


def test_an_encoding_that_runs_code_is_refused_unless_allowed(tmp_path):
    with MDSWriter(columns={"id": "int", "thing": "pkl"}, out=tmp_path) as writer:
        writer.write({"id": 1, "thing": {"a": (1, 2)}})
    with pytest.raises(UnsafeTypeError) as caught:
        StreamingDataset(local=str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}/index.json: column 'thing' contains an unsafe type: 'pkl' can run code from the "
        "data; pass allow_unsafe_types=True if you trust its writer, or leave the column out with "
        "columns="
    )
    assert StreamingDataset(local=str(tmp_path), columns=["id"])[0] == {"id": 1}
    allowed = StreamingDataset(local=str(tmp_path), allow_unsafe_types=True)
    assert allowed[0] == {"id": 1, "thing": {"a": (1, 2)}}


def test_no_columns_are_refused(sets):
    with pytest.raises(ConfigError, match=r"columns=\[\] reads nothing"):
        StreamingDataset(local=str(next(iter(sets.values()))), columns=[])


def test_columns_that_do_not_exist_are_named(sets):
    with pytest.raises(ConfigError, match=r"plain/index\.json has no \['no'\], only \['array'"):
        StreamingDataset(local=str(sets["plain"]), columns=["id", "no"])


@pytest.mark.parametrize("name", ["plain", "zipped"])
def test_a_digest_that_the_index_lacks_is_named(sets, scratch, name):
    dataset = StreamingDataset(local=str(scratch(sets[name])), validate_hash="sha1")
    with pytest.raises(
        ConfigError, match=r"validate_hash='sha1', but the index has for .* only: no"
    ):
        dataset[0]


def test_a_compressed_shard_that_is_damaged_is_named(sets, scratch):
    folder = scratch(sets["zipped"])
    path = folder / "shard.00000.mds.gz"
    path.write_bytes(path.read_bytes()[:-10] + bytes(10))
    with pytest.raises(DecompressError, match=rf"^shard 0: {path}: 'gz' data "):
        StreamingDataset(local=str(folder))[0]


def test_a_bomb_is_not_unpacked(sets, scratch):
    import gzip

    folder = scratch(sets["zipped"])
    bomb = gzip.compress(bytes(100_000_000), 9)
    (folder / "shard.00000.mds.gz").write_bytes(bomb)
    file = {"basename": "shard.00000.mds.gz", "bytes": len(bomb), "hashes": {}}
    with pytest.raises(DecompressError, match=r"expands beyond the \d+ bytes announced for it"):
        StreamingDataset(local=str(edit(folder, zip_data=file)))[0]
    assert not (folder / "shard.00000.mds").exists()


def test_an_undecodable_value_is_named_in_every_way_of_reading(sets, scratch):
    folder = scratch(sets["plain"])
    path = folder / "shard.00000.mds"
    path.write_bytes(path.read_bytes().replace(b"sample number 2", b"sample number \xf0"))
    dataset = StreamingDataset(local=str(folder), batch_size=4)
    for way in (
        lambda: dataset[2],
        lambda: dataset[:],
        lambda: list(dataset),
        lambda: list(dataset.batches()),
    ):
        with pytest.raises(DataError) as caught:
            way()
        assert str(caught.value).startswith(f"shard 0 ({path}): sample 2, column 'text': not UTF-8")


def test_a_shard_of_another_set_is_refused(sets, scratch, tmp_path):
    folder = scratch(sets["hashed"])
    other = write(tmp_path / "other", 12, hashes=["xxh64"])
    first, second = (f"shard.0000{n}.mds" for n in (0, 1))
    shutil.copy(other / second, folder / first)
    with pytest.raises((HashMismatchError, CorruptShardError), match=r"shard 0"):
        StreamingDataset(local=str(folder), validate_hash="xxh64")[0]
