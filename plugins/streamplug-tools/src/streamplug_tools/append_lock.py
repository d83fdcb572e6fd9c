"""The right to replace the index of a data set that several processes, also of other machines, append to."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from streamplug.errors import AlreadyExists, NotFound, OutputExistsError, StorageError
from streamplug.interfaces import Storage
from streamplug.plugin import local_path
from streamplug.plugin_kit import sleep
from streamplug.transfer import (
    call_with_retries,
    file_lock,
    make_temp_root,
    map_disk_errors,
    try_directory_lock,
)
from streamplug_tools.dataset_removal import APPEND_LOCK

_ID_BYTES = 16
_PAUSE_SECONDS = 0.5
_MAX_LOOKS = 120
"""Looks at the same owner of a lock, with pauses in between, until the call is refused."""


@contextmanager
def append_lock(home: Storage) -> Iterator[bool]:
    """Hold the right to replace the index; yield whether calls of other machines respect it.

    They do if the storage can create a file only if it does not exist. Then, `append.lock` is there
    meanwhile. The one that a killed process left is taken over by the next call on its machine.

    Raises:
        OutputExistsError: If a writer of this machine has the directory, or a call of another machine holds
            the right for more than a minute.
    """
    folder, lock = local_path(home.url), make_temp_root() / "appending.lock"
    with ExitStack() as stack:
        with map_disk_errors(lock):
            stack.enter_context(file_lock(lock, f"to append to {home.url}"))
        if folder is not None and not stack.enter_context(try_directory_lock(folder)):
            raise OutputExistsError(
                f"{home.url} is being written by another process: repeat the call when that has ended, which "
                "then only replaces the index"
            )
        yield stack.enter_context(_lock_file(home))


@contextmanager
def _lock_file(home: Storage) -> Iterator[bool]:
    owner = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        # Of all processes with this value, only this one can be at work: it holds the machine's lock.
        "machine": _machine_id(make_temp_root() / "machine-id"),
        "token": token_hex(8),
    }
    data = json.dumps(owner).encode()
    if not _create(home, data, machine=owner["machine"]):
        yield False
        return
    try:
        yield True
    finally:
        if _read(home) == owner:
            call_with_retries(partial(home.delete, APPEND_LOCK))


def _create(home: Storage, data: bytes, *, machine: object) -> bool:
    """Wait until the lock file can be created, and create it; return False if the storage cannot do that."""
    last, looks = None, 0
    while True:
        try:
            call_with_retries(partial(home.create, APPEND_LOCK, data))
        except AlreadyExists:
            found = _read(home)
        except StorageError as error:
            if type(error) is not StorageError:  # a denial, for example
                raise
            return False  # the storage, or its server, has no such operation
        else:
            return True
        if found is None:  # it is free by now
            continue
        if found.get("machine") == machine:
            call_with_retries(partial(home.write, APPEND_LOCK, data))
            return True
        looks = looks + 1 if found == last else 1
        if looks > _MAX_LOOKS:
            raise OutputExistsError(
                f"{home.url} is being appended to by process {found.get('process')} on {found.get('host')}: "
                "repeat the call when that has ended, which then only replaces the index; if it was killed, "
                f"delete {home.url_of(APPEND_LOCK)} before"
            )
        last = found
        sleep(_PAUSE_SECONDS)


def _read(home: Storage) -> dict[str, Any] | None:
    """Return the owner that the lock file names; None if there is no such file."""
    try:
        owner = json.loads(call_with_retries(partial(home.read, APPEND_LOCK)))
    except NotFound:
        return None
    except ValueError:  # after a loss of power, or of somebody else
        return {}
    return owner if isinstance(owner, dict) else {}


def _machine_id(path: Path) -> str:
    """Return what tells the processes that share this file from those of other machines."""
    with map_disk_errors(path):
        known = path.read_text() if path.exists() else ""
        if len(known) < 2 * _ID_BYTES:
            known = token_hex(_ID_BYTES)
            path.write_text(known)
    return f"{socket.gethostname()} {known}"
