from __future__ import annotations

import json
import os
import pickle
import shutil
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_tokens.dataset import TokenDataset
from streamplug_tokens.lengths import DocumentCounter
from streamplug_tokens.options import TokenBlocks, TokenPacks
from streamplug_tokens.packing import pack_documents

import streamplug
from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, DataError, StateError, StreamplugError
from streamplug.interfaces import Encoding, VectorColumn
from streamplug.plan.state import unpack

EXTRAS = ("targets", "documents", "positions", "mask")
slow = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def documents(lengths: Any, seed: int = 0, dtype: str = "uint16") -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 60_000, int(length)).astype(dtype) for length in lengths]


def write(
    out: Path,
    docs: list[np.ndarray],
    spec: str = "ndarray:uint16",
    more: bool = False,
    **options: Any,
) -> str:
    shutil.rmtree(out, ignore_errors=True)
    columns = {"tokens": spec, **({"name": "str"} if more else {})}
    limit = 600 + max(doc.nbytes for doc in docs)  # several shards, of few documents
    with MDSWriter(out=out, columns=columns, **{"size_limit": limit, **options}) as writer:
        for number, doc in enumerate(docs):
            value = doc.tobytes() if spec == "bytes" else doc
            writer.write({"tokens": value, **({"name": "n" * number} if more else {})})
    return str(out)


def lognormal(count: int, seed: int = 0) -> list[np.ndarray]:
    sizes = np.random.default_rng(seed).lognormal(4, 1.2, count)
    return documents(np.minimum(sizes, 3000), seed)


def closed(docs: list[np.ndarray], separator: int | None) -> list[np.ndarray]:
    """Put the separator after each document."""
    if separator is None:
        return docs
    return [np.append(doc, np.uint16(separator)) for doc in docs]


def windows(tokens: np.ndarray, width: int, stride: int, remainder: str) -> list[np.ndarray]:
    found, at = [], 0
    while at + width <= len(tokens):
        found.append(tokens[at : at + width])
        at += stride
    if remainder == "pad" and len(tokens) > (at - stride + width if at else 0):
        found.append(tokens[at:])
    return found


def batches(dataset: TokenDataset, name: str = "tokens") -> list[list[bytes]]:
    return [[row.tobytes() for row in batch[name]] for batch in dataset.batches()]


# -- blocks -------------------------------------------------------------------


def test_a_directory_may_have_a_name_that_is_not_utf8(tmp_path):
    place = write(tmp_path / os.fsdecode(b"caf\xe9"), documents([8, 4]))
    view = TokenBlocks(column="tokens", length=4)
    assert len(list(TokenDataset(local=place, tokens=view, batch_size=1))) == 3


@slow
@given(data=st.data())
def test_blocks_are_windows_over_the_concatenation(tmp_path, data):
    lengths = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=30))
    length = data.draw(st.integers(1, 50))
    stride = data.draw(st.none() | st.integers(1, length))
    separator = data.draw(st.none() | st.just(0))
    cross_documents = data.draw(st.booleans())
    remainder = data.draw(st.sampled_from(["drop", "pad"]))
    targets = data.draw(st.booleans())
    spec = data.draw(st.sampled_from(["ndarray:uint16", "ndarray", "bytes"]))
    more = data.draw(st.booleans())
    docs = documents(lengths)
    view = TokenBlocks(
        column="tokens",
        length=length,
        stride=stride,
        separator=separator,
        cross_documents=cross_documents,
        remainder=remainder,
        padding=60_001,
        dtype="uint16",
        extras=("targets",) if targets else (),
    )
    dataset = TokenDataset(tokens=view, local=write(tmp_path / "set", docs, spec, more))
    ended = closed(docs, separator)
    sequences = [np.concatenate(ended)] if cross_documents else ended
    width = length + targets
    expected = list(chain(*(windows(s, width, stride or length, remainder) for s in sequences)))
    assert dataset.size == len(expected) == dataset._reader.starts[-1]
    found = dataset[:]
    for row, tokens in zip(found, expected, strict=True):
        full = np.full(width, 60_001, np.uint16)
        full[: len(tokens)] = tokens
        assert row["tokens"].dtype == np.uint16
        assert row["tokens"].tolist() == full[:length].tolist()
        assert not targets or row["targets"].tolist() == full[1:].tolist()
    assert [dataset[i]["tokens"].tolist() for i in range(min(len(found), 3))] == [
        row["tokens"].tolist() for row in found[:3]
    ]


