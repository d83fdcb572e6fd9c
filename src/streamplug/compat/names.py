"""What mosaicml-streaming calls its things: the same names, parameters and defaults, on streamplug."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

import streamplug
from streamplug.compat import MODULES
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
_WELL_KNOWN = [
    *MODULES["streaming.multimodal"],
    *MODULES["streaming.text"],
    *MODULES["streaming.vision"],
]

MDSWriter = streamplug.MDSWriter
Stream = streamplug.Stream


@dataclass(frozen=True)
class Shard:
    """What a program asks of a shard.

    Attributes:
        samples: How many samples it has.
    """

    samples: int

    def __len__(self) -> int:
        return self.samples

    @property
    def size(self) -> int:
        """How many samples it has, by another name."""
        return self.samples


class StreamingDataset(streamplug.StreamingDataset):
    """A `streamplug.StreamingDataset` with the defaults of mosaicml-streaming, whose order it has.

    A subclass may override `get_item`, through which all samples then go.

    Args:
        stream_name: Not there: there is no registry of streams.
        stream_config: Likewise.
        partition_algo: As for `streamplug.StreamingDataset`.
        shuffle_algo: Likewise.
        samples_per_epoch: What its README calls `epoch_size`.
        **kwargs: The others.

    Raises:
        ConfigError: If a stream is named, an epoch has two sizes, or as for `streamplug.StreamingDataset`.
    """

    def __init__(
        self,
        *,
        stream_name: str = "stream",
        stream_config: dict[str, Any] | None = None,
        partition_algo: str = "relaxed",
        shuffle_algo: str = "py1e",
        samples_per_epoch: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        if samples_per_epoch is not None:
            if kwargs.get("epoch_size") is not None:
                raise ConfigError(
                    "give either epoch_size= or samples_per_epoch=, which mean the same"
                )
            # 1e8 is a float in Python.
            whole = isinstance(samples_per_epoch, float) and samples_per_epoch.is_integer()
            kwargs["epoch_size"] = int(samples_per_epoch) if whole else samples_per_epoch
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

    @property
    def shards(self) -> list[Shard]:
        """The shards of all streams; worked out at each call."""
        return [Shard(samples) for samples in self.samples_per_shard.tolist()]

    @property
    def num_streams(self) -> int:
        """Number of streams."""
        return len(self.streams)

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


class _OfItsDefaults(streamplug.StreamingDataset):
    """The defaults that its classes of well-known data sets have."""

    def __init__(
        self,
        *,
        partition_algo: str = "orig",
        shuffle_algo: str = "py1s",
        shuffle_block_size: int = 1 << 18,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            partition_algo=partition_algo,
            shuffle_algo=shuffle_algo,
            shuffle_block_size=shuffle_block_size,
            **kwargs,
        )


@cache
def _well_known(name: str) -> type:
    ours = _of_plugin(name, "streamplug_datasets")
    return type(name, (_OfItsDefaults, ours), {"__doc__": ours.__doc__, "__module__": __name__})


def __getattr__(name: str) -> Any:
    if name == "StreamingDataLoader":
        return streamplug.StreamingDataLoader
    if name in _WELL_KNOWN:
        return _well_known(name)
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
