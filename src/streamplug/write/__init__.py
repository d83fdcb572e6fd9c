"""Writers of data sets."""

from streamplug.write.partitioned import write_parts
from streamplug.write.writer import MDSWriter, Writer

__all__ = ["MDSWriter", "Writer", "write_parts"]
