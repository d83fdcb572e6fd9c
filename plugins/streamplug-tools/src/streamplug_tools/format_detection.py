"""Detection of the format of files without an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from streamplug.errors import ConfigError, NotFound, StreamplugError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import ScannableFormat
from streamplug.plugin.registry import list_names, resolve
from streamplug.scan.listing import split_compression
from streamplug.session.table_format import find_table_format
from streamplug.stream import Stream

_MAX_LISTED_FILES = 1000


def detect_format(stream: Stream) -> str | None:
    """Return the format of a stream's files, or None if it has an index or cannot be read.

    Raises:
        ConfigError: If there are files of several formats.
        NotFound: If there is no file of any.
    """
    location = stream.url
    try:
        if stream.storage.exists(INDEX_NAME) or find_table_format(stream) is not None:
            return None
        formats = _formats_by_suffix()
        if (name := _format_of(str(stream.remote), formats)) is not None:
            return name
        keys = [info.key for info in islice(stream.storage.list(""), _MAX_LISTED_FILES)]
    except StreamplugError:  # opening the stream raises a better error
        return None
    counts = Counter(name for key in keys if (name := _format_of(key, formats)) is not None)
    if len(counts) > 1:
        names = ", ".join(f"{name} ({count:,})" for name, count in counts.most_common())
        raise ConfigError(
            f"{location} has no index.json, but files of several formats: {names}; choose one by "
            "--src-format, or name the files, such as by *.tar"
        )
    if not counts:
        raise NotFound(
            f"{stream.storage.url_of(INDEX_NAME)} does not exist: there is no data set, or its writer has "
            "not finished, and no files of a format that is known; check the location and --split, or name "
            "the format by --src-format"
        )
    return next(iter(counts))


def _formats_by_suffix() -> dict[str, str]:
    """Return the format that reads files of each suffix without an index."""
    formats: dict[str, str] = {}
    for name in list_names("format"):
        try:
            cls = resolve("format", name)
        except StreamplugError:  # broken, or of tables
            continue
        if issubclass(cls, ScannableFormat):
            for suffix in cls.file_suffixes():
                if suffix == name or (suffix == cls.suffix and suffix not in formats):
                    formats[suffix] = name
    return formats


def _format_of(key: str, formats: dict[str, str]) -> str | None:
    suffixes: Sequence[str] = [*formats]
    found = split_compression(key.rstrip("/"), suffixes)
    return None if found is None else formats[found[0].rpartition(".")[2]]
