"""Listing of the data files of a data set without an index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os.path import commonprefix, isdir

from streamplug.errors import ConfigError, NotFound, StorageError, Transient
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Format, Storage
from streamplug.plugin import local_path, split_query
from streamplug.transfer import (
    MAX_STATS,
    MAX_STATS_IN_FLIGHT,
    STATE_DIR,
    call_with_retries,
    map_threads,
)
from streamplug.types import ObjectInfo
from streamplug_files.format import FileListFormat, MultiFileFormat, ScannableFormat
from streamplug_files.glob import (
    FileSet,
    compile_glob,
    escape,
    glob_may_contain,
    glob_prefix,
    is_glob,
    is_name,
    not_hidden,
    parse_locations,
    unescape,
)
from streamplug_files.table_check import ListedTables
from streamplug_files.writer_output import check_writer_output

_COMPRESSIONS = {"gz": "gz", "bz2": "bz2", "xz": "xz", "zst": "zstd", "lz4": "lz4", "br": "br"}
_SHORT_SUFFIXES = {"tgz": ("tar", "gz"), "tbz2": ("tar", "bz2"), "txz": ("tar", "xz")}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A stored data file, its name without compression suffix, and its compression, if any."""

    stored: ObjectInfo
    raw: str
    compression: str | None


def split_compression(name: str, endings: Sequence[str]) -> tuple[str, str | None] | None:
    """Return the raw name of a file and its compression; None if it is not a data file.

    Suffixes may be in upper case.

    >>> split_compression("a/b.tgz", ["tar"]), split_compression("b.tar.places", ["tar"])
    (('a/b.tar', 'gz'), None)
    """
    dotted = tuple(f".{ending.lower()}" for ending in endings)
    if name.lower().endswith(dotted):
        return name, None
    stem, _, suffix = name.rpartition(".")
    suffix = suffix.lower()
    raw_suffix, compression = _SHORT_SUFFIXES.get(suffix, ("", ""))
    if raw_suffix in endings:
        return f"{stem}.{raw_suffix}", compression
    if suffix in _COMPRESSIONS and stem.lower().endswith(dotted):
        return stem, _COMPRESSIONS[suffix]
    return None


def is_data_file(location: str, format_: Format) -> bool:
    """Return whether a location is a data file or a file list rather than a directory."""
    if split_compression(location, file_suffixes_of(format_)) is not None:
        return True
    return isinstance(format_, FileListFormat) and format_.is_file_list(location)


def find_locations(locations: str | Sequence[str], format_: Format) -> FileSet:
    """Return the file set of URLs or paths of files and directories of a format.

    Raises:
        ConfigError: As for `parse_locations`.
    """
    names = [locations] if isinstance(locations, str) else locations
    names = [_complete_location(name, format_) for name in names]
    return parse_locations(names, lambda name: is_data_file(name, format_))


def _complete_location(location: str, format_: Format) -> str:
    path, query = split_query(location)
    is_directory = path.rpartition("/")[2] in ("", ".", "..")
    if is_directory or is_data_file(path, format_) or not isinstance(format_, ScannableFormat):
        return location
    return format_.complete_location(path) + query


def file_suffixes_of(format_: Format) -> tuple[str, ...]:
    """Return the suffixes of a format's data files; empty for multi-file formats, which take any."""
    if isinstance(format_, MultiFileFormat):
        return ()
    return format_.file_suffixes() if isinstance(format_, ScannableFormat) else (format_.suffix,)


def list_data_files(
    storage: Storage, files: FileSet, format_: ScannableFormat, retries: int
) -> tuple[list[DataFile], str]:
    """Return the data files of a file set in the given order, by name within directories and globs.

    A file is returned once for each part that contains it. The second result is the key of a hidden data
    file that is left out, empty if there is none.

    Raises:
        NotFound: If a file does not exist, there are none, or a writer of them has not finished.
        ConfigError: If two files have the same raw name.
    """
    endings, hidden = format_.file_suffixes(), ""
    names = [unescape(part) for part in files.parts if is_name(part)]
    try:
        infos = stat_files(storage, names, retries)
    except NotFound as error:  # Spark writes directories with names such as data.parquet
        if not error.bucket:
            error.args = (f"{error}; if it is a directory, end its name with a slash",)
        raise
    data_files: list[DataFile] = []
    counts: list[int] = []
    by_raw_name: dict[str, DataFile] = {}
    tables = ListedTables(format_.table_files)
    for part in files.parts:
        shown, num_before = _compile_part(part, format_.hidden_names), len(data_files)
        info = infos.get(unescape(part)) if is_name(part) else None
        for file in _list_part(storage, part, info, format_, retries, tables=tables):
            if not shown.fullmatch(file.stored.key):
                hidden = hidden or file.stored.key
                continue
            other = by_raw_name.setdefault(file.raw, file)
            if other.stored.key != file.stored.key:
                raise ConfigError(
                    f"{storage.url_of(file.stored.key)} and {other.stored.key} would be one "
                    "file; name those that are meant"
                )
            data_files.append(file)
        counts.append(len(data_files) - num_before)
    found = [file.stored.key for file in data_files]
    state = check_writer_output(storage, found, retries, named=infos)
    data_files = [file for file in data_files if file.stored.key not in state]
    tables.check(storage, [file.stored.key for file in data_files])
    empty = files.find_empty(counts)
    if not data_files or empty is not None:
        shown_parts = [empty] if data_files and empty else files.parts
        raise NotFound(
            f"{storage.url}: there is no index.json, and no {_dotted(endings)} file"
            + ("" if files.whole else f" among {', '.join(shown_parts)[:200]}")
            + "; check remote=, local= and split=; below directories, a glob such as **/*."
            + f"{endings[0]} finds files"
            + ("; write a '[' of a name as [[]" if any("[" in part for part in files.parts) else "")
            + (f"; hidden files, such as {hidden}, must be named" if hidden else "")
        )
    return data_files, hidden


