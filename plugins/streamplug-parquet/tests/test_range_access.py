"""Data sets of Parquet that are read by range requests of their column chunks."""

from __future__ import annotations

import json
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_parquet import budget as budgets
from streamplug_parquet import column_chunks, file_bytes
from streamplug_ranges.auto_shards import MAX_COLUMN_SHARE, AutoShards
from streamplug_testing.equality import same
from streamplug_testing.http import serving

from streamplug import Stream, StreamingDataset, Writer
from streamplug.errors import ConfigError, CorruptShardError, NotFound
from streamplug.read import OpenShards

COLUMNS = 50
CHOSEN = ["c03", "c05", "c41"]
"""Two of them with one column between them, which is not fetched."""


def wide_table(rows, draw):
    # Each column has numbers of its own: a wrong chunk would be seen.
    return pa.table({f"c{n:02}": draw.integers(0, 1 << 60, rows) + n for n in range(COLUMNS)})


@pytest.fixture
def server(tmp_path):
    draw = np.random.default_rng(0)
    for file in range(2):
        path = tmp_path / "set" / f"{file}.parquet"
        path.parent.mkdir(exist_ok=True)
        table = wide_table(20_000, draw)
        pq.write_table(table, path, row_group_size=5000, use_dictionary=False, compression="none")
    with serving(tmp_path / "set") as server:
        yield server


def opened(server, access="range", **options):
    urls = [f"{server.url}/{path.name}" for path in sorted(server.root.glob("*.parquet"))]
    # Requests sent again on a loaded machine would count, too.
    options = {"batch_size": 100, "storage_options": {"hedge": False}, **options}
    return StreamingDataset(remote=urls, format="parquet", access=access, **options)


def stored_bytes(folder, names):
    """Return the bytes of the chunks of columns, and those of the footers."""
    chunks = footers = 0
    for path in folder.glob("*.parquet"):
        about = pq.read_metadata(path)
        footers += about.serialized_size + 8
        for group in range(about.num_row_groups):
            parts = [about.row_group(group).column(n) for n in range(about.num_columns)]
            chunks += sum(
                part.total_compressed_size for part in parts if part.path_in_schema in names
            )
    return chunks, footers


@pytest.mark.parametrize("access", ["range", "auto"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_fetches_the_column_chunks_and_the_footers(server, access, shuffle):
    dataset = opened(server, access, columns=CHOSEN, shuffle=shuffle)
    before, chunks = server.bytes_sent, stored_bytes(server.root, CHOSEN)
    requests = len(server.requests)
    ids = np.concatenate([batch["c03"] for batch in dataset.batches()])
    fetched = server.bytes_sent - before
    assert fetched <= 1.1 * sum(chunks)
    assert fetched >= chunks[0]
    expected = np.concatenate([pq.read_table(path)["c03"] for path in paths(server)])
    assert np.array_equal(np.sort(ids), np.sort(expected))
    # Of the footer two at most, of each of four row groups one for each column.
    assert len(server.requests) - requests <= 1 + 2 * (2 + 4 * len(CHOSEN))


def paths(server):
    return sorted(server.root.glob("*.parquet"))


def test_chunks_are_fetched_once_where_little_memory_is_for_decoded_ones(server, monkeypatch):
    monkeypatch.setattr(budgets.budget, "limit", 0)
    dataset = opened(server, columns=CHOSEN, shuffle=True, batch_size=500)
    before = server.bytes_sent
    assert sum(len(batch["c03"]) for batch in dataset.batches()) == 40_000
    # Until no batch ahead needs them; each file is in the shuffle block of all batches.
    assert server.bytes_sent - before <= 2.2 * sum(stored_bytes(server.root, CHOSEN))


def test_threads_share_what_they_fetch(server):
    torch = pytest.importorskip("streamplug.adapters.torch", exc_type=ImportError)
    dataset = opened(server, columns=CHOSEN, shuffle=True, batch_size=2000)
    threads = set()

    def transform(sample):
        threads.add(threading.get_ident())
        return sample

    before = server.bytes_sent
    loader = torch.StreamingDataLoader(dataset, num_threads=2, transform=transform)
    assert sum(len(batch["c03"]) for batch in loader) == 40_000
    assert len(threads) > 1
    assert server.bytes_sent - before <= 1.1 * sum(stored_bytes(server.root, CHOSEN))


def test_a_sample_fetches_its_row_group_once(server):
    dataset = opened(server, columns=["c07"])
    dataset[0]
    before = len(server.requests)
    assert dataset[5000]["c07"] != dataset[5001]["c07"]
    assert len(server.requests) - before == 1
    [(_, _, (start, stop))] = server.requests[before:]
    column = pq.read_metadata(server.root / "0.parquet").row_group(1).column(7)
    assert stop - start == column.total_compressed_size


# -- the same as with whole files ---------------------------------------------------------

TYPES = {
    "int": pa.int64(),
    "text": pa.string(),
    "list": pa.list_(pa.int32()),
    "struct": pa.struct({"a": pa.int16(), "b": pa.list_(pa.string())}),
    "map": pa.map_(pa.string(), pa.float64()),
    "fixed": pa.list_(pa.float32(), 2),
    "time": pa.timestamp("us"),
}
TEXTS = st.sampled_from(["", "a", "some text", "ü" * 20])
VALUES = {
    "int": st.none() | st.integers(-9, 9),
    "text": st.none() | TEXTS,
    "list": st.lists(st.integers(-9, 9), max_size=3),
    "struct": st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.lists(TEXTS, max_size=2)}),
    "map": st.lists(st.tuples(TEXTS, st.floats(0, 1)), max_size=2, unique_by=lambda pair: pair[0]),
    "fixed": st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)).map(list),
    "time": st.integers(0, 10**15),
}


