"""Data frames of pandas and Polars, and data sets of Hugging Face, are written."""

from __future__ import annotations

import numpy as np
import pytest
from streamplug_testing.equality import same
from streamplug_tools import iterate_batches

from streamplug import StreamingDataset, write_from
from streamplug.errors import ConfigError, EncodeError

COUNT = 25
COLUMNS = {
    "n": list(range(COUNT)),
    "share": [n / 4 for n in range(COUNT)],
    "text": [f"t{n}" for n in range(COUNT)],
}


def found(folder):
    dataset = StreamingDataset(local=str(folder), batch_size=1)
    return [dataset[n] for n in range(dataset.size)]


def expected():
    rows = zip(*COLUMNS.values())
    return [{"n": np.int64(n), "share": np.float64(share), "text": text} for n, share, text in rows]


def frame(library):
    return pytest.importorskip(library).DataFrame(COLUMNS)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("format_", ["mds", "parquet"])
def test_data_frames_come_back(library, format_, tmp_path):
    assert write_from(frame(library), out=tmp_path / "set", format=format_, batch=10) == COUNT
    assert same([dict(sorted(each.items())) for each in found(tmp_path / "set")], expected())


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_what_a_frame_has_not_is_none(library, tmp_path):
    library = pytest.importorskip(library)
    data = library.DataFrame(
        {"text": ["a", None, "c"], "day": np.array(["2020-01-02"] * 3, "M8[us]")}
    )
    write_from(data, out=tmp_path / "set", format="parquet")
    assert [each["text"] for each in found(tmp_path / "set")] == ["a", None, "c"]
    assert found(tmp_path / "set")[0]["day"] == np.datetime64("2020-01-02")
    with pytest.raises(EncodeError, match="'text'"):
        write_from(data[["text"]], out=tmp_path / "mds", columns={"text": "str"})


def test_integers_of_pandas_that_may_be_missing(tmp_path):
    pandas = pytest.importorskip("pandas")
    data = pandas.DataFrame({"x": pandas.array([1, None], dtype="Int64")})
    assert list(iterate_batches(data)) == [{"x": [1, None]}]
    unnamed = pandas.DataFrame([[1, "a"], [2, "b"]])
    assert write_from(unnamed, out=tmp_path / "unnamed") == 2
    assert found(tmp_path / "unnamed")[1] == {"0": 2, "1": "b"}
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(ConfigError, match="not distinct"):
        list(iterate_batches(twice))


def test_lazy_frames_are_refused():
    polars = pytest.importorskip("polars")
    with pytest.raises(ConfigError, match="collect"):
        list(iterate_batches(polars.LazyFrame(COLUMNS)))


@pytest.mark.parametrize("kind", ["whole", "iterable", "selected"])
@pytest.mark.parametrize("format_", ["mds", "parquet"])
def test_data_sets_of_hugging_face_come_back(kind, format_, tmp_path):
    hf = pytest.importorskip("datasets")
    data = hf.Dataset.from_dict(COLUMNS)
    if kind == "iterable":
        data = data.to_iterable_dataset(num_shards=3)
    if kind == "selected":
        turned = hf.Dataset.from_dict({name: each[::-1] for name, each in COLUMNS.items()})
        data = turned.select(range(COUNT - 1, -1, -1))
    columns = {"n": "int64", "share": "double" if format_ == "parquet" else "float64"}
    columns["text"] = "string" if format_ == "parquet" else "str"
    count = write_from(data, out=tmp_path / "set", format=format_, columns=columns, batch=10)
    assert count == COUNT
    assert same([dict(sorted(each.items())) for each in found(tmp_path / "set")], expected())


def test_one_split_of_several_must_be_chosen():
    hf = pytest.importorskip("datasets")
    data = hf.DatasetDict({"train": hf.Dataset.from_dict(COLUMNS)})
    with pytest.raises(ConfigError, match="choose one"):
        list(iterate_batches(data))


def test_images_of_hugging_face_stay_files_in_parquet(tmp_path):
    hf = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / "a.png")
    features = hf.Features({"image": hf.Image()})
    content = (tmp_path / "a.png").read_bytes()
    data = hf.Dataset.from_dict({"image": [{"bytes": content, "path": "a.png"}]}, features=features)
    write_from(data, out=tmp_path / "set", format="parquet")
    assert found(tmp_path / "set") == [{"image": {"bytes": content, "path": "a.png"}}]


def test_tensors_of_samples_are_arrays(tmp_path):
    torch = pytest.importorskip("torch")
    dataset = [{"n": n, "v": torch.full((2,), n)} for n in range(5)]
    write_from(dataset, out=tmp_path / "set", columns={"n": "int", "v": "ndarray:int64:2"})
    assert same(found(tmp_path / "set")[3]["v"], np.full(2, 3))
