from __future__ import annotations

import ctypes
import errno
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.builtin.mds import MDS, MDSLayout
from streamplug.errors import CorruptShardError, DataError, NotFound, StorageError
from streamplug.interfaces import GatherBuffer
from streamplug.plugin import registry
from streamplug.read import OpenShards, Reader, memory_map
from streamplug.read import gather as gathered_module
from streamplug.read import open_shards as shards_module
from tests.mixing import needs_mixing

COLUMNS = {"id": "int", "text": "str", "pixels": "ndarray:uint8:4", "bag": "ndarray"}


def sample(number: int) -> dict[str, object]:
    return {
        "id": number,
        "text": f"sample {number}",
        "pixels": np.full(4, number % 256, np.uint8),
        "bag": np.arange(number % 3, dtype=np.int16),
    }


def write(folder, numbers, columns=COLUMNS, **kwargs):
    with MDSWriter(columns=columns, out=folder, **kwargs) as writer:
        for number in numbers:
            writer.write({name: sample(number)[name] for name in columns})
    return str(folder)


def reader(*folders, columns=None):
    opened = [Stream(local=folder).open() for folder in folders]
    return Reader(
        [stream.index.starts for stream in opened],
        [OpenShards(stream.index, stream.store, columns) for stream in opened],
    )


@pytest.fixture
def two(tmp_path):
    one = write(tmp_path / "one", range(100), size_limit=2000)
    return reader(one, write(tmp_path / "two", range(100, 150), size_limit=1500))


def ids(samples):
    return [sample["id"] for sample in samples]


def test_ids_count_through_the_shards_of_all_streams(two):
    assert len(two.starts) > 5
    assert two.starts[-1] == 150
    assert ids(two.row(i) for i in range(150)) == list(range(150))
    assert ids(two.rows(np.arange(150))) == list(range(150))


def test_rows_come_in_the_order_that_was_asked_for(two):
    asked = np.random.default_rng(1).integers(0, 150, 500)
    assert ids(two.rows(asked)) == asked.tolist()
    batch = two.batch(asked)
    assert batch["id"].tolist() == asked.tolist()
    assert batch["text"] == [f"sample {i}" for i in asked]
    assert batch["pixels"].shape == (500, 4)
    assert batch["pixels"][:, 0].tolist() == asked.tolist()
    assert [len(bag) for bag in batch["bag"]] == [i % 3 for i in asked.tolist()]


def test_rows_are_those_of_single_reads(two):
    for one, many in zip(map(two.row, (3, 149, 70)), two.rows(np.array([3, 149, 70]))):
        assert list(one) == list(many)
        assert all(np.array_equal(one[name], many[name]) for name in one)
        assert all(type(one[name]) is type(many[name]) for name in one)


def test_no_ids_give_nothing(two):
    none = np.array([], np.int64)
    assert two.rows(none) == []
    assert two.batch(none) == {}
    assert two.shards_of(none) == []


def test_the_shards_of_samples_come_in_the_order_of_need(two):
    first = two.starts[:-1]
    assert two.shards_of(first[[4, 0, 2, 4, 0]]) == [4, 0, 2]
    assert two.shards_of(np.array([[149, 0], [0, 149]])) == [len(first) - 1, 0]


def test_streams_of_different_columns_give_rows_but_no_batch(tmp_path):
    one = write(tmp_path / "one", range(3))
    two = write(tmp_path / "two", range(3, 5), {"id": "int"})
    it = reader(one, two)
    assert [len(row) for row in it.rows(np.arange(5))] == [4, 4, 4, 1, 1]
    with pytest.raises(DataError) as caught:
        it.batch(np.arange(5))
    assert "two/shard.00000.mds) has the columns ['id'], others ['bag', 'id'" in str(caught.value)
    assert "choose those that all have with columns=, or iterate over samples" in str(caught.value)
    assert reader(one, two, columns=["id"]).batch(np.arange(5))["id"].tolist() == list(range(5))