@st.composite
def tables(draw):
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, unique=True))
    size = draw(st.integers(1, 30))
    rows = {name: draw(st.lists(VALUES[name], min_size=size, max_size=size)) for name in names}
    return pa.table({name: pa.array(rows[name], TYPES[name]) for name in names})


@settings(max_examples=12)
@given(
    table=tables(),
    groups=st.integers(1, 12),
    chosen=st.integers(0, 100),
    written=st.fixed_dictionaries(
        {
            "compression": st.sampled_from(["none", "zstd"]),
            "use_dictionary": st.booleans(),
            "write_statistics": st.booleans(),
            "write_page_index": st.booleans(),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
        }
    ),
    shuffle=st.booleans(),
)
def test_samples_are_those_of_whole_files(table, groups, chosen, written, shuffle):
    columns = [name for n, name in enumerate(table.column_names) if chosen >> n & 1] or None
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_bytes, "LIKELY_FOOTER_BYTES", 8)  # else the first read has the file
        pq.write_table(table, Path(folder, "x.parquet"), row_group_size=groups, **written)
        options = {"format": "parquet", "columns": columns, "shuffle": shuffle, "batch_size": 4}
        whole, by_range = (
            StreamingDataset(remote=f"{folder}/x.parquet", access=access, **options)
            for access in ("shard", "range")
        )
        assert same(list(by_range), list(whole))
        assert same(list(by_range.batches()), list(whole.batches()))
        ids = range(len(table))
        assert same([by_range[n] for n in ids], [whole[n] for n in ids])


def test_a_state_of_one_access_goes_on_with_the_other(server):
    for one, other in (("shard", "range"), ("range", "shard")):
        first, second = (
            opened(server, access, columns=CHOSEN, shuffle=True) for access in (one, other)
        )
        batches = iter(first.batches())
        for _ in range(30):
            next(batches)
        second.load_state_dict(first.state_dict())
        rest = list(second.batches())
        assert same(list(batches), rest)
        assert len(rest) == 400 - 30


@pytest.mark.parametrize("access", ["shard", "range"])
def test_a_damaged_chunk_is_named_and_its_samples_are_substituted(tmp_path, monkeypatch, access):
    monkeypatch.setattr(file_bytes, "LIKELY_FOOTER_BYTES", 8)  # else the first read has the file
    columns = {f"c{n}": "int64" for n in range(9)}
    with Writer(out=tmp_path / "set", columns=columns, format="parquet:20") as out:
        out.write_batch({name: np.arange(60) for name in columns})
    path = tmp_path / "set" / "0.parquet"
    (tmp_path / "set" / "shard.00000.parquet").rename(path)
    chunk = pq.read_metadata(path).row_group(1).column(3)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 4] ^= 0xFF
    path.write_bytes(data)
    with serving(tmp_path / "set") as server:
        dataset = opened(server, access, columns=["c3", "c4"])
        assert dataset[0]["c3"] == 0  # the other row groups are intact
        with pytest.raises(CorruptShardError, match=r"0\.parquet.*row group 1, column 'c3'"):
            dataset[20]
        assert opened(server, access, columns=["c4"])[20]["c4"] == 20
        options = {"on_error": "substitute", "shuffle": True, "shuffle_seed": 1}
        dataset = opened(server, access, batch_size=30, columns=["c3"], **options)
        ids = np.concatenate([batch["c3"] for batch in dataset.batches()])
        assert len(ids) == 60
        assert {*ids.tolist()} == {*range(20), *range(40, 60)}


# -- files that are not as they were ------------------------------------------------------


def test_a_file_that_is_replaced_is_named(server):
    dataset = opened(server, columns=["c01"])
    assert dataset[0]["c01"] >= 0
    path = server.root / "0.parquet"
    pq.write_table(
        wide_table(20_000, np.random.default_rng(5)),
        path,
        row_group_size=5000,
        use_dictionary=False,
        compression="none",
    )
    with pytest.raises(CorruptShardError, match=r"0\.parquet: it was replaced after its header"):
        dataset[19_999]
    assert dataset[1]["c01"] >= 0  # of the row group that was read before
    assert dataset[20_000]["c01"] >= 0  # the other file


