"""Encodings that override how another encoding converts single values."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.builtin.encodings.array import NDArrayEncoding
from streamplug.builtin.encodings.plain import Str
from streamplug.builtin.encodings.scalar import Int
from streamplug.interfaces import Encoding
from streamplug.plugin.registry import register, unregister


class Upper(Str):
    def decode(self, data):
        return super().decode(data).upper()


class _ReversedDecode:
    def decode(self, data):
        return super().decode(data)[::-1]


class Reversed(_ReversedDecode, Str):
    pass


class Tenths(Int):
    def encode(self, value):
        return super().encode(round(10 * value))

    def decode(self, data):
        return super().decode(data) / 10


class Negated(NDArrayEncoding):
    def decode(self, data):
        return -super().decode(data)


class Doubled(Negated):
    def encode(self, value):
        return super().encode(2 * value)


class Fixed(Encoding):
    """An encoding whose constructor sets the dtype."""

    def __init__(self, count):
        self.dtype = np.dtype(("<i2", (count,)))
        self.size = self.dtype.itemsize

    @classmethod
    def from_spec(cls, argument):
        return cls(int(argument))

    def encode(self, value):
        return np.asarray(value, "<i2").tobytes()

    def decode(self, data):
        return np.frombuffer(bytes(data), "<i2")


class Tripled(Fixed):
    def decode(self, data):
        return 3 * super().decode(data)


CASES = {
    "upper": (Upper, ["a", "b", "c", "d"], ["A", "B", "C", "D"]),
    "reversed": (Reversed, ["ab", "cd", "e", ""], ["ba", "dc", "e", ""]),
    "tenths": (Tenths, [0.5, 1.0, -2.3, 0.0], [0.5, 1.0, -2.3, 0.0]),
    "negated:float32:2": (Negated, list(np.ones((4, 2), np.float32)), [[-1, -1]] * 4),
    "negated:int16": (Negated, [np.arange(3, dtype=np.int16)] * 4, [[0, -1, -2]] * 4),
    "fixed:2": (Fixed, [[1, 2]] * 4, [[1, 2]] * 4),
    "tripled:2": (Tripled, [[1, 2]] * 4, [[3, 6]] * 4),
    "doubled:int16:1": (Doubled, [np.ones(1, np.int16)] * 4, [[-2]] * 4),
}


def plain(values):
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("spec", CASES)
def test_what_is_overridden_is_called_for_samples_and_batches(tmp_path, spec, batched):
    cls, values, expected = CASES[spec]
    name = spec.partition(":")[0]
    register("encoding", name, cls)
    try:
        with MDSWriter(out=str(tmp_path / "set"), columns={"x": spec, "n": "int"}) as out:
            if batched:
                out.write_batch({"x": values, "n": list(range(4))})
            else:
                for n, value in enumerate(values):
                    out.write({"x": value, "n": n})
        dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=2)
        assert plain(dataset[n]["x"] for n in range(4)) == expected
        assert plain(sample["x"] for sample in dataset) == expected
        assert plain(sample["x"] for sample in dataset[:]) == expected
        assert plain(x for batch in dataset.batches() for x in batch["x"]) == expected
    finally:
        unregister("encoding", name)


def test_methods_for_many_values_that_fit_are_inherited():
    class Base(Encoding):
        dtype = np.dtype("<i2")
        size = 2

        def decode_batch(self, buffer, starts, sizes):
            return super().decode_batch(buffer, starts, sizes)

    class Short(Base):
        def encode(self, value):
            return int(value).to_bytes(2, "little")

        def decode(self, data):
            return int.from_bytes(data, "little")

    assert Short.decode_batch is Base.decode_batch
    assert "decode_batch" not in vars(Short)
    assert Str.decode_batch is not Encoding.decode_batch
    assert Int.unbatch is not Encoding.unbatch
    assert Fixed.decode_batch is Encoding.decode_batch
