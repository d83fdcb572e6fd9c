"""Views over a network, in other processes, and where they cannot be used."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import pickle
import shutil
from functools import partial

import numpy as np
import pytest
from streamplug_testing.http import _Handler, serving
from streamplug_tools.verification import verify
from streamplug_views import View, workspace
from streamplug_views.sources import resolve_url, source_digest

from streamplug import MDSWriter, Stream
from streamplug.dataset import StreamingDataset  # without torch, which processes would import
from streamplug.errors import ConfigError, DataError, StateError


@pytest.fixture
def root(tmp_path):
    generator = np.random.default_rng(0)
    root = tmp_path / "root"
    columns = {"id": "int", "data": "bytes"}
    with MDSWriter(out=root / "set", columns=columns, max_samples_per_shard=20) as out:
        for n in range(200):
            out.write({"id": n, "data": generator.bytes(3000)})
    with MDSWriter(out=root / "more", columns={"id": "int", "text": "str"}) as out:
        for n in range(200):
            out.write({"id": n, "text": f"t{n}"})
    kept = [*range(40, 60), 123, 7]
    View.of(root / "set").select(kept).add(root / "more", on="id").commit(root / "view")
    View.of(root / "set").select([199]).commit(root / "other")
    return root


EXPECTED = [7, *range(40, 60), 123]


def ids(dataset):
    return [int(sample["id"]) for sample in dataset]


def test_a_view_may_be_in_a_directory_whose_name_is_not_utf8(root, tmp_path):
    renamed = root.rename(root.with_name(os.fsdecode(b"caf\xe9")))
    options = {"remote": str(renamed / "view"), "local": str(tmp_path / "cache")}
    assert ids(StreamingDataset(**options, batch_size=1)) == EXPECTED


@pytest.mark.parametrize("access", ["shard", "range", "auto"])
def test_only_what_is_selected_is_asked_for(root, tmp_path, access):
    with serving(root) as server:
        options = {"remote": f"{server.url}/view", "local": str(tmp_path / "cache")}
        dataset = StreamingDataset(**options, access=access, batch_size=4, shuffle=True)
        for _ in range(2):
            assert sorted(set(ids(dataset))) == EXPECTED
        assert all(f"t{sample['id']}" == sample["text"] for sample in dataset)
        numbers = [n for batch in dataset.batches() for n in batch["id"].tolist()]
        assert sorted(set(numbers)) == EXPECTED
        asked = {path for _, path, _ in server.requests if path.startswith("set/shard")}
        assert asked == {f"set/shard.{n:05d}.mds" for n in (0, 2, 6)}
        if access == "auto":
            kept = {path.name for path in (tmp_path / "cache").rglob("source-*/shard*.mds")}
            assert "shard.00002.mds" in kept
            assert not kept & {"shard.00006.mds"}


def test_a_view_at_a_relative_path_is_read_in_another_working_directory(root, monkeypatch):
    monkeypatch.chdir(root)
    dataset = StreamingDataset(remote="view")
    view = View.of(Stream(remote="view")).exclude([0])
    assert len(view) == len(EXPECTED) - 1
    monkeypatch.chdir(root / "set")
    assert ids(pickle.loads(pickle.dumps(dataset))) == EXPECTED
    assert view.commit().version == 2
    assert ids(StreamingDataset(remote="../view")) == EXPECTED[1:]


def test_few_selected_samples_of_a_view_are_read_by_ranges(root, tmp_path):
    View.of(root / "other").concat(root / "set").commit(root / "all")
    with serving(root) as server:
        options = {"remote": f"{server.url}/all", "local": str(tmp_path / "cache")}
        dataset = StreamingDataset(**options, access="auto", select=[0, 8, 151], batch_size=1)
        assert ids(dataset) == [199, 7, 150]
        assert dataset.size == 3
        requests = [at for _, path, at in server.requests if path.startswith("set/shard")]
        assert len(requests) >= 3
        assert all(at is not None and at[1] - at[0] < 10_000 for at in requests)


@pytest.mark.parametrize("token", ["secret", "a/b/c"])
def test_sources_are_read_with_the_query_of_the_view(root, tmp_path, monkeypatch, token):
    answer = _Handler.do_GET

    def answer_with_token(handler):
        if handler.path.endswith(f"?token={token}"):
            answer(handler)
        else:
            handler.send_error(403)

    monkeypatch.setattr(_Handler, "do_GET", answer_with_token)
    with serving(root) as server:
        remote = f"{server.url}/other?token={token}"
        assert ids(StreamingDataset(remote=remote, local=str(tmp_path / "cache"))) == [199]


@pytest.mark.parametrize("name", ["my set", "50%25", "a#b", "a?b", "a+b", "ü"])
def test_sources_with_any_name_are_read_over_http(root, tmp_path, name):
    (root / "set").rename(root / name)
    View.of(root / name).select([5, 3]).commit(root / "any")
    with serving(root) as server:
        remote = f"{server.url}/any"
        assert ids(StreamingDataset(remote=remote, local=str(tmp_path / "cache"))) == [3, 5]


@pytest.mark.parametrize("name", ["my rows.csv", "50%25.csv"])
def test_a_file_with_any_name_is_read_over_http(root, tmp_path, name):
    pytest.importorskip("streamplug_text")
    (root / name).write_text("id\n1\n2\n3\n")
    View.of(root / name, format="csv").select([1]).commit(root / "any")
    with serving(root) as server:
        remote = f"{server.url}/any"
        assert ids(StreamingDataset(remote=remote, local=str(tmp_path / "cache"))) == [2]


@pytest.mark.parametrize("name", ["rows.csv", "folder"])
def test_views_of_files_without_an_index_can_be_copied_elsewhere(tmp_path, name):
    pytest.importorskip("streamplug_text")
    place = tmp_path / "first"
    (place / "folder").mkdir(parents=True)
    (place / "rows.csv").write_text("id\n1\n2\n3\n")
    (place / "folder" / "a.csv.gz").write_bytes(gzip.compress(b"id\n1\n2\n"))
    (place / "folder" / "b.csv").write_text("id\n3\n")
    View.of(place / name, format="csv").select([0, 2]).commit(place / "view")
    shutil.copytree(place, tmp_path / "second", copy_function=shutil.copyfile)
    assert ids(StreamingDataset(remote=str(tmp_path / "second" / "view"))) == [1, 3]
    (place / "rows.csv").write_text("id\n1\n23\n")
    (place / "folder" / "b.csv").rename(place / "folder" / "c.csv")
    with pytest.raises(DataError, match="changed since the view was written"):
        StreamingDataset(remote=str(place / "view"))


def test_views_that_recorded_the_names_of_scanned_files_are_read(tmp_path, monkeypatch):
    pytest.importorskip("streamplug_text")
    (tmp_path / "rows.csv").write_text("id\n1\n2\n3\n")
    monkeypatch.setattr(workspace, "source_digest", partial(source_digest, all_names=True))
    View.of(tmp_path / "rows.csv", format="csv").select([0, 2]).commit(tmp_path / "view")
    assert ids(StreamingDataset(remote=str(tmp_path / "view"))) == [1, 3]


def test_the_query_of_a_view_is_sent_to_no_other_host():
    base = "https://host/views/clean?token=secret"
    assert resolve_url("../../set", base) == "https://host/set?token=secret"
    assert "secret" not in resolve_url("../../../other/set", base)
    assert "secret" not in resolve_url("https://other/set", base)


def test_a_view_whose_cache_is_itself_is_read_where_it_is(root):
    before = set(root.rglob("*"))
    view = str(root / "view")
    assert ids(StreamingDataset(remote=view, local=view)) == EXPECTED
    assert ids(StreamingDataset(remote=str(root), local=str(root), split="view")) == EXPECTED
    assert set(root.rglob("*")) == before


def test_a_local_view_is_read_where_it_is(root):
    before = sorted(root.rglob("*"))
    assert ids(StreamingDataset(local=str(root / "view"))) == EXPECTED
    assert ids(StreamingDataset(local=str(root), split="view")) == EXPECTED
    assert sorted(root.rglob("*")) == before


def test_views_of_one_data_set_share_its_cache(root, tmp_path):
    with serving(root) as server:
        for name, expected in (("view", EXPECTED), ("other", [199]), ("view", EXPECTED)):
            options = {"remote": f"{server.url}/{name}", "local": str(tmp_path / "cache")}
            assert ids(StreamingDataset(**options)) == expected
        asked = [path for _, path, _ in server.requests if path.startswith("set/shard")]
        assert sorted(asked) == [f"set/shard.{n:05d}.mds" for n in (0, 2, 6, 9)]


def test_a_cache_limit_is_that_of_all_its_data_sets(root, tmp_path):
    with serving(root) as server:
        dataset = StreamingDataset(
            remote=f"{server.url}/view",
            local=str(tmp_path / "cache"),
            cache_limit=150_000,
            batch_size=2,
        )
        for _ in range(2):
            assert sorted(set(ids(dataset))) == EXPECTED
        size = sum(p.stat().st_size for p in (tmp_path / "cache").rglob("shard*"))
        assert size <= 150_000


def read_elsewhere(dataset, connection):
    connection.send(ids(dataset))
    connection.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_views(root, method):
    dataset = StreamingDataset(remote=str(root / "view"))
    assert int(dataset[1]["id"]) == 40  # with something open
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=read_elsewhere, args=(dataset, theirs))
    child.start()
    assert ours.poll(60)
    assert ours.recv() == EXPECTED
    child.join(60)
    assert child.exitcode == 0


def test_loader_workers_read_views(root):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as TorchDataset

    dataset = TorchDataset(remote=str(root / "view"), batch_size=4, shuffle=True)
    loader = StreamingDataLoader(
        dataset, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    first = [batch["id"].tolist() for batch in loader]
    assert sorted({n for batch in first for n in batch}) == EXPECTED
    state = loader.state_dict()
    assert [batch["id"].tolist() for batch in loader] != first
    again = TorchDataset(remote=str(root / "view"), batch_size=4, shuffle=True)
    alone = StreamingDataLoader(again, num_workers=0)
    assert [batch["id"].tolist() for batch in alone] == first
    assert state


def test_what_does_not_read_views_refuses_them(root):
    with pytest.raises(ConfigError, match="is a view or a table: verify the data sets"):
        verify(Stream(remote=str(root / "view")))
    dataset = StreamingDataset(remote=str(root / "view"))
    with pytest.raises(ConfigError, match="views keep no shards"):
        dataset.prepare_shard(0)


def test_tokens_of_a_view_are_those_of_the_selected_documents(root):
    tokens = pytest.importorskip("streamplug_tokens")
    blocks = tokens.TokenBlocks(column="data", length=64, dtype="uint8", remainder="pad")
    options = {"tokens": blocks, "batch_size": 2, "shuffle": True}
    plain = tokens.TokenDataset(remote=str(root / "set"), select=EXPECTED, **options)
    view = tokens.TokenDataset(remote=str(root / "view"), **options)
    rows = [batch["data"].tolist() for batch in view.batches()]
    assert rows == [batch["data"].tolist() for batch in plain.batches()]
    some = tokens.TokenDataset(remote=str(root / "view"), select=[1, 3], **options)
    documents = [EXPECTED[1], EXPECTED[3]]
    chosen = tokens.TokenDataset(remote=str(root / "set"), select=documents, **options)
    assert [row["data"].tolist() for row in some[:]] == [row["data"].tolist() for row in chosen[:]]
    again = tokens.TokenDataset(remote=str(root / "view"), **options)
    batches = again.batches()
    next(batches)
    state = again.state_dict()
    resumed = tokens.TokenDataset(remote=str(root / "view"), **options)
    resumed.load_state_dict(state)
    assert [batch["data"].tolist() for batch in resumed.batches()] == rows[1:]
    with pytest.raises(StateError, match="version 1"):
        plain.load_state_dict(state)
    View.of(root / "set").rename({"data": "bytes"}).commit(root / "renamed")
    View.of(root / "set").concat(root / "set").commit(root / "twice")
    for name, column, message in [
        ("renamed", "bytes", "column 'bytes' is renamed"),
        ("twice", "data", "samples of several data sets"),
        ("view", "text", "column 'text' is added by key"),
    ]:
        blocks = tokens.TokenBlocks(column=column, length=4, dtype="uint8")
        with pytest.raises(ConfigError, match=message):
            tokens.TokenDataset(tokens=blocks, remote=str(root / name))


def test_a_view_is_simulated_as_its_selected_rows(root):
    module = pytest.importorskip("streamplug_simulate")
    results = []
    for name, select in [("other", None), ("set", [199])]:
        config = {"remote": str(root / name), "batch_size": 1, "select": select}
        with module.open_dataset(config) as plan:
            result = module.simulate(plan, plan.scenario(), 10**6)
            results.append((result.samples, result.egress))
    assert results[0] == results[1]
    assert results[0][0] == 1
    config = {"remote": str(root / "view"), "batch_size": 1}
    with (
        pytest.raises(ConfigError, match="samples of several data sets"),
        module.open_dataset(config),
    ):
        pass


def test_waits_name_shards_over_all_streams(root, tmp_path):
    streams = [
        Stream(remote=str(root / name), local=str(tmp_path / name)) for name in ("set", "other")
    ]
    reader = StreamingDataset(streams=streams, columns=["id"], batch_size=1).session.reader
    [first], [last] = (reader.needs(np.array([sample])) for sample in (0, 200))
    assert reader.file_of(first) == (0, "shard.00000.mds")
    assert reader.file_of(last) == (19, "shard.00009.mds")
