from __future__ import annotations

import json
import logging

import pytest
from streamplug_testing import CallbackTests

from streamplug import MDSWriter, World
from streamplug.builtin.log import Log
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.interfaces import ShardDownloaded
from streamplug.plugin import make


class TestLog(CallbackTests):
    name = "log"
    cls = Log


def test_each_event_is_a_line_of_json(caplog):
    event = ShardDownloaded("s3://bucket/a.mds", 10, 0.5, 1)
    with caplog.at_level(logging.DEBUG, "streamplug.events"):
        for spec in ("log", "log:debug", "log:warning"):
            make("callback", spec).on_event(event, World(2, 1, 3, rank=1, worker=2))
    assert [record.levelname for record in caplog.records] == ["INFO", "DEBUG", "WARNING"]
    for record in caplog.records:
        told = json.loads(record.getMessage())
        assert told.pop("rank") == 1
        assert told.pop("worker") == 2
        assert told == event.as_dict()


def test_a_data_set_logs_what_it_does(tmp_path, caplog):
    with MDSWriter(out=str(tmp_path / "far"), columns={"n": "int"}) as out:
        out.write({"n": 1})
    near = str(tmp_path / "near")
    with caplog.at_level(logging.INFO, "streamplug.events"):
        list(StreamingDataset(remote=str(tmp_path / "far"), local=near, callbacks=["log"]))
    kinds = [json.loads(record.getMessage())["event"] for record in caplog.records]
    assert kinds[0] == "EpochStarted"
    assert kinds.count("ShardDownloaded") == 1
    assert kinds[-1] == "EpochEnded"


def test_nothing_is_logged_below_the_level_of_the_logger(caplog):
    with caplog.at_level(logging.WARNING, "streamplug.events"):
        make("callback", "log").on_event(ShardDownloaded("a", 1, 0.1, 1), World())
    assert caplog.records == []


def test_other_levels_are_refused():
    with pytest.raises(ConfigError, match="log:loud: choose one of debug, info, warning"):
        make("callback", "log:loud")
