"""Writes the sets beside this file, with the release of litdata that is installed: ``python make.py``.

That of 0.2.76 writes all of them, those before 0.2.70 only those that are not compressed inside. What is
there stays as it is: it is what tells whether sets of old releases are still read.
"""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

COUNT = 7


def plain(number):
    """Return a sample that newer releases write as a row of Arrow."""
    return {
        "id": number,
        "text": f"tëxt {number}",
        "ratio": number / 4,
        "odd": number % 2 == 1,
        "raw": bytes([number]) * number,
        "maybe": None if number % 3 == 1 else number,
        "words": ["a", "b"] * (number % 3),
        "inner": {"x": number, "y": [number / 2]},
    }


def arrays(number, tensor):
    """Return a sample of leaves; `tensor` makes a tensor of an array."""
    import numpy as np

    return {
        "id": number,
        "text": f"tëxt {number}",
        "ratio": number / 4,
        "raw": bytes([number]) * number,
        "vector": np.arange(number, dtype="u2"),
        "matrix": np.arange(4, dtype="f4").reshape(2, 2) + number,
        "tensor": tensor(np.arange(6, dtype="i4").reshape(3, 2) + number),
        "line": tensor(np.arange(3, dtype="f8") + number),
        "inner": {"x": number, "y": (f"y {number}", number / 2)},
    }


def tokens(number):
    """Return a document."""
    import numpy as np

    return np.arange(number, 3 * number + 4).astype("i4")


def write(folder, items, **options):
    from litdata.streaming.writer import BinaryWriter

    folder.mkdir(parents=True)
    writer = BinaryWriter(str(folder), **{"chunk_size": 3, **options})
    for number, item in enumerate(items):
        writer[number] = item
    writer.done()
    writer.merge(1)


def main():
    import torch  # noqa: TID251 - litdata's own

    release = version("litdata")
    out = Path(__file__).parent / release
    shutil.rmtree(out, ignore_errors=True)
    leaves = [arrays(number, torch.tensor) for number in range(COUNT)]
    documents = [tokens(number) for number in range(COUNT)]
    loader = {}
    if tuple(map(int, release.split("."))) >= (0, 2, 70):
        from litdata.streaming.item_loader import TokensLoader

        loader = {"item_loader": TokensLoader()}
        write(out / "rows", map(plain, range(COUNT)))
        write(out / "packed-rows", map(plain, range(COUNT)), compression="zstd")
        write(out / "frames", leaves, compression="zstd", compression_batch_size=2)
        write(out / "packed", leaves, compression="zstd", compression_level="sample")
        write(out / "files", leaves, compression="zstd", compression_level="chunk")
    else:
        write(out / "files", leaves, compression="zstd")
        documents = list(map(torch.tensor, documents))
    write(out / "items", leaves)
    write(out / "tokens", documents, chunk_size=None, chunk_bytes=120, **loader)


if __name__ == "__main__":
    main()
