"""Pages about data sets: one file each, that needs nothing else and runs nothing of the data."""

from __future__ import annotations

from streamplug.stream import Stream
from streamplug_tools.options import Place
from streamplug_tools.report.page import page
from streamplug_tools.statistics import collect_statistics

__all__ = ["page_about"]


def page_about(
    source: Place | Stream,
    *,
    samples: int = 3,
    measured: int = 256,
    allow_unsafe_types: bool = False,
) -> str:
    """Return a page of HTML about a data set: its shards, sizes, columns and some of its samples.

    The page is one file and asks nobody for anything. Whatever the data has in it is text there, or an
    image drawn anew, never something that runs. The work has a limit, however large the set is.

    Args:
        source: A path, a URL or a stream.
        samples: How many of its first samples to show.
        measured: Of about how many samples to tell sizes, lengths and values; with 0 for both, nothing
            but the index is read. They are of up to 24 shards, of fewer if shards must be fetched.
        allow_unsafe_types: Whether to decode what can run code.

    Raises:
        StreamplugError: If it has no index that can be used.
    """
    return page(
        collect_statistics(
            source, samples=samples, measured=measured, allow_unsafe_types=allow_unsafe_types
        )
    )
