"""What encodings and formats return is checked before it becomes a batch."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug import Encoding, MDSWriter, StreamingDataset, register_encoding
from streamplug.errors import PluginError
from streamplug.interfaces import Column
from streamplug.plugin.registry import unregister


class Number(Encoding):
    def encode(self, value):
        return b"%d" % value

    def decode(self, data):
        return int(bytes(data))


class OneOfTen(Number):
    def decode_batch(self, buffer, starts, sizes):
        return [1]


class TooMany(Number):
    def decode_batch(self, buffer, starts, sizes):
        return np.zeros(len(starts) + 1)


class Nothing(Number):
    def decode_batch(self, buffer, starts, sizes):
        return None


class Unordered(Number):
    def decode_batch(self, buffer, starts, sizes):
        return set(range(len(starts)))


class ByNumber(Number):
    def decode_batch(self, buffer, starts, sizes):
        return dict.fromkeys(range(len(starts)), 1)


class Text(Number):
    def decode_batch(self, buffer, starts, sizes):
        return "1" * len(starts)


class ShortSamples(Number):
    def unbatch(self, batch):
        return batch[:-1]


def write(path, cls, **options):
    register_encoding("odd", cls, replace=True)
    with MDSWriter(out=str(path), columns={"n": "int", "x": "odd"}, **options) as out:
        for n in range(30):
            out.write({"n": n, "x": n})


@pytest.fixture(autouse=True)
def _unregister():
    yield
    unregister("encoding", "odd")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("access", ["shard", "range"])
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize(
    ("cls", "what"),
    [
        (OneOfTen, "1 values"),
        (TooMany, r"\d+ values"),
        (Nothing, "NoneType"),
        (Unordered, "set"),
        (ByNumber, "dict"),
        (Text, "str"),
    ],
)
def test_batch_without_a_value_for_each_sample(tmp_path, cls, what, shards, access, num_threads):
    write(tmp_path / "set", cls, max_samples_per_shard=30 // shards)
    dataset = StreamingDataset(remote=str(tmp_path / "set"), access=access, batch_size=10)
    expected = rf"shard 0 .*column 'x' \(odd\): .*{cls.__name__} returned {what} for \d+ samples"
    for read in (
        lambda: list(dataset.batches(num_threads=num_threads)),
        lambda: list(dataset),
        lambda: dataset[[1, 2]],
    ):
        with pytest.raises(PluginError, match=expected):
            read()


def test_samples_fewer_than_the_batch(tmp_path):
    write(tmp_path / "set", ShortSamples)
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=10)
    with pytest.raises(PluginError, match="ShortSamples returned 1 values for 2 samples"):
        dataset[[1, 2]]


def test_plugin_errors_are_not_substituted(tmp_path):
    write(tmp_path / "set", OneOfTen)
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=10, on_error="substitute")
    with pytest.raises(PluginError, match="OneOfTen"):
        list(dataset.batches())


@pytest.mark.parametrize("size", [8, 2, None])
def test_dtype_of_another_size(tmp_path, size):
    class Odd(Number):
        dtype = np.dtype("<i4")

    Odd.size = size
    with pytest.raises(PluginError, match=rf"'x' \(odd\): .*Odd has size={size} and dtype=int32"):
        Column("x", "odd", Odd())
    with pytest.raises(PluginError, match=r"set size = dtype\.itemsize"):
        write(tmp_path / "set", Odd)
