from __future__ import annotations

import copy
import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamplug.errors import InvalidIndexError, StreamplugError, UnknownNameError
from streamplug.index import Companion, parse_index, source_of, write_companion
from streamplug.index.columns import Absent, HexTexts, Numbered, Texts
from streamplug.index.layout import HEAD_BYTES, Head
from streamplug.index.mapped import MappedArray
from streamplug.index.model import FileTable, Index

WHERE = "index.json"
no_fixture_check = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def shard(number: int = 0, **changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "column_encodings": ["int"],
        "column_names": ["id"],
        "column_sizes": [8],
        "compression": "gz",
        "format": "mds",
        "hashes": ["xxh64"],
        "raw_data": {
            "basename": f"shard.{number:05d}.mds",
            "bytes": 1000 + number,
            "hashes": {"xxh64": f"{number:016x}"},
        },
        "samples": 10 + number % 7,
        "size_limit": None,
        "version": 2,
        "zip_data": None,
    }
    return {**entry, **changes}


def document(*entries: Any) -> bytes:
    return json.dumps({"shards": list(entries), "version": 2}).encode()


def written(data: bytes, path: Path) -> Path:
    write_companion(parse_index(data, WHERE), source_of(data), path)
    return path


def content(index: Index) -> list[Any]:
    shards = range(len(index))
    return [
        index.starts.tolist(),
        [index.shard(n) for n in shards],
        [(index.schema(n).entry, index.schema(n).columns[0].spec) for n in shards],
        (index.digest, index.size, index.raw_bytes, index.compressed),
    ]


DATA = document(
    *(shard(n) for n in range(20)),
    shard(20, raw_data={"basename": "ü/odd.mds", "bytes": 5000, "hashes": {"sha1": "not hex"}}),
    shard(21, column_encodings=["int8"], column_sizes=[1], samples=0),
    shard(22, zip_data={"basename": "z.gz", "bytes": 77, "hashes": {"md5": "ab"}}),
)


@pytest.fixture
def path(tmp_path) -> Path:
    return written(DATA, tmp_path / "companion")


files = st.builds(
    lambda name, size, hashes: {"basename": name, "bytes": size, "hashes": hashes},
    st.sampled_from(["shard.00001.mds", "a b", "ü/日", "7"]),
    st.sampled_from([500, 4096, (1 << 32) - 1]),
    st.dictionaries(
        st.sampled_from(["sha1", "xxh64"]), st.sampled_from(["00ff", "ab", "é"]), max_size=2
    ),
)
entries = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "raw_data": files,
            "zip_data": files,
            "samples": st.integers(0, 100),
            "novelty": st.sampled_from([1, None, [float("inf")], "\ud800"]),
        },
    ),
    max_size=8,
)


@settings(no_fixture_check, max_examples=80)
@given(entries=entries)
def test_a_companion_says_what_its_index_says(tmp_path, entries):
    data = document(*(shard(number, **changes) for number, changes in enumerate(entries)))
    companion = Companion(written(data, tmp_path / "companion"), "it")
    companion.verify()
    assert content(companion.index) == content(parse_index(data, WHERE))
    assert companion.source == source_of(data)


def test_columns_are_mapped_and_small(tmp_path):
    data = document(*(shard(number) for number in range(100)))
    index = Companion(written(data, tmp_path / "companion"), "it").index
    table = index.tables["raw_data"]
    assert isinstance(index.starts, MappedArray)
    assert not index.starts.flags.writeable
    assert table.basenames == Numbered("shard.", 5, ".mds")
    assert table.bytes.dtype == np.uint32
    assert isinstance(table.hashes.columns["xxh64"], HexTexts)
    assert (tmp_path / "companion").stat().st_size < 100 * 20 + 1500


def test_a_mapped_array_is_sent_as_the_place_that_it_comes_from(tmp_path):
    data = document(*(shard(number) for number in range(5000)))
    path = written(data, tmp_path / "companion")
    index = Companion(path, "it").index
    sent = pickle.dumps(index)
    assert len(sent) < 3000
    again = pickle.loads(sent)
    assert isinstance(again.starts, MappedArray)
    assert len(pickle.dumps(again)) < 3000
    assert content(again) == content(index)
    assert (copy.deepcopy(index.starts) == index.starts).all()


def test_what_is_made_of_a_mapped_array_is_sent_as_values(path):
    starts = Companion(path, "it").index.starts
    for part in (starts[3:7], starts + 1, starts[[1, 2]]):
        again = pickle.loads(pickle.dumps(part))
        assert type(again) is np.ndarray
        assert again.tolist() == part.tolist()


