"""Options of the order: refused before anything is opened, and what is left open has its default."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamplug import MDSWriter, Stream, World, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, PluginError, StateError, StreamplugError
from streamplug.plugin.catalog import load_catalog
from streamplug.plugin.registry import unregister


class Watched(LocalStorage):
    """A storage that notes that it was opened."""

    opened: ClassVar[Counter[str]] = Counter()

    def __init__(self, url: str, **options: Any) -> None:
        self.opened[url] += 1
        super().__init__(url.replace("watched://", "file://"), **options)


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(Watched, "opened", Counter())
    register_storage("watched", Watched)
    yield Watched
    unregister("storage", "watched")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"id": "int"}, out=out, size_limit=350) as writer:
        writer.write_batch({"id": list(range(200))})
    return str(out)


WRONG = [
    ({"shuffle_algo": "windwo"}, "'windwo'.*window"),
    ({"shuffle_algo": "py1ee", "shuffle": True}, "'py1ee'"),
    ({"shuffle_algo": None}, "shuffle_algo=None"),
    ({"shuffle": "no"}, "shuffle='no': must be True or False"),
    ({"shuffle_seed": -1}, "shuffle_seed=-1: must be a whole number of at least 0"),
    ({"shuffle_seed": None}, "shuffle_seed=None: must be a whole number"),
    ({"shuffle_block_size": 0}, "shuffle_block_size=0: must be a whole number of at least 1"),
    ({"num_canonical_nodes": 0}, "num_canonical_nodes=0: must be a whole number of at least 1"),
    ({"num_canonical_nodes": "2"}, "num_canonical_nodes='2': must be a whole number"),
    (
        {"partition_algo": "elastik"},
        "partition_algo='elastik': expected 'elastic', or an order",
    ),
    ({"partition_algo": "stratified"}, "partition_algo='stratified': it names a batching method"),
    ({"partition_algo": "random"}, "partition_algo='random': it names a batching method"),
    ({"partition_algo": ["orig"]}, "partition_algo=.*: expected the name of a partition"),
    (
        {"batching_method": "per-stream"},
        r"unknown order 'per-stream'\. Did you mean 'per_stream'",
    ),
    ({"sampling_method": "balance"}, "sampling_method='balance': choose one of balanced, fixed"),
    ({"sampling_granularity": 0}, "sampling_granularity=0: must be a whole number"),
    ({"sampling_granularity": None}, "sampling_granularity=None: must be a whole number"),
    ({"epoch_size": "many"}, "epoch_size='many': expected a count"),
    ({"batch_size": 0}, "batch_size=0: must be a whole number of at least 1"),
    ({"batch_size": 2**31}, "batch_size=2147483648: must be at most 2147483647"),
    ({"predownload": -1}, "predownload=-1: must be a whole number of at least 0"),
    ({"replication": 0}, "replication=0: must be a whole number of at least 1"),
    (
        {"curriculum": {0: [1.0]}, "partition_algo": "orig"},
        "curriculum= needs partition_algo='elastic'",
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_a_misspelt_option_is_refused_before_anything_is_opened(
    watched, tmp_path, options, message
):
    if options.get("partition_algo") == "orig":
        pytest.importorskip("streamplug_mosaic")
    if options.get("partition_algo") == "stratified":
        pytest.importorskip("streamplug_mixing")
    remote, local = "watched:///nowhere/at/all", tmp_path / "cache"
    with pytest.raises((ConfigError, PluginError), match=message):
        StreamingDataset(remote=remote, local=str(local), **options)
    with pytest.raises((ConfigError, PluginError), match=message):
        StreamingDataset(streams=[Stream(remote=remote, local=str(local))], **options)
    assert not watched.opened
    assert not local.exists()


@pytest.mark.parametrize("section", [False, True])
def test_a_misspelt_option_in_a_file_is_refused_before_anything_is_opened(
    watched, tmp_path, section
):
    given = {
        "streams": [{"remote": "watched:///nowhere/at/all", "local": str(tmp_path / "cache")}],
        "shuffle": True,
        "shuffle_algo": "windwo",
    }
    config = Path(tmp_path / "run.json")
    config.write_text(json.dumps({"dataset": given} if section else given), encoding="utf-8")
    with pytest.raises(PluginError, match=r"'windwo'.*window"):
        StreamingDataset.from_config(config)
    assert not watched.opened
    assert not (tmp_path / "cache").exists()


def test_a_name_that_is_right_is_not_in_the_way_of_the_error_of_the_place(watched, tmp_path):
    with pytest.raises(StreamplugError, match=r"nowhere/at/all/index\.json does not exist"):
        StreamingDataset(remote="watched:///nowhere/at/all", local=str(tmp_path / "cache"))
    assert watched.opened


# -- canonical nodes that nobody gives ----------------------------------------------------


def canonical_nodes_of(folder, **options):
    return StreamingDataset(local=folder, batch_size=2, **options).state_dict()[
        "num_canonical_nodes"
    ]


@pytest.mark.parametrize("partition", ["orig", "relaxed", "elastic"])
@pytest.mark.parametrize(
    ("algo", "canonical_nodes"),
    [("py1s", 128), ("py2s", 128), ("py1e", 2), ("naive", 2), ("window", 2), ("global", 2)],
)
def test_the_default_does_not_depend_on_shuffling(folder, partition, algo, canonical_nodes):
    options = {"shuffle_algo": algo, "partition_algo": partition, "world": World(nodes=2)}
    if algo in load_catalog()["shuffle"] or partition != "elastic":
        pytest.importorskip("streamplug_mosaic")
    assert canonical_nodes_of(folder, **options) == canonical_nodes
    assert canonical_nodes_of(folder, shuffle=True, **options) == canonical_nodes


def test_those_that_are_given_count(folder):
    pytest.importorskip("streamplug_mosaic")
    assert canonical_nodes_of(folder, shuffle_algo="py1s", num_canonical_nodes=3) == 3


@pytest.mark.parametrize(("saved", "loaded"), [("window", "py1s"), ("py1s", "window")])
def test_a_state_decides_where_nobody_gives_them(folder, saved, loaded):
    pytest.importorskip("streamplug_mosaic")
    first = StreamingDataset(local=folder, batch_size=4, shuffle_algo=saved, partition_algo="orig")
    batches = first.batches()
    for _ in range(5):
        next(batches)
    state = json.loads(json.dumps(first.state_dict()))
    rest = [batch["id"].tolist() for batch in batches]
    again = StreamingDataset(local=folder, batch_size=4, shuffle_algo=loaded, partition_algo="orig")
    again.load_state_dict(state)
    assert [batch["id"].tolist() for batch in again.batches()] == rest
    assert [b["id"].tolist() for b in first.batches()] == [
        b["id"].tolist() for b in again.batches()
    ]
    assert again.state_dict()["num_canonical_nodes"] == (64 if saved == "py1s" else 1)
    given = StreamingDataset(
        local=folder, batch_size=4, partition_algo="orig", num_canonical_nodes=2
    )
    with pytest.raises(StateError, match="num_canonical_nodes"):
        given.load_state_dict(state)