def _list_part(
    storage: Storage,
    part: str,
    info: ObjectInfo | None,
    format_: ScannableFormat,
    retries: int,
    *,
    tables: ListedTables,
) -> Iterator[DataFile]:
    """Yield the data files of a directory or a glob, with hidden ones; the file itself if `info` is given.

    Raises:
        ConfigError: If that file is none of the format's, or as for `list_objects`.
    """
    endings = format_.file_suffixes()
    listed = [info] if info else list_objects(storage, part, retries, format_.hidden_names, tables)
    for stored in listed:
        name = split_compression(stored.key, endings)
        if name is None and info is not None:
            raise ConfigError(
                f"{storage.url_of(info.key)}: the name of a data file ends with {_dotted(endings)}, or that "
                "and a compression's ending"
            )
        is_index = stored.key.rpartition("/")[2] == INDEX_NAME and info is None
        if name is not None and not is_index:
            yield DataFile(stored, *name)


def _compile_part(part: str, hidden: str) -> re.Pattern[str]:
    """Compile a file, a directory without those below, or a glob to a regular expression of keys."""
    if is_glob(part):
        return compile_glob(part, hidden)
    return re.compile(
        f"{re.escape(unescape(part))}(?:(?<![^/]){not_hidden(hidden)}[^/]*)?", re.DOTALL
    )


def _dotted(endings: Sequence[str]) -> str:
    return " or ".join(f".{ending}" for ending in endings)


def list_objects(
    storage: Storage,
    part: str,
    retries: int,
    hidden: str = "",
    tables: ListedTables | None = None,
    *,
    recursive: bool = False,
) -> Iterator[ObjectInfo]:
    """Yield the objects of a part of a file set, with hidden ones, without those of streamplug itself.

    Of a directory, these are the files directly in it, or also those below if it is `recursive`; then a name
    without a trailing slash may be a directory, too. `hidden` names, as in `compile_glob`, may be links. All
    listed files are added to `tables`.

    Raises:
        ConfigError: If one is a link to a directory: it is listed as a file, and its files are not.
    """
    if not recursive or is_glob(part):
        pattern = _compile_part(part, "")
    else:
        below = ".*" if part.endswith("/") or not part else "(/.*)?"
        pattern = re.compile(re.escape(unescape(part)) + below, re.DOTALL)
    root = local_path(storage.url)
    for info in call_with_retries(lambda: list(storage.list(glob_prefix(part))), retries):
        if tables is not None:
            tables.add(info.key)
        *folders, name = info.key.split("/")
        is_listed = pattern.fullmatch(info.key) is not None and name != ""
        may_contain = is_glob(part) and glob_may_contain(part, info.key, hidden)
        path = f"{root}/{info.key}"
        if root is not None and (may_contain or (recursive and is_listed)) and isdir(path):  # noqa: PTH112 - faster, for many files
            raise ConfigError(
                f"{path} is a link to a directory, which is not followed; put the directory itself "
                "there, or name its files with wildcards in remote="
            )
        if is_listed and STATE_DIR not in folders:
            yield info


def prefer_names(storage: Storage, files: FileSet, retries: int) -> FileSet:
    """Return a file set in which a location that is the name of an object stands for that alone.

    Raises:
        ConfigError: If a location is neither such a name nor a valid pattern.
    """

    def exists(key: str) -> bool:
        try:
            call_with_retries(lambda: storage.stat(key), retries)
        except Transient:
            raise
        except StorageError:  # a key that the storage denies or cannot have is a pattern
            return False
        return True

    keys = [*files.names.values()]
    found = map_threads(exists, keys, MAX_STATS_IN_FLIGHT)
    named = {number: key for (number, key), is_there in zip(files.names.items(), found) if is_there}
    for number, message in files.errors.items():
        if number not in named:
            raise ConfigError(message)
    parts: list[str] = []
    locations: list[int] = []
    for part, number in zip(files.parts, files.locations):
        if number not in named:
            parts.append(part)
        elif locations[-1:] == [number]:  # once, in place of all that its braces were expanded to
            continue
        else:
            parts.append(escape(named[number]))
        locations.append(number)
    return replace(files, parts=tuple(parts), locations=tuple(locations)) if named else files


def stat_files(storage: Storage, names: Sequence[str], retries: int) -> dict[str, ObjectInfo]:
    """Return the metadata of files by name."""
    infos: dict[str, ObjectInfo] = {}
    if len(names) > MAX_STATS:
        prefix = commonprefix(names)  # noqa: RUF071 - keys may be listed by any prefix
        with suppress(StorageError):  # some servers do not support listing
            listed = call_with_retries(lambda: list(storage.list(prefix)), retries)
            infos = {info.key: info for info in listed}
    missing = sorted(set(names) - infos.keys())
    stats = map_threads(
        lambda name: call_with_retries(lambda: storage.stat(name), retries),
        missing,
        MAX_STATS_IN_FLIGHT,
    )
    infos.update(zip(missing, stats))
    return {name: infos[name] for name in set(names)}
