"""What a loader makes of columns that torch cannot put into one tensor."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # noqa: TID251

from streamplug import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from streamplug.errors import ConfigError

SIZES = [3, 5, 4, 4, 2, 2, 7, 1]


@pytest.fixture
def unequal(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"v": "ndarray:int16", "n": "int"}) as out:
        for n, size in enumerate(SIZES):
            out.write({"v": np.arange(size, dtype=np.int16) + n, "n": n})
    return str(tmp_path / "set")


@pytest.mark.parametrize("workers", [0, 2])
def test_arrays_of_different_shapes_are_a_list_of_tensors(unequal, workers):
    data = StreamingDataset(local=unequal, batch_size=2)
    for at, batch in enumerate(StreamingDataLoader(data, num_workers=workers)):
        sizes = SIZES[2 * at : 2 * at + 2]
        assert [len(v) for v in batch["v"]] == sizes
        assert type(batch["v"]) is (list if len({*sizes}) > 1 else torch.Tensor)
        assert all(type(v) is torch.Tensor and v.dtype == torch.int16 for v in batch["v"])
        rows = [v.tolist() for v in batch["v"]]
        assert rows == [[*range(n, n + size)] for n, size in zip(batch["n"].tolist(), sizes)]


@pytest.fixture
def odd(tmp_path):
    with MDSWriter(out=tmp_path / "odd", columns={"thing": "json", "n": "int"}) as out:
        for n in range(4):
            out.write({"thing": [None, 1][n % 2], "n": n})
    return str(tmp_path / "odd")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{}, {"transform": dict}])
def test_a_column_that_torch_cannot_take_is_named_with_what_to_do(odd, workers, options):
    loader = StreamingDataLoader(
        StreamingDataset(local=odd, batch_size=2), num_workers=workers, **options
    )
    with pytest.raises(
        ConfigError, match=r"column 'thing': torch makes no batch of NoneType.*columns="
    ):
        next(iter(loader))
    read = StreamingDataset(local=odd, batch_size=2, columns=["n"])  # as it says
    assert next(iter(StreamingDataLoader(read)))["n"].tolist() == [0, 1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{}, {"transform": dict}])
def test_text_with_none_stays_a_list_in_any_order(tmp_path, workers, options):
    texts = [None, "a", "b", None, None, None]
    with MDSWriter(out=tmp_path / "set", columns={"text": "json", "n": "int"}) as out:
        out.write_batch({"text": texts, "n": np.arange(6)})
    read = StreamingDataset(local=str(tmp_path / "set"), batch_size=2)
    batches = list(StreamingDataLoader(read, num_workers=workers, **options))
    assert [batch["text"] for batch in batches] == [texts[:2], texts[2:4], texts[4:]]
    assert [batch["n"].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]


class Own(StreamingDataset):
    """Data set that makes its samples one by one."""

    def __getitem__(self, at):
        return super().__getitem__(at)


@pytest.mark.parametrize("make", [Own, StreamingDataset])
@pytest.mark.parametrize("order", [("narrow", "wide"), ("wide", "narrow")])
def test_samples_of_different_columns_are_refused(tmp_path, make, order):
    for name, columns in {"narrow": {"x": "int"}, "wide": {"x": "int", "y": "int"}}.items():
        with MDSWriter(out=tmp_path / name, columns=columns) as out:
            out.write_batch({column: np.arange(8) for column in columns})
    options = {"batch_size": 4, "batching_method": "stratified"}
    transform = {} if make is not StreamingDataset else {"transform": dict}

    def batches(**more):
        streams = [Stream(local=str(tmp_path / name)) for name in order]
        return iter(StreamingDataLoader(make(streams=streams, **options, **more), **transform))

    with pytest.raises(ConfigError, match=r"has the columns \['x'.*, others \['x'.*columns="):
        next(batches())
    assert next(batches(columns=["x"]))["x"].tolist() == [0, 0, 1, 1]  # as it says


@pytest.mark.parametrize("options", [{}, {"transform": dict}])
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([{"a": 1}, {"a": 2, "b": 3}], r"column 'v': a dict .* \['a', 'b'\], others \['a'\].*columns="),
        ([{"a": 1, "b": 3}, {"a": 2}], r"column 'v': a dict .* \['a'\], others \['a', 'b'\]"),
        ([{"d": {"a": 1}}, {"d": {"b": 2}}], r"column 'v.d': a dict .* \['b'\], others \['a'\]"),
        ([[{"a": 1}], [{"a": 1, "b": 2}]], r"column 'v\.0': a dict .* \['a', 'b'\], others \['a'\]"),
        ([2**70, 1], r"column 'v': torch makes no batch of int: .*; read other columns by columns="),
    ],
)  # fmt: skip
def test_values_that_torch_cannot_take_are_named(tmp_path, options, values, error):
    with MDSWriter(out=tmp_path / "set", columns={"v": "json", "n": "int"}) as out:
        for n, value in enumerate(values):
            out.write({"v": value, "n": n})
    data = StreamingDataset(local=str(tmp_path / "set"), batch_size=2)
    with pytest.raises(ConfigError, match=error):
        next(iter(StreamingDataLoader(data, **options)))


def test_other_errors_of_a_collate_function_are_its_own(odd):
    def failing(_):
        raise TypeError("mine")

    data = StreamingDataset(local=odd, batch_size=2)
    with pytest.raises(TypeError) as caught:
        next(iter(StreamingDataLoader(data, collate_fn=failing)))
    assert caught.value.args == ("mine",)