def test_rows_know_their_documents_and_positions(tmp_path):
    docs = [np.array(doc, np.uint16) for doc in ([10, 11, 12], [], [20, 21, 22, 23, 24], [30])]
    view = TokenBlocks(
        column="tokens", length=4, extras=EXTRAS, remainder="pad", separator=9, padding=7
    )
    dataset = TokenDataset(tokens=view, local=write(tmp_path / "set", docs))
    first, second, third = dataset[:]
    assert first["tokens"].tolist() == [10, 11, 12, 9]
    assert first["targets"].tolist() == [11, 12, 9, 9]
    assert first["documents"].tolist() == [0, 0, 0, 0]
    assert first["mask"].tolist() == [True, True, True, False]  # an empty document comes next
    assert second["tokens"].tolist() == [9, 20, 21, 22]
    assert second["documents"].tolist() == [1, 2, 2, 2]
    assert second["positions"].tolist() == [0, 0, 1, 2]
    assert second["mask"].tolist() == [False, True, True, True]
    assert third["tokens"].tolist() == [23, 24, 9, 30]
    assert third["targets"].tolist() == [24, 9, 30, 9]
    assert third["positions"].tolist() == [0, 1, 2, 0]
    assert third["mask"].tolist() == [True, True, False, True]


def test_padding_belongs_to_no_document(tmp_path):
    docs = documents([3, 6])
    view = TokenBlocks(
        column="tokens",
        length=4,
        extras=EXTRAS[1:],
        remainder="pad",
        cross_documents=False,
        padding=5,
    )
    first, second, third = TokenDataset(tokens=view, local=write(tmp_path / "set", docs))[:]
    assert first["tokens"].tolist() == [*docs[0].tolist(), 5]
    assert first["documents"].tolist() == [0, 0, 0, -1]
    assert first["mask"].tolist() == [False, True, True, False]
    assert second["documents"].tolist() == [1, 1, 1, 1]
    assert third["documents"].tolist() == [1, 1, -1, -1]
    assert third["positions"].tolist() == [0, 1, 0, 1]


def test_documents_of_one_length_are_not_counted(tmp_path):
    docs = documents([32] * 20)
    folder = write(tmp_path / "set", docs, "ndarray:uint16:32")
    dataset = TokenDataset(tokens=TokenBlocks(column="tokens", length=24), local=folder)
    assert np.array_equal(
        np.concatenate([row["tokens"] for row in dataset[:]]), np.concatenate(docs)[: 26 * 24]
    )
    assert not list(tmp_path.rglob("temporary/**/tokens/*"))


# -- where they come from -----------------------------------------------------


def test_only_heads_are_read_to_count(tmp_path, monkeypatch):
    docs = lognormal(60)
    folder = write(tmp_path / "set", docs)
    monkeypatch.setattr(DocumentCounter, "_count", None)
    view = TokenBlocks(column="tokens", length=16)
    dataset = TokenDataset(tokens=view, remote=folder, local=str(tmp_path / "cache"))
    assert not list((tmp_path / "cache").glob("*.mds"))
    assert len(list((tmp_path / "cache").rglob("tokens/*"))) == 2  # and its lock
    assert dataset[5]["tokens"].tolist() == np.concatenate(docs)[80:96].tolist()


def test_no_shard_waits_for_the_lock_of_the_counting(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "streamplug.transfer.locks._NUM_LOCK_FILES", 1
    )  # all names of a cache share one
    monkeypatch.setattr("streamplug.transfer.locks._MAX_LOCK_SECONDS", 2)
    folder = write(tmp_path / "set", lognormal(20), more=True)
    view = TokenBlocks(column="tokens", length=16)
    assert TokenDataset(tokens=view, remote=folder, local=str(tmp_path / "cache"))[:]


def test_what_was_counted_is_kept_and_checked(tmp_path, monkeypatch):
    folder = write(tmp_path / "set", lognormal(60))
    view = TokenPacks(column="tokens", length=64)
    options = {"tokens": view, "remote": folder, "local": str(tmp_path / "cache")}
    first = TokenDataset(**options)[3]["tokens"]
    counted, offsets = [], DocumentCounter.offsets
    monkeypatch.setattr(
        DocumentCounter, "offsets", lambda counter: counted.append(1) or offsets(counter)
    )
    assert np.array_equal(TokenDataset(**options)[3]["tokens"], first)
    assert not counted
    for path in (tmp_path / "cache").rglob("tokens/*"):
        if path.suffix == ".lock":
            continue
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert np.array_equal(TokenDataset(**options)[3]["tokens"], first)
    assert counted