def test_a_file_that_was_replaced_is_not_mapped_again(path):
    sent = pickle.dumps(Companion(path, "it").index)
    path.unlink()
    written(document(shard()), path)
    with pytest.raises(
        InvalidIndexError, match="is another file than when the data set was opened"
    ):
        pickle.loads(sent)


# -- damage -----------------------------------------------------------------------------


def test_a_companion_that_was_cut_short_is_refused(path):
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(InvalidIndexError):
            Companion(path, "it")


@settings(no_fixture_check, max_examples=150)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_or_does_nothing(path, place, bit):
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    changed = path.with_name("changed")
    changed.write_bytes(data)
    try:
        companion = Companion(changed, "it")
        companion.verify()
    except InvalidIndexError:
        return
    assert content(companion.index) == content(Companion(path, "it").index)


@settings(no_fixture_check, max_examples=80)
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_a_damaged_companion_that_was_not_verified_gives_errors_of_ours(path, place, value):
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] = value
    changed = path.with_name("changed")
    changed.write_bytes(data)
    with suppress(StreamplugError):
        content(Companion(changed, "it").index)


def test_another_file_and_another_version_are_told_apart(path):
    data = path.read_bytes()
    path.write_bytes(b"\0" + data[1:])
    with pytest.raises(InvalidIndexError, match="it is no companion of an index"):
        Companion(path, "it")
    path.write_bytes(data[:12] + b"\2" + data[13:])
    with pytest.raises(
        InvalidIndexError, match="it has version 2; this streamplug reads version 1"
    ):
        Companion(path, "it")
    path.write_bytes(b"")
    with pytest.raises(InvalidIndexError, match="is empty"):
        Companion(path, "it")


def edited(path: Path, change) -> Path:
    """Change the description of a companion, and make its digest fit again."""
    data = path.read_bytes()
    at = int.from_bytes(data[16:24], "little")
    said = json.loads(data[at:])
    change(said)
    text = json.dumps(said).encode()
    head = Head(at, len(text), xxhash.xxh3_128_digest(text)).pack()
    path.write_bytes(head + data[HEAD_BYTES:at] + text)
    return path


def names_of(said: Any) -> Any:
    return said["tables"]["raw_data"]["basenames"]


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.clear(),
        lambda said: said.pop("starts"),
        lambda said: said.update(shards=10**15),
        lambda said: said.update(shards=-1),
        lambda said: said.update(samples=7),
        lambda said: said.update(digest="00"),
        lambda said: said.update(source=5),
        lambda said: said.update(source={"bytes": 1}),
        lambda said: said.update(tables=[]),
        lambda said: said.update(tables={}),
        lambda said: said.update(schemas=5),
        lambda said: said.update(schema_of=None),
        lambda said: said["schema_of"].update(dtype="<i8"),
        lambda said: said["starts"].update(at=1 << 62),
        lambda said: said["starts"].update(at=-8),
        lambda said: said["starts"].update(at=65),
        lambda said: said["starts"].update(at="0"),
        lambda said: said["starts"].update(dtype="O"),
        lambda said: said["starts"].update(shape=[-1]),
        lambda said: said["starts"].update(at=said["tables"]["raw_data"]["bytes"]["at"]),
        lambda said: said["tables"]["raw_data"].update(bytes=None),
        lambda said: said["tables"]["raw_data"].update(total="x"),
        lambda said: said["tables"]["raw_data"].update(hashes=5),
        lambda said: said["tables"]["raw_data"].update(basenames={"kind": "magic"}),
        lambda said: names_of(said)["text"].update(shape=[1 << 62]),
        lambda said: names_of(said)["text"].update(shape=[]),
        lambda said: said["tables"]["raw_data"].update(
            basenames={"kind": "numbered", "prefix": "", "digits": 10**9, "suffix": "", "first": 0}
        ),
        lambda said: said["tables"]["raw_data"].update(
            basenames={"kind": "numbered", "prefix": "", "digits": 1, "suffix": "", "first": 10**18}
        ),
    ],
)
def test_a_description_that_cannot_be_true_is_refused(path, change):
    with pytest.raises(InvalidIndexError, match=r"it is damaged .* streamplug index build"):
        Companion(edited(path, change), "it")


