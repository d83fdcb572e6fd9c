"""A writer of MDS shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplug.config import suggest_keywords
from streamplug.errors import ConfigError
from streamplug.write.writer import Writer


@suggest_keywords
class MDSWriter(Writer):
    """A `Writer` of MDS shards, the format of mosaicml-streaming; see `Writer`."""

    if not TYPE_CHECKING:  # for types, the arguments are those of `Writer`

        def __init__(
            self,
            *,
            columns: Mapping[str, str] | None = None,
            out: str | Path | tuple[str | Path, str],
            **kwargs: Any,
        ) -> None:
            if "format" in kwargs:
                raise ConfigError("MDSWriter writes MDS; use Writer(format=…) for another format")
            super().__init__(columns=columns, out=out, format="mds", **kwargs)
