"""Writers of data sets."""

from streamplug.write.destination import delete_durably, quote_names
from streamplug.write.writer import MDSWriter, Writer, format_of, make_columns, make_encoder

__all__ = [
    "MDSWriter",
    "Writer",
    "delete_durably",
    "format_of",
    "make_columns",
    "make_encoder",
    "quote_names",
]
