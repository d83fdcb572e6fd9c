"""Writers of data sets."""

from streamplug.write.writer import MDSWriter, Writer

__all__ = ["MDSWriter", "Writer"]
