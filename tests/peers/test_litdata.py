"""Sets of chunks that litdata writes are read as litdata reads them."""

from __future__ import annotations

import gc
import shutil
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_testing.equality import same

from streamplug import StreamingDataset, TokenBlocks, TokenDataset
from streamplug.errors import ConfigError

torch = pytest.importorskip("torch")
pytest.importorskip("streamplug_litdata")
litdata = pytest.importorskip("litdata")
from litdata.streaming.item_loader import TokensLoader  # noqa: E402
from litdata.streaming.writer import BinaryWriter  # noqa: E402
from litdata.types import File, Jpeg, Text  # noqa: E402

# It leaves files to be closed by the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
COUNT = 23
thorough = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def write(folder, items, **options):
    """Write items as litdata's workers do."""
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = BinaryWriter(str(folder), **{"chunk_size": 10, **options})
        for number, item in enumerate(items):
            writer[number] = item
        writer.done()
        writer.merge(1)
    assert (folder / "index.json").exists()


def theirs(folder, **options):
    copy = folder.with_name("copy")  # it removes compressed chunks once it has unpacked them
    shutil.copytree(folder, copy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = litdata.StreamingDataset(str(copy), shuffle=False, **options)
        found = [plain(dataset[number]) for number in range(len(dataset))]
        del dataset
        gc.collect()
    return found


def plain(value):
    """Return what litdata reads with arrays in place of tensors."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return bytes(value) if isinstance(value, memoryview) else value


def ours(folder, spec="litdata", **options):
    """Return all samples, each read in three ways."""
    dataset = StreamingDataset(remote=str(folder), format=spec, **options)
    found = list(dataset)
    assert all(same(dataset[number], sample) for number, sample in enumerate(found))
    batched = StreamingDataset(remote=str(folder), format=spec, batch_size=4, **options)
    number = 0
    for batch in batched.batches():
        for place in range(min(4, len(found) - number)):  # the last one is filled up
            mine = {name: values[place] for name, values in batch.items()}
            assert all(np.array_equal(mine[n], v) for n, v in found[number].items()), mine
            number += 1
    assert number == len(found)
    return found


KINDS = {
    "plain": lambda i: {"id": i, "text": f"tëxt {i}", "ratio": i / 7, "odd": i % 2 == 1, "raw": b"r" * i},
    "optional": lambda i: {"a": None if i % 3 else i, "b": None if i % 2 else "x" * i, "c": i},
    "nested": lambda i: {"a": {"b": [i, 2], "c": "x"}, "l": ["a"] * i, "e": [{"x": i, "y": None}]},
    "arrays": lambda i: {
        "vector": np.arange(i, dtype="u2"),
        "fixed": np.full(4, i, "f4"),
        "matrix": np.arange(6, dtype="f8").reshape(2, 3) + i,
        "mask": np.arange(i) % 2 == 0,
    },
    "tensors": lambda i: {
        "vector": torch.arange(i),
        "matrix": torch.arange(6.0).reshape(3, 2) + i,
        "single": torch.tensor(i),
        "half": torch.full((2, 2), i, dtype=torch.float16),
        "empty": torch.empty(0, 3),
    },
    "json among arrays": lambda i: {
        "v": np.arange(3),
        "words": ["a", "b"] * i,
        "ints": list(range(i)),
        "floats": [0.5] * i,
        "bools": [True, False],
        "mixed": [1, "x", None, {"a": [1.5]}],
        "records": [{"a": 1, "b": "x", "c": None, "d": True, "e": 0.5}] * i,
        "inner": {"x": i, "y": {"z": "s", "l": [i]}},
    },
    "single text": lambda i: "x" * i,
    "single array": np.arange,
    "tuple": lambda i: (i, "a", np.arange(i)),
    "list": lambda i: [i, b"a"],
    "text": lambda i: {"t": Text(text=f"t {i}"), "i": i, "v": np.arange(2)},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "compression_batch_size": 3},
        {"compression": "zstd", "compression_level": "sample"},
        {"compression": "zstd:2", "compression_level": "chunk"},
    ],
    ids=["as they are", "frames", "items", "files"],
)
def test_samples_are_those_that_litdata_reads(tmp_path, kind, options):
    if kind == "list" and options.get("compression_level", "batch") != "chunk" and options:
        pytest.skip(
            "litdata cannot read this set itself: it says that it is compressed, and is not"
        )
    items = [KINDS[kind](number) for number in range(COUNT)]
    write(tmp_path / "set", items, **options)
    expected = theirs(tmp_path / "set")
    assert len(expected) == COUNT
    if not isinstance(expected[0], dict):
        several = isinstance(expected[0], (list, tuple))
        expected = [
            {str(n): v for n, v in enumerate(each)} if several else {"value": each}
            for each in expected
        ]
    found = ours(tmp_path / "set")
    assert all(same(mine, other) for mine, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("options", [{}, {"compression": "zstd", "compression_level": "sample"}])
def test_samples_are_the_same_by_ranges(tmp_path, options):
    write(tmp_path / "set", [KINDS["arrays"](number) for number in range(COUNT)], **options)
    found = ours(tmp_path / "set", access="range")
    assert all(same(*pair) for pair in zip(found, ours(tmp_path / "set"), strict=True))


@pytest.mark.parametrize(
    ("kind", "options"),
    [("plain", {}), ("arrays", {"compression": "zstd"})],
    ids=["rows of Arrow", "frames"],
)
def test_what_lies_together_cannot_be_read_by_ranges(tmp_path, kind, options):
    write(tmp_path / "set", [KINDS[kind](number) for number in range(3)], **options)
    with pytest.raises(ConfigError, match="range"):
        next(iter(StreamingDataset(remote=tmp_path / "set", format="litdata", access="range")))


tokens = [np.arange(number, 3 * number + 5).astype(np.uint16) for number in range(COUNT)]


@pytest.mark.parametrize("made", [np.copy, lambda each: torch.tensor(each.astype("i4"))])
def test_tokens_are_read_in_blocks_as_litdata_reads_them(tmp_path, made):
    write(
        tmp_path / "set",
        list(map(made, tokens)),
        chunk_size=None,
        chunk_bytes=600,
        item_loader=TokensLoader(),
    )
    expected = theirs(tmp_path / "set", item_loader=TokensLoader(8))
    for fetch in ("shard", "range"):
        found = ours(tmp_path / "set", "litdata:block=8", access=fetch)
        assert len(found) == len(expected) > COUNT
        assert all(np.array_equal(mine["tokens"], o) for mine, o in zip(found, expected))
        assert found[0]["tokens"].dtype == expected[0].dtype
    documents = ours(tmp_path / "set")
    assert all(np.array_equal(mine["tokens"], o) for mine, o in zip(documents, tokens, strict=True))


def test_documents_of_tokens_are_read_by_a_view(tmp_path):
    loader = TokensLoader()
    write(tmp_path / "set", tokens, chunk_size=None, chunk_bytes=600, item_loader=loader)
    view = TokenBlocks(column="tokens", length=16)
    rows = TokenDataset(tokens=view, remote=tmp_path / "set", format="litdata")
    stream = np.concatenate(tokens)
    assert np.array_equal(np.concatenate([row["tokens"] for row in rows]), stream[: len(rows) * 16])


def test_files_are_bytes_and_images_are_those_of_pillow_when_asked_for(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (9, 5), (200, 3, 4)).save(tmp_path / "a.jpg")
    (tmp_path / "a.xyz").write_bytes(b"any")
    content = (tmp_path / "a.jpg").read_bytes()
    items = [
        {
            "jpeg": Jpeg(path=str(tmp_path / "a.jpg")),
            "pil": image.new("RGB", (2, 3), (n, 1, 2)),
            "file": File(path=str(tmp_path / "a.xyz")),
            "several": [image.open(tmp_path / "a.jpg")] * 2,
        }
        for n in range(3)
    ]
    write(tmp_path / "set", items)
    sample = StreamingDataset(remote=tmp_path / "set", format="litdata")[2]
    assert (sample["jpeg"], sample["file"]) == (content, b"any")
    assert sample["pil"].getpixel((0, 0)) == (2, 1, 2)
    decoded = StreamingDataset(remote=tmp_path / "set", format="litdata:pil")[2]
    assert decoded["jpeg"].size == (9, 5)
    assert [each.size for each in decoded["several"]] == [(9, 5)] * 2


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
nested = st.recursive(
    values,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@thorough
@given(st.lists(nested, max_size=5) | st.dictionaries(st.text(max_size=4), nested, max_size=5))
def test_nested_values_are_those_that_litdata_stores(value):
    from litdata.streaming.serializers import JsonSerializer
    from streamplug_litdata.nested import JsonItem

    serializer = JsonSerializer()
    stored, _ = serializer.serialize(value)
    assert same(JsonItem().decode(memoryview(stored)), serializer.deserialize(stored))
