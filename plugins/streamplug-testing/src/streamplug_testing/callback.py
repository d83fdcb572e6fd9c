"""Conformance tests of callbacks, for plugin authors to subclass."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.interfaces import (
    CacheHit,
    Callback,
    EpochEnded,
    EpochStarted,
    Event,
    RangesRead,
    RequestRetried,
    SampleSubstituted,
    ShardDownloaded,
    ShardEvicted,
    ShardRepaired,
    Stalled,
    Stats,
)
from streamplug.plugin import resolve
from streamplug.types import World
from streamplug.write import MDSWriter
from streamplug_testing.deviations import ConformanceBase

EVENTS: tuple[Event, ...] = (
    EpochStarted(0, 0),
    RequestRetried("s3://bucket/set/a.mds", "the server answered 503", 0.5),
    ShardDownloaded("s3://bucket/set/a.mds", 1000, 0.25, 2),
    CacheHit("/cache/a.mds", 1000),
    RangesRead("s3://bucket/set/a.mds", 3, 700, 0.1),
    Stalled(0, "a.mds", 0.2),
    ShardRepaired("/cache/a.mds"),
    ShardEvicted("/cache/a.mds", 1000),
    SampleSubstituted(0, 7, 3, 5, 0, 0, "a.mds", 3, "DecodeError: not JSON"),
    EpochEnded(0, complete=True),
)
"""One event of each type."""


class _Unknown(Event):
    """An event type that a later version may add."""


class CallbackTests(ConformanceBase):
    """Conformance tests of a callback; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[Callback] | None] = None

    def make(self) -> Callback:
        """Return a new instance, as from the bare name; override it if more arguments are required."""
        cls = self.cls if self.cls is not None else resolve("callback", self.name)
        made: Callback = cls.from_spec(None)
        return made

    def _attached(self) -> Callback:
        callback = self.make()
        callback.on_attach(lambda: Stats(samples=3), ["s3://bucket/set"], World())
        return callback

    def test_refuses_an_argument_with_an_error_of_ours_or_takes_it(self) -> None:
        try:
            made = type(self.make()).from_spec("nonsense")
        except ConfigError:
            return
        assert isinstance(made, Callback)

    @pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
    def test_takes_every_event(self, event: Event) -> None:
        self._attached().on_event(event, World(ranks_per_node=2, workers_per_rank=2, rank=1))

    def test_takes_events_before_it_is_attached(self) -> None:
        # In loader workers, callbacks are never attached.
        for event in EVENTS:
            self.make().on_event(event, World())

    def test_ignores_events_of_later_versions(self) -> None:
        self._attached().on_event(_Unknown(), World())

    def test_survives_pickling(self) -> None:
        copy = cloudpickle.loads(cloudpickle.dumps(self._attached()))
        for event in EVENTS:
            copy.on_event(event, World())

    def test_threads_may_call_it_at_once(self) -> None:
        callback, errors = self._attached(), []

        def call() -> None:
            try:
                for event in EVENTS * 20:
                    callback.on_event(event, World())
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not errors
        assert not any(thread.is_alive() for thread in threads)

    def test_follows_a_data_set(self, tmp_path: Path, caplog: Any) -> None:
        with MDSWriter(out=str(tmp_path / "far"), columns={"n": "int"}, size_limit=400) as out:
            for n in range(100):
                out.write({"n": n})
        with caplog.at_level(logging.ERROR, "streamplug.callbacks"):
            dataset = StreamingDataset(
                remote=str(tmp_path / "far"),
                local=str(tmp_path / "near"),
                callbacks=[self.make()],
            )
            assert len(list(dataset)) == 100
        assert caplog.records == []
