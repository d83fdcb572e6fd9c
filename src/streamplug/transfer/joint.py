"""Asks for parts of several files at once, and again for those that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from streamplug.errors import StorageError, StreamplugError
from streamplug.interfaces import Storage
from streamplug.transfer.observer import Observer, TransferTask, task_context
from streamplug.transfer.ranges import checked
from streamplug.transfer.retry import RETRYABLE_ERRORS, call_with_retries
from streamplug.types import Buffer, FileInfo

Wanted: TypeAlias = "Sequence[tuple[FileInfo, Sequence[tuple[int, int]]]]"


class Joint:
    """Parts of several files.

    Attributes:
        errors: What went wrong last with each file that is not there, by its place.
    """

    def __init__(
        self, storage: Storage, wanted: Wanted, retries: int, observer: Observer | None
    ) -> None:
        """Take what is to be asked for: files, and where in them the parts begin and end."""
        self._storage, self._wanted, self._retries = storage, wanted, retries
        self._task = TransferTask(observer, storage.url)
        self._missing = list(range(len(wanted)))
        self._came: dict[int, list[Buffer]] = {}
        self.errors: dict[int, StreamplugError] = {}

    def come(self) -> Iterator[tuple[int, list[Buffer]]]:
        """Yield the place of each file and its parts, as they come; in the end `errors` are final."""
        failed: list[Exception] = []
        try:
            self._ask()
        except RETRYABLE_ERRORS as error:
            failed.append(error)
        yield from self._given()
        if failed:
            with suppress(*RETRYABLE_ERRORS), task_context(self._task):
                call_with_retries(partial(self._again, failed), self._retries)
            yield from self._given()

    def _given(self) -> Iterator[tuple[int, list[Buffer]]]:
        given, self._came = self._came, {}
        return iter(given.items())

    def _again(self, failed: list[Exception]) -> None:
        if failed:
            raise failed.pop()  # the first attempt has been made
        self._ask()

    def _ask(self) -> None:
        """Ask for what is missing.

        Raises:
            Transient, CorruptShardError: If something is that may still come.
        """
        files = [self._wanted[place] for place in self._missing]
        requests = [(file.basename, *each) for file, ranges in files for each in ranges]
        try:
            came = iter(self._storage.read_many(requests))
        except StorageError as error:  # nothing came
            came = iter([error] * len(requests))
        for place, (file, ranges) in zip(self._missing, files):
            parts = [next(came) for _ in ranges]
            try:
                self._came[place] = checked(self._storage, file, ranges, parts)
                self.errors.pop(place, None)
            except StreamplugError as error:
                self.errors[place] = error
        self._missing = [
            p for p, error in self.errors.items() if isinstance(error, RETRYABLE_ERRORS)
        ]
        if self._missing:
            worst = max(self._missing, key=lambda p: getattr(self.errors[p], "retry_after", 0.0))
            self._task.url = self._storage.url_of(self._wanted[worst][0].basename)
            raise self.errors[worst]
