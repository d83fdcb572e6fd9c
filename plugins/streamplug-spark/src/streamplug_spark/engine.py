"""Engine that runs tasks as a Spark job."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from streamplug_tools import pack_task, run_packed_task

from streamplug.errors import WriterError
from streamplug.interfaces import Engine, Task
from streamplug_spark.session import spark_context

_POLL = 0.1
"""Poll interval in seconds for finished tasks, as Spark reports only whole jobs."""
_FAILED = re.compile(r"Task (\d+) in stage \S+ failed")


class Spark(Engine):
    """Runs tasks as those of one Spark job; Spark replaces lost executors.

    The cluster's setting ``spark.task.maxFailures`` limits the retries of a task.
    """

    def __init__(self, master: str | None = None) -> None:
        """Set the cluster; connects in `run`.

        Args:
            master: Master URL, such as ``spark://10.0.0.1:7077`` or ``local[4]``; None is the session of this
                process, or the one from Spark's configuration.
        """
        self._master = master

    @classmethod
    def from_spec(cls, argument: str | None) -> Spark:
        return cls(argument)

    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Run a task for each number; closing the iterator cancels the job."""
        data = pack_task(task)
        if not numbers:
            return
        job = _Job(spark_context(self._master), data, numbers)
        try:
            yielded: set[int] = set()
            for number in job.ended():
                if number not in yielded:
                    yielded.add(number)
                    yield number
        finally:
            job.cancel()


class _Job:
    """A Spark job that runs a task for several numbers, in its own thread."""

    def __init__(self, context: Any, task: bytes, numbers: Sequence[int]) -> None:
        """Start the job."""
        from pyspark import InheritableThread
        from pyspark.accumulators import AddingAccumulatorParam

        self._context, self._numbers = context, numbers
        self._group = f"streamplug-{uuid.uuid4().hex}"
        self._error: Exception | None = None
        sent = context.broadcast(task)
        # Numbers and errors of finished calls; Spark updates it when a task succeeds.
        self._progress = ended = context.accumulator((), AddingAccumulatorParam(()))

        def call(number: int) -> None:
            ended.add(((number, run_packed_task(number, sent.value)),))

        def run() -> None:
            context.setJobGroup(self._group, "streamplug", interruptOnCancel=True)
            try:
                context.parallelize(numbers, len(numbers)).foreach(call)
            except Exception as error:  # noqa: BLE001 - raised by `ended`
                self._error = error
            finally:
                sent.destroy()

        self._thread = InheritableThread(target=run, name="streamplug-spark", daemon=True)
        self._thread.start()

    def ended(self) -> Iterator[int]:
        """Yield finished numbers, some possibly twice.

        Raises:
            WriterError: If a task or the job failed.
        """
        seen, alive = 0, True
        while alive:
            self._thread.join(_POLL)
            alive = self._thread.is_alive()  # later updates are read in the next round
            for number, error in self._progress.value[seen:]:
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
        """Cancel the job, and wait for its end."""
        while self._thread.is_alive():  # again, as its thread may not have submitted it yet
            self._context.cancelJobGroup(self._group)
            self._thread.join(_POLL)
