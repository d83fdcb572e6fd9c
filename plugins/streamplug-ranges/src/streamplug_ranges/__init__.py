"""Reading of samples by range requests, without downloading whole shards.

Formats that are stored column by column in row groups subclass `RowGroupFormat`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_ranges.header_sizes import read_header_sizes as read_header_sizes
    from streamplug_ranges.range_reader import RangeReader as RangeReader
    from streamplug_ranges.range_shards import RangeShards as RangeShards
    from streamplug_ranges.row_group_shards import RowGroupShards as RowGroupShards
    from streamplug_ranges.row_groups import RangeFile as RangeFile
    from streamplug_ranges.row_groups import RowGroupFormat as RowGroupFormat
    from streamplug_ranges.row_groups import RowGroupReader as RowGroupReader
    from streamplug_ranges.spans import coalesce_ranges as coalesce_ranges
    from streamplug_ranges.value_sizes import ValueSizes as ValueSizes
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "header_sizes": "read_header_sizes",
            "range_reader": "RangeReader",
            "range_shards": "RangeShards",
            "row_group_shards": "RowGroupShards",
            "row_groups": "RangeFile RowGroupFormat RowGroupReader",
            "spans": "coalesce_ranges",
            "value_sizes": "ValueSizes",
        },
    )
