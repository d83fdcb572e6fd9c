"""Detection of the format of data sets without an index, or with that of another library."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from streamplug_files import (
    PLAN_NAME,
    IndexImportFormat,
    ScannableFormat,
    check_writer_output,
    compile_glob,
    find_table,
    split_compression,
)

from streamplug.errors import ConfigError, NotFound, StreamplugError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Format, Storage
from streamplug.plugin import list_names, load_catalog, resolve
from streamplug.source import recognize_source
from streamplug.stream import Stream

_MAX_LISTED_FILES = 1000
_NO_INDEX = "there is no index.json"
_INDEX_HEAD_BYTES = 256
_JSON_HEAD_BYTES = 1 << 20
_MAX_SNIFFED_FILES = 4
_HIDDEN = ScannableFormat.hidden_names
_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"')


class DetectedFormat(NamedTuple):
    """Name of a format, and why it was chosen."""

    name: str
    reason: str


def detect_format(stream: Stream) -> DetectedFormat | None:
    """Return the format of a stream's files, or None if it has an index or cannot be read.

    Raises:
        ConfigError: If there are files of several formats.
        NotFound: If there is no file of any, or a writer of them has not finished.
    """
    try:
        if stream.storage.exists(INDEX_NAME):
            return _format_of_index(stream.storage)
        if recognize_source(stream) is not None:
            return None
        formats = _formats_by_suffix()
        if (name := _format_of(str(stream.remote), formats)) is not None:
            return DetectedFormat(name, _NO_INDEX)
        table = find_table(stream.storage, _table_files(), stream.retries)
        if table is not None and table in load_catalog()["source"]:
            return DetectedFormat(table, f"it is a table of the format {table}")
        listed = (i.key for i in stream.storage.list("") if _is_shown(i.key, _HIDDEN))
        keys = list(islice(listed, _MAX_LISTED_FILES))
        has_plan = stream.storage.exists(PLAN_NAME)
    except StreamplugError:  # opening the stream raises a better error
        return None
    return DetectedFormat(_format_of_files(stream, keys, formats, has_plan=has_plan), _NO_INDEX)


def _format_of_files(
    stream: Stream, keys: Sequence[str], formats: dict[str, str], *, has_plan: bool
) -> str:
    """Return the format of the files in a directory without an index."""
    storage, location = stream.storage, stream.url
    read = [key for key in keys if "/" not in key]  # those that a scan of the directory reads
    check_writer_output(storage, [*read, *([PLAN_NAME] if has_plan else [])], stream.retries)
    others = [key for key in keys if not key.endswith(f"/{INDEX_NAME}")]
    counts = _count_formats(read, formats) or _count_formats(others, formats)
    if len(counts) > 1:
        names = ", ".join(f"{name} ({count:,})" for name, count in counts.most_common())
        raise ConfigError(
            f"{location} has no index.json, but files of several formats: {names}; choose one by "
            "--src-format, or name the files, such as by *.tar"
        )
    if not counts:
        raise NotFound(
            f"{storage.url_of(INDEX_NAME)} does not exist: there is no data set, or its writer has "
            "not finished, and no files of a format that is known; check the location, with the "
            "split if there is one, or name the format by --src-format"
        )
    [found] = counts
    documents = [key for key in read if key.lower().endswith(".json")][:_MAX_SNIFFED_FILES]
    for key in documents if found == formats.get("json") else ():
        if not _may_be_json_lines(storage, key):
            raise NotFound(
                f"{storage.url_of(INDEX_NAME)} does not exist, and {storage.url_of(key)} is a single JSON "
                "document, such as a configuration: there is no data set; if each such file is a sample, "
                "name the format by --src-format"
            )
    return found


def _count_formats(keys: Sequence[str], formats: dict[str, str]) -> Counter[str]:
    found = [(key, name) for key in keys if (name := _format_of(key, formats)) is not None]
    classes: dict[str, type[ScannableFormat]]
    classes = {name: resolve("format", name) for name in {name for _, name in found}}
    known = {*keys}
    return Counter(
        name
        for key, name in found
        if _is_shown(key, classes[name].hidden_names)
        and _has_companion(key, classes[name].companion_suffix, known)
    )


def _has_companion(key: str, suffix: str, keys: Collection[str]) -> bool:
    return not suffix or f"{key.rpartition('.')[0]}.{suffix}" in keys


def _may_be_json_lines(storage: Storage, key: str) -> bool:
    """Return whether a file begins with a JSON value in a line of its own, which others follow."""
    first, newline, rest = storage.read_range(key, 0, _JSON_HEAD_BYTES).lstrip().partition(b"\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return bool(newline and rest.strip())


def _format_of_index(storage: Storage) -> DetectedFormat | None:
    """Return the format of an index.json of another library, by its first key; None for any other."""
    head = _FIRST_KEY.match(storage.read_range(INDEX_NAME, 0, _INDEX_HEAD_BYTES))
    key = None if head is None else head[1].decode()
    if key in (None, "shards", "version"):
        return None
    for name, cls in list_formats():
        if issubclass(cls, IndexImportFormat) and cls.first_index_key == key:
            return DetectedFormat(name, f"its index.json begins with {key!r}")
    return None


def list_formats() -> Iterator[tuple[str, type[Format]]]:
    """Yield the names and classes of the formats that can be loaded, other than of tables."""
    for name in list_names("format"):
        with suppress(StreamplugError):  # broken, or of tables
            yield name, resolve("format", name)


def _formats_by_suffix() -> dict[str, str]:
    """Return the format that reads files of each suffix without an index."""
    formats: dict[str, str] = {}
    for name, cls in list_formats():
        if issubclass(cls, ScannableFormat):
            for suffix in cls.file_suffixes():
                if suffix == name or (suffix == cls.suffix and suffix not in formats):
                    formats[suffix] = name
    return formats


def _table_files() -> dict[str, str]:
    """Return a glob of files that every table has, by the format of the table."""
    scannable = (cls for _, cls in list_formats() if issubclass(cls, ScannableFormat))
    return {name: glob for cls in scannable for name, glob in cls.table_files.items()}


def _is_shown(key: str, hidden: str) -> bool:
    """Return whether a file is not hidden, and in no hidden directory; `hidden` as for `compile_glob`."""
    return compile_glob("**", hidden).fullmatch(key) is not None


def _format_of(key: str, formats: dict[str, str]) -> str | None:
    suffixes: Sequence[str] = [*formats]
    found = split_compression(key.rstrip("/"), suffixes)
    return None if found is None else formats[found[0].rpartition(".")[2].lower()]