def test_columns_of_different_encodings_are_merged_into_a_list(tmp_path):
    one = write(tmp_path / "one", range(3), {"id": "int"})
    with MDSWriter(columns={"id": "int8"}, out=tmp_path / "two") as writer:
        writer.write({"id": 3})
    merged = reader(one, str(tmp_path / "two")).batch(np.array([3, 0, 2]))["id"]
    assert merged == [3, 0, 2]
    assert [type(value) for value in merged] == [np.int8, int, int]


def count_takes(monkeypatch):
    taken = []
    take = MDSLayout.take
    monkeypatch.setattr(MDSLayout, "take", lambda *args: taken.append(len(args[4])) or take(*args))
    return taken


@needs_mixing
def test_what_a_batch_is_does_not_depend_on_those_read_along_with_it(tmp_path):
    for shape in (2, 3):
        columns = {"id": "int", "vector": f"ndarray:float32:{shape}"}
        with MDSWriter(columns=columns, out=tmp_path / str(shape), size_limit=500) as writer:
            for number in range(64):
                writer.write({"id": number, "vector": np.full(shape, number, np.float32)})

    def make():
        return StreamingDataset(
            streams=[Stream(local=str(tmp_path / shape)) for shape in "23"],
            batching_method="per_stream",
            shuffle=True,
            batch_size=8,
        )

    batches = list(make().batches())
    assert {batch["vector"].shape for batch in batches} == {(8, 2), (8, 3)}
    assert all((batch["vector"] == batch["id"][:, None]).all() for batch in batches)
    for used in (1, 3, 6):
        data = make()
        data.load_state_dict(make().state_dict(used * 8))
        for left, whole in zip(data.batches(), batches[used:], strict=True):
            assert left["vector"].tolist() == whole["vector"].tolist()
            assert left["vector"].dtype == whole["vector"].dtype == np.float32


def test_shards_of_all_streams_are_read_at_once_where_their_columns_are_the_same(two, monkeypatch):
    taken = count_takes(monkeypatch)
    order = np.random.default_rng(0).permutation(150)
    assert two.batch(order)["id"].tolist() == order.tolist()
    assert ids(two.rows(order)) == order.tolist()
    assert taken == [150, 150]


def test_other_columns_in_between_split_it(tmp_path, monkeypatch):
    one = write(tmp_path / "one", range(60), {"id": "int"}, size_limit=500)
    with MDSWriter(columns={"id": "int8"}, out=tmp_path / "two") as writer:
        for number in range(60, 70):
            writer.write({"id": number})
    three = write(tmp_path / "three", range(70, 100), {"id": "int"}, size_limit=500)
    it = reader(one, str(tmp_path / "two"), three)
    taken = count_takes(monkeypatch)
    order = np.random.default_rng(0).permutation(100)
    assert [int(value) for value in it.batch(order)["id"]] == order.tolist()
    assert taken == [60, 30]


def test_formats_with_different_arguments_are_read_apart(tmp_path, monkeypatch):
    class Variant(MDS):
        @classmethod
        def from_spec(cls, argument):
            return cls()

    monkeypatch.setitem(registry._registered["format"], "variant", Variant)
    folders = []
    for name, numbers in (("variant:1", range(60)), ("variant:2", range(60, 100))):
        folders.append(write(tmp_path / name[-1], numbers, {"id": "int"}, size_limit=500))
        index = Path(folders[-1], "index.json")
        index.write_text(index.read_text().replace('"format": "mds"', f'"format": "{name}"'))
        assert name in index.read_text()
    it = reader(*folders)
    taken = count_takes(monkeypatch)
    order = np.random.default_rng(0).permutation(100)
    assert it.batch(order)["id"].tolist() == order.tolist()
    assert not it.decodes_lazily
    assert taken == [60, 40]


