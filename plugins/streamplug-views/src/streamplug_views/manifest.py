"""Manifests of views: what a version of a view consists of.

A manifest is a JSON object, ``versions/<number>.json``, which is written once. The layout is our own::

    {"format": "streamplug-view", "format_version": 1,
     "version": 3, "parent": "<digest of the manifest of version 2>", "commit": "<random>",
     "time": "2026-11-24T09:00:00+00:00", "message": "…",
     "sources": [{"url": "../../crawl", "format": null, "split": null, "digest": "…", "samples": 1000,
                  "version": null}, …],
     "parts": [{"groups": [{"source": 0, "rows": {"file": "data/….rows", "size": 500},
                            "starts": "data/….npy", "columns": {"text": "text"}}, …]}, …],
     "steps": [{"step": "where score > 0.5", "samples": 500}, …]}

A part has one group of columns for each data set that it takes columns from; the shards of the first are
those of the view. ``rows`` are all rows (null), ascending rows (``.rows``, see `row_set`) or rows in any
order (``.npy``). ``columns`` has the name in the view of each column; null takes all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import xxhash

from streamplug.errors import DataError

FORMAT = "streamplug-view"
FORMAT_VERSION = 1
VIEW_NAME = "view.json"


@dataclass(frozen=True)
class SourceEntry:
    """A data set of which a view has rows.

    Attributes:
        url: URL or path; a relative one is relative to the view's location.
        format: Format of a data set without index.json.
        split: Its sub-directory.
        digest: Digest of its index, see `source_digest`.
        samples: Number of samples.
        version: Version of a table of another format; None for a data set.
    """

    url: str
    format: str | None
    split: str | None
    digest: str
    samples: int
    version: int | None = None


@dataclass(frozen=True)
class RowsFile:
    """A file with the rows of a group; `size` is their number."""

    file: str
    size: int


@dataclass(frozen=True)
class Group:
    """Columns that a part takes from one source.

    Attributes:
        source: Position in `Manifest.sources`.
        rows: Rows by position in the part; None for all rows in their order.
        starts: File with the first position in each shard of the source, and the number of positions; only
            of a first group with `rows`.
        columns: Name in the view by name in the source, in the order of the view; None for all columns.
    """

    source: int
    rows: RowsFile | None = None
    starts: str | None = None
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True)
class ViewPart:
    """Some samples of a view, all of the same sources."""

    groups: Sequence[Group]


@dataclass(frozen=True)
class Step:
    """An operation that made the view, in words, and the number of samples after it."""

    step: str
    samples: int


@dataclass(frozen=True)
class Manifest:
    """A version of a view; the attributes are described in the module."""

    version: int
    parent: str | None
    commit: str
    time: str
    message: str
    sources: Sequence[SourceEntry]
    parts: Sequence[ViewPart]
    steps: Sequence[Step] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """Names of the files that it refers to, in the location of the view."""
        groups = [group for part in self.parts for group in part.groups]
        rows = [group.rows.file for group in groups if group.rows is not None]
        return sorted({*rows, *(group.starts for group in groups if group.starts is not None)})

    def sizes(self) -> list[int]:
        """Return the number of samples of each part."""
        first = [part.groups[0] for part in self.parts]
        return [g.rows.size if g.rows else self.sources[g.source].samples for g in first]

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        document = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        return json.dumps(document, indent=1).encode()  # not sorted: columns have an order


def manifest_digest(data: bytes) -> str:
    """Return the xxh3_128 hex digest that identifies a manifest."""
    return xxhash.xxh3_128_hexdigest(data)


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Parse the content of a manifest, which is untrusted; `where` names it in errors.

    Raises:
        DataError: If it is damaged, or of a newer version.
    """
    document = parse_object(data, where)
    if document.get("format") != FORMAT:
        raise DataError(f"{where} is not the manifest of a view: it needs 'format': {FORMAT!r}")
    if document.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{where} has format_version {document.get('format_version')!r:.40}; this streamplug-views reads "
            f"{FORMAT_VERSION}: install a newer one"
        )
    reader = _Fields(where)
    sources = [
        SourceEntry(
            url=reader.get(entry, "url", str),
            format=reader.get(entry, "format", str, None),
            split=reader.get(entry, "split", str, None),
            digest=reader.get(entry, "digest", str),
            samples=reader.count(entry, "samples"),
            version=reader.count(entry, "version") if entry.get("version") is not None else None,
        )
        for entry in reader.objects(document, "sources")
    ]
    parts = [
        ViewPart(
            [_parse_group(reader, group, sources) for group in reader.objects(entry, "groups")]
        )
        for entry in reader.objects(document, "parts")
    ]
    manifest = Manifest(
        version=reader.count(document, "version"),
        parent=reader.get(document, "parent", str, None),
        commit=reader.get(document, "commit", str),
        time=reader.get(document, "time", str),
        message=reader.get(document, "message", str),
        sources=sources,
        parts=parts,
        steps=[
            Step(reader.get(entry, "step", str), reader.count(entry, "samples"))
            for entry in reader.objects(document, "steps")
        ],
    )
    for number, (part, size) in enumerate(zip(parts, manifest.sizes())):
        for group in part.groups:
            found = group.rows.size if group.rows else sources[group.source].samples
            if found != size:
                raise DataError(
                    f"{where}: part {number} has {size} samples, but {found} rows of "
                    f"{sources[group.source].url}; write the view again"
                )
    return manifest


