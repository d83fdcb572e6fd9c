"""Writers of data sets, and merging of their indexes."""

from streamplug.write.merge import merge_index
from streamplug.write.partitioned import write_parts
from streamplug.write.table_import import write_from
from streamplug.write.writer import MDSWriter, Writer

__all__ = ["MDSWriter", "Writer", "merge_index", "write_from", "write_parts"]
