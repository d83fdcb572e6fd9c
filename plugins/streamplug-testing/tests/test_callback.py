"""The conformance tests of callbacks fail where they should."""

from __future__ import annotations

import threading

import pytest
from streamplug_testing import CallbackTests
from streamplug_testing.callback import EVENTS

from streamplug import Callback
from streamplug.interfaces import EpochStarted


def suite(callback):
    class Suite(CallbackTests):
        cls = callback

    return Suite()


class Strict(Callback):
    def on_event(self, event, world):
        {type(each): None for each in EVENTS}[type(event)]


class Locked(Callback):
    def __init__(self):
        self.lock = threading.Lock()

    def on_event(self, event, world):
        pass


class Attached(Callback):
    def on_attach(self, stats, urls, world):
        self.stats = stats

    def on_event(self, event, world):
        self.stats()


class Failing(Callback):
    def on_event(self, event, world):
        if isinstance(event, EpochStarted):
            raise ValueError("not now")


def test_one_that_knows_only_todays_events_is_found():
    with pytest.raises(KeyError):
        suite(Strict).test_ignores_events_of_later_versions()


def test_one_that_does_not_pickle_is_found():
    with pytest.raises(TypeError, match="pickle"):
        suite(Locked).test_survives_pickling()


def test_one_that_must_be_attached_is_found():
    with pytest.raises(AttributeError):
        suite(Attached).test_takes_events_before_it_is_attached()


def test_one_that_fails_is_found(tmp_path, caplog):
    with pytest.raises(ValueError, match="not now"):
        suite(Failing).test_takes_every_event(EpochStarted(0, 0))
    with pytest.raises(AssertionError):
        suite(Failing).test_threads_may_call_it_at_once()
    with pytest.raises(AssertionError):
        suite(Failing).test_follows_a_data_set(tmp_path, caplog)