class WithoutFirst(VectorColumn, Encoding):
    """Tokens without the first ones of each document."""

    item = np.dtype("<u2")

    def __init__(self, skipped: int) -> None:
        self.skipped = skipped

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, data: memoryview) -> Any:
        return np.frombuffer(data, self.item)[self.skipped :].copy()

    def lengths(self, sizes: Any, dtype: Any) -> Any:
        return np.maximum(sizes // dtype.itemsize - self.skipped, 0)


@pytest.mark.parametrize("make_view", [TokenBlocks, TokenPacks])
def test_what_was_counted_is_not_taken_for_another_decoder(tmp_path, make_view):
    docs = [np.arange(4 * n, 4 * n + 4, dtype=np.uint16) for n in range(20)]
    folder = write(tmp_path / "set", docs, "bytes")
    view = make_view(column="tokens", length=4, dtype="uint16")
    for skipped in (0, 1, 2):
        decoders = {"tokens": lambda _, n=skipped: WithoutFirst(n)} if skipped else None
        rows = TokenDataset(tokens=view, local=folder, decoders=decoders)[:]
        expected = np.concatenate([doc[skipped:] for doc in docs])
        tokens = np.concatenate([row["tokens"] for row in rows])
        assert set(tokens.tolist()) - {0} == set(expected.tolist()) - {0}


def test_a_set_that_was_written_over_is_counted_again(tmp_path):
    view = TokenBlocks(column="tokens", length=10)
    docs = documents([5, 15, 10])
    folder = write(tmp_path / "set", docs, hashes=())
    assert TokenDataset(tokens=view, local=folder).size == 3
    docs = docs[::-1]
    write(tmp_path / "set", docs, hashes=())
    found = TokenDataset(tokens=view, local=folder)[:]
    assert [row["tokens"].tolist() for row in found] == np.concatenate(docs).reshape(3, 10).tolist()


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(
    "options", [{"access": "range"}, {"cache_limit": 2500}, {"compression": "gz"}]
)
def test_tokens_come_by_range_compressed_and_through_a_small_cache(tmp_path, options, more):
    docs = documents([30, 0, 70, 5, 120, 16] * 5)
    written = {"compression": options["compression"]} if "compression" in options else {}
    reading = {k: v for k, v in options.items() if k != "compression"}
    folder = write(tmp_path / "set", docs, more=more, **written)
    view = TokenBlocks(column="tokens", length=16, stride=11)
    expected = windows(np.concatenate(docs), 16, 11, "drop")
    dataset = TokenDataset(
        tokens=view,
        remote=folder,
        local=str(tmp_path / "cache"),
        batch_size=4,
        shuffle=True,
        **reading,
    )
    assert [row["tokens"].tolist() for row in dataset[:]] == [e.tolist() for e in expected]
    found = sorted(chain(*batches(dataset)))
    assert set(found) == {e.tobytes() for e in expected}


def test_a_mixture_of_two_streams(tmp_path):
    first, second = documents([50] * 20, 1), documents([33, 44] * 10, 2)
    streams = [
        Stream(local=write(tmp_path / "first", first), proportion=0.75),
        Stream(local=write(tmp_path / "second", second, more=True), proportion=0.25),
    ]
    view = TokenBlocks(column="tokens", length=20, extras=EXTRAS)
    dataset = TokenDataset(
        tokens=view, streams=streams, batch_size=8, batching_method="stratified", shuffle=True
    )
    rows = [windows(np.concatenate(docs), 21, 20, "drop") for docs in (first, second)]
    assert [row["tokens"].tolist() for row in dataset[:]] == [
        row[:20].tolist() for row in chain(*rows)
    ]
    of_first = {row[:20].tobytes() for row in rows[0]}
    for batch in dataset.batches():
        ours = [row.tobytes() in of_first for row in batch["tokens"]]
        assert sum(ours) == 6
        assert ((batch["documents"] < 20).all(axis=1) == ours).all()
    use = dataset.explain(0)[0]
    assert dataset.where(use.sample)[0] == use


def test_rows_of_one_document_each_mix_streams_that_are_read_in_different_ways(tmp_path):
    first, second = documents([20] * 6, 1), documents([20] * 6, 2)
    streams = [
        Stream(local=write(tmp_path / "first", first)),
        Stream(local=write(tmp_path / "second", second), access="range"),
    ]
    dataset = TokenDataset(tokens=TokenBlocks(column="tokens", length=20), streams=streams)
    rows = [row["tokens"].tolist() for row in dataset[:]]
    assert rows == [doc.tolist() for doc in (*first, *second)]


# -- elastic ------------------------------------------------------------------

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
VIEWS = [
    TokenBlocks(column="tokens", length=32, separator=0),
    TokenBlocks(column="tokens", length=32, cross_documents=False, remainder="pad"),
    TokenPacks(column="tokens", length=96, documents_per_group=20),
]


@pytest.mark.parametrize("view", VIEWS, ids=["across", "within", "packs"])
def test_every_world_sees_the_same_steps_and_resumes(tmp_path, view):
    folder = write(tmp_path / "set", lognormal(80))

    def opened(ranks: int, rank: int) -> TokenDataset:
        world = World(ranks_per_node=ranks, rank=rank)
        return TokenDataset(
            tokens=view, local=folder, batch_size=12 // ranks, shuffle=True, world=world
        )

    alone = [sorted(batch) for batch in batches(opened(1, 0))]
    for ranks in (2, 3):
        parts = [batches(opened(ranks, rank)) for rank in range(ranks)]
        assert [sorted(chain(*step)) for step in zip(*parts, strict=True)] == alone
    two = [opened(2, rank) for rank in range(2)]
    loops = [two[rank].batches() for rank in range(2)]
    for _ in range(3):
        _ = [next(loop) for loop in loops]
    state = json.loads(json.dumps(two[0].state_dict()))
    four = [opened(4, rank) for rank in range(4)]
    for each in four:
        each.load_state_dict(state)
    parts = [batches(each) for each in four]
    assert [sorted(chain(*step)) for step in zip(*parts, strict=True)] == alone[3:]


def test_a_state_of_other_rows_is_refused(tmp_path):
    folder = write(tmp_path / "set", documents([32] * 30))
    state = TokenDataset(
        tokens=TokenBlocks(column="tokens", length=32), local=folder, batch_size=2
    ).state_dict()
    other = TokenDataset(
        tokens=TokenBlocks(column="tokens", length=32, cross_documents=False),
        local=folder,
        batch_size=2,
    )
    with pytest.raises(
        StateError, match=r"another run: tokens.cross_documents: saved True, now False$"
    ):
        other.load_state_dict(state)


def test_a_state_does_not_depend_on_columns_that_leave_rows_as_they_are(tmp_path):
    folder = write(tmp_path / "set", documents([32] * 30))

    def opened(kind=TokenPacks, **view):
        view = kind(column="tokens", length=32, **view)
        return TokenDataset(tokens=view, local=folder, batch_size=2)

    state = json.loads(json.dumps(opened().state_dict(4)))
    rest = [batch["tokens"].tolist() for batch in opened().batches()][2:]
    for extras in ([], ["mask"], ["targets", "documents"]):
        resumed = opened(extras=extras)
        resumed.load_state_dict(state)
        assert [batch["tokens"].tolist() for batch in resumed.batches()] == rest
    plain = StreamingDataset(local=folder, batch_size=2)
    with pytest.raises(StateError, match="tokens: saved rows by 'TokenPacks', now samples as they"):
        plain.load_state_dict(state)
    blocks = opened(TokenBlocks, extras=["positions"]).state_dict(4)
    opened(TokenBlocks, extras=["documents"]).load_state_dict(blocks)
    # The last target of a block is the first token of the next one, so there is a block less.
    with pytest.raises(StateError, match=r"tokens.extras: saved \[\], now \['targets'\]"):
        opened(TokenBlocks, extras=["targets"]).load_state_dict(blocks)


def test_extra_columns_that_change_no_row_are_no_difference(tmp_path):
    folder = write(tmp_path / "set", documents([32] * 30))
    views = [TokenPacks(column="tokens", length=32, extras=e) for e in (["mask"], ["documents"])]
    datasets = [TokenDataset(tokens=view, local=folder) for view in views]
    saved = json.loads(json.dumps(datasets[0].state_dict()))
    fingerprint = datasets[1].session.run.identity(World()).fingerprint
    message = fingerprint.describe_difference(unpack(saved))
    assert message == "documents: their lengths differ from those of the state, shard by shard"


@pytest.mark.parametrize(
    ("view", "method"),
    [(VIEWS[0], "fork"), (VIEWS[2], "spawn" if SOAK else "fork")],
    ids=["across", "packs"],
)
@pytest.mark.timeout(60)
def test_loaders_hand_over_the_same_rows(tmp_path, view, method):
    pytest.importorskip("torch")
    folder = write(tmp_path / "set", lognormal(60))
    options = {"tokens": view, "local": folder, "batch_size": 4, "shuffle": True}
    expected = batches(TokenDataset(**options))
    dataset = streamplug.TokenDataset(**options)
    loader = streamplug.StreamingDataLoader(dataset, num_workers=2, multiprocessing_context=method)
    steps = iter(loader)
    found = [[row.numpy().tobytes() for row in next(steps)["tokens"]] for _ in range(3)]
    state = loader.state_dict()
    assert found == expected[:3]
    again = streamplug.StreamingDataLoader(streamplug.TokenDataset(**options), num_workers=0)
    again.load_state_dict(state)
    rest = [[row.numpy().tobytes() for row in batch["tokens"]] for batch in again]
    assert rest == expected[3:]


@pytest.mark.parametrize("view", VIEWS, ids=["across", "within", "packs"])
def test_workers_map_what_was_counted_rather_than_get_it(tmp_path, view):
    folder = write(tmp_path / "set", documents([3] * 3000), size_limit=1 << 16)
    dataset = TokenDataset(tokens=view, local=folder)
    sent = pickle.dumps(dataset)
    assert len(sent) < 10_000
    assert pickle.loads(sent)[7]["tokens"].tolist() == dataset[7]["tokens"].tolist()


# -- packing ------------------------------------------------------------------


@slow
@given(
    lengths=st.lists(st.integers(0, 70), max_size=60),
    width=st.integers(1, 40),
    documents_per_group=st.integers(1, 20),
)
def test_packing_loses_no_token_and_overfills_no_row(lengths, width, documents_per_group):
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    found = pack_documents(ends, width, documents_per_group)
    rows, bounds = int(found[0]), found[1 : found[0] + 2]
    places = found[rows + 2 :]
    assert len(bounds) == rows + 1
    assert bounds[0] == 0
    assert bounds[-1] == len(places)
    documents = np.searchsorted(ends, places, side="right") - 1
    sizes = np.minimum(width, ends[documents + 1] - places)
    assert sum(sizes) == ends[-1]
    covered = sorted(zip(places.tolist(), sizes.tolist()))
    assert [place for place, _ in covered] == [0, *np.cumsum([s for _, s in covered])][
        :-1
    ] or not covered
    for start, stop in pairwise(bounds.tolist()):
        assert start < stop
        assert sizes[start:stop].sum() <= width
        assert (np.diff(places[start:stop]) > 0).all()
        assert len(set((documents[start:stop] // documents_per_group).tolist())) == 1
    assert (np.diff(places[bounds[:-1]]) > 0).all()


def test_packs_hold_whole_documents_and_little_else(tmp_path):
    docs = lognormal(3000)
    folder = write(tmp_path / "set", docs, size_limit=1 << 15)
    dataset = TokenDataset(
        tokens=TokenPacks(column="tokens", length=512), local=folder, batch_size=1
    )
    rows = dataset[:]
    seen: dict[int, list[np.ndarray]] = {}
    for row in rows:
        for document in np.unique(row["documents"][row["documents"] >= 0]).tolist():
            part = row["documents"] == document
            assert row["positions"][part].tolist() == list(range(part.sum()))
            assert row["mask"][part].tolist() == [False, *[True] * (part.sum() - 1)]
            seen.setdefault(document, []).append(row["tokens"][part])
        assert not row["tokens"][row["documents"] < 0].any()
    for document, tokens in enumerate(docs):
        parts = seen.get(document, [])
        assert sorted(chain(*parts)) == sorted(tokens.tolist())
        assert len(parts) == -(-len(tokens) // 512)
    total = sum(map(len, docs))
    assert total / (len(rows) * 512) >= 0.95


def test_the_targets_of_packs_are_their_own_tokens(tmp_path):
    folder = write(tmp_path / "set", documents([4, 3, 9]))
    view = TokenPacks(column="tokens", length=8, extras=EXTRAS)
    for row in TokenDataset(tokens=view, local=folder)[:]:
        assert row["targets"][:-1].tolist() == row["tokens"][1:].tolist()
        ours = row["documents"]
        assert row["mask"].tolist() == [
            i < 7 and ours[i] == ours[i + 1] and ours[i] >= 0 for i in range(8)
        ]


@pytest.mark.parametrize("kind", [TokenBlocks, TokenPacks])
def test_targets_may_be_changed_in_place_without_the_tokens(tmp_path, kind):
    docs = documents([20, 30])
    folder = write(tmp_path / "set", docs)
    dataset = TokenDataset(
        tokens=kind(column="tokens", length=8, extras=EXTRAS), local=folder, batch_size=2
    )
    expected = dataset[1]["tokens"].tolist()
    row, [batch, *_] = dataset[1], dataset.batches()
    row["targets"][:] = batch["targets"][:] = 7
    assert row["tokens"].tolist() == batch["tokens"][1].tolist() == expected


# -- damage, and what is refused ----------------------------------------------


def test_damage_names_the_shard_and_the_sample(tmp_path):
    docs = documents([20] * 40)
    folder = Path(write(tmp_path / "set", docs, hashes=()))
    dataset = TokenDataset(tokens=TokenBlocks(column="tokens", length=20), local=str(folder))
    shard = sorted(folder.glob("*.mds"))[1]
    data = bytearray(shard.read_bytes())
    first = int.from_bytes(data[4:8], "little")
    second = int.from_bytes(data[8:12], "little")
    data[second + 4] = 1 << 2 | 1  # the header of the second sample's array
    shard.write_bytes(data)
    per_shard = int(dataset.samples_per_shard[0])
    assert first < second
    assert dataset[per_shard]["tokens"].tolist() == docs[per_shard].tolist()
    with pytest.raises(DataError, match=r"shard 1 .*shard\.00001\.mds.*sample 1, column 'tokens'"):
        _ = dataset[per_shard + 1]
    with pytest.raises(DataError, match=r"shard\.00001\.mds"):
        _ = dataset[:]


@pytest.mark.parametrize("offset", [0, 4, 6])
def test_a_damaged_copy_is_fetched_again(tmp_path, offset):
    docs = documents([20] * 40)
    options = {"remote": write(tmp_path / "set", docs), "local": str(tmp_path / "cache")}
    view = TokenBlocks(column="tokens", length=30)
    assert TokenDataset(tokens=view, **options)[:]
    shard = sorted((tmp_path / "cache").glob("*.mds"))[1]
    data = bytearray(shard.read_bytes())
    at = int.from_bytes(data[8:12], "little") + offset
    data[at : at + 1] = b"\xff"
    shard.write_bytes(data)
    found = TokenDataset(tokens=view, **options)[:]
    expected = np.concatenate(docs)[: len(found) * 30]
    # What is in the items themselves nobody can see without a digest.
    same = np.concatenate([row["tokens"] for row in found]) == expected
    assert (~same).sum() == (offset == 6)


def test_a_document_of_another_length_than_counted_is_refused(tmp_path):
    docs = documents([20] * 40)
    folder = Path(write(tmp_path / "set", docs, "bytes", size_limit=1 << 16))
    view = TokenBlocks(column="tokens", length=20, dtype="uint16")
    dataset = TokenDataset(tokens=view, local=str(folder))
    write(folder, documents([10, 30] * 20), "bytes", size_limit=1 << 16)
    with pytest.raises(DataError, match=r"sample 0, .*: 10 tokens, where 20 were counted"):
        _ = dataset[:]


@pytest.mark.parametrize(
    ("spec", "value", "options", "match"),
    [
        ("bytes", b"123", {}, "pass dtype="),
        ("bytes", b"123", {"dtype": "uint16"}, "sample 0, column 'tokens': a value of 3 bytes"),
        ("ndarray", np.ones(3, np.int32), {"dtype": "uint16"}, "dtype|tokens"),
        ("ndarray:int32", np.ones(3, np.int32), {"dtype": "uint16"}, "tokens of int32"),
        ("ndarray:float32", np.ones(3, np.float32), {}, "whole numbers"),
        ("ndarray:uint16:2,2", np.ones((2, 2), np.uint16), {}, "one-dimensional"),
        ("ndarray:uint16", np.ones((2, 2), np.uint16), {}, "one-dimensional|no array"),
        ("str", "text", {}, "'bytes' or one-dimensional"),
        ("ndarray:uint16", np.ones(3, np.uint16), {"column": "other"}, "'other'"),
        ("ndarray:uint16", np.ones(3, np.uint16), {"separator": 1 << 16}, "separator=65536"),
        ("ndarray", np.ones(3, np.uint16), {"dtype": "uint17"}, "dtype='uint17'"),
        ("bytes", b"1234", {"dtype": ">u2"}, "dtype='>u2': .* little-endian"),
        ("bytes", b"1234", {"dtype": np.dtype(">i4")}, "dtype='>i4': .* little-endian"),
    ],
)
def test_what_holds_no_tokens_is_refused(tmp_path, spec, value, options, match):
    with MDSWriter(out=tmp_path / "set", columns={"tokens": spec}) as writer:
        writer.write({"tokens": value})
    view = TokenBlocks(**{"column": "tokens", "length": 1, **options})
    with pytest.raises((ConfigError, DataError), match=match):
        _ = TokenDataset(tokens=view, local=str(tmp_path / "set"))[:]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"length": 0}, "length=0"),
        ({"stride": 9}, "stride=9"),
        ({"remainder": "keep"}, "remainder='keep'"),
        ({"cross_documents": "no"}, "cross_documents='no': must be True or False"),
        ({"cross_documents": None}, "cross_documents=None: must be True or False"),
        ({"extras": "targets"}, "extras='targets'"),
        ({"extras": ["labels"]}, "labels"),
        ({"column": "mask", "extras": ["mask"]}, "mask"),
    ],
)
def test_options_without_meaning_are_refused(options, match):
    with pytest.raises(ConfigError, match=r"tokens='tokens': expected TokenBlocks"):
        TokenDataset(tokens="tokens")
    with pytest.raises(ConfigError, match=match):
        TokenBlocks(**{"column": "tokens", "length": 8, **options})
    for number in (0, None, True):
        with pytest.raises(
            ConfigError, match=f"documents_per_group={number}: must be a whole number"
        ):
            TokenPacks(column="tokens", length=8, documents_per_group=number)


@pytest.mark.parametrize(
    ("view", "plain"),
    [
        (
            TokenBlocks(
                column="tokens",
                length=np.int64(8),
                stride=np.int32(4),
                separator=np.uint16(1),
                padding=np.uint16(0),
                cross_documents=np.bool_(False),
                dtype=np.uint16,
            ),
            TokenBlocks(
                column="tokens",
                length=8,
                stride=4,
                separator=1,
                cross_documents=False,
                dtype="uint16",
            ),
        ),
        (
            TokenPacks(column="tokens", length=8, documents_per_group=np.int64(4)),
            TokenPacks(column="tokens", length=8, documents_per_group=4),
        ),
    ],
)
def test_states_are_json_if_options_are_those_of_numpy(tmp_path, view, plain):
    folder = write(tmp_path / "set", documents([16, 20]))
    state = TokenDataset(tokens=view, local=folder, batch_size=1).state_dict(0)
    loaded = json.loads(json.dumps(state))
    TokenDataset(tokens=plain, local=folder, batch_size=1).load_state_dict(loaded)


@pytest.mark.parametrize("row", [-1, 2, True, 0.5, "0"])
def test_spans_are_of_rows_that_there_are(tmp_path, row):
    folder = write(tmp_path / "set", documents([16]))
    dataset = TokenDataset(tokens=TokenBlocks(column="tokens", length=8), local=folder)
    with pytest.raises(ConfigError, match=f"row={row!r}: there are the rows 0 to 1"):
        dataset.document_spans(row)


def test_streams_of_different_dtypes_and_columns_are_refused(tmp_path):
    first = write(tmp_path / "first", documents([9]))
    second = write(tmp_path / "second", documents([9], dtype="uint32"), "ndarray:uint32")
    view = TokenBlocks(column="tokens", length=3)
    with pytest.raises(ConfigError, match=r"uint16.*uint32"):
        TokenDataset(tokens=view, streams=[Stream(local=first), Stream(local=second)])
    with pytest.raises(ConfigError, match="columns="):
        TokenDataset(tokens=view, local=first, columns=["tokens"])


def test_an_epoch_without_rows_is_refused(tmp_path):
    folder = write(tmp_path / "set", documents([3, 0]))
    dataset = TokenDataset(tokens=TokenBlocks(column="tokens", length=8), local=folder)
    assert dataset.size == 0
    assert dataset[:] == []
    with pytest.raises(ConfigError, match="no samples"):
        next(iter(dataset))


@pytest.mark.parametrize("view", [TokenBlocks, TokenPacks])
def test_a_stream_may_be_empty(tmp_path, view):
    folder = write(tmp_path / "set", documents([16, 9, 3]))
    with MDSWriter(out=tmp_path / "none", columns={"tokens": "ndarray:uint16"}):
        pass
    none, rows = str(tmp_path / "none"), view(column="tokens", length=8)
    streams = [Stream(local=none, proportion=0), Stream(local=folder, proportion=1)]
    mixed = TokenDataset(tokens=rows, streams=streams, batch_size=1)
    assert mixed.samples_per_stream.tolist()[0] == 0
    assert batches(mixed) == batches(TokenDataset(tokens=rows, local=folder, batch_size=1))
    with pytest.raises(ConfigError, match="there are no samples to make rows"):
        TokenDataset(tokens=rows, local=none)


@slow
@given(data=st.data())
def test_rows_of_selected_documents_are_those_of_a_set_of_them(tmp_path, data):
    is_fixed = data.draw(st.booleans())
    lengths = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=30))
    if is_fixed:
        lengths = [7] * len(lengths)
    mask = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    docs = documents(lengths)
    chosen = [doc for doc, is_chosen in zip(docs, mask) if is_chosen]
    if not sum(map(len, chosen)):
        return
    spec = "ndarray:uint16:7" if is_fixed else data.draw(st.sampled_from(["ndarray", "bytes"]))
    options = {"column": "tokens", "length": data.draw(st.integers(1, 30)), "dtype": "uint16"}
    if data.draw(st.booleans()):
        view = TokenPacks(**options, extras=EXTRAS)
    else:
        separator = data.draw(st.none() | st.just(0))
        view = TokenBlocks(**options, remainder="pad", separator=separator, extras=EXTRAS)
    codec = data.draw(st.sampled_from([None, "gz"]))
    whole = write(tmp_path / "set", docs, spec, compression=codec)
    plain = TokenDataset(tokens=view, local=write(tmp_path / "chosen", chosen, spec))
    access = data.draw(st.sampled_from(["shard", "range", "auto"] if codec is None else ["shard"]))
    found = TokenDataset(tokens=view, remote=whole, select=mask, access=access)
    assert found.size == plain.size
    for row, expected in zip(found[:], plain[:], strict=True):
        assert {name: value.tolist() for name, value in row.items()} == {
            name: value.tolist() for name, value in expected.items()
        }
    numbers = np.flatnonzero(mask)
    stored = StreamingDataset(remote=whole)
    for row in range(min(found.size, 3)):
        for one, other in zip(found.document_spans(row), plain.document_spans(row)):
            assert (one.document, one.begin, one.end) == (other.document, other.begin, other.end)
            place = stored.session.reader.locate(int(numbers[one.document]))
            assert (one.stream, one.shard, one.file, one.index) == place