def is_data_file(name: object) -> bool:
    """Return whether a value is the name of a file that a manifest may refer to."""
    folder, _, rest = name.partition("/") if isinstance(name, str) else ("", "", "")
    return folder == "data" and "/" not in rest and rest not in ("", ".", "..")


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        DataError: If it is none.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where} is truncated or damaged: it is not whole, valid JSON ({error})"
        ) from None
    if not isinstance(document, dict):
        raise DataError(f"{where} is damaged: expected a JSON object")
    return document


def _parse_group(
    reader: _Fields, entry: Mapping[str, Any], sources: Sequence[SourceEntry]
) -> Group:
    source = reader.count(entry, "source")
    if source >= len(sources):
        raise reader.error(f"source {source} of {len(sources)}")
    rows = reader.get(entry, "rows", dict, None)
    columns = reader.get(entry, "columns", dict, None)
    if columns is not None and not all(isinstance(name, str) for name in columns.values()):
        raise reader.error(f"columns {columns!r:.60}")
    return Group(
        source,
        None if rows is None else RowsFile(reader.file(rows, "file"), reader.count(rows, "size")),
        reader.file(entry, "starts") if entry.get("starts") is not None else None,
        columns,
    )


class _Fields:
    """Typed access to the fields of JSON objects."""

    def __init__(self, where: str) -> None:
        self._where = where

    def error(self, what: str) -> DataError:
        return DataError(f"{self._where} is damaged: {what}; write the view again")

    def get(self, entry: Mapping[str, Any], name: str, kind: type, *default: Any) -> Any:
        value = entry.get(name)
        if (value is None and default) or isinstance(value, kind):
            return value
        raise self.error(f"{name!r} is {value!r:.60}")

    def count(self, entry: Mapping[str, Any], name: str) -> int:
        value = entry.get(name)
        if type(value) is not int or value < 0:
            raise self.error(f"{name!r} is {value!r:.60}")
        return value

    def objects(self, entry: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        value = entry.get(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(f"{name!r} is {value!r:.60}")
        if name in ("parts", "groups") and not value:
            raise self.error(f"{name!r} is empty")
        return value

    def file(self, entry: Mapping[str, Any], name: str) -> str:
        value: str = self.get(entry, name, str)
        if not is_data_file(value):
            raise self.error(f"{name!r} is {value!r:.80}, which is no file of the view")
        return value
