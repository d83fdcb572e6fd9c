"""Bodies of responses, of which no more is read than was asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from streamplug.types import Buffer

T = TypeVar("T")

MAX_UNSIZED_BYTES = 64 << 20
"""Maximum size of a body that is read into memory although nothing told its size, such as a listing."""

CHUNK_BYTES = 1 << 20


_range: ContextVar[tuple[int, int] | None] = ContextVar("range", default=None)


class BodyError(Exception):
    """A response has another body than was asked for."""


class OversizeBodyError(BodyError):
    """A response has more bytes than were asked for."""


def check_content_range(content_range: str, start: int) -> None:
    """Raise `BodyError` if a response with this Content-Range does not begin at `start`."""
    if not content_range.startswith(f"bytes {start}-"):
        sent = content_range or "an unknown range"
        raise BodyError(f"the server sent {sent} where bytes from {start} on were asked for")


class BodyPart:
    """The bytes ``[start, start + size)`` of a body that arrives in chunks.

    Args:
        size: Number of bytes.
        start: Offset of the first byte in the body.
        is_all: Whether the body must end there; else the rest of it is not read.
    """

    def __init__(self, size: int, start: int = 0, *, is_all: bool = True) -> None:
        self._start, self._stop, self._is_all = start, start + size, is_all
        self._offset = 0
        self._chunks: list[Buffer] = []

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is to be read."""
        return not self._is_all and self._offset >= self._stop

    def add(self, chunk: Buffer) -> None:
        """Take the next chunk of the body.

        Raises:
            OversizeBodyError: If the body should have ended before.
        """
        begin, self._offset = self._offset, self._offset + len(chunk)
        if self._is_all and self._offset > self._stop:
            raise OversizeBodyError(
                f"the server sent more than the {self._stop} bytes that were asked for"
            )
        if begin < self._start or self._offset > self._stop:
            chunk = memoryview(chunk)[max(self._start - begin, 0) : max(self._stop - begin, 0)]
        self._chunks.append(chunk)

    def join(self) -> bytes:
        """Return the bytes, fewer if the body ended early."""
        return b"".join(self._chunks)


def read_body(
    chunks: Iterable[Buffer], size: int = MAX_UNSIZED_BYTES, start: int = 0, *, is_all: bool = True
) -> bytes:
    """Return a `BodyPart` of the chunks.

    Raises:
        OversizeBodyError: If the body should have ended before.
    """
    part = BodyPart(size, start, is_all=is_all)
    for chunk in chunks:
        part.add(chunk)
        if part.is_complete:
            break
    return part.join()


def read_range_body(
    chunks: Iterable[Buffer], start: int, stop: int, status: int, content_range: str | None
) -> bytes:
    """Return the answer to a range request, which is the whole object if the status is 200.

    Raises:
        BodyError: If there are more bytes than were asked for, or others.
    """
    if status == 200:
        return read_body(chunks, stop - start, start, is_all=False)
    if content_range:
        check_content_range(content_range, start)
    return read_body(chunks, stop - start)


async def receive_body(
    read: Callable[[int], Awaitable[bytes]],
    size: int = MAX_UNSIZED_BYTES,
    start: int = 0,
    *,
    is_all: bool = True,
) -> bytes:
    """Return a `BodyPart` of what an asynchronous reader returns; `read` takes a maximum number of bytes.

    Raises:
        OversizeBodyError: If the body should have ended before.
    """
    part = BodyPart(size, start, is_all=is_all)
    while not part.is_complete and (chunk := await read(CHUNK_BYTES)):
        part.add(chunk)
    return part.join()


def bounded_reader(
    read: Callable[..., Coroutine[Any, Any, T]],
) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return a coroutine function of path, start, end and others, for sessions with `bound_body`."""

    async def read_part(path: str, start: int, end: int, **others: Any) -> T:
        _range.set((start, end))  # of the task that asyncio makes of each request
        return await read(path, start=start, end=end, **others)

    return read_part


async def bound_body(_session: Any, _context: Any, request: Any) -> None:
    """Bound what a client of aiohttp reads as a whole, as an ``on_request_end`` of a `TraceConfig`.

    It is the length of the range in a `bounded_reader`, else that in the headers, or `MAX_UNSIZED_BYTES`.

    Raises:
        BodyError: If the response to a `bounded_reader` says that it has another range.
    """
    response, asked = request.response, _range.get()
    if asked is None or response.status >= 400:
        size = max(response.content_length or 0, MAX_UNSIZED_BYTES)
    else:
        size = asked[1] - asked[0]
        if content_range := response.headers.get("Content-Range"):
            check_content_range(content_range, asked[0])
    response.content = BoundedContent(response.content, size)


class BoundedContent:
    """The content of an aiohttp response, whose `read` of everything is bounded."""

    def __init__(self, content: Any, max_bytes: int = MAX_UNSIZED_BYTES) -> None:
        self._content, self._max_bytes = content, max_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; all of them if it is negative.

        Raises:
            OversizeBodyError: If all are more than `max_bytes`.
        """
        if size >= 0:
            data: bytes = await self._content.read(size)
            return data
        return await receive_body(self._content.read, self._max_bytes)
