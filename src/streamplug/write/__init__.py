"""Writers of data sets."""

from streamplug.write.columns import format_of, make_columns, make_encoder
from streamplug.write.destination import delete_durably, quote_names
from streamplug.write.mds_writer import MDSWriter
from streamplug.write.writer import Writer

__all__ = [
    "MDSWriter",
    "Writer",
    "delete_durably",
    "format_of",
    "make_columns",
    "make_encoder",
    "quote_names",
]
