"""Validation of names in a config, such as that of a shuffle or a compression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from streamplug.config import parse_bytes, to_plain
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StreamplugError
from streamplug.index import chosen_hashes
from streamplug.interfaces import Callback
from streamplug.plugin import open_storage, output_locations, resolve, split_spec
from streamplug.source import OpenSources
from streamplug.transfer import Observer
from streamplug.write import Writer, format_of, make_columns


class _AllChecked(Exception):
    """All arguments are valid, and reading or writing would start."""


class _Unopened(StreamingDataset):
    """A data set that validates its arguments and names, but reads nothing."""

    def open_streams(self, observer: Observer) -> OpenSources:
        raise _AllChecked


class _UnopenedWriter(Writer):
    """A writer that validates its arguments, but writes nothing."""

    def _open_destination(self, out: Any, **options: Any) -> NoReturn:
        raise _AllChecked


def check_dataset(config: Mapping[str, Any], of: type[StreamingDataset], key: str) -> None:
    """Validate the section `key` of a data set as its constructor does, without reading anything."""
    section = config.get("dataset", config) if key else config
    with _named(key):
        for callback in section.get("callbacks") or ():
            if not isinstance(callback, Callback):  # not constructed: some open ports
                resolve("callback", split_spec("callback", str(callback))[0])
        # `_Unopened` precedes `of` in the MRO, so that its `open_streams` is called.
        unopened: type[StreamingDataset] = type(of.__name__, (_Unopened, of), {})
        try:
            unopened.from_config(config, callbacks=())
        except _AllChecked:
            return


def check_writer(section: Mapping[str, Any], key: str) -> None:
    """Validate the section `key` of a writer as its constructor does, without writing anything."""
    options: Mapping[str, Any] = to_plain(dict(section))
    with _named(f"{key}.format"):
        format_ = format_of(options.get("format", "mds"))
    if options.get("columns") is not None:
        with _named(f"{key}.columns"):
            make_columns(options["columns"], format_)
    if options.get("compression") is not None:
        with _named(f"{key}.compression"):
            resolve("compression", split_spec("compression", options["compression"])[0])
    with _named(f"{key}.hashes"):
        chosen_hashes(options.get("hashes"))
    if options.get("size_limit") is not None:
        with _named(f"{key}.size_limit"):
            parse_bytes(options["size_limit"], "size_limit")
    with _named(f"{key}.out"):
        out = options["out"]
        for location in output_locations(tuple(out) if isinstance(out, list) else out):
            open_storage(location, options.get("storage_options"))
    appends = options.get("append") and not options.get("exist_ok")
    if appends and options.get("columns") is None:
        return  # the columns are those of the data set, which is not read here
    with _named(key), suppress(_AllChecked):
        _UnopenedWriter.from_config(
            {"writer": {**section, **({"append": False} if appends else {})}}
        )


@contextmanager
def _named(key: str) -> Iterator[None]:
    try:
        yield
    except StreamplugError as error:
        text = str(error)
        raise ConfigError(text if not key or text.startswith(key) else f"{key}: {text}") from error
