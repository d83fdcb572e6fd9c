"""Writers of data sets."""

from streamplug.write.columns import format_of, make_columns, make_encoder
from streamplug.write.destination import delete_durably, quote_names
from streamplug.write.input_adapters import Batch, iterate_batches, to_plain_values
from streamplug.write.mds_writer import MDSWriter
from streamplug.write.writer import Writer

__all__ = [
    "Batch",
    "MDSWriter",
    "Writer",
    "delete_durably",
    "format_of",
    "iterate_batches",
    "make_columns",
    "make_encoder",
    "quote_names",
    "to_plain_values",
]
