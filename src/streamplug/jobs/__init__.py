"""Jobs on whole data sets, of any format and size: what the commands do."""

from streamplug.jobs.convert import convert
from streamplug.jobs.copying import Columns, Output, Written

__all__ = ["Columns", "Output", "Written", "convert"]
