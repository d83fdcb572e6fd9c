"""What is there already is written: columns, samples, sequences of all kinds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from streamplug_testing.equality import same
from streamplug_tools import iterate_batches

from streamplug import StreamingDataset, World, Writer, write_from
from streamplug.errors import ConfigError, EncodeError


class Point(NamedTuple):
    x: int
    name: str


class Map:
    """A data set as torch has them: it says how long it is, and gives samples by number."""

    def __len__(self):
        return 5

    def __getitem__(self, number):
        return {"x": number, "name": f"n{number}"}


EXPECTED = [{"x": n, "name": f"n{n}"} for n in range(5)]


@pytest.mark.parametrize(
    "data",
    [
        EXPECTED,
        tuple(EXPECTED),
        iter(EXPECTED),
        (each for each in EXPECTED),
        [Point(**each) for each in EXPECTED],
        Map(),
        {"x": [0, 1, 2, 3, 4], "name": [f"n{n}" for n in range(5)]},
    ],
    ids=lambda data: type(data).__name__,
)
def test_samples_come_as_columns(data):
    batches = list(iterate_batches(data, 2))
    assert [len(batch["x"]) for batch in batches] == [2, 2, 1]
    assert [dict(zip(b, row)) for b in batches for row in zip(*b.values())] == EXPECTED


def test_tuples_have_numbers_for_names():
    assert list(iterate_batches([(1, "a"), (2, "b")])) == [{"0": [1, 2], "1": ["a", "b"]}]


def test_names_may_be_numbers(tmp_path):
    assert write_from({0: [1, 2], 1: ["a", "b"]}, out=tmp_path / "set") == 2
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert dataset[1] == {"0": 2, "1": "b"}


def test_two_columns_of_one_name_are_refused(tmp_path):
    for data in ({0: [1], "0": [2]}, [{0: 1, "0": 2}]):
        with pytest.raises(ConfigError, match=r"not distinct: .0, '0'."):
            write_from(data, out=tmp_path / "set", columns={"0": "int"})
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table([[1, 2], [3, 4]], names=["x", "x"])
    for data in (table, table.to_batches()[0], iter(table.to_batches())):
        with pytest.raises(ConfigError, match=r"not distinct: .'x', 'x'."):
            write_from(data, out=tmp_path / "set", columns={"x": "int"})


def test_tensors_become_arrays():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.arange(3), torch.ones(3, 2))
    (batch,) = iterate_batches(dataset)
    assert same(batch["0"], [np.int64(0), np.int64(1), np.int64(2)])
    assert same(batch["1"], [np.ones(2, np.float32)] * 3)
    (batch,) = iterate_batches({"t": torch.arange(3)})
    assert same(batch, {"t": np.arange(3)})


def test_tensors_of_types_that_numpy_lacks_stay_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    column = torch.arange(6, dtype=torch.bfloat16).reshape(3, 2)
    for number, data in enumerate(({"t": column}, [{"t": row} for row in column])):
        with pytest.raises(ConfigError, match=r"follows from them \(Tensor\); name it in columns="):
            write_from(data, out=tmp_path / "none")
        pytest.importorskip("streamplug_torch")
        write_from(data, out=tmp_path / f"{number}", columns={"t": "tensor"})
        written = StreamingDataset(local=str(tmp_path / f"{number}"))[:]
        assert torch.equal(torch.stack([sample["t"] for sample in written]), column)


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"world": World(1, 2), "batch_size": 2}])
def test_a_data_set_is_written_whole_whatever_an_epoch_has(tmp_path, options):
    write_from({"n": np.arange(7)}, out=tmp_path / "one")
    write_from(StreamingDataset(local=str(tmp_path / "one"), **options), out=tmp_path / "two")
    copied = StreamingDataset(local=str(tmp_path / "two"))
    assert [sample["n"] for sample in copied[:]] == [*range(7)]


def test_an_iterable_data_set_of_torch_may_have_a_length():
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):
        def __len__(self):
            return len(EXPECTED)

        def __iter__(self):
            return iter(EXPECTED)

    class Numbered(Stream):
        def __iter__(self):
            raise AssertionError("it has samples by number")

        def __getitem__(self, number):
            return EXPECTED[number]

    for data in (Stream(), torch.utils.data.ChainDataset([Stream()]), Numbered()):
        assert list(iterate_batches(data)) == [
            {"x": [*range(5)], "name": [f"n{n}" for n in range(5)]}
        ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("text", "str is neither"),
        (7, "int is neither"),
        ({"a": [1], "b": [1, 2]}, "differ in length"),
        ({"a": "text"}, "expected a column"),
        ({"a": b"bytes"}, "expected a column"),
        ({"a": {1}}, "expected a column"),
        ({"a": {1: 2}}, "expected a column"),
        ([{"a": 1}, {"b": 1}], "has the columns"),
        ([1, 2], "int is neither"),
        ([None, {"a": 1}], "NoneType is neither"),
        ([{"a": 1}, 7], "a sample is a dict or a tuple"),
    ],
)
def test_what_is_neither_is_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        list(iterate_batches(data))


def test_a_batch_has_samples():
    with pytest.raises(ConfigError, match="size=0"):
        list(iterate_batches([], 0))
    assert list(iterate_batches([])) == list(iterate_batches({})) == []


def test_an_error_names_the_argument_of_what_was_called(tmp_path):
    with pytest.raises(ConfigError, match="batch=0: must be a whole number of at least 1"):
        write_from({"x": [1]}, out=tmp_path / "set", batch=0)


def test_encodings_follow_from_values(tmp_path):
    data = {
        "int": [1, 2],
        "numbers": np.array([1, 2], np.int16),
        "float": [1.5, 2],
        "text": ["a", "b"],
        "raw": [b"a", b"b"],
        "truth": [True, False],
        "any": [None, {"a": [1]}],
        "arrays": [np.zeros(2), np.ones(3)],
        "matrix": np.zeros((2, 3), np.float32),
    }
    assert write_from(data, out=tmp_path / "set") == 2
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    expected = {
        "int": 2,
        "numbers": np.int16(2),
        "float": np.float64(2),
        "text": "b",
        "raw": b"b",
        "truth": False,
        "any": {"a": [1]},
        "arrays": np.ones(3),
        "matrix": np.zeros(3, np.float32),
    }
    assert same(dict(sorted(dataset[1].items())), dict(sorted(expected.items())))


@pytest.mark.parametrize(
    "values",
    [
        [True, 5],
        [True, 0.5],
        [2**53 + 1, 0.5],
        [0.5, -(2**60) - 1],
        [np.int64(2**60 + 1), np.float32(0.5)],
    ],
)
def test_numbers_of_several_types_keep_their_values(values, tmp_path):
    write_from({"x": values}, out=tmp_path / "set")
    read = [sample["x"] for sample in StreamingDataset(local=str(tmp_path / "set"), batch_size=1)]
    assert same(list(map(plainly, read)), list(map(plainly, values)))


def plainly(value):
    return value.item() if isinstance(value, np.generic) else value


def test_small_integers_among_floats_become_float64(tmp_path):
    write_from({"x": [2**53, 0.5]}, out=tmp_path / "set")
    assert same(StreamingDataset(local=str(tmp_path / "set"))[0]["x"], np.float64(2**53))


def test_columns_may_be_chosen_and_named(tmp_path):
    write_from(Map(), out=tmp_path / "set", columns={"x": "int8"}, batch=2, max_samples_per_shard=2)
    assert same(
        list(StreamingDataset(local=str(tmp_path / "set"), batch_size=1)),
        [{"x": np.int8(n)} for n in range(5)],
    )
    with pytest.raises(EncodeError, match=r"missing: .'y'"):
        write_from(Map(), out=tmp_path / "other", columns={"y": "int8"})


def test_more_can_be_added(tmp_path):
    write_from(Map(), out=tmp_path / "set")
    assert write_from(Map(), out=tmp_path / "set", append=True) == 5
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert [each["x"] for each in dataset] == [*range(5), *range(5)]


def test_a_writer_takes_them_too(tmp_path):
    with Writer(out=tmp_path / "set", columns={"x": "int", "name": "str"}) as out:
        out.write({"x": 9, "name": "nine"})
        for batch in iterate_batches(Map(), 2):
            out.write_batch(batch)
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert [each["x"] for each in dataset] == [9, *range(5)]


def test_the_formats_of_text_get_their_own_encodings(tmp_path):
    pytest.importorskip("streamplug_text")
    data = {"a": [1, 2], "b": [1.5, 2.5], "c": ["x", "y"]}
    write_from(data, out=tmp_path / "set", format="jsonl")
    assert (
        (tmp_path / "set" / "shard.00000.json")
        .read_text()
        .startswith('{"a": 1, "b": 1.5, "c": "x"}')
    )
    with pytest.raises(ConfigError, match=r"column 'd': no encoding .*bytes.*columns="):
        write_from({"d": [b"x"]}, out=tmp_path / "other", format="jsonl")


@pytest.mark.parametrize("values", [[], [object()], [{1, 2}], [np.True_]])
def test_where_no_encoding_follows_it_must_be_named(values, tmp_path):
    with pytest.raises(ConfigError, match="columns="):
        write_from({"x": values}, out=tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_data_that_cannot_be_read_replace_nothing(tmp_path):
    def fail():
        raise OSError("a file is missing")
        yield {}

    options = {"columns": {"x": "int"}, "out": tmp_path / "set", "exist_ok": True}
    write_from({"x": [1, 2]}, **options)
    for data, error in ((fail(), OSError), (5, ConfigError), ({"x": 3}, ConfigError)):
        with pytest.raises(error):
            write_from(data, **options)
    assert [sample["x"] for sample in StreamingDataset(local=str(tmp_path / "set"))] == [1, 2]
    assert write_from([], **options) == 0


@pytest.mark.parametrize("kind", ["table", "record_batch"])
def test_encodings_of_arrow_follow_from_all_values(tmp_path, kind):
    pyarrow = pytest.importorskip("pyarrow")
    data = getattr(pyarrow, kind)({"x": pyarrow.array([1] * 1500 + [None])})
    assert write_from(data, out=tmp_path / "set") == 1501
    assert StreamingDataset(local=str(tmp_path / "set"))[1500] == {"x": None}