@pytest.mark.parametrize("damage", ["length", "value"])
def test_an_error_among_many_shards_names_the_one(tmp_path, damage):
    folder = write(tmp_path / "one", range(100), {"id": "int", "text": "str"}, size_limit=500)
    it = reader(folder)
    assert len(it.starts) > 8
    path = sorted((tmp_path / "one").glob("*.mds"))[3]
    row = 2
    number = int(it.starts[3]) + row
    text = f"sample {number}".encode()
    length = len(text).to_bytes(4, "little")
    old, new = {
        "length": (length + number.to_bytes(8, "little"), b"\xff" + bytes(11)),
        "value": (text, b"\xff" + text[1:]),
    }[damage]
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    for read in (it.rows, it.batch):
        with pytest.raises(DataError, match=rf"^shard 3 \({path}\): sample {row}[:,]"):
            read(np.arange(100))


@pytest.mark.parametrize("offset", [0, 1 << 20, (1 << 32) - 1])
@pytest.mark.parametrize("columns", [{"id": "int"}, {"id": "int", "text": "str"}])
def test_offsets_that_are_overwritten_while_mapped_are_an_error(tmp_path, columns, offset):
    folder = write(tmp_path / "one", range(100), columns, size_limit=500)
    it = reader(folder)
    it.batch(np.arange(100))  # opens all
    for path in sorted((tmp_path / "one").glob("*.mds"))[3:]:
        with path.open("r+b") as file:
            file.seek(4 + 4 * 2)
            file.write(offset.to_bytes(4, "little"))
    for read in (it.rows, it.batch):
        with pytest.raises(DataError, match=r"^shard 3 .*: "):
            read(np.arange(100))


