"""HTML pages about data sets."""

from __future__ import annotations

from streamplug.config import suggest_keywords
from streamplug.stream import Stream
from streamplug_tools.options import Location
from streamplug_tools.report.inline_page import InlinePage
from streamplug_tools.report.page import page
from streamplug_tools.statistics import collect_statistics

__all__ = ["InlinePage", "page_about"]


@suggest_keywords
def page_about(
    source: Location | Stream,
    *,
    samples: int = 3,
    measured: int = 256,
    allow_unsafe_types: bool = False,
) -> InlinePage:
    """Return an HTML page about a data set: shards, sizes, columns and some samples.

    A notebook shows the page if the call is the last line of a cell. In other programs the page is a str.

    The page is one file without network access. Data is shown as text or as images encoded again, and never
    runs. The work is bounded for any size of data set.

    Args:
        source: A path, a URL or a stream.
        samples: Number of samples to show, spread over the data set.
        measured: Approximate number of samples to measure, from up to 24 shards, from fewer if they must be
            downloaded. With 0 for both, only the index is read.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.

    Raises:
        ConfigError: If the stream selects rows.
        StreamplugError: If it has no index that can be used.
    """
    statistics = collect_statistics(
        source, samples=samples, measured=measured, allow_unsafe_types=allow_unsafe_types
    )
    return InlinePage(page(statistics))
