"""The format: reads its entries in the index, opens archives and writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from streamplug_files import FileListEntry, FileListFormat, ScannableFormat, ScanResult, ScanSource

from streamplug.errors import ConfigError, CorruptShardError, InvalidIndexError
from streamplug.interfaces import (
    Column,
    Encoding,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
    ShardWriter,
    WritableFormat,
    WriteSettings,
)
from streamplug.types import Bytes1D
from streamplug_webdataset.extensions import encoding_of
from streamplug_webdataset.grouping import Grouping
from streamplug_webdataset.header_index import open_archive
from streamplug_webdataset.members import BLOCK, Members
from streamplug_webdataset.names import FILE, KEY, split_name
from streamplug_webdataset.reader import TarHeader, TarReader
from streamplug_webdataset.sample_locations import SampleLocations, min_file_bytes
from streamplug_webdataset.shard import TarWriter
from streamplug_webdataset.shard_lists import ENERGON_LISTS, WIDS_LIST, listed_files

_STALE = "the index beside it is that of another archive"


class WebDataset(WritableFormat, ScannableFormat, FileListFormat, RangeReadableFormat):
    """``webdataset``: tar archives, a sample being the files in a row that have one key.

    After a colon, options with commas between them: ``raw`` reads all values as bytes where there is no
    index.json to say how they are encoded, ``pil`` reads JPEG and PNG files among them as images of Pillow
    (which needs streamplug-image), ``idx`` looks for the indexes of wids, DALI and Energon where there is no
    index.json, and ``mtime=…`` is the time that is written into archives, in seconds since 1970. Where there
    is no index.json, ``case`` keeps the case of extensions, ``last_dot`` lets them begin at the last dot of a
    name, and ``files`` makes a sample of each file, with its name as the key and its bytes as the column
    ``file``.
    """

    suffix = "tar"
    roles: ClassVar[tuple[str, ...]] = ("data", "places")
    header_role = "places"
    key = KEY

    def __init__(
        self,
        *,
        raw: bool = False,
        pil: bool = False,
        idx: bool = False,
        case: bool = False,
        last_dot: bool = False,
        files: bool = False,
        mtime: int = 0,
    ) -> None:
        """Read values without an index.json as bytes if `raw`; write archives of the time `mtime`."""
        if raw and pil:
            raise ConfigError("format webdataset:raw,pil: values are either bytes or images")
        if files and last_dot:
            raise ConfigError(
                "format webdataset:files,last_dot: with files, the whole name of a file is its key"
            )
        self._raw, self._pil, self._idx = raw, pil, idx
        self._case, self._last_dot, self._files = case, last_dot, files
        self._mtime = mtime

    @classmethod
    def from_spec(cls, argument: str | None) -> WebDataset:
        options: dict[str, Any] = {}
        for option in argument.split(",") if argument else ():
            name, equals, value = option.partition("=")
            if name in ("raw", "pil", "idx", "case", "last_dot", "files") and not equals:
                options[name] = True
            elif name == "mtime" and value.isdigit() and int(value) < 8**11:
                options["mtime"] = int(value)
            else:
                raise ConfigError(
                    f"format webdataset:{argument}: {option!r} is none of raw, pil, idx, case, "
                    "last_dot, files, mtime=SECONDS"
                )
        return cls(**options)

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        specs = entry.get("columns")
        if not isinstance(specs, dict) or not all(isinstance(s, str) for s in specs.values()):
            raise InvalidIndexError(f"columns must map extensions to encodings, got {specs!r:.60}")
        if not specs:
            raise InvalidIndexError("columns must name at least one")
        return tuple(Column(name, spec, make_encoding(name, spec)) for name, spec in specs.items())

    def check(self, samples: int, role: str, size: int) -> None:
        least = min_file_bytes(samples) if role == "places" else samples * BLOCK
        if least > size:
            raise InvalidIndexError(f"{samples} samples cannot lie in a file of {size} bytes")

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        data = files["data"]
        if len(data) != shard.files["data"].raw.bytes:
            raise CorruptShardError(
                f"it has {len(data)} bytes, the index says {shard.files['data'].raw.bytes}"
            )
        places = SampleLocations.unpack(files["places"], shard.samples, len(data))
        return TarReader(places, data, _stored_name(shard))

    def header_range(self, shard: ShardInfo) -> tuple[int, int]:
        return 0, shard.files["places"].raw.bytes

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        places = SampleLocations.unpack(head, shard.samples, shard.files["data"].raw.bytes)
        return TarHeader(places, _stored_name(shard))

    def is_file_list(self, name: str) -> bool:
        return name.endswith(".json")

    def file_list_names(self) -> Sequence[str]:
        return (WIDS_LIST, *ENERGON_LISTS) if self._idx else ()

    def parse_file_list(self, name: str, content: bytes) -> Sequence[FileListEntry] | None:
        return listed_files(name, content)

    def scan(self, file: ScanSource) -> ScanResult:
        read, hints = open_archive(file, indexed=self._idx)
        members, grouping = Members(read, file.size), Grouping(self._split_name)
        for member in members:
            grouping.add(member)
        places = grouping.places(file.size)
        specs = {
            name: "bytes" if self._raw else encoding_of(name.lower(), images=self._pil)
            for name in places.extensions
        }
        entry = {"columns": {KEY: "str", **specs}, "format": "webdataset", "version": 2}
        notes = dict(grouping.notes())
        if members.skipped is not None:
            notes["links and other members that are no files are left out"] = repr(members.skipped)
        if hints is not None and hints.unused:
            notes[_STALE] = f"{hints.unused} places"
        elif hints is not None and hints.samples not in (None, places.samples):
            notes[_STALE] = f"{hints.samples} samples rather than {places.samples}"
        return ScanResult(places.samples, entry, {"places": places.pack()}, notes)

    def _split_name(self, name: str) -> tuple[str, str] | None:
        if self._files:
            return name, FILE
        return split_name(name, lower=not self._case, last_dot=self._last_dot)

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        # What a sample does not have is None, so all archives can have the columns of all.
        specs = {name: spec for entry in entries for name, spec in entry["columns"].items()}
        return {**entries[0], "columns": dict(sorted(specs.items()))}

    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        return TarWriter(columns, settings, self._mtime)


def _stored_name(shard: ShardInfo) -> str:
    file = shard.files["data"]
    return (file.zip or file.raw).basename
