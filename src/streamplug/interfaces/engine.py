"""Engines that run the tasks of a parallel write."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

from streamplug.interfaces.plugin import Plugin

Task = Callable[[int], object]
"""A function of a part's number that writes the part."""


class Engine(Plugin):
    """Runs a task for many numbers, in parallel processes that may be on other machines.

    An engine calls the task again elsewhere if a worker is lost. So a number may be processed twice, even
    concurrently; the tasks of this library permit that.
    """

    @abstractmethod
    def run(self, task: Task, numbers: Sequence[int]) -> Iterator[int]:
        """Call a task for each number; yield the numbers as they complete.

        Closing the iterator cancels the calls that have not started.

        Args:
            task: The task; `pack_task` of `streamplug_tools` makes bytes of it for workers.
            numbers: Numbers to call it with.

        Raises:
            ConfigError: If the task cannot be pickled, or the engine cannot be used.
            WriterError: If a call raises (with the text of its error), or if workers are lost repeatedly
                for one number.
        """
