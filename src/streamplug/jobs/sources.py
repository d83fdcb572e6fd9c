"""What users name as a source: paths, URLs and streams."""

from __future__ import annotations

from os import PathLike, fspath

from streamplug.jobs.settings import Sources
from streamplug.stream import Stream


def streams(sources: Sources) -> list[Stream]:
    """Return the streams that are meant by a source, or by several."""
    if isinstance(sources, (str, PathLike, Stream)):
        sources = [sources]
    return [each if isinstance(each, Stream) else Stream(remote=fspath(each)) for each in sources]
