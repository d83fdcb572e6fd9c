"""Spark: calls tasks in a job of a Spark cluster."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from streamplug.errors import WriterError
from streamplug.interfaces import Engine
from streamplug.interfaces.engine import Task, pack_task, run_packed_task
from streamplug_spark.session import spark_context

_POLL = 0.1
"""Seconds between looks at what has ended: Spark tells only of whole jobs."""
_FAILED = re.compile(r"Task (\d+) in stage \S+ failed")


class Spark(Engine):
    """Calls tasks as those of one job of Spark, which replaces executors that are lost.

    How often a task is called again is the cluster's setting ``spark.task.maxFailures``.
    """

    def __init__(self, master: str | None = None) -> None:
        """Use a cluster.

        Args:
            master: Of the cluster, such as ``spark://10.0.0.1:7077`` or ``local[4]``; None for the session
                of this process, or what Spark is set up for.
        """
        self._master = master

    @classmethod
    def from_spec(cls, argument: str | None) -> Spark:
        return cls(argument)

    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Call a task for each number; leaving the iterator cancels the job."""
        data = pack_task(task)
        if not numbers:
            return
        job = _Job(spark_context(self._master), data, numbers)
        try:
            told: set[int] = set()
            for number in job.ended():
                if number not in told:
                    told.add(number)
                    yield number
        finally:
            job.cancel()


class _Job:
    """A job that calls a task for numbers, in a thread of its own."""

    def __init__(self, context: Any, task: bytes, numbers: Sequence[int]) -> None:
        """Start it."""
        from pyspark import InheritableThread
        from pyspark.accumulators import AddingAccumulatorParam

        self._context, self._numbers = context, numbers
        self._group = f"streamplug-{uuid.uuid4().hex}"
        self._error: Exception | None = None
        sent = context.broadcast(task)
        # Which have ended, and how; told for each task that succeeds, as soon as it does.
        self._told = ended = context.accumulator((), AddingAccumulatorParam(()))

        def call(number: int) -> None:
            ended.add(((number, run_packed_task(number, sent.value)),))

        def run() -> None:
            context.setJobGroup(self._group, "streamplug", interruptOnCancel=True)
            try:
                context.parallelize(numbers, len(numbers)).foreach(call)
            except Exception as error:  # noqa: BLE001 - raised where the job is waited for
                self._error = error
            finally:
                sent.destroy()

        self._thread = InheritableThread(target=run, name="streamplug-spark", daemon=True)
        self._thread.start()

    def ended(self) -> Iterator[int]:
        """Yield numbers that are done, some perhaps twice.

        Raises:
            WriterError: What a call raised, or the job.
        """
        seen, alive = 0, True
        while alive:
            self._thread.join(_POLL)
            alive = self._thread.is_alive()  # what is told afterwards is seen in the next round
            for number, error in self._told.value[seen:]:
                seen += 1
                if error is not None:
                    raise WriterError(error)
                yield number
        if self._error is not None:
            raise WriterError(self._why(self._error)) from self._error

    def _why(self, error: Exception) -> str:
        text = str(error)
        failed = _FAILED.search(text)
        part = f"part {self._numbers[int(failed[1])]}: " if failed else ""
        return f"{part}{text}"

    def cancel(self) -> None:
        """End it, if it has not ended."""
        if self._thread.is_alive():
            self._context.cancelJobGroup(self._group)
            self._thread.join()
