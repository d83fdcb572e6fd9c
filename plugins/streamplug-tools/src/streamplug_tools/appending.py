"""Appending of the samples of data sets to another one, such as those of each day.

The new shards are written in a folder of their own, which is named by a digest of the sources. Its index is
then added to that of the data set, so a killed call can be repeated at any time, and adds nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2s
from typing import Any

from streamplug_files import PLAN_NAME

from streamplug.config import suggest_keywords
from streamplug.errors import ConfigError, NotFound, OutputExistsError
from streamplug.index import INDEX_NAME, Index, Schema, extend_index, parse_index
from streamplug.interfaces import Storage, public_urls
from streamplug.plugin import join, open_storage, output_locations
from streamplug.transfer import call_with_retries
from streamplug_tools.append_lock import append_lock
from streamplug_tools.column_mapping import ColumnMapping, format_name, select_columns
from streamplug_tools.copy import map_table_columns
from streamplug_tools.dataset_files import find_reference
from streamplug_tools.dataset_removal import APPENDED_PREFIX, check_only_appended
from streamplug_tools.index_merge import check_columns, merge_indexes
from streamplug_tools.job import DatasetJob, open_job
from streamplug_tools.options import (
    ALL_COLUMNS,
    Columns,
    Output,
    ProgressCallback,
    Sources,
    ignore_progress,
)
from streamplug_tools.real_location import RealLocation
from streamplug_tools.selection_order import SequentialOrder

_DIGEST_BYTES = 8
_MAX_REPLACEMENTS = 20
"""Times that the index is replaced until a call is refused as others have replaced it each time."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Result of appending.

    Attributes:
        url: URL of the data set.
        shards: Number of its shards.
        samples: Number of its samples.
        bytes: Stored bytes of all its files.
        appended: Number of samples that this call added; 0 if an earlier call added those of the sources.
    """

    url: str
    shards: int
    samples: int
    bytes: int
    appended: int


@suggest_keywords
def append(
    sources: Sources,
    output: Output,
    *,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> AppendResult:
    """Add the samples of one or several data sets to another one, which is made if it does not exist.

    New samples come after the existing ones. Their format, compression, hashes and encodings are those of
    the existing ones, unless chosen. The index is replaced last. If a call is killed, the same call goes on.
    The samples of a source are added once: a repeated call adds nothing, until the source changes.

    Args:
        sources: Paths, URLs or streams.
        output: Location and options of the data set, without `exist_ok`.
        columns: Columns to take, and their encodings.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        ConfigError: If the columns or the format differ from the existing ones, or a source is the data set.
        OutputExistsError: If the location has other files, or an unfinished data set, or others write to it
            that must end first.
        StreamplugError: As for `convert`.
    """
    if output.exist_ok:
        raise ConfigError("exist_ok=True removes the data set to append to; leave it out")
    locations = output_locations(output.out)
    if len(locations) > 1:
        raise ConfigError(
            "out=: samples are appended at one location; give a path or a URL, not both"
        )
    home = open_storage(locations[0], output.storage_options)
    if kind := find_reference(home):
        raise ConfigError(f"{home.url} is a {kind}; append to a data set with an index.json")
    existing = _read_index(home)
    with open_job(sources, columns, on_progress) as job:
        place = RealLocation.of(home.endpoint, home.url)
        if any(place.is_same(RealLocation.of(*folder)) for folder in job.table.folders):
            raise ConfigError(f"{home.url} is a source; append other data sets to it")
        if existing is None:
            check_only_appended(home)
            existing = _read_index(home)  # of a call that has made the data set meanwhile
        if existing is not None and len(existing[0]):
            schema = existing[0].schema(len(existing[0]) - 1)
            output = _like(output, schema)
            columns = _encodings_of(schema, job, columns, home)
        output = output.like(job.table)
        mappings = map_table_columns(job.table, output, columns)
        folder = f"{APPENDED_PREFIX}{_digest(job, mappings)}"
        if existing is not None and _has_folder(existing[0], folder):
            return _result(home, existing[0], 0)
        to = replace(output, out=join(locations[0], folder))
        try:
            written = job.copy(SequentialOrder(job.table.size), mappings, to, ["append"])
        except OutputExistsError as error:
            raise OutputExistsError(
                f"{home.url_of(folder)} has a part of these samples, of another call: let it end, or repeat "
                "it with the same options if it was killed, or remove the folder"
            ) from error
        with append_lock(home) as is_alone:
            index = _add_to_index(home, folder, is_alone=is_alone)
        return _result(home, index, written.samples)


def _read_index(home: Storage) -> tuple[Index, bytes] | None:
    try:
        data = call_with_retries(partial(home.read, INDEX_NAME))
    except NotFound:
        if call_with_retries(partial(home.exists, PLAN_NAME)):
            raise OutputExistsError(
                f"{home.url} holds an unfinished data set: repeat the call that began it, or remove it with "
                "streamplug delete"
            ) from None
        return None
    return parse_index(data, home.url_of(INDEX_NAME)), data


def _like(output: Output, schema: Schema) -> Output:
    """Fill in None from the options of existing shards.

    Raises:
        ConfigError: If another format is chosen.
    """
    format_ = format_name(schema.entry)
    if output.format not in (None, format_):
        raise ConfigError(
            f"format={output.format!r}: the samples of {public_urls(output.out)} are {format_}; leave it "
            "out, or convert them first"
        )
    return replace(
        output,
        format=format_,
        compression=(schema.compression or "none")
        if output.compression is None
        else output.compression,
        hashes=(schema.entry.get("hashes") or []) if output.hashes is None else output.hashes,
    )


def _encodings_of(schema: Schema, job: DatasetJob, columns: Columns, home: Storage) -> Columns:
    """Return columns that have the encodings of existing shards, unless others are named.

    Raises:
        ConfigError: If the names of the columns differ, or an encoding.
    """
    specs = {column.name: column.spec for column in schema.columns}
    known = select_columns(job.table.columns, columns.rename, columns.select, columns.drop)
    names = [new for _, new in known]
    if missing := [name for name in specs if name not in names and name != schema.format.key]:
        raise ConfigError(
            f"{home.url} has the column {missing[0]!r}, and the samples to append have {', '.join(names)}: "
            "rename a column of theirs, or add one first with streamplug proc"
        )
    if added := [name for name in names if name not in specs]:
        raise ConfigError(
            f"{home.url} has no column {added[0]!r}, which the samples to append have: leave it out with "
            "drop= (--drop), or rename it"
        )
    for name, spec in columns.encodings.items():
        if spec != specs.get(name, spec):
            raise ConfigError(
                f"columns={{{name!r}: {spec!r}}}: {home.url} has {specs[name]!r}; leave it out, or convert "
                "the data set first"
            )
    return replace(columns, encodings={**{n: specs[n] for n in names}, **columns.encodings})


def _digest(job: DatasetJob, mappings: Sequence[ColumnMapping]) -> str:
    what = [[asdict(column) for column in mappings], job.table.identity]
    return blake2s(json.dumps(what, sort_keys=True).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _has_folder(index: Index, folder: str) -> bool:
    shards = range(len(index))
    names = (table.basenames[shard] for table, _ in index.file_tables for shard in shards)
    return any(name.startswith(f"{folder}/") for name in names)


def _add_to_index(home: Storage, folder: str, *, is_alone: bool) -> Index:
    """Add the shards of a folder to the index, as it is now, and return it.

    Shards of the folder have names of their own, so those that another call has added before stay. Unless it
    `is_alone`, the index is compared before it is replaced, and read again afterwards.

    Raises:
        OutputExistsError: If other calls replace the index again and again.
    """
    added, _ = merge_indexes([(home, folder)])
    for _ in range(_MAX_REPLACEMENTS):
        latest = _read_index(home)
        if latest is not None and _has_folder(latest[0], folder):
            return latest[0]
        data = _with_shards(home, folder, latest, added)
        if not is_alone and _is_changed(home, latest):
            continue
        call_with_retries(partial(home.write, INDEX_NAME, data))
        if is_alone or not _is_changed(home, (parse_index(data, home.url_of(INDEX_NAME)), data)):
            return parse_index(data, home.url_of(INDEX_NAME))
    raise OutputExistsError(
        f"{home.url} was changed by others each time that shards were added to its index: repeat the call "
        "when they have ended, which then only replaces the index"
    )


def _with_shards(
    home: Storage, folder: str, latest: tuple[Index, bytes] | None, added: bytes
) -> bytes:
    """Return the index.json with the shards that were `added` in a folder."""
    document: Mapping[str, Any] = {"shards": []}
    if latest is not None:
        for schema in parse_index(added, home.url_of(folder)).schemas:
            for first in latest[0].schemas:
                check_columns(home.url_of(folder), schema, home.url, first)
        document = json.loads(latest[1])
    more = json.loads(added)
    return extend_index(document, more["shards"], more)


def _is_changed(home: Storage, known: tuple[Index, bytes] | None) -> bool:
    found = _read_index(home)
    return (found and found[1]) != (known and known[1])


def _result(home: Storage, index: Index, appended: int) -> AppendResult:
    num_bytes = int(index.stored_shard_bytes.sum())
    return AppendResult(home.url, len(index), index.size, num_bytes, appended)
