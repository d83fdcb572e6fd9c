"""Writing of one DataFrame partition as a part; runs on executors."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamplug_files import PLAN_NAME, to_python

from streamplug import Writer
from streamplug.errors import ConfigError, DataError, EncodeError, NotFound
from streamplug.plugin import Registrations, join, open_storage, restore

MARK = PLAN_NAME
"""Name of the marker file that identifies the job that writes to a location."""

PART_FOLDER = re.compile("part-[0-9]{5,}-[0-9a-f]{12}")


@dataclass(frozen=True)
class PartitionWriter:
    """Writes a partition to a folder of the current task attempt.

    Attributes:
        places: Location of the data set: a path, a URL, or both.
        columns: Encoding by column name.
        mark: Content of the marker file.
        udf: Function from pandas DataFrames to samples; None writes the columns unchanged.
        storage_options: Options of the storage, such as credentials; not part of the repr.
        options: Further arguments of `Writer`.
        registered: Plugins registered by name in the process of the driver.
    """

    locations: tuple[str, ...] = field(repr=False)
    columns: Mapping[str, str]
    mark: bytes
    udf: Callable[[Any], Iterable[Mapping[str, Any]]] | None
    storage_options: Mapping[str, Any] | None = field(repr=False)
    options: Mapping[str, Any]
    registered: Registrations = field(default_factory=dict)

    def of_arrow(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write Arrow batches; yield the number of the partition and its folder."""
        import pyarrow as pa

        part, folder = self._write(batches)
        yield pa.RecordBatch.from_pydict({"part": [part], "folder": [folder]})

    def of_pandas(self, frames: Iterable[Any]) -> Iterator[Any]:
        """Write pandas DataFrames; yield the number of the partition and its folder."""
        import pandas as pd

        part, folder = self._write(frames)
        yield pd.DataFrame({"part": [part], "folder": [folder]})

    def _write(self, batches: Iterable[Any]) -> tuple[int, str]:
        from pyspark import TaskContext

        restore(self.registered)
        self._check()
        part: int = TaskContext.get().partitionId()
        folder = f"part-{part:05d}-{uuid.uuid4().hex[:12]}"
        out = tuple(join(location, folder) for location in self.locations)
        with Writer(
            columns=self.columns,
            out=(out[0], out[1]) if len(out) > 1 else out[0],
            storage_options=self.storage_options,
            **self.options,
        ) as writer:
            for batch in batches:
                if self.udf is None:
                    writer.write_batch({name: _values(batch, name) for name in self.columns})
                    continue
                for sample in self.udf(batch):
                    writer.write(sample)
        return part, folder

    def _check(self) -> None:
        home = open_storage(self.locations[-1], self.storage_options)
        try:
            mark = home.read(MARK)
        except NotFound:
            mark = b""
        if mark != self.mark:
            raise ConfigError(
                f"{socket.gethostname()} finds nothing from the driver in {home.url}: all machines need "
                "the same out=, a URL or a directory of a shared file system"
            )


def _values(batch: Any, name: str) -> Any:
    """Return a column of an Arrow batch: an array for numbers, else a list."""
    import pyarrow.types as kinds

    column = batch.column(name)
    numbers = kinds.is_integer(column.type) or kinds.is_floating(column.type)
    if numbers and not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    if kinds.is_list(column.type):
        element = column.type.value_type
        if kinds.is_integer(element) or kinds.is_floating(element):
            return [_array(name, values) for values in column]
    try:
        return to_python(column)
    except DataError as error:
        raise EncodeError(f"column {name!r}: {error}") from error


def _array(name: str, values: Any) -> Any:
    if values.values is None:
        return None
    if values.values.null_count:
        raise EncodeError(f"column {name!r}: an array has a null in it, which ndarray cannot hold")
    return values.values.to_numpy(zero_copy_only=False)
