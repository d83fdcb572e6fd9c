"""Writing: samples to shards, shards to an index, and both to where they belong."""

from streamplug.write.merge import merge_index
from streamplug.write.partitioned import write_parts
from streamplug.write.table_import import write_from
from streamplug.write.writer import MDSWriter, Writer

__all__ = ["MDSWriter", "Writer", "merge_index", "write_from", "write_parts"]