def test_a_description_that_is_no_object_is_refused(path):
    for text in (b"[]", b"5", b"[" * 100_000, b"\xff"):
        head = Head(HEAD_BYTES, len(text), xxhash.xxh3_128_digest(text)).pack()
        path.write_bytes(head + text)
        with pytest.raises(InvalidIndexError, match="it is damaged"):
            Companion(path, "it")


def test_an_encoding_that_is_not_known_is_named(path):
    with pytest.raises(UnknownNameError, match="it: column 'id': unknown encoding 'intt'"):
        Companion(
            edited(path, lambda said: said["schemas"][0].update(column_encodings=["intt"])), "it"
        )


@pytest.mark.parametrize(
    "name",
    [
        "../shard.{}",
        "/etc/{}",
        "a/../../{}",
        "s3://bucket/{}",
        "{}\0",
        "~/{}",
        ".streamplug/{}",
        "C:{}",
    ],
)
@pytest.mark.parametrize("key", ["raw_data", "zip_data"])
def test_a_file_name_that_leads_outside_is_refused_like_that_of_an_index(path, name, key):
    prefix, _, suffix = name.partition("{}")
    column = {"kind": "numbered", "prefix": prefix, "digits": 2, "suffix": suffix, "first": 0}
    index = Companion(
        edited(path, lambda said: said["tables"][key].update(basenames=column)), "it"
    ).index
    with pytest.raises(InvalidIndexError) as caught:
        index.shard(3)
    assert str(caught.value).startswith(f"it: shard 3: {key}.basename ")
    assert "is not a relative path inside the data set" in str(caught.value)


def test_a_file_name_in_the_text_that_leads_outside_is_refused(tmp_path):
    index = parse_index(DATA, WHERE)
    table = index.tables["raw_data"]
    texts = table.basenames
    assert isinstance(texts, Texts)
    evil = np.array(bytes(texts.text).replace(b"\xc3\xbc/odd", b"../od"), "S").tobytes()
    bounds = np.where(texts.bounds > texts.bounds[20], texts.bounds - 1, texts.bounds)
    hostile = FileTable(Texts(bounds, np.frombuffer(evil, np.uint8)), table.bytes, table.hashes)
    made = Index(index.starts, index.schemas, index.schema_of, {"raw_data": hostile})
    write_companion(made, source_of(DATA), tmp_path / "companion")
    opened = Companion(tmp_path / "companion", "it").index
    with pytest.raises(
        InvalidIndexError, match=r"it: shard 20: raw_data.basename '../od.mds' is not"
    ):
        opened.shard(20)


def test_shards_that_cannot_hold_their_samples_are_refused(path):
    def change(said: Any) -> None:
        said["tables"]["raw_data"]["bytes"] = said["tables"]["zip_data"]["bytes"]

    with pytest.raises(
        InvalidIndexError, match="it: shard 3: 13 samples cannot lie in a file of 0"
    ):
        Companion(edited(path, change), "it").index.shard(3)


def test_a_shard_without_files_or_schema_is_refused(path):
    def no_names(said: Any) -> None:
        said["tables"]["raw_data"]["basenames"] = {"kind": "absent"}

    def one_schema(said: Any) -> None:
        said["schemas"] = said["schemas"][:1]

    with pytest.raises(InvalidIndexError, match="it: shard 3: it has no files"):
        Companion(edited(path, no_names), "it").index.shard(3)
    with pytest.raises(InvalidIndexError, match="it: shard 21: it has no schema 1"):
        Companion(edited(path, one_schema), "it").index.shard(21)


def test_starts_that_fall_are_refused(tmp_path):
    index = parse_index(document(shard(0), shard(1), shard(2)), WHERE)
    starts = np.array([0, 30, 20, 33])
    made = Index(starts, index.schemas, index.schema_of, index.tables)
    write_companion(made, source_of(b""), tmp_path / "companion")
    with pytest.raises(InvalidIndexError, match="a shard has less than no samples"):
        Companion(tmp_path / "companion", "it")


def test_only_columns_can_be_written(tmp_path):
    index = parse_index(document(shard()), WHERE)
    for table in (FileTable(["a"], np.ones(1), [{}]), FileTable(Absent(), np.ones(1), [{}])):
        made = Index(index.starts, index.schemas, index.schema_of, {"raw_data": table})
        with pytest.raises(TypeError, match="a companion holds"):
            write_companion(made, source_of(b""), tmp_path / "companion")


def test_the_digest_is_that_of_the_index(path):
    assert Companion(path, "it").index.digest == parse_index(DATA, WHERE).digest
    assert parse_index(document(shard()), WHERE).digest != parse_index(DATA, WHERE).digest
