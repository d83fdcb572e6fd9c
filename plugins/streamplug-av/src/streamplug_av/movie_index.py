"""Location of the index of MP4 and MOV files."""

from __future__ import annotations

from streamplug_av.value_file import ValueFile

_HEAD_BYTES = 16
_BEGIN_BYTES = 1 << 10
_FIRST_TYPES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_MAX_BOXES = 64


def fetch_index(file: ValueFile) -> bool:
    """Fetch the box ``moov`` of a file, in two or three requests; return whether it has one.

    The file may be damaged, or of any other kind.
    """
    at = 0
    for _ in range(_MAX_BOXES):
        head = _read(file, at)
        if len(head) < 8 or (at == 0 and head[4:8] not in _FIRST_TYPES):
            return False
        size = int.from_bytes(head[:4], "big")
        if size == 1:
            size = int.from_bytes(head[8:16], "big")
        stop = len(file) if size == 0 else min(at + size, len(file))
        if head[4:8] == b"moov":
            file.fetch([(at, stop)])
            return True
        if stop < at + 8:
            return False
        at = stop
    return False


def _read(file: ValueFile, at: int) -> bytes:
    """Return the head of a box, without fetching much of the box."""
    file.fetch([(at, min(at + (_HEAD_BYTES if at else _BEGIN_BYTES), len(file)))])
    head = b""
    file.seek(at)
    while len(head) < _HEAD_BYTES and (part := file.read(_HEAD_BYTES - len(head))):
        head += part
    return head
