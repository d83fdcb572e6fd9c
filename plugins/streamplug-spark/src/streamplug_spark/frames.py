"""Writing of DataFrames as data sets, with a part per partition."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

from streamplug import Storage
from streamplug.config import check_flags
from streamplug.errors import ConfigError, OutputExistsError, WriterError
from streamplug.plugin import (
    absolute_location,
    join,
    local_path,
    open_storage,
    output_locations,
    registrations,
)
from streamplug_spark.partition import MARK, PART_FOLDER, PartitionWriter
from streamplug_spark.schema import encodings_of

Location = str | PathLike[str]

_INDEX = "index.json"
_RESULT = "part bigint, folder string"
_OURS = re.compile(r"streamplug\.errors\.(\w+: .*)")


def write_dataframe(
    dataframe: Any,
    *,
    out: Location | tuple[Location, str],
    columns: Mapping[str, str] | None = None,
    merge: bool = True,
    udf_iterable: Callable[..., Iterable[Mapping[str, Any]]] | None = None,
    udf_kwargs: Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[str]:
    """Write a Spark DataFrame as a data set: its partitions are the parts, in their order.

    Each attempt of a partition writes to its own folder, and the index lists the folders of the attempts
    that Spark accepted. Therefore executors may be lost and tasks may run twice, even with different rows.

    Args:
        dataframe: The DataFrame; ``repartition`` or ``coalesce`` it so that a part has several shards.
        out: A local path that all machines share, a URL, or a pair (local path, URL).
        columns: Encoding by column name; None infers them from the types of the DataFrame.
        merge: Whether to write the index of the whole data set.
        udf_iterable: Function from a pandas DataFrame, some rows of a partition, to samples: dicts
            with the values of `columns`, which are then required.
        udf_kwargs: Keyword arguments for `udf_iterable`.
        exist_ok: Whether to delete the contents of `out`, if it has a data set.
        storage_options: Options of the storage of `out`.
        **options: Further arguments of `streamplug.Writer`, such as ``format`` and ``compression``.

    Returns:
        Locations of the parts, in the order of their samples, as `merge_index` takes them.

    Raises:
        OutputExistsError: If `out` has a data set and not `exist_ok`, or only other files.
        ConfigError: If an argument is invalid, or a type of the DataFrame has no encoding.
        WriterError: If the Spark job fails.
    """
    # Not on the workers, which import this module.
    from streamplug_tools.merge import merge_index
    from streamplug_tools.partitioned import check_writer_options

    check_flags(merge=merge, exist_ok=exist_ok)
    if udf_kwargs and udf_iterable is None:
        raise ConfigError("udf_kwargs= are arguments of udf_iterable=, which is not given")
    if udf_iterable is None:
        columns = _checked(dataframe, columns)
        names = [f"`{name.replace('`', '``')}`" for name in columns]
        dataframe = dataframe.select(*names)
    elif columns is None:
        raise ConfigError("columns= is needed: only udf_iterable= knows what it makes of the rows")
    locations = tuple(
        map(absolute_location, output_locations(out))
    )  # executors run in other directories
    home = open_storage(locations[-1], storage_options)
    check_writer_options(columns, options)
    keep = len(locations) == 1 or bool(options.get("keep_local"))
    homes = [home] if len(locations) == 1 or not keep else [open_storage(locations[0]), home]
    mark = _begin(homes, exist_ok=exist_ok)
    udf = partial(udf_iterable, **(udf_kwargs or {})) if udf_iterable else None
    writer = PartitionWriter(
        locations, dict(columns), mark, udf, storage_options, options, registrations()
    )
    if udf is None:
        result = dataframe.mapInArrow(writer.of_arrow, _RESULT)
    else:
        result = dataframe.mapInPandas(writer.of_pandas, _RESULT)
    folders = _collected(result)
    for place in homes:
        for info in list(place.list("part-")):  # of attempts that Spark discarded
            folder = info.key.partition("/")[0]
            if PART_FOLDER.fullmatch(folder) and folder not in folders:
                place.delete(info.key)
    parts = [join(locations[-1], folder) for folder in folders]
    if merge:
        merge_index(parts, locations, keep_local=keep, storage_options=storage_options)
    home.delete(MARK)
    return parts


def dataframe_to_mds(
    dataframe: Any,
    merge_index: bool = True,
    mds_kwargs: Mapping[str, Any] | None = None,
    udf_iterable: Callable[..., Iterable[Mapping[str, Any]]] | None = None,
    udf_kwargs: Mapping[str, Any] | None = None,
) -> tuple[str, str]:
    """Write a DataFrame as MDS shards, with the arguments of mosaicml-streaming's function.

    Args:
        dataframe: The DataFrame.
        merge_index: Whether to write the index of the whole data set.
        mds_kwargs: Arguments of `write_dataframe`, including `out`.
        udf_iterable: As for `write_dataframe`.
        udf_kwargs: As for `write_dataframe`.

    Returns:
        The local path and the URL of the data set; an empty string for one that was not given.

    Raises:
        StreamplugError: As `write_dataframe`.
    """
    options = dict(mds_kwargs or {})
    if "out" not in options:
        raise ConfigError("mds_kwargs= names no `out`: say where the data set shall be")
    write_dataframe(
        dataframe, merge=merge_index, udf_iterable=udf_iterable, udf_kwargs=udf_kwargs, **options
    )
    locations = tuple(map(absolute_location, output_locations(options["out"])))
    if len(locations) > 1:
        return locations[0], locations[1]
    return (locations[0], "") if local_path(locations[0]) is not None else ("", locations[0])


def _checked(dataframe: Any, columns: Mapping[str, str] | None) -> Mapping[str, str]:
    if columns is None:
        return encodings_of(dataframe.schema)
    if missing := sorted(set(columns) - set(dataframe.schema.names)):
        raise ConfigError(
            f"columns= names {', '.join(map(repr, missing))}, which the DataFrame has not; it has "
            f"{', '.join(map(repr, dataframe.schema.names))}"
        )
    return columns


def _begin(homes: Sequence[Storage], *, exist_ok: bool) -> bytes:
    """Clear the output, and write a marker to the last location, which executors must find."""
    from streamplug_tools.dataset_removal import check_empty

    old: dict[Storage, list[str]] = {}
    for home in homes:
        keys = [info.key for info in home.list("")]
        # Parts without an index of all are written by merge=False.
        parts = [key for key in keys if PART_FOLDER.fullmatch(key.partition("/")[0])]
        if not (_INDEX in keys or MARK in keys or parts):
            check_empty(home)
            continue
        if not exist_ok:
            raise OutputExistsError(
                f"{home.url} already holds a data set, or a part of one; choose another place, or pass "
                "exist_ok=True to replace it"
            )
        old[home] = keys
    for home, keys in old.items():  # once all are checked
        for key in keys:
            home.delete(key)
    mark = json.dumps({"dataframe": uuid.uuid4().hex, "version": 1}).encode()
    homes[-1].write(MARK, mark)
    return mark


def _collected(result: Any) -> list[str]:
    """Run the job; return the folders of the parts, in their order."""
    try:
        rows = result.collect()
    except Exception as error:  # the type depends on the version and the failure
        ours = _OURS.search(str(error))
        raise WriterError(f"Spark gave up: {ours[1] if ours else error}") from error
    return [row["folder"] for row in sorted(rows, key=lambda row: row["part"])]