def test_what_lies_between_mapped_files_is_never_read(tmp_path):
    """Here it lies behind the file in the same buffer, so that reading it would go unnoticed."""
    folder = write(tmp_path / "one", range(4), {"text": "str"})
    opened = reader(folder).open(0)
    data = np.array(opened.data)
    size = len(data)
    offsets = data[4:24].view("<u4")
    start, end = int(offsets[3]), int(offsets[4])
    offsets[3:] += size  # the last sample is said to be in the copy
    twice = np.concatenate([data, opened.data])
    with pytest.raises(Exception, match=r"^0$"):
        opened.layout.take(
            GatherBuffer(twice),
            np.zeros(1, np.int64),
            np.array([size]),
            np.array([3]),
            opened.columns,
        )
    sound = opened.layout.take(
        GatherBuffer(twice), np.array([size]), np.array([size]), np.array([3]), opened.columns
    )
    assert sound == [["sample 3"]]
    assert twice[size + start : size + end].tobytes().endswith(b"sample 3")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_wait_for_a_thread_that_it_lacks(two):
    two.batch(np.arange(150))
    with ExitStack() as held:
        for shards in two._streams:
            held.enter_context(shards._lock)  # as another thread might at the moment of a fork
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os._exit(0 if two.batch(np.arange(150))["id"].tolist() == list(range(150)) else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert two.batch(np.arange(150))["id"].tolist() == list(range(150))


def test_a_limit_does_not_keep_what_is_evicted(tmp_path):
    folder = write(tmp_path / "far", range(200), size_limit=1500)
    size = max(path.stat().st_size for path in (tmp_path / "far").glob("*.mds"))
    dataset = StreamingDataset(
        remote=folder,
        local=str(tmp_path / "near"),
        cache_limit=4 * size,
        shuffle=True,
        batch_size=50,
    )
    assert dataset.num_shards > 6
    for _ in range(2):
        found = [number for batch in dataset.batches() for number in batch["id"].tolist()]
        assert sorted(found) == list(range(200))


def test_a_shard_is_opened_once(two, monkeypatch):
    opened = []
    original = OpenShards._open_shard
    monkeypatch.setattr(
        OpenShards, "_open_shard", lambda self, n: opened.append(n) or original(self, n)
    )
    for _ in range(3):
        two.rows(np.arange(20))
    assert len(opened) == len(set(opened)) > 0


def test_a_bounded_number_of_shards_stays_open(tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "MAX_OPEN", 3)
    stream = Stream(local=write(tmp_path / "one", range(100), size_limit=1000)).open()
    shards = OpenShards(stream.index, stream.store, None)
    it = Reader([stream.index.starts], [shards])
    assert len(it.starts) > 5
    for _ in range(2):
        assert ids(it.rows(np.arange(100))) == list(range(100))
    assert len(shards._open) == 3


@pytest.fixture
def few_maps(monkeypatch):
    """Return a function that limits the memory maps of shards."""
    map_, unmap = memory_map._functions()
    mapped = []

    def limit(number):
        def limited(*arguments):
            if len(mapped) >= number:
                ctypes.set_errno(errno.ENOMEM)
                return ctypes.c_void_p(-1).value
            mapped.append(map_(*arguments))
            return mapped[-1]

        def release(at, size):
            mapped.remove(at)
            unmap(at, size)

        monkeypatch.setattr(memory_map, "_functions", lambda: (limited, release))

    return limit


def test_shards_of_all_streams_are_closed_where_no_more_can_be_mapped(tmp_path, few_maps):
    one = write(tmp_path / "one", range(60), size_limit=1000)
    it = reader(one, write(tmp_path / "two", range(60, 100), size_limit=1000))
    few_maps(4)
    for first in (0, 30, 58, 90, 0):
        assert ids(it.rows(np.arange(first, first + 5))) == list(range(first, first + 5))


def test_an_error_says_which_limit_to_raise_where_nothing_can_be_mapped(tmp_path, few_maps):
    it = reader(write(tmp_path / "one", range(20)))
    few_maps(0)
    with pytest.raises(
        StorageError, match=r"Cannot allocate memory; raise .*ulimit -v.*max_map_count"
    ):
        it.row(0)


def test_the_shard_used_last_stays_open(tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "MAX_OPEN", 2)
    it = reader(write(tmp_path / "one", range(100), size_limit=1000))
    first = it.open(0)
    it.open(1)
    assert it.open(0) is first
    it.open(2)
    assert it.open(0) is first
    assert it.open(1) is not None


def test_a_large_read_maps_its_shard_at_once(tmp_path):
    it = reader(write(tmp_path / "one", range(200)))
    it.rows(np.arange(10))
    assert not it.open(0).populated
    it.rows(np.arange(100))
    assert it.open(0).populated


def test_a_very_large_shard_is_not_mapped_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(gathered_module, "_MAX_POPULATED_BYTES", 100)
    it = reader(write(tmp_path / "one", range(200)))
    assert ids(it.rows(np.arange(200))) == list(range(200))
    assert not it.open(0).populated


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at /proc")
def test_open_shards_take_no_file_descriptors(tmp_path):
    # A process may have 1,024 of them, as a rule, and of each stream hundreds of shards are open.
    it = reader(write(tmp_path / "one", range(100), size_limit=1000))
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert ids(it.rows(np.arange(100))) == list(range(100))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_error_names_shard_file_sample_and_column(tmp_path):
    folder = write(tmp_path / "one", range(10), {"id": "int", "text": "str"})
    path = tmp_path / "one" / "shard.00000.mds"
    path.write_bytes(path.read_bytes().replace(b"sample 7", b"sampl\xff 7"))
    it = reader(folder)
    for read in (it.rows, it.batch, lambda numbers: it.row(int(numbers[7]))):
        with pytest.raises(DataError) as caught:
            read(np.arange(10))
        assert str(caught.value) == (
            f"shard 0 ({path}): sample 7, column 'text': not UTF-8: invalid start byte at byte 5"
        )


def test_a_damaged_header_names_the_file_and_what_to_do(tmp_path):
    folder = write(tmp_path / "one", range(10))
    path = tmp_path / "one" / "shard.00000.mds"
    path.write_bytes(b"\x0b" + path.read_bytes()[1:])
    with pytest.raises(CorruptShardError) as caught:
        reader(folder).row(0)
    assert str(caught.value) == (
        f"shard 0 ({path}): it holds 11 samples, the index says 10; "
        "the file is damaged, write or copy it again"
    )


def test_a_directory_in_the_place_of_a_shard_is_named(tmp_path):
    folder = write(tmp_path / "one", range(10))
    path = tmp_path / "one" / "shard.00000.mds"
    path.unlink()
    path.mkdir()
    with pytest.raises((StorageError, CorruptShardError), match=r"shard\.00000\.mds"):
        reader(folder).row(0)


def test_a_directory_of_just_the_size_of_a_shard_is_named(tmp_path, monkeypatch):
    folder = write(tmp_path / "one", range(10))
    path = tmp_path / "one" / "shard.00000.mds"
    path.unlink()
    path.mkdir()
    monkeypatch.setattr("streamplug.cache.store.is_complete", lambda *_: True)
    with pytest.raises(StorageError, match=r"shard\.00000\.mds: Is a directory"):
        reader(folder).row(0)


def test_a_shard_that_shrinks_after_it_was_checked_is_refused(tmp_path, monkeypatch):
    folder = write(tmp_path / "one", range(10))
    path = tmp_path / "one" / "shard.00000.mds"
    monkeypatch.setattr("streamplug.cache.store.is_complete", lambda *_: True)
    for data in (b"", b"short"):
        path.write_bytes(data)
        with pytest.raises(CorruptShardError, match=rf"mds\): {len(data)} bytes, the index says"):
            reader(folder).row(0)


def test_a_shard_that_vanished_is_named(tmp_path):
    folder = write(tmp_path / "one", range(10))
    (tmp_path / "one" / "shard.00000.mds").unlink()
    with pytest.raises(
        NotFound, match=r"shard 0: .*shard\.00000\.mds does not exist; pass remote="
    ):
        reader(folder).row(0)


def test_batches_are_those_of_the_samples(two):
    order = np.random.default_rng(0).permutation(150)
    parts = [slice(0, 40), slice(40, 80), slice(80, 81), slice(81, 150)]
    found = list(two.batches(order, parts))
    assert two.decodes_lazily
    for part, batch in zip(parts, found, strict=True):
        expected = two.batch(order[part])
        assert list(batch) == list(expected)
        assert batch["id"].tolist() == order[part].tolist()
        assert batch["text"] == expected["text"]
        assert (batch["pixels"] == expected["pixels"]).all()


def test_batches_of_streams_that_differ_are_read_at_once(tmp_path):
    one = write(tmp_path / "one", range(10))
    other = write(tmp_path / "two", range(10, 20), columns={"id": "int32", "text": "str"})
    it = reader(one, other, columns=["id", "text"])
    assert not it.decodes_lazily
    found = list(it.batches(np.arange(20), [slice(0, 15), slice(15, 20)]))
    assert [len(batch["id"]) for batch in found] == [15, 5]
    assert found[0]["text"] + found[1]["text"] == [f"sample {n}" for n in range(20)]


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_batches_before_a_damaged_sample_come(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("streamplug.builtin.mds._MAX_DECODED_BYTES", at_once)
    folder = write(tmp_path / "one", range(60), columns={"id": "int", "text": "str"})
    (path,) = (tmp_path / "one").glob("*.mds")
    path.write_bytes(path.read_bytes().replace(b"sample 33", b"sampl\xff 33"))
    found = []
    batches = reader(folder).batches(np.arange(60), [slice(n, n + 10) for n in range(0, 60, 10)])
    with pytest.raises(DataError, match="sample 33, column 'text'"):
        found.extend(batch["id"].tolist() for batch in batches)
    assert [n for ids in found for n in ids] == list(range(30))