def test_a_file_that_was_cut_short_is_named(server):
    dataset = opened(server, columns=["c01"], download_retry=0)
    path = server.root / "0.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:-1000])
    with pytest.raises(CorruptShardError, match=r"0\.parquet.* got \d+ bytes .* cut short"):
        dataset[0]
    path.write_bytes(data[:-1000] + bytes(1000))
    with pytest.raises(CorruptShardError, match=r"0\.parquet.*does not end as a Parquet file"):
        dataset[0]
    path.write_bytes(data)
    dataset = opened(server, columns=["c01"], download_retry=0)
    path.unlink()
    with pytest.raises(NotFound, match=r"0\.parquet"):
        dataset[0]


def test_a_footer_that_leads_out_of_the_file_is_refused(server, monkeypatch):
    dataset = opened(server, columns=["c01"])
    chunks_of = column_chunks.chunks_of

    def shifted(data):
        return [[chunk._replace(start=1 << 40) for chunk in group] for group in chunks_of(data)]

    monkeypatch.setattr(column_chunks, "chunks_of", shifted)
    with pytest.raises(CorruptShardError, match=r"row group 0, column 'c01': its footer has it at"):
        dataset[0]


def test_servers_without_versions_are_read_and_those_without_ranges_refused(server):
    expected = opened(server, "shard", columns=["c01"])[7]
    server.tags = False
    server.headers = {}
    assert opened(server, columns=["c01"])[7] == expected
    server.ranges = False
    with pytest.raises(ConfigError, match=r"sends whole files only; pass access='shard'"):
        opened(server, columns=["c01"])[7]


def test_shards_that_cannot_be_read_by_row_groups_are_refused(tmp_path):
    names = {"parquet": "gz", "mds": None}
    for format_, compression in names.items():
        path = tmp_path / format_
        with Writer(
            out=path, columns={"n": "int64"}, format=format_, compression=compression
        ) as out:
            out.write({"n": np.int64(1)})
    with pytest.raises(
        ConfigError, match=r"parquet\.gz\) is compressed \(gz\); pass access='shard'"
    ):
        StreamingDataset(remote=str(tmp_path / "parquet"), access="range")
    indexes = [json.loads((tmp_path / name / "index.json").read_text()) for name in names]
    shards = [shard for index in indexes for shard in index["shards"]]
    for shard in shards:
        shard["compression"] = shard["zip_data"] = None
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    with pytest.raises(ConfigError, match=r"shard 1 .*'mds', that is not read by row groups"):
        StreamingDataset(remote=str(tmp_path), access="range")


# -- encrypted files ----------------------------------------------------------------------


class Keys(pe.KmsClient):
    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return key

    def unwrap_key(self, key, _):
        return key


@pytest.mark.parametrize("access", ["shard", "range"])
def test_encrypted_columns_are_refused_by_name(tmp_path, access):
    config = pe.EncryptionConfiguration(
        footer_key="a",
        column_keys={"b": ["secret"]},
        plaintext_footer=True,
        double_wrapping=False,
        cache_lifetime=timedelta(minutes=5),
    )
    keys = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), config)
    table = pa.table({"open": np.arange(9), "secret": np.arange(9)})
    with pq.ParquetWriter(tmp_path / "x.parquet", table.schema, encryption_properties=keys) as out:
        out.write_table(table)
    refused = pytest.raises(CorruptShardError, match=r"x\.parquet.*encrypted, which cannot be read")
    with serving(tmp_path) as server, refused:
        opened(server, access, columns=["secret"])[0]


# -- auto ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        (["c01"], {}, [True, True]),
        ([f"c{n:02}" for n in range(12)], {}, [True, True]),
        ([f"c{n:02}" for n in range(13)], {}, [False, False]),
        ([f"c{n:02}" for n in range(20)], {"select": [3]}, [True, True]),
        ([f"c{n:02}" for n in range(20)], {"select": [3, 9000, 19_999]}, [False, True]),
        (["c01"], {"select": range(20_000)}, [True, True]),
        (None, {}, None),
        (["c01"], {"cache_limit": "1gb"}, None),
    ],
)
def test_auto_reads_ranges_where_they_are_a_quarter_of_the_bytes(
    server, columns, options, expected
):
    urls = [f"{server.url}/{path.name}" for path in paths(server)]
    shards = Stream(remote=urls, format="parquet", access="auto", **options).open().shards(columns)
    if expected is None:
        assert isinstance(shards, OpenShards)
        return
    assert isinstance(shards, AutoShards)
    assert shards._by_range.tolist() == expected
    assert MAX_COLUMN_SHARE == 0.25


def test_auto_keeps_files_in_a_cache_that_is_named(server, tmp_path):
    dataset = opened(server, "auto", columns=["c01"], local=str(tmp_path / "cache"))
    assert dataset[0]["c01"] >= 0
    assert len(list((tmp_path / "cache").rglob("0.parquet"))) == 1
    # What is in the default cache is not fetched again.
    opened(server, "shard")[0]
    before = server.bytes_sent
    again = opened(server, "auto", columns=["c01"])
    assert again[0]["c01"] == dataset[0]["c01"]
    assert server.bytes_sent - before < 1 << 17
