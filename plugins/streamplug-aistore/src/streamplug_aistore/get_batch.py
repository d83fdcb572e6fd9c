"""GetBatch of AIStore: ranges of many objects in one request, whose answer is a TAR archive of them."""

from __future__ import annotations

import logging
import math
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from streamplug_fsspec import OversizeBodyError, client_error, status_of

from streamplug.errors import StorageError, Transient
from streamplug.plugin_kit import check

MIN_PARTS = 16
"""Fewer parts are as fast by requests of their own; the documentation of AIStore has this number."""

MAX_PARTS = 64

_SKIPPED_CALLS = 50  # after a failure: a cluster whose nodes change answers none for minutes
_UNKNOWN_STATUSES = {400, 404, 405, 501}
_MISSING_FOLDER = "__404__/"
_READ_BYTES = 1 << 16
_ENTRY_BYTES = 1 << 12  # headers of an entry besides its name, and padding
_END_BYTES = 1 << 15

_LOG = logging.getLogger("streamplug_aistore")

Part = tuple[str, int, int]


class GetBatch:
    """The GetBatch requests of a location, as long as its cluster answers them. It pickles."""

    def __init__(self, url: str, *, enabled: bool) -> None:
        self._url = url
        self._calls_to_skip = 0.0 if enabled else math.inf

    @property
    def is_enabled(self) -> bool:
        """Whether requests are sent, now or after some calls."""
        return self._calls_to_skip < math.inf

    def read(self, bucket: Any, parts: Sequence[Part]) -> list[bytes | StorageError | None]:
        """Return parts of objects; None for each that is to be read by a range request.

        Args:
            bucket: A bucket of `aistore`.
            parts: Names of objects, and start and stop offsets of non-empty ranges.
        """
        parts_read: list[bytes | StorageError | None] = []
        if self._calls_to_skip:
            self._calls_to_skip -= 1
        elif len(parts) >= MIN_PARTS:
            try:
                with closing(_request(bucket, parts)) as body:
                    parts_read.extend(_read_entries(body, parts))
            except Transient as error:  # no turn among the requests of this machine
                parts_read += [error] * (len(parts) - len(parts_read))
            except Exception as error:  # noqa: BLE001 - clients raise anything
                parts_read += [self._fail(error, bucket.name)] * (len(parts) - len(parts_read))
        return parts_read or [None] * len(parts)

    def _fail(self, error: Exception, bucket: str) -> StorageError | None:
        """Send no requests for a while, or no more; return the error of parts that may be tried again."""
        if isinstance(error, _WholeObjectsError):
            self._skip(math.inf, "sends whole objects in place of ranges")
            return None
        status = status_of(error)
        if status in _UNKNOWN_STATUSES and _is_of_gateway(error, bucket):
            self._skip(math.inf, f"is not known to the cluster, which answered {status}")
            return None
        converted = client_error(error, self._url)
        what = error if isinstance(error, (tarfile.TarError, OversizeBodyError)) else converted
        self._skip(_SKIPPED_CALLS, f"failed ({what})")
        return converted if isinstance(converted, Transient) else None

    def _skip(self, calls: float, what: str) -> None:
        if calls > self._calls_to_skip:  # else another thread has said so
            self._calls_to_skip = calls
            until = "" if calls == math.inf else f" for the next {calls} reads"
            _LOG.warning(
                "%s: GetBatch %s; range requests are sent instead%s", self._url, what, until
            )


class _WholeObjectsError(Exception):
    """The cluster ignores the ranges of entries, as before AIStore 5.0."""


def _request(bucket: Any, parts: Sequence[Part]) -> Any:
    """Send a request; return the body of the answer."""
    from aistore.sdk.batch.batch import Batch

    batch = Batch(bucket.client, bucket=bucket, only_obj_name=True)
    for name, start, stop in parts:
        batch.add(name, start=start, length=stop - start)
    return batch.get(raw=True)


def _read_entries(body: Any, parts: Sequence[Part]) -> Iterator[bytes | None]:
    """Yield the entries of an answer, one for each part; None for one that lacks bytes.

    An entry of ``__404__`` is of an object that does not exist, or that its target could not read.

    Raises:
        tarfile.TarError: If it ends early, or has other entries.
        OversizeBodyError: If it is longer than the parts can be.
    """
    bounded: Any = _BoundedBody(body, parts)
    # Without compression, which "r|*" would detect.
    with tarfile.open(fileobj=bounded, mode="r|", bufsize=_READ_BYTES, encoding="utf-8") as archive:
        for name, start, stop in parts:
            check()
            entry = archive.next()
            if entry is None:
                raise tarfile.ReadError("its answer ends early")
            if entry.name == _MISSING_FOLDER + name:
                yield None
                continue
            if entry.name != name or entry.type != tarfile.REGTYPE:
                raise tarfile.ReadError("its answer has other entries than were asked for")
            if entry.size > stop - start:
                raise _WholeObjectsError
            file = archive.extractfile(entry)
            data = file.read() if file else b""
            yield data if len(data) == stop - start else None
    bounded.read(_END_BYTES)  # the connection of a body that was read to its end is used again


class _BoundedBody:
    """The body of an answer, of which no more is read than the parts can take."""

    def __init__(self, body: Any, parts: Sequence[Part]) -> None:
        self._read = body.read
        self._bytes_left = _END_BYTES + sum(
            stop - start + 8 * len(name) + _ENTRY_BYTES for name, start, stop in parts
        )

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; `OversizeBodyError` if there are too many."""
        data: bytes = self._read(size)
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise OversizeBodyError("its answer is longer than what was asked for")
        return data


def _is_of_gateway(error: Exception, bucket: str) -> bool:
    """Return whether a gateway has answered itself, and not a target, to which it redirects."""
    return urlsplit(getattr(error, "req_url", "")).path.endswith(f"/ml/moss/{bucket}")
