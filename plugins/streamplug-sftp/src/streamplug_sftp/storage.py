"""Storage for SFTP servers."""

from __future__ import annotations

import asyncio
import posixpath
import stat
import uuid
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from streamplug_fsspec import ClientStorage, OversizeBodyError

from streamplug.errors import (
    AccessDenied,
    NotFound,
    StorageError,
    StreamplugError,
    Transient,
)
from streamplug.interfaces import replaced_error
from streamplug.plugin_kit import STAGING_PREFIX, SYSTEM_DIRECTORIES, storage_error
from streamplug.types import Buffer, ObjectInfo
from streamplug_sftp.options import READ_TIMEOUT, check, connection_options, parse
from streamplug_sftp.session import SftpSession

_CHUNK_BYTES = 4 * 2**20
_BLOCK_BYTES = 128 * 2**10
"""Bytes per request: its response must arrive within the timeout on a slow connection, too.

OpenSSH answers with slightly less than 256 KiB at most.
"""
_BLOCKS_IN_FLIGHT = 64  # of one operation
_MISSING = {"SFTPNoSuchFile", "SFTPNoSuchPath", "SFTPNotADirectory", "SFTPFileIsADirectory"}
_DENIED = {"PermissionDenied", "SFTPPermissionDenied", "SFTPWriteProtect", "SFTPCannotDelete"}
_BROKEN = {
    "CancelledError",
    "ChannelOpenError",
    "DisconnectError",
    "SFTPConnectionLost",
    "SFTPNoConnection",
}
_NO_CONNECTION = {
    "ConfigParseError",
    "IllegalUserName",
    "KeyExchangeFailed",
    "ProtocolNotSupported",
}

Result = TypeVar("Result")


