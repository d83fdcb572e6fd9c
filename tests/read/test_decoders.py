from __future__ import annotations

import multiprocessing
import traceback
from dataclasses import dataclass

import numpy as np
import pytest

from streamplug import MDSWriter, Stream
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import Encoding
from streamplug.interfaces.encoding import MAX_VALUE_BYTES
from streamplug.plugin import make


class Shifted(Encoding):
    """Numbers, so many more than those that are stored."""

    size = 8

    def __init__(self, stored, by):
        self._stored = stored
        self._by = by

    def encode(self, value):
        return self._stored.encode(value - self._by)

    def decode(self, data):
        return self._stored.decode(data) + self._by


def shift(by):
    return lambda stored: Shifted(stored, by)


@pytest.fixture
def data_set(tmp_path):
    def write(name, first):
        columns = {"n": "int", "text": "str"}
        with MDSWriter(out=tmp_path / name, columns=columns, size_limit=500) as out:
            for n in range(first, first + 60):
                out.write({"n": n, "text": str(n)})
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("access", ["shard", "range"])
def test_a_column_is_decoded_as_its_reader_asks(data_set, access):
    dataset = StreamingDataset(
        local=data_set("a", 0), batch_size=60, access=access, decoders={"n": shift(1000)}
    )
    expected = list(range(1000, 1060))
    assert list(next(dataset.batches())["n"]) == expected
    assert [sample["n"] for sample in dataset] == expected
    assert dataset[3] == {"n": 1003, "text": "3"}
    assert [sample["n"] for sample in dataset[5:7]] == [1005, 1006]


def test_columns_may_be_chosen_besides(data_set):
    dataset = StreamingDataset(local=data_set("a", 0), columns=["n"], decoders={"n": shift(7)})
    assert dataset[1] == {"n": 8}


def test_each_stream_may_have_decoders_of_its_own(data_set):
    a, b = data_set("a", 0), data_set("b", 100)
    streams = [Stream(local=a, decoders={"n": shift(1000)}), Stream(local=b)]
    plain = StreamingDataset(streams=[Stream(local=a), Stream(local=b)], batch_size=120)
    first = next(plain.batches())
    assert sorted(first["n"]) == [*range(60), *range(100, 160)]
    for decoders, more in ((None, 0), ({"n": shift(5000)}, 5000)):
        dataset = StreamingDataset(streams=streams, batch_size=120, shuffle=True, decoders=decoders)
        found = next(dataset.batches())["n"]
        assert sorted(found) == sorted([*range(1000, 1060), *range(100 + more, 160 + more)])


@pytest.mark.parametrize(
    ("decoders", "message"),
    [
        ({"m": shift(1)}, r"decoders=\['m'\]: .* has no \['m'\]"),
        (["n"], r"decoders=\['n'\]: expected a decoder by name"),
        ({"nn": None}, r"decoders=\['nn'\]: .* has no \['nn'\], only .* Did you mean 'n'\?"),
        ({"n": 5}, r"decoders={'n': …}: expected a decoder, got int"),
        ({"n": lambda _: "int"}, "the decoder gave str, not an encoding"),
        (
            {"n": lambda _: make("encoding", "str")},
            "takes values of None bytes, but the stored values have 8",
        ),
    ],
)
def test_what_cannot_decode_a_column_is_refused(data_set, decoders, message):
    with pytest.raises(ConfigError, match=message):
        StreamingDataset(local=data_set("a", 0), decoders=decoders)


def test_what_a_decoder_refuses_names_the_column(data_set):
    def picky(stored):
        raise ConfigError("not that one")

    with pytest.raises(ConfigError, match=r"index\.json: column 'text' \(str\) .*: not that one"):
        StreamingDataset(local=data_set("a", 0), decoders={"text": picky})


def test_a_stop_iteration_of_a_decoder_loses_no_column(data_set):
    with pytest.raises(RuntimeError, match="StopIteration"):
        StreamingDataset(local=data_set("a", 0), decoders={"text": lambda _: next(iter(()))})


class Picky(Shifted):
    def decode(self, data):
        raise ValueError("not that one")


def test_the_error_of_a_decoder_is_shown_once(data_set):
    dataset = StreamingDataset(
        local=data_set("a", 0), batch_size=4, decoders={"n": lambda stored: Picky(stored, 0)}
    )
    with pytest.raises(
        DecodeError, match="sample 0, column 'n': ValueError: not that one"
    ) as raised:
        next(dataset.batches())
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("\nValueError: not that one") == 1
    assert "During handling" not in shown


