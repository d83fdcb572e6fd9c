"""Sizes of the values of a column: from files beside the shards, else from the headers of the shards."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streamplug.errors import HashMismatchError, StreamplugError
from streamplug.index import ShardValueSizes, digests, hash_names, unpack_value_sizes
from streamplug.source import OpenStream
from streamplug.transfer import call_with_retries, map_threads
from streamplug.types import FileInfo, Int64
from streamplug_ranges.header_sizes import read_header_sizes

_MAX_FILES_IN_FLIGHT = 16
_LOG = logging.getLogger("streamplug")


class ValueSizes:
    """Sizes of the values of one column of a stream, without reading the values.

    Files with sizes are read at once, headers when their shard is asked for. If a file cannot be read, a
    warning is logged, and headers are used.
    """

    def __init__(self, stream: OpenStream, column: str) -> None:
        """Read the files of a stream with shards of its own, whatever its access."""
        self._stream, self._column = stream, column
        self._shards: Mapping[tuple[str, int, int], ShardValueSizes] = {}
        files = [file for file in stream.index.value_sizes if len(stream.index)]
        if files:
            try:
                of_files = map_threads(self._read, files, _MAX_FILES_IN_FLIGHT)
                self._shards = {
                    key: shard for of_file in of_files for key, shard in of_file.items()
                }
            except StreamplugError as error:
                _LOG.warning(
                    "%s: sizes of values are read from the shards instead of the files with them: %s",
                    stream.where,
                    error,
                )

    def of(self, shard: int) -> Int64 | None:
        """Return the stored bytes of each value of a shard, shape ``[n]``.

        None if neither files nor the header have them.

        Raises:
            StreamplugError: If the header cannot be fetched, or is damaged.
        """
        info = self._stream.index.shard(shard)
        raw = next(iter(info.files.values())).raw
        stored = self._shards.get((raw.basename, raw.bytes, info.samples))
        if stored is not None and self._column in stored.sizes:
            return stored.sizes[self._column].astype("int64")
        return read_header_sizes(self._stream, shard, self._column)

    def _read(self, file: FileInfo) -> dict[tuple[str, int, int], ShardValueSizes]:
        """Return the sizes in a file by name, bytes and samples of shards."""
        files = self._stream.shard_files

        def read() -> bytes:
            data = files.storage.read(file.basename)
            _check(data, file, files.storage.url_of(file.basename))
            return data

        folder, slash, _ = file.basename.rpartition("/")
        return {
            (f"{folder}{slash}{shard.raw.basename}", shard.raw.bytes, shard.samples): shard
            for shard in unpack_value_sizes(call_with_retries(read, files.retries))
        }


def _check(data: bytes, file: FileInfo, url: str) -> None:
    """Raise HashMismatchError if a file is not the one of the index."""
    known = [name for name in file.hashes if name in hash_names()]
    found = digests(known, [data])
    if len(data) != file.bytes or any(found[name] != file.hashes[name] for name in known):
        raise HashMismatchError(f"{url} is not the file of {file.bytes} bytes that the index names")
