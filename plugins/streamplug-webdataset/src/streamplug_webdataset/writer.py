"""Writer of tar archives with the options of webdataset's writers, on the general writer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplug import Writer
from streamplug.config import check_keywords
from streamplug.errors import ConfigError, EncodeTypeError
from streamplug.plugin import absolute_location, output_locations
from streamplug_webdataset.extensions import encoding_of
from streamplug_webdataset.names import KEY


class WebDatasetWriter:
    """Writes samples into tar archives, and an index.json that spares their readers looking into them.

    Use it in a ``with`` statement, as `streamplug.Writer`, which does the work. A sample is a dict of
    values by extension, ``"__key__"`` being its name; without one, it is the number of the sample in the
    data set. A value of None is not written. How values are stored follows from their extension where
    `columns` does not say it.

    Args:
        out: A local path, a URL, or a pair (local path, URL).
        columns: Encoding of the values by their extension; None takes the extensions of the first
            sample that is written, and what is usual for each; with `append`, those of the data set.
        maxcount: Samples of an archive after which the next is begun; None for any number.
        maxsize: Size of an archive above which the next is begun: bytes, or text such as ``"1gb"``.
            An archive is put together in memory.
        mtime: The time that is written into archives, in seconds since 1970. The same for all, so that
            the same samples give the same bytes.
        **options: Further ones of `streamplug.Writer`, such as `compression` and `hashes`.

    Raises:
        ConfigError: If an argument has no meaning.
        OutputExistsError: If there is something in `out`.
    """

    def __init__(
        self,
        out: str | Path | tuple[str | Path, str],
        *,
        columns: Mapping[str, str] | None = None,
        maxcount: int | None = 100_000,
        maxsize: int | str | None = 1 << 28,
        mtime: int = 0,
        **options: Any,
    ) -> None:
        check_keywords(Writer, options, type(self))
        if taken := sorted({"format", "size_limit", "max_samples_per_shard"} & options.keys()):
            raise ConfigError(
                f"{', '.join(taken)}: WebDatasetWriter has maxsize= and maxcount=, and one format"
            )
        if isinstance(mtime, bool) or not isinstance(mtime, int):
            raise ConfigError(f"mtime={mtime!r}: expected whole seconds since 1970")
        self._options = {
            **options,
            # It is opened with the first sample; the working directory may change until then.
            "out": tuple(map(absolute_location, output_locations(out))),
            "format": f"webdataset:mtime={mtime}",
            "max_samples_per_shard": maxcount,
            "size_limit": maxsize,
        }
        self._count = 0
        self._writer: Writer | None = None
        if columns is not None or options.get("append"):
            self._writer = self._begun(columns)

    def _begun(self, columns: Mapping[str, str] | None) -> Writer:
        own = None if columns is None else {KEY: "str", **columns}
        return Writer(columns=own, **self._options)

    def write(self, sample: Mapping[str, Any]) -> None:
        """Write one sample.

        Args:
            sample: Its values by extension; those of ``__key__`` and all columns, or None.

        Raises:
            EncodeError: If it has not the extensions of the others, or a value cannot be stored.
            WriterError: If the data set is already complete.
        """
        if not isinstance(sample, Mapping):
            raise EncodeTypeError(
                f"a sample is a dict, got {type(sample).__name__}: {sample!r:.80}"
            )
        writer = self._writer
        if writer is None:
            names = [name for name in sample if name != KEY]
            writer = self._begun({name: default_encoding(name, sample[name]) for name in names})
        if KEY not in sample:
            number = writer.num_existing_samples + self._count
            sample = {KEY: f"{number:09d}", **sample}
        try:
            writer.write(sample)
        except BaseException as error:
            if self._writer is None:  # the columns are those of the first sample that is written
                writer.__exit__(type(error), error, None)
            raise
        self._writer = writer
        self._count += 1

    def finish(self) -> None:
        """Complete the data set: write the last archive, then the index. May be called twice.

        Raises:
            ConfigError: If there are no samples, and so nothing says which columns there are.
            StorageError: If an upload fails.
        """
        if self._writer is None:
            raise ConfigError(
                "no sample was written; pass columns= to write a data set without any"
            )
        self._writer.finish()

    def __enter__(self) -> WebDatasetWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.finish()
        elif self._writer is not None:
            self._writer.__exit__(kind, error, traceback)


def default_encoding(extension: str, value: Any) -> str:
    """Return the encoding for an extension; bytes are stored as they are, whatever it is."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    return encoding_of(str(extension), images=True)


if not TYPE_CHECKING:  # else any name would be one of the module

    def __getattr__(name: str) -> Any:
        # Writers of archives without an index, which programs look for here.
        if name in ("ShardWriter", "TarWriter"):
            return getattr(import_module("streamplug_webdataset.tarwriter"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
