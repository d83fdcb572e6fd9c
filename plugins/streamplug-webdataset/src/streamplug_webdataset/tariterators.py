"""Stages that make samples of archives, whose URLs come in as ``{"url": …}``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streamplug.config import check_flags
from streamplug.errors import ConfigError, DataError
from streamplug.interfaces import public_url
from streamplug_webdataset.handlers import reraise_exception
from streamplug_webdataset.names import FILE, KEY, URL, split_name
from streamplug_webdataset.progress import Progress
from streamplug_webdataset.shardlists import located
from streamplug_webdataset.source import ArchiveDataset, Archives, SourceOrder
from streamplug_webdataset.stages import Stage

SelectFiles = Callable[[str], Any]
RenameFiles = Callable[[str], str]

_SAMPLES_PER_READ = 64
_MAX_OPEN_ARCHIVES = 16
"""Archives that stay open for another pass; each takes memory and an open file."""


class Expander(Stage):
    """Makes samples of archives. On a plan it stands for the plan's own reading."""

    name = "tarfile_to_samples"

    def __init__(
        self,
        handler: Callable[[Exception], Any] = reraise_exception,
        select_files: SelectFiles | None = None,
        rename_files: RenameFiles | None = None,
        *,
        last_dot: bool = False,
    ) -> None:
        """Read archives.

        Raises:
            ConfigError: If the handler would leave out archives.
        """
        check_handler(handler)
        check_flags(last_dot=last_dot)
        self.last_dot = last_dot
        self.select_files, self.rename_files = select_files, rename_files
        self._opened: dict[str, ArchiveDataset] = {}

    @property
    def plain(self) -> bool:
        """Whether all files are taken as they are."""
        return self.select_files is None and self.rename_files is None

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        for source_item in source:
            url = source_item.get("url") if isinstance(source_item, dict) else None
            if not isinstance(url, str):
                got = type(source_item).__name__  # without its value, which may have credentials
                raise DataError(
                    f"tarfile_to_samples takes {{'url': …}}, got {got}: begin with SimpleShardList(urls)"
                )
            samples = self._samples(url)
            yield from samples if self.plain else self._changed(samples)

    def _samples(self, url: str) -> Iterator[dict[str, Any]]:
        """Yield the samples of an archive; its files in their order if they are selected or renamed."""
        archive = self._open_archive(url)
        for start in range(0, archive.size, _SAMPLES_PER_READ):
            rows = list(range(start, min(start + _SAMPLES_PER_READ, archive.size)))
            for sample in archive[rows]:
                yield {URL: url, **{name: v for name, v in sample.items() if v is not None}}

    def _open_archive(self, url: str) -> ArchiveDataset:
        """Return an archive, which stays open; of too many, the least recently used one is closed."""
        archive = self._opened.pop(url, None)
        if archive is None:
            unit = ("raw,last_dot" if self.last_dot else "raw") if self.plain else "files"
            stream = Archives(remote=located(url), format=f"webdataset:{unit}")
            archive = ArchiveDataset(stream, SourceOrder(), {})
        self._opened[url] = archive
        if len(self._opened) > _MAX_OPEN_ARCHIVES:
            del self._opened[next(iter(self._opened))]
        return archive

    def _changed(self, files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Select and rename files, and make samples of those in a row that have one key."""
        last: dict[str, Any] | None = None
        for file in files:
            name = chosen_name(file[KEY], self.select_files, self.rename_files)
            split = None if name is None else split_name(name, last_dot=self.last_dot)
            if split is None:
                continue
            key, extension = split
            if last is None or last[KEY] != key:
                if last is not None:
                    yield last
                last = {KEY: key, URL: file[URL]}
            if extension in last:
                raise DataError(
                    f"{public_url(file[URL])}: after rename_files the sample {key!r} has two files "
                    f"{extension!r}"
                )
            last[extension] = file[FILE]
        if last is not None:
            yield last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}


def chosen_name(name: str, select: SelectFiles | None, rename: RenameFiles | None) -> str | None:
    """Return the changed name of a file; None if the file is not selected."""
    if rename is not None:
        name = rename(name)
    return name if select is None or select(name) else None


def tarfile_to_samples(
    handler: Callable[[Exception], Any] = reraise_exception,
    select_files: SelectFiles | None = None,
    rename_files: RenameFiles | None = None,
    *,
    last_dot: bool = False,
) -> Expander:
    """Make samples of archives.

    Args:
        handler: Only `reraise_exception`: a damaged archive is an error.
        select_files: Says of a file's name, after `rename_files`, whether to keep it.
        rename_files: Returns another name for a file's.
        last_dot: Whether extensions begin at the last dot of a name rather than at the first.

    Raises:
        ConfigError: If the handler would leave out archives.
    """
    return Expander(handler, select_files, rename_files, last_dot=last_dot)


def tarfile_samples(
    src: Iterable[Any],
    handler: Callable[[Exception], Any] = reraise_exception,
    select_files: SelectFiles | None = None,
    rename_files: RenameFiles | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the samples of the archives in `src`; see `tarfile_to_samples`."""
    return Expander(handler, select_files, rename_files)(src)


def check_handler(handler: Any) -> None:
    """Refuse what would leave out archives.

    Raises:
        ConfigError: If a handler is anything but `reraise_exception`.
    """
    if getattr(handler, "__name__", "") != "reraise_exception":
        raise ConfigError(
            f"handler={getattr(handler, '__name__', handler)!r:.80}: an archive that cannot be read is an "
            "error, for the order depends on all of them; repair it, or leave it out of the list. Stages, "
            "such as decode(), take handlers"
        )
