"""DataFrames to data sets: each partition is a part."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from typing import Any

from streamplug import Storage, merge_index
from streamplug.errors import ConfigError, OutputExistsError, WriterError
from streamplug.plugin import open_storage
from streamplug.plugin.location import absolute_location, join, local_path, output_locations
from streamplug_spark.partition import MARK, PartitionWriter
from streamplug_spark.schema import encodings_of

Place = str | PathLike[str]

_INDEX = "index.json"
_RESULT = "part bigint, folder string"
_OURS = re.compile(r"streamplug\.errors\.(\w+: .*)")


def write_dataframe(
    dataframe: Any,
    *,
    out: Place | tuple[Place, str],
    columns: Mapping[str, str] | None = None,
    merge: bool = True,
    udf_iterable: Callable[..., Iterable[Mapping[str, Any]]] | None = None,
    udf_kwargs: Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[str]:
    """Write a DataFrame of Spark as a data set: its partitions are the parts, in their order.

    Each attempt of a partition has a folder of its own; the index names those of the attempts that Spark
    took. So an executor may be lost, and tasks may be run twice, whatever rows they get.

    Args:
        dataframe: The DataFrame; ``repartition`` or ``coalesce`` it so that a part makes several shards.
        out: A local path that all machines share, a URL, or a pair (local path, URL).
        columns: Encoding of each column by its name; None guesses them by the types of the DataFrame.
        merge: Whether to write the index of the whole.
        udf_iterable: Called with a pandas DataFrame, some rows of a partition, it returns samples: dicts
            with the values of `columns`, which then must be given.
        udf_kwargs: Further arguments for it.
        exist_ok: Whether to remove what is in `out`.
        storage_options: Settings of the storage that is uploaded to.
        **options: Further arguments of `streamplug.Writer`, such as ``format`` and ``compression``.

    Returns:
        The places of the parts, in the order of their samples, as `merge_index` takes them.

    Raises:
        OutputExistsError: If there is something in `out` and not `exist_ok`.
        ConfigError: If an argument has no meaning, or a type of the DataFrame no encoding.
        WriterError: If Spark gives up.
    """
    if udf_iterable is None:
        columns = _checked(dataframe, columns)
        names = [f"`{name.replace('`', '``')}`" for name in columns]
        dataframe = dataframe.select(*names)
    elif columns is None:
        raise ConfigError("columns= is needed: only udf_iterable= knows what it makes of the rows")
    places = tuple(
        map(absolute_location, output_locations(out))
    )  # executors run in other directories
    home = open_storage(places[-1], storage_options)
    mark = _begin(home, exist_ok=exist_ok)
    udf = partial(udf_iterable, **(udf_kwargs or {})) if udf_iterable else None
    writer = PartitionWriter(places, dict(columns), mark, udf, storage_options, options)
    if udf is None:
        result = dataframe.mapInArrow(writer.of_arrow, _RESULT)
    else:
        result = dataframe.mapInPandas(writer.of_pandas, _RESULT)
    folders = _collected(result)
    for info in list(home.list("part-")):  # of attempts that Spark did not take
        if info.key.partition("/")[0] not in folders:
            home.delete(info.key)
    parts = [join(places[-1], folder) for folder in folders]
    if merge:
        keep = len(places) == 1 or bool(options.get("keep_local"))
        merge_index(parts, places, keep_local=keep, storage_options=storage_options)
    home.delete(MARK)
    return parts


def dataframe_to_mds(
    dataframe: Any,
    merge_index: bool = True,
    mds_kwargs: Mapping[str, Any] | None = None,
    udf_iterable: Callable[..., Iterable[Mapping[str, Any]]] | None = None,
    udf_kwargs: Mapping[str, Any] | None = None,
) -> tuple[str, str]:
    """Write a DataFrame as MDS shards, with the arguments that mosaicml-streaming has for it.

    Args:
        dataframe: The DataFrame.
        merge_index: Whether to write the index of the whole.
        mds_kwargs: Arguments of `write_dataframe`, `out` among them.
        udf_iterable: As for `write_dataframe`.
        udf_kwargs: As for `write_dataframe`.

    Returns:
        The local and the remote place of the data set; an empty text for the one that there is not.

    Raises:
        StreamplugError: As `write_dataframe`.
    """
    given = dict(mds_kwargs or {})
    if "out" not in given:
        raise ConfigError("mds_kwargs= names no `out`: say where the data set shall be")
    write_dataframe(
        dataframe, merge=merge_index, udf_iterable=udf_iterable, udf_kwargs=udf_kwargs, **given
    )
    places = tuple(map(absolute_location, output_locations(given["out"])))
    if len(places) > 1:
        return places[0], places[1]
    return (places[0], "") if local_path(places[0]) is not None else ("", places[0])


def _checked(dataframe: Any, columns: Mapping[str, str] | None) -> Mapping[str, str]:
    if columns is None:
        return encodings_of(dataframe.schema)
    if missing := sorted(set(columns) - set(dataframe.schema.names)):
        raise ConfigError(
            f"columns= names {', '.join(map(repr, missing))}, which the DataFrame has not; it has "
            f"{', '.join(map(repr, dataframe.schema.names))}"
        )
    return columns


def _begin(home: Storage, *, exist_ok: bool) -> bytes:
    """Make room, and leave a mark that executors must find."""
    if home.exists(_INDEX) or home.exists(MARK):
        if not exist_ok:
            raise OutputExistsError(
                f"{home.url} already holds a data set, or a part of one; choose another place, or pass "
                "exist_ok=True to replace it"
            )
        for info in list(home.list("")):
            home.delete(info.key)
    mark = json.dumps({"dataframe": uuid.uuid4().hex, "version": 1}).encode()
    home.write(MARK, mark)
    return mark


def _collected(result: Any) -> list[str]:
    """Run the job; return the folders of the parts, in their order."""
    try:
        rows = result.collect()
    except Exception as error:  # which one depends on the version, and on what failed where
        ours = _OURS.search(str(error))
        raise WriterError(f"Spark gave up: {ours[1] if ours else error}") from error
    return [row["folder"] for row in sorted(rows, key=lambda row: row["part"])]
