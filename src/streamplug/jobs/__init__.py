"""Jobs on whole data sets, of any format and size: what the commands do."""

from streamplug.jobs.convert import convert
from streamplug.jobs.diff import Difference, Differing, diff
from streamplug.jobs.expressions import Expression
from streamplug.jobs.inspection import Inspected, Kind, inspect
from streamplug.jobs.join import join
from streamplug.jobs.printing import as_lines
from streamplug.jobs.process import process, process_by
from streamplug.jobs.reorder import select, shuffle, sort, split_by_fractions, split_by_size
from streamplug.jobs.settings import Columns, Output, Written

__all__ = [
    "Columns",
    "Difference",
    "Differing",
    "Expression",
    "Inspected",
    "Kind",
    "Output",
    "Written",
    "as_lines",
    "convert",
    "diff",
    "inspect",
    "join",
    "process",
    "process_by",
    "select",
    "shuffle",
    "sort",
    "split_by_fractions",
    "split_by_size",
]
