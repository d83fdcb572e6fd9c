"""Writers of data sets."""

from streamplug.write.mds_writer import MDSWriter
from streamplug.write.writer import Writer

__all__ = ["MDSWriter", "Writer"]
