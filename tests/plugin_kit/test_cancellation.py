from __future__ import annotations

import gc
import threading

import pytest

from streamplug.plugin_kit.cancellation import Cancelled, Scope


def test_one_that_cannot_be_ended_does_not_keep_the_others_from_it():
    ended = []

    def fails():
        raise RuntimeError("its loop is closed")

    scope = Scope()
    with (
        scope.on_stop(lambda: ended.append(1)),
        scope.on_stop(fails),
        scope.on_stop(lambda: ended.append(2)),
    ):
        with pytest.raises(RuntimeError, match="its loop is closed"):
            scope.stop()
        assert sorted(ended) == [1, 2]
        scope.stop()
    assert scope.stopped
    assert sorted(ended) == [1, 2]


def test_the_collector_may_stop_it_at_any_time(monkeypatch):
    """As it may from Python 3.12 on, wherever Python code is run."""
    scope, told, ended = Scope(), [], threading.Event()

    class Loop:
        def __init__(self):
            self.itself = self

        def __del__(self):
            scope.stop()

    whether = Scope.stopped.fget

    def stopped(self):
        gc.collect()
        return whether(self)

    def work():
        Loop()
        with pytest.raises(Cancelled), scope.on_stop(lambda: told.append(1)):
            pytest.fail("it was stopped")
        ended.set()

    monkeypatch.setattr(Scope, "stopped", property(stopped))
    threading.Thread(target=work, daemon=True).start()
    assert ended.wait(60)
    assert told == [1]
