"""Streams for tests whose samples say which stream and which sample of it they are."""

from streamplug import MDSWriter


def write_numbered(top, sizes):
    """Write a data set for each size, and return their folders."""
    folders = [str(top / str(number)) for number in range(len(sizes))]
    for number, (folder, size) in enumerate(zip(folders, sizes)):
        columns = {"stream": "int", "n": "int"}
        with MDSWriter(out=folder, columns=columns, size_limit="500b") as writer:
            writer.write_batch({"stream": [number] * size, "n": list(range(size))})
    return folders