def test_only_shards_of_selected_documents_are_read(tmp_path):
    url = write(tmp_path / "set", documents([50] * 40), "bytes", compression="gz")
    cache = tmp_path / "cache"
    options = {"tokens": TokenBlocks(column="tokens", length=10, dtype="uint16"), "batch_size": 2}
    streams = [Stream(remote=f"file://{url}", local=str(cache), select=[0, 1, 39])]
    dataset = TokenDataset(streams=streams, **options, shuffle=True)
    assert dataset.size == 15
    assert len(list(dataset)) == 16  # the last batch is filled up
    shards = len(list((tmp_path / "set").glob("*.mds.gz")))
    assert len(list(cache.glob("*.mds"))) == 2 < shards
    state = dataset.state_dict(0)
    streams = [Stream(remote=f"file://{url}", local=str(cache), select=[0, 1, 38])]
    with pytest.raises(StateError, match="other rows of stream 0"):
        TokenDataset(streams=streams, **options, shuffle=True).load_state_dict(state)


def test_a_value_that_is_no_document_is_an_error_that_names_the_sample(tmp_path):
    docs = [*documents([4] * 3), np.zeros((2, 2), np.uint16)]
    url = write(tmp_path / "set", docs, "ndarray", compression="gz")
    text = (
        r"^shard 0 \(.*\): sample 3, column 'tokens': uint16 \(2, 2\) where a one-dimensional array"
    )
    with pytest.raises(DataError, match=text):
        TokenDataset(tokens=TokenBlocks(column="tokens", length=4, dtype="uint16"), local=url)