def _numbers(dataset, pipe):
    pipe.send(list(next(dataset.batches())["n"]))


@pytest.mark.parametrize(
    "method", sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods()))
)
def test_decoders_travel_to_other_processes(data_set, method):
    dataset = StreamingDataset(local=data_set("a", 0), batch_size=9, decoders={"n": shift(10)})
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=_numbers, args=(dataset, there))
    process.start()
    try:
        assert here.poll(120)
        assert here.recv() == list(range(10, 19))
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()


counts = []


class Large(Encoding):
    """A number as a large array."""

    size = 8
    decoded_bytes = 8 << 20

    def __init__(self, stored):
        self._stored = stored

    def encode(self, value):
        return self._stored.encode(value[0])

    def decode(self, data):
        return np.full(8, self._stored.decode(data) % 256, np.uint8)

    def decode_batch(self, buffer, starts, sizes):
        counts.append(len(starts))
        return np.stack(super().decode_batch(buffer, starts, sizes))


def test_values_that_grow_are_decoded_fewer_at_a_time(data_set):
    counts.clear()
    dataset = StreamingDataset(local=data_set("a", 0), batch_size=2, decoders={"n": Large})
    assert sum(len(batch["n"]) for batch in dataset.batches()) == 60
    assert max(counts) <= 4


def test_a_stream_without_samples_needs_no_column_for_a_decoder(data_set, tmp_path):
    with MDSWriter(out=tmp_path / "none", columns={"n": "int", "text": "str"}):
        pass
    streams = [Stream(local=data_set("a", 0)), Stream(local=str(tmp_path / "none"))]
    dataset = StreamingDataset(streams=streams, decoders={"n": shift(1000)}, batch_size=10)
    assert [sample["n"] for sample in dataset] == list(range(1000, 1060))


class Unpacked(Shifted):
    """Values in which another encoding is nested."""

    def decode(self, data):
        return self.max_value_bytes, self._stored.max_value_bytes


def test_a_bound_reaches_columns_their_decoders_and_what_is_nested(tmp_path):
    with MDSWriter(out=tmp_path, columns={"n": "int"}) as writer:
        writer.write({"n": 1})

    def bounds(limit, decoders):
        options = {"local": str(tmp_path), "decoders": decoders, "max_value_bytes": limit}
        return StreamingDataset(**options)[0]["n"]

    decoders = {"n": lambda encoding: Unpacked(encoding, 0)}
    assert bounds("1kb", decoders) == (1024, 1024)
    assert bounds(None, decoders) == (MAX_VALUE_BYTES, MAX_VALUE_BYTES)
    assert make("encoding", "int").max_value_bytes == MAX_VALUE_BYTES  # no encoding is changed


def test_streams_of_one_kind_keep_their_own_bounds(tmp_path):
    with MDSWriter(out=tmp_path, columns={"n": "int"}) as writer:
        writer.write({"n": 1})
    decoders = {"n": as_unpacked}
    streams = [Stream(local=str(tmp_path), max_value_bytes=limit) for limit in (7, 8)]
    dataset = StreamingDataset(streams=streams, decoders=decoders, batch_size=2)
    [batch] = dataset.batches()
    assert sorted(map(tuple, batch["n"])) == [(7, 7), (8, 8)]


@dataclass
class Moved:
    """A decoder that `==` cannot compare with another one."""

    by: np.ndarray

    def __call__(self, stored):
        return Shifted(stored, self.by)


def test_streams_have_decoders_with_arrays(tmp_path):
    with MDSWriter(out=tmp_path, columns={"n": "int"}, size_limit=200) as writer:
        for n in range(20):
            writer.write({"n": n})
    streams = [
        Stream(local=str(tmp_path), decoders={"n": Moved(np.array([by, 2 * by]))})
        for by in (100, 200)
    ]
    dataset = StreamingDataset(streams=streams, batch_size=40)
    expected = [[n + by, n + 2 * by] for by in (100, 200) for n in range(20)]
    assert [sample["n"].tolist() for sample in dataset] == expected
    [batch] = dataset.batches()
    assert [value.tolist() for value in batch["n"]] == expected


def as_unpacked(encoding):
    return Unpacked(encoding, 0)
