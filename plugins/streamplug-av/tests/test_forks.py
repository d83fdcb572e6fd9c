"""Processes that are forked while movies wait for the garbage collector."""

from __future__ import annotations

import gc
import multiprocessing
import os
import weakref

import pytest
import streamplug_av.container  # noqa: F401 - it prepares forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


class Held:
    """In a reference cycle, as a container and its streams are."""

    def __init__(self):
        self.itself = self


def _collect(held, queue):
    gc.collect()
    queue.put(held() is not None)


def test_a_child_does_not_free_what_its_parent_has_left_to_the_collector():
    """Freeing the threads of a decoder, which a child does not have, would wait for ever."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    gc.disable()
    try:
        held = weakref.ref(Held())
        child = context.Process(target=_collect, args=(held, queue))
        child.start()
        assert queue.get(timeout=60)
        child.join(60)
    finally:
        gc.enable()
    gc.collect()
    assert held() is None
