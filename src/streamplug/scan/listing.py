"""Listing of the data files of a data set without an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os.path import isdir

from streamplug.errors import ConfigError, NotFound, StorageError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import FileListFormat, Format, MultiFileFormat, ScannableFormat, Storage
from streamplug.plugin.location import local_path
from streamplug.scan.glob import FileSet, compile_glob, glob_may_contain, glob_prefix, is_glob
from streamplug.transfer.file_lock import STATE_DIR
from streamplug.transfer.pool import run_jobs
from streamplug.transfer.retry import call_with_retries
from streamplug.types import ObjectInfo

_AT_ONCE = 16
_FEW = 64  # number of files up to which each gets a stat request instead of one listing

_COMPRESSIONS = {"gz": "gz", "bz2": "bz2", "xz": "xz", "zst": "zstd", "lz4": "lz4", "br": "br"}
_SHORT = {"tgz": ("tar", "gz"), "tbz2": ("tar", "bz2"), "txz": ("tar", "xz")}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A stored data file, its name without compression suffix, and its compression, if any."""

    stored: ObjectInfo
    raw: str
    compression: str | None


def split_compression(name: str, endings: Sequence[str]) -> tuple[str, str | None] | None:
    """Return the raw name of a file and its compression; None if it is not a data file.

    >>> split_compression("a/b.tgz", ["tar"]), split_compression("b.tar.places", ["tar"])
    (('a/b.tar', 'gz'), None)
    """
    dotted = tuple(f".{ending}" for ending in endings)
    if name.endswith(dotted):
        return name, None
    stem, _, last = name.rpartition(".")
    if last in _SHORT and _SHORT[last][0] in endings:
        return f"{stem}.{_SHORT[last][0]}", _SHORT[last][1]
    if last in _COMPRESSIONS and stem.endswith(dotted):
        return stem, _COMPRESSIONS[last]
    return None


def is_data_file(location: str, format_: Format) -> bool:
    """Return whether a location is a data file or a file list rather than a directory."""
    if split_compression(location, file_suffixes_of(format_)) is not None:
        return True
    return isinstance(format_, FileListFormat) and format_.is_file_list(location)


def file_suffixes_of(format_: Format) -> tuple[str, ...]:
    """Return the suffixes of a format's data files; empty for multi-file formats, which take any."""
    if isinstance(format_, MultiFileFormat):
        return ()
    return format_.file_suffixes() if isinstance(format_, ScannableFormat) else (format_.suffix,)


def list_data_files(
    storage: Storage, files: FileSet, endings: Sequence[str], retries: int
) -> list[DataFile]:
    """Return the data files of a file set in the given order, by name within directories and globs.

    A file is returned once for each part that contains it. `endings` are suffixes of raw files, without a
    dot.

    Raises:
        NotFound: If a file does not exist, or there are none.
        ConfigError: If two files have the same raw name.
    """
    named = [part for part in files.parts if part and not part.endswith("/") and not is_glob(part)]
    known = stat_files(storage, named, retries)
    found: list[DataFile] = []
    by_raw_name: dict[str, DataFile] = {}
    for part in files.parts:
        objects = [known[part]] if part in known else _listed(storage, part, retries)
        for stored in objects:
            name = split_compression(stored.key, endings)
            if name is None and part in known:
                raise ConfigError(
                    f"{storage.url_of(part)}: the name of a data file ends with {_dotted(endings)}, or that "
                    "and a compression's ending"
                )
            if name is not None:
                each = DataFile(stored, *name)
                other = by_raw_name.setdefault(each.raw, each)
                if other.stored.key != stored.key:
                    raise ConfigError(
                        f"{storage.url_of(stored.key)} and {other.stored.key} would be one "
                        "file; name those that are meant"
                    )
                found.append(each)
    if not found:
        raise NotFound(
            f"{storage.url}: there is no index.json, and no {_dotted(endings)} file"
            + ("" if files.whole else f" among {', '.join(files.parts)[:200]}")
            + "; check remote=, local= and split=; below directories, a glob such as **/*."
            + f"{endings[0]} finds files"
        )
    return found


def _dotted(endings: Sequence[str]) -> str:
    return " or ".join(f".{ending}" for ending in endings)


def _listed(storage: Storage, part: str, retries: int) -> Iterator[ObjectInfo]:
    glob = compile_glob(part if is_glob(part) else f"{part}*")
    start = glob_prefix(part)
    for each in call_with_retries(lambda: list(storage.list(start)), retries):
        parts = each.key.split("/")
        if glob_may_contain(part, each.key):
            reject_directory_links(storage, [each.key])
        if glob.fullmatch(each.key) and STATE_DIR not in parts and parts[-1] != INDEX_NAME:
            yield each


def reject_directory_links(storage: Storage, names: Iterable[str]) -> None:
    """Raise ConfigError for links to directories, which are listed as files, and whose files are not."""
    near = local_path(storage.url)
    for name in names if near is not None else ():
        path = f"{near}/{name}"
        if isdir(path):  # noqa: PTH112 - faster, for many files
            raise ConfigError(
                f"{path} is a link to a directory, into which is not looked; have the directory itself "
                "there, or name what is meant with wildcards in remote="
            )


def stat_files(storage: Storage, names: Sequence[str], retries: int) -> dict[str, ObjectInfo]:
    """Return the metadata of files by name."""
    known: dict[str, ObjectInfo] = {}
    if len(names) > _FEW:
        try:
            listed = call_with_retries(lambda: list(storage.list(_start(names))), retries)
            known = {each.key: each for each in listed}
        except StorageError:  # some servers do not support listing
            known = {}
    wanted = set(names)

    def look(name: str) -> None:
        known[name] = call_with_retries(lambda: storage.stat(name), retries)

    run_jobs([partial(look, name) for name in sorted(wanted - known.keys())], _AT_ONCE)
    return {name: known[name] for name in wanted}


def _start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), len(first))
    return first[:length]
