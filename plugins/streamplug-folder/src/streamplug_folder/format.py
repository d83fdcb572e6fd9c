"""Shard format with one file per sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from streamplug_files import MANIFEST_ROLE, FileSelection, MultiFileFormat, ShardManifest

from streamplug.errors import ConfigError, CorruptShardError, InvalidIndexError
from streamplug.interfaces import (
    Column,
    Encoding,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
)
from streamplug.types import Bytes1D
from streamplug_folder.classes import IMAGES, check_classes, classed, is_hidden
from streamplug_folder.reader import FilesHead, FilesReader

_KINDS: Mapping[str | None, Mapping[str, str]] = {
    None: {"data": "bytes", "path": "str"},
    "classes": {"class": "str", "data": "bytes", "label": "int", "path": "str"},
    "images": {"class": "str", "image": "jpeg", "label": "int", "path": "str"},
    "images,raw": {"class": "str", "image": "bytes", "label": "int", "path": "str"},
}


class Folder(MultiFileFormat, RangeReadableFormat):
    """``folder``: the files below a directory, each of them a sample.

    ``folder:classes`` adds the top-level directories as classes; ``folder:images`` also selects image files
    and decodes them to Pillow images (requires streamplug-image); ``folder:images,raw`` returns their bytes.
    """

    suffix = "files"
    roles: ClassVar[tuple[str, ...]] = ("data", MANIFEST_ROLE)
    header_role: ClassVar[str] = MANIFEST_ROLE

    def __init__(self, kind: str | None = None) -> None:
        """Select files: ``"classes"``, ``"images"``, ``"images,raw"``, or None for all."""
        if kind not in _KINDS:
            known = ", ".join(f"folder:{name}" for name in _KINDS if name)
            raise ConfigError(f"format folder:{kind}: expected folder, {known}")
        self._kind = kind

    @classmethod
    def from_spec(cls, argument: str | None) -> Folder:
        return cls(argument)

    def select_files(self, names: Sequence[str]) -> FileSelection:
        entry = {"columns": _KINDS[self._kind], "format": "folder", "version": 2}
        shown = [n for n, name in enumerate(names) if not is_hidden(name)]
        notes = {}
        if len(shown) < len(names):
            hidden = next(filter(is_hidden, names))
            notes[
                "files and directories that begin with a dot, or that systems make, are left out"
            ] = repr(hidden)
        if self._kind is None:
            return FileSelection(shown, entry, notes=notes)
        labelled = classed(names, self._endings)
        if labelled.outside:
            notes["files outside of a class's directory are left out"] = repr(labelled.outside)
        return FileSelection(labelled.numbers, entry, labelled.labels, notes)

    def check_empty_directories(self, names: Sequence[str]) -> None:
        if self._kind is not None:
            check_classes([name for name in names if not is_hidden(name)], self._endings)

    @property
    def _endings(self) -> Sequence[str]:
        return () if self._kind == "classes" else IMAGES

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        specs = entry.get("columns")
        if not isinstance(specs, dict) or specs not in _KINDS.values():
            raise InvalidIndexError(f"columns must be those of a folder, got {specs!r:.80}")
        return tuple(Column(name, spec, make_encoding(name, spec)) for name, spec in specs.items())

    def check(self, samples: int, role: str, size: int) -> None:
        if role == MANIFEST_ROLE and size < 16 * samples:
            raise InvalidIndexError(f"{size} bytes cannot list {samples} files")

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        data = files["data"]
        head = FilesHead(_bundle(files[MANIFEST_ROLE], shard, columns, len(data)))
        return FilesReader(head, data)

    def header_range(self, shard: ShardInfo) -> tuple[int, int]:
        return 0, shard.files[MANIFEST_ROLE].raw.bytes

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        return FilesHead(_bundle(head, shard, columns, shard.files["data"].raw.bytes))


def _bundle(data: Bytes1D, shard: ShardInfo, columns: Sequence[Column], size: int) -> ShardManifest:
    bundle = ShardManifest.unpack(data, shard.samples, size)
    if bundle.labels is None and any(column.name == "label" for column in columns):
        raise CorruptShardError("its list of files has no labels")
    return bundle
