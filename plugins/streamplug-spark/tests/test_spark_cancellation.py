"""Cancellation of a job, without a Spark that runs it."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
from streamplug_spark import engine

_JOB_SECONDS = 5.0


class Context:
    """A Spark context that cancels the jobs of a group that are running, and no later ones."""

    def __init__(self):
        self.submit, self.cancelled = threading.Event(), threading.Event()
        self.is_running = self.was_cancelled = False

    def broadcast(self, value):
        return SimpleNamespace(value=value, destroy=lambda: None)

    def accumulator(self, *_):
        return SimpleNamespace(value=())

    def setJobGroup(self, *_, **__):
        pass

    def parallelize(self, *_):
        return SimpleNamespace(foreach=self._run)

    def _run(self, _):
        self.submit.wait()
        self.is_running = True
        self.was_cancelled = self.cancelled.wait(_JOB_SECONDS)

    def cancelJobGroup(self, _):
        if self.is_running:
            self.cancelled.set()
        self.submit.set()  # the job starts just after the first call


@pytest.fixture
def context(monkeypatch):
    context = Context()
    names = {"InheritableThread": threading.Thread}
    accumulators = SimpleNamespace(AddingAccumulatorParam=lambda _: None)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(**names))
    monkeypatch.setitem(sys.modules, "pyspark.accumulators", accumulators)
    monkeypatch.setattr(engine, "spark_context", lambda _: context)
    return context


def test_a_job_that_is_submitted_later_is_cancelled(context, monkeypatch):
    def interrupted(job):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine._Job, "ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(engine.Spark().run(print, [1, 2]))
    assert context.was_cancelled
