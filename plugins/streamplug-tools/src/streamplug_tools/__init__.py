"""Jobs on whole data sets of any format and size."""

from streamplug_tools.comparison import Difference, SampleDifference, diff
from streamplug_tools.expressions import Expression
from streamplug_tools.inspection import DatasetInfo, ShardKind, inspect
from streamplug_tools.join_by_key import join
from streamplug_tools.json_lines import as_lines
from streamplug_tools.options import Columns, Output, WriteResult
from streamplug_tools.processing import process, process_with
from streamplug_tools.report import page_about
from streamplug_tools.transforms import (
    convert,
    select,
    shuffle,
    sort,
    split_by_fractions,
    split_by_size,
)

__all__ = [
    "Columns",
    "DatasetInfo",
    "Difference",
    "Expression",
    "Output",
    "SampleDifference",
    "ShardKind",
    "WriteResult",
    "as_lines",
    "convert",
    "diff",
    "inspect",
    "join",
    "page_about",
    "process",
    "process_with",
    "select",
    "shuffle",
    "sort",
    "split_by_fractions",
    "split_by_size",
]