class SftpStorage(ClientStorage):
    """The files below ``sftp://user@host:port/path``; the options are described in the README."""

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``sftp://user@host:port/path``; ``/~/path`` lies in the home directory.
            **options: Connection options.

        Raises:
            ConfigError: If the URL names no host, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        self._server = parse(url)
        self._responses = 0
        check(options)

    @property
    def endpoint(self) -> str:
        # What the location does not have in it, which is without a user.
        server, user = self._server, self._options.get("username") or self._server.username
        port = self._options.get("port") and f":{self._options['port']}"
        home = user and not server.folder.startswith("/") and f"/~{user}"
        return f"sftp://{server.host}{port or ''}{home or ''}" if port or home else ""

    def open_client(self) -> SftpSession:
        try:
            session = SftpSession(connection_options(self._server, self._options))
        except FileNotFoundError as error:
            raise StorageError(
                f"{self.url}: {error.filename} does not exist on this machine; check 'known_hosts' and "
                "'config'"
            ) from None
        session.finalizer = weakref.finalize(self, session.stop)
        return session

    def close_client(self, client: SftpSession) -> None:
        client.stop()
        client.finalizer.detach()  # else it keeps the session as long as this storage

    def translate(self, error: Exception, url: str) -> StorageError:
        names, name = _names(error), type(error).__name__
        if names & _MISSING:
            return NotFound(f"{url} does not exist")
        if names & _DENIED:
            return AccessDenied(
                f"no permission for {url} ({name}); check the user's name, key or password, and what "
                "the server lets that user do"
            )
        if "HostKeyNotVerifiable" in names:
            return StorageError(
                f"{url}: the server's host key is not known; if it is the right one, add it to "
                "~/.ssh/known_hosts with ssh-keyscan"
            )
        if names & _NO_CONNECTION:
            return StorageError(f"{url}: no connection can be made: {name}")
        if names & _BROKEN:
            return Transient(f"{url}: {name}: the connection failed; it may be tried again")
        return storage_error(error, url)

    # -- reading --------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        async def read(sftp: Any, path: str) -> bytes:
            chunks = self._chunks(sftp, path, self.url_of(key))
            return b"".join([chunk async for chunk in chunks])

        return self._do(key, read)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self.read_ranges(key, [(start, stop)])[0]

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        async def read(sftp: Any, path: str) -> list[bytes]:
            async with await self._soon(sftp.open(path, "rb")) as file:
                slots = asyncio.Semaphore(_BLOCKS_IN_FLIGHT)
                return await _gather([self._read(file, *limits, slots) for limits in ranges])

        return self._do(key, read) if ranges else []

    def download(self, key: str, path: Path) -> None:
        async def download(sftp: Any, remote: str) -> None:
            with path.open("wb") as file:
                async for chunk in self._chunks(sftp, remote, self.url_of(key)):
                    file.write(chunk)

        self._do(key, download)

    def stat(self, key: str) -> ObjectInfo:
        async def look(sftp: Any, path: str) -> ObjectInfo:
            attributes = await self._soon(sftp.stat(path))
            if _is_folder(attributes):
                raise NotFound(f"{self.url_of(key)} does not exist")
            return _info(key, attributes)

        return self._do(key, look)

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        async def walk(sftp: Any, path: str) -> list[ObjectInfo]:
            objects: list[ObjectInfo] = []
            # Each with the real paths of itself and of the folders above it.
            folders: list[tuple[str, str, tuple[str, ...]]] = [
                (path, f"{folder}/" if folder else "", (await self._real(sftp, path),))
            ]
            while folders:
                top, start, above = folders.pop()
                for name, attributes, is_link in await self._entries(sftp, top, start):
                    if _is_folder(attributes):
                        path = f"{top}/{name}"
                        real = (
                            await self._real(sftp, path)
                            if is_link
                            else posixpath.join(above[-1], name)
                        )
                        if real not in above:  # else a link closes a loop
                            folders.append((path, f"{start}{name}/", (*above, real)))
                    elif stat.S_ISREG(attributes.permissions or stat.S_IFREG):
                        objects.append(_info(f"{start}{name}", attributes))
            return objects

        return iter(self._do(folder, walk))

    async def _real(self, sftp: Any, path: str) -> str:
        """Return the path of a folder without symbolic links; the same path if the server cannot tell."""
        try:
            return str(await self._soon(sftp.realpath(path)))
        except Exception as error:
            if _names(error) & {*_MISSING, "SFTPFailure", "SFTPOpUnsupported"}:
                return path
            raise

    async def _entries(self, sftp: Any, folder: str, key: str) -> Sequence[tuple[str, Any, bool]]:
        """Return name, attributes and whether it is a link of each entry of a folder; links are followed.

        There are none if the folder does not exist, or is one of the system that may not be read.
        """
        try:
            names = await self._soon(sftp.readdir(folder))
        except Exception as error:
            if _names(error) & _DENIED and key[:-1].rpartition("/")[2] in SYSTEM_DIRECTORIES:
                return []
            if _names(error) & _MISSING or not await self._is_there(sftp, folder, error):
                return []
            self._name_failing(error, key)
            raise
        entries = []
        for entry in names:
            name, attributes = str(entry.filename), entry.attrs
            if name in (".", ".."):
                continue
            is_link = stat.S_ISLNK(attributes.permissions or 0)
            if is_link:
                try:
                    attributes = await self._soon(sftp.stat(f"{folder}/{name}"))
                except Exception as error:
                    if not _names(error) & _MISSING:  # dangling links are no objects
                        self._name_failing(error, key + name)
                        raise
                    continue
            entries.append((name, attributes, is_link))
        return entries

    async def _is_there(self, sftp: Any, path: str, error: Exception) -> bool:
        """Return whether a path exists, if the server may have reported a missing one as a failure."""
        if "SFTPFailure" not in _names(error):
            return True
        with suppress(Exception):  # which `error` is more useful than
            return bool(await self._soon(sftp.exists(path)))
        return True

    def _name_failing(self, error: Exception, key: str) -> None:
        """Raise an error that names a key if the server reports an unspecific failure."""
        if "SFTPFailure" in _names(error):
            raise StorageError(
                f"{self.url_of(key.rstrip('/'))}: the server cannot read it (SFTPFailure); check its "
                "permissions, and that no symbolic links lead to each other"
            ) from None

    # -- writing --------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        view = memoryview(data).cast("B")

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(view), _CHUNK_BYTES):
                yield bytes(view[start : start + _CHUNK_BYTES])

        self._do(key, lambda sftp, path: self._put(sftp, key, path, chunks()))

    def send_file(self, path: Path, key: str) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk

        self._do(key, lambda sftp, target: self._put(sftp, key, target, chunks()))

    async def _put(self, sftp: Any, key: str, target: str, chunks: AsyncIterator[bytes]) -> None:
        folder = target.rpartition("/")[0] or "."
        if not await self._soon(sftp.isdir(folder)):
            try:
                await self._soon(sftp.makedirs(folder, exist_ok=True))
            except Exception as error:
                if _names(error) & (_BROKEN | _DENIED):
                    raise
                raise StorageError(
                    f"{self.url_of(key)}: a file has the name of its directory"
                ) from None
        if await self._soon(sftp.isdir(target)):
            raise StorageError(f"{self.url_of(key)}: a directory has this name")
        part = f"{folder}/{STAGING_PREFIX}{uuid.uuid4().hex}"
        try:
            async with await self._soon(sftp.open(part, "wb")) as file:
                size = 0
                async for chunk in chunks:
                    await self._write(file, chunk, size)
                    size += len(chunk)
            await self._replace(sftp, key, part, target)
        except BaseException:
            with suppress(Exception):  # the first error is raised
                await self._soon(sftp.remove(part))
            raise

    async def _replace(self, sftp: Any, key: str, part: str, target: str) -> None:
        try:
            await self._soon(sftp.posix_rename(part, target))
        except Exception as error:
            if "SFTPOpUnsupported" not in _names(error):
                raise
            if await self._soon(sftp.exists(target)):
                raise StorageError(
                    f"{self.url_of(key)} exists, and its server cannot replace a file at once; "
                    "delete it first"
                ) from None
            await self._soon(sftp.rename(part, target))

    def delete(self, key: str) -> None:
        async def delete(sftp: Any, path: str) -> None:
            try:
                await self._soon(sftp.remove(path))
            except Exception as error:
                if not _names(error) & _MISSING and await self._is_file(sftp, path):
                    raise

        self._do(key, delete)

    # -- the server -----------------------------------------------------------------

    def _path(self, key: str) -> str:
        self.check_key(key)
        folder = self._server.folder
        return f"{folder.rstrip('/')}/{key}" if key else folder

    def _do(self, key: str, work: Callable[[Any, str], Coroutine[Any, Any, Result]]) -> Result:
        """Run an operation with the client and an object's path, and map its exceptions."""
        path, url = self._path(key), self.url_of(key)
        with self.translated(key):
            session: SftpSession = self.client()
            try:
                return session.run(self._run(session.client, path, url, work))
            except Exception as error:
                if not isinstance(error, StreamplugError) and isinstance(
                    self.translate(error, url), Transient
                ):
                    self.drop_client(session)
                raise

    async def _run(
        self,
        sftp: Any,
        path: str,
        url: str,
        work: Callable[[Any, str], Coroutine[Any, Any, Result]],
    ) -> Result:
        try:
            return await work(sftp, path)
        except Exception as error:
            # Most servers report missing files as an unspecific failure.
            if "SFTPFailure" in _names(error) and not await self._is_file(sftp, path):
                raise NotFound(f"{url} does not exist") from None
            raise

    async def _is_file(self, sftp: Any, path: str) -> bool:
        return bool(await self._soon(sftp.isfile(path)))

    async def _chunks(self, sftp: Any, path: str, url: str) -> AsyncIterator[bytes]:
        async with await self._soon(sftp.open(path, "rb")) as file:
            slots = asyncio.Semaphore(_BLOCKS_IN_FLIGHT)
            first: list[Coroutine[Any, Any, Any]] = [
                self._soon(file.stat()),
                self._read(file, 0, _CHUNK_BYTES, slots),
            ]
            before, chunk = await _gather(first)
            size = len(chunk)
            yield chunk
            while len(chunk) == _CHUNK_BYTES:
                chunk = await self._read(file, size, size + _CHUNK_BYTES, slots)
                size += len(chunk)
                yield chunk
            # A file that is replaced by a rename stays open, but some programs overwrite files.
            if size >= _CHUNK_BYTES:
                after = await self._soon(file.stat())
                if (after.size, after.mtime) != (before.size, before.mtime):
                    raise replaced_error(url)

    async def _read(self, file: Any, start: int, stop: int, slots: asyncio.Semaphore) -> bytes:
        """Read a range by concurrent requests for its blocks; return less at the end of the file."""

        async def read_block(at: int) -> bytes:
            block, end = b"", min(at + _BLOCK_BYTES, stop)
            async with slots:
                # Servers may send less than asked for; only an empty response is the end of the file.
                while at + len(block) < end:
                    start = at + len(block)
                    part: bytes = await self._soon(file.read(end - start, start))
                    if not part:
                        break
                    if len(part) > end - start:
                        raise OversizeBodyError(
                            f"the server sent {len(part)} bytes where {end - start} were asked for"
                        )
                    block += part
            return block

        return b"".join(await _gather([read_block(at) for at in range(start, stop, _BLOCK_BYTES)]))

    async def _write(self, file: Any, data: bytes, offset: int) -> None:
        """Write bytes to an offset by one request per block."""
        await _gather(
            [
                self._soon(file.write(data[at : at + _BLOCK_BYTES], offset + at))
                for at in range(0, len(data), _BLOCK_BYTES)
            ]
        )

    async def _soon(self, work: Awaitable[Any]) -> Any:
        """Return the result of a request; raise asyncio.TimeoutError if no request is answered for a time.

        Requests share one connection: on a slow one, all wait while others are answered.
        """
        timeout = self._options.get("read_timeout") or READ_TIMEOUT
        task = asyncio.ensure_future(work)
        try:
            while True:
                responses = self._responses
                done, _ = await asyncio.wait({task}, timeout=timeout)
                if done:
                    self._responses += 1
                    return task.result()
                if self._responses == responses:
                    raise asyncio.TimeoutError
        finally:
            task.cancel()


async def _gather(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return the results of coroutines that run concurrently; if one fails, cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _is_folder(attributes: Any) -> bool:
    return stat.S_ISDIR(attributes.permissions or 0)


def _info(key: str, attributes: Any) -> ObjectInfo:
    modified = attributes.mtime  # None if the server does not send it
    return ObjectInfo(key, int(attributes.size), "" if modified is None else str(modified))


def _names(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}