def test_a_sample_of_an_archive_that_lacks_the_value_is_named(tmp_path):
    pytest.importorskip("streamplug_webdataset")
    columns = {"__key__": "str", "bin": "bytes", "txt": "str"}
    with streamplug.Writer(out=tmp_path / "set", columns=columns, format="webdataset") as writer:
        for number in range(4):
            tokens = None if number == 2 else bytes(8)
            writer.write({"__key__": str(number), "bin": tokens, "txt": "x"})
    tokens = TokenBlocks(column="bin", length=4, dtype="uint16")
    with pytest.raises(DataError, match=r": sample 2, column 'bin': no value where a one-dim"):
        TokenDataset(tokens=tokens, local=str(tmp_path / "set"))


@pytest.mark.parametrize("how", ["samples", "batches"])
def test_rows_that_cannot_be_read_are_substituted(tmp_path, how):
    out = tmp_path / "set"
    write(out, documents([100] * 40), size_limit=None, max_samples_per_shard=5)
    options = {
        "tokens": TokenBlocks(column="tokens", length=64),
        "local": str(out),
        "batch_size": 21,
    }
    rows = [row["tokens"].tolist() for row in TokenDataset(**options)]
    datasets = [TokenDataset(**options, on_error=on_error) for on_error in ("substitute", "raise")]
    (out / "shard.00003.mds").unlink()
    dataset = datasets[0]
    if how == "samples":
        found = [row["tokens"].tolist() for row in dataset]
    else:
        found = [row for batch in dataset.batches() for row in batch["tokens"].tolist()]
    spans = [dataset.document_spans(row) for row in range(dataset.size)]
    lost = {row for row, parts in enumerate(spans) if any(part.shard == 3 for part in parts)}
    assert {row for row in range(len(rows)) if found[row] != rows[row]} == lost
    assert all(row in rows for row in found)
    assert dataset.stats().substitutions == len(lost) > 5
    with pytest.raises(StreamplugError):
        list(datasets[1])
