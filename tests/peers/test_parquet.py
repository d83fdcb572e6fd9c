"""Parquet files go both ways between streamplug and pyarrow, and datasets of Hugging Face."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamplug import StreamingDataset, Writer

hf = pytest.importorskip("datasets")
pytest.importorskip("streamplug_parquet")

COUNT = 50
COLUMNS = {
    "id": "int64",
    "ratio": "float",
    "flag": "bool",
    "text": "string?",
    "raw": "binary",
    "tags": "list<string>",
    "tokens": "list<int32>?",
    "vector": "fixed_size_list<float>[3]",
    "image": "struct<bytes: binary, path: string>",
    "when": "timestamp[us]",
}
thorough = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def sample(n):
    return {
        "id": n,
        "ratio": n / 4,
        "flag": n % 3 == 0,
        "text": f"tëxt {n}" if n % 7 else None,
        "raw": bytes([n % 256]) * (n % 5),
        "tags": [str(n)] * (n % 3),
        "tokens": list(range(n % 4)) if n % 5 else None,
        "vector": [n, n / 2, -n],
        "image": {"bytes": bytes([n]), "path": f"{n}.jpg" if n % 2 else None},
        "when": np.datetime64(n * 1000, "us").item(),
    }


def plainly(value):
    """Return a value as pyarrow has it: Python's own."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def ours(folder, count, **options):
    dataset = StreamingDataset(local=str(folder), batch_size=1, **options)
    assert dataset.size == count
    return [{name: plainly(v) for name, v in dataset[n].items()} for n in range(count)]


@pytest.fixture
def written(tmp_path):
    with Writer(
        out=tmp_path / "set", columns=COLUMNS, format="parquet:7", max_samples_per_shard=20
    ) as out:
        for n in range(COUNT):
            out.write(sample(n))
    return tmp_path / "set"


def test_pyarrow_reads_what_we_write(written):
    files = sorted(written.glob("*.parquet"))
    assert pa.concat_tables(map(pq.read_table, files)).to_pylist() == [
        sample(n) for n in range(COUNT)
    ]


@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_reads_what_we_write(written, streaming, tmp_path):
    found = hf.load_dataset(
        "parquet",
        data_files=str(written / "*.parquet"),
        split="train",
        streaming=streaming,
        cache_dir=str(tmp_path / "cache"),
    )
    assert list(found) == [sample(n) for n in range(COUNT)]


@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_mixes_our_files_with_its_own(written, streaming, tmp_path):
    other = hf.Dataset.from_list([sample(n) for n in range(COUNT, 60)])
    other.to_parquet(str(written / "z.parquet"))
    found = hf.load_dataset(
        "parquet",
        data_files=str(written / "*.parquet"),
        split="train",
        streaming=streaming,
        cache_dir=str(tmp_path / "cache"),
    )
    assert [each["id"] for each in found] == list(range(60))


def test_we_read_what_datasets_writes(tmp_path):
    features = hf.Features(
        {
            "id": hf.Value("int64"),
            "ratio": hf.Value("float32"),
            "flag": hf.Value("bool"),
            "text": hf.Value("string"),
            "raw": hf.Value("large_binary"),
            "tags": hf.List(hf.Value("large_string")),
            "tokens": hf.LargeList(hf.Value("int32")),
            "vector": hf.List(hf.Value("float32"), 3),
            "image": hf.Image(decode=False),
            "when": hf.Value("timestamp[us]"),
        }
    )
    made = hf.Dataset.from_list([sample(n) for n in range(COUNT)], features=features)
    made.to_parquet(str(tmp_path / "train-00000-of-00001.parquet"), batch_size=9)
    assert ours(tmp_path, COUNT, format="parquet") == [sample(n) for n in range(COUNT)]


def test_labels_and_arrays_of_datasets_are_numbers_and_lists(tmp_path):
    features = hf.Features(
        {"label": hf.ClassLabel(names=["cat", "dog"]), "pixels": hf.Array2D((2, 3), "uint8")}
    )
    rows = [{"label": n % 2, "pixels": np.full((2, 3), n, np.uint8)} for n in range(9)]
    hf.Dataset.from_list(rows, features=features).to_parquet(str(tmp_path / "x.parquet"))
    found = ours(tmp_path, 9, format="parquet")
    assert found == [{"label": n % 2, "pixels": [[n] * 3] * 2} for n in range(9)]


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
LEAVES = [
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), text),
    (pa.large_binary(), st.binary(max_size=3)),
    (pa.decimal128(9, 2), st.decimals(-999, 999, places=2)),
    (pa.date32(), st.dates()),
]


@st.composite
def arrays(draw):
    """Draw an array of Arrow of any type of some, with values missing or not."""
    type_, values = draw(st.sampled_from(LEAVES))
    for kind in draw(st.lists(st.sampled_from(["list", "fixed", "struct"]), max_size=2)):
        inner = st.none() | values if draw(st.booleans()) else values
        if kind == "list":
            type_, values = pa.list_(type_), st.lists(inner, max_size=3)
        elif kind == "fixed":
            type_, values = pa.list_(type_, 2), st.lists(inner, min_size=2, max_size=2)
        else:
            type_, values = pa.struct({"a": type_}), st.fixed_dictionaries({"a": inner})
    if draw(st.booleans()):
        values = st.none() | values
    array = pa.array(draw(st.lists(values, min_size=1, max_size=9)), type_)
    flat = pa.types.is_string(type_) or pa.types.is_int16(type_)
    return array.dictionary_encode() if flat and draw(st.booleans()) else array


def test_we_read_what_pyarrow_writes_whatever_it_is(tmp_path):
    @thorough
    @given(arrays(), st.integers(1, 9), st.sampled_from(["1.0", "2.0"]), st.booleans())
    def check(array, rows, version, plain):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        pq.write_table(
            pa.table({"x": array}),
            folder / "x.parquet",
            row_group_size=rows,
            data_page_version=version,
            use_dictionary=not plain,
            write_statistics=not plain,
        )
        found = ours(folder, len(array), format="parquet")
        assert [each["x"] for each in found] == array.to_pylist()

    check()
