"""Recognition of files that are not what their names say."""

from __future__ import annotations

import re

from streamplug.types import Buffer

HEAD_BYTES = 512
"""First bytes of a file by which it is recognized."""

_HTML = ("html", "htm")
_KINDS: tuple[tuple[bytes, tuple[str, ...], str], ...] = (
    (rb"version https://git-lfs\.", (), "a pointer of Git LFS: run `git lfs pull`"),
    (
        rb"(?i)\s*<(?:!doctype\s+)?html\b",
        _HTML,
        "an HTML page, such as one that asks for a login",
    ),
    (rb"\s*<\?xml\b", ("xml", "svg", *_HTML), "an XML document, such as the error of a server"),
    (rb"\x1f\x8b\x08", ("gz", "tgz", "gzip"), "gzip data"),
    (rb"\x28\xb5\x2f\xfd", ("zst", "zstd"), "zstd data"),
    (rb"\x04\x22\x4d\x18", ("lz4",), "lz4 data"),
    (rb"BZh[1-9]1AY&SY", ("bz2", "tbz2"), "bzip2 data"),
    (rb"\xfd7zXZ\0", ("xz", "txz"), "xz data"),
    (rb"PK\x03\x04", ("zip", "npz"), "a ZIP archive"),
    (rb"PAR1\x15", ("parquet", "pq"), "a Parquet file"),
    (rb"(?s).{257}ustar", ("tar",), "a tar archive"),
)
"""Pattern of how a content begins, which suffixes its name may have, and what errors call it."""


def describe_misnamed(head: Buffer, name: str) -> str:
    """Return what a file is, in words, if its name says otherwise; an empty string if nothing is known.

    Args:
        head: The first `HEAD_BYTES` of the file; may be more or fewer.
        name: Its name or URL.
    """
    data = bytes(memoryview(head)[:HEAD_BYTES]).removeprefix(b"\xef\xbb\xbf")
    suffix = name.rpartition(".")[2].lower()
    for pattern, suffixes, text in _KINDS:
        if re.match(pattern, data):  # compiled when it is first used, not at import
            return "" if suffix in suffixes else text
    return ""
