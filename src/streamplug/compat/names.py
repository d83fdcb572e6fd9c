"""What mosaicml-streaming calls its things: the same names, parameters and defaults, on streamplug."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

import streamplug
from streamplug.config import parse_bytes, parse_count
from streamplug.errors import ConfigError

_LOG = logging.getLogger("streamplug")

_PLUGINS = {
    "CSVWriter": "streamplug_text",
    "JSONWriter": "streamplug_text",
    "TSVWriter": "streamplug_text",
    "XSVWriter": "streamplug_text",
    "dataframe_to_mds": "streamplug_spark",
}

MDSWriter = streamplug.MDSWriter
Stream = streamplug.Stream


class StreamingDataset(streamplug.StreamingDataset):
    """A `streamplug.StreamingDataset` with the defaults of mosaicml-streaming, whose order it has.

    A subclass may override `get_item`, through which all samples then go.

    Args:
        stream_name: Not there: there is no registry of streams.
        stream_config: Likewise.
        partition_algo: As for `streamplug.StreamingDataset`.
        shuffle_algo: Likewise.
        **kwargs: The others.

    Raises:
        ConfigError: If a stream is named; and as for `streamplug.StreamingDataset`.
    """

    def __init__(
        self,
        *,
        stream_name: str = "stream",
        stream_config: dict[str, Any] | None = None,
        partition_algo: str = "relaxed",
        shuffle_algo: str = "py1e",
        **kwargs: Any,
    ) -> None:
        if stream_name != "stream":
            raise ConfigError(
                f"stream_name={stream_name!r}: there is no registry of streams; make the streams "
                "yourself, and pass streams="
            )
        for name, value in (stream_config or {}).items():
            if kwargs.setdefault(name, value) != value:
                raise ConfigError(f"{name}={kwargs[name]!r}, but stream_config says {value!r}")
        super().__init__(partition_algo=partition_algo, shuffle_algo=shuffle_algo, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Only then: samples of a data set that has a __getitem__ of its own are read one by one.
        if "get_item" in cls.__dict__ and "__getitem__" not in cls.__dict__:
            cls.__getitem__ = _through_get_item  # type: ignore[method-assign]  # it is made for that

    def get_item(self, sample_id: int, retry: int = 7) -> Any:  # noqa: ARG002 - downloads are tried again anyway
        """Return a sample.

        Args:
            sample_id: Which.
            retry: Means nothing: how often a download is tried again is said by `download_retry`.

        Raises:
            IndexError: If there is no such sample.
        """
        return streamplug.StreamingDataset.__getitem__(self, sample_id)


def _through_get_item(self: Any, at: Any) -> Any:
    if isinstance(at, slice):
        return [self[index] for index in range(*at.indices(self.size))]
    if isinstance(at, (list, np.ndarray)):
        return [self[index] for index in at]
    if not -self.size <= at < self.size:
        raise IndexError(f"there is no sample {at}: the data set has {self.size}")
    return self.get_item(int(at) % self.size)


class LocalDataset:
    """The samples of a data set that lies on this machine, by their numbers.

    Args:
        local: Its directory.
        split: Sub-directory of it.

    Attributes:
        size: Number of samples.
    """

    def __init__(self, local: str, split: str | None = None) -> None:
        self._dataset = streamplug.StreamingDataset(local=local, split=split)
        self.size = self._dataset.size

    def __len__(self) -> int:
        return self.size

    def get_item(self, sample_id: int) -> Any:
        """Return a sample.

        Raises:
            IndexError: If there is no such sample.
        """
        return self._dataset[sample_id]

    def __getitem__(self, at: Any) -> Any:
        return _through_get_item(self, at)

    def __iter__(self) -> Iterator[Any]:
        return map(self.get_item, range(self.size))


def merge_index(*args: Any, **kwargs: Any) -> None:
    """Write the index of a data set of parts: ``merge_index(parts, out, …)`` or ``merge_index(out, …)``.

    Args:
        *args: ``index_file_urls`` if there are some, ``out``, ``keep_local``, ``download_timeout``.
        **kwargs: Those that are given by name.
    """
    names = ["index_file_urls", "out", "keep_local", "download_timeout"]
    if not (args and isinstance(args[0], list)):
        del names[0]
    given = {**dict(zip(names, args)), **kwargs}
    places = [given.pop(name) for name in ("index_file_urls", "out") if name in given]
    streamplug.merge_index(*places, **given)


def clean_stale_shared_memory() -> None:
    """Say that there is nothing to do."""
    _LOG.warning(
        "clean_stale_shared_memory() does nothing: streamplug leaves no shared memory behind"
    )


def bytes_to_int(bytes_str: int | str) -> int:
    """Return a number of bytes, such as of ``"64mb"``."""
    return parse_bytes(bytes_str, "bytes_str")


def number_abbrev_to_int(abbrev_str: int | str) -> int:
    """Return a number of samples, such as of ``"100k"``."""
    return parse_count(abbrev_str, "abbrev_str")


def __getattr__(name: str) -> Any:
    if name == "StreamingDataLoader":
        return streamplug.StreamingDataLoader
    if name not in _PLUGINS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _of_plugin(name, _PLUGINS[name])


def _of_plugin(name: str, module: str) -> Any:
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        distribution = module.replace("_", "-")
        raise ImportError(f"{name} comes with a plugin: pip install {distribution}") from None
    return found
