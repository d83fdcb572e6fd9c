"""Pipelines that Accelerate divides among ranks a second time."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import streamplug_webdataset as wds

from streamplug.errors import ConfigError


class Shard:
    """Stands for what Accelerate wraps around a data set to give each rank a part."""

    def __init__(self, dataset, num_processes):
        self.dataset, self.num_processes = dataset, num_processes


@pytest.fixture
def loaders(monkeypatch):
    """The loaders of Accelerate that are iterated over."""
    found: list[object] = []
    state = SimpleNamespace(dataloader_references=found)
    modules = {
        "accelerate.state": SimpleNamespace(GradientState=lambda: state),
        "accelerate.data_loader": SimpleNamespace(
            DataLoaderDispatcher=type("DataLoaderDispatcher", (), {}), IterableDatasetShard=Shard
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return found


@pytest.mark.parametrize(("ranks", "parts"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_pipeline_is_divided_once(tmp_path, monkeypatch, loaders, ranks, parts):
    with wds.TarWriter(tmp_path / "0.tar") as out:
        out.write({"__key__": "0", "cls": 0})
    for name, value in {"RANK": 0, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}.items():
        monkeypatch.setenv(name, str(value))
    pipeline = wds.WebDataset(str(tmp_path / "0.tar")).decode()
    loaders.append(SimpleNamespace(dataset=Shard(pipeline, parts)))
    if ranks == parts == 2:
        with pytest.raises(ConfigError, match=r"divided among 2 ranks.*WebLoader for a pipeline"):
            pipeline.set_epoch(0)
    else:
        pipeline.set_epoch(0)
