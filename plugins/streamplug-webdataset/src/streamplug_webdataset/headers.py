"""Makes the headers of members: ustar, with an extension of POSIX (PAX) where a name does not fit."""

from __future__ import annotations

from collections.abc import Callable

_NAME = 100
_BLANK_SUM = 8 * 32
_BLOCK = 512


class Headers:
    """Headers of files of one time, mode and owner."""

    def __init__(
        self, mtime: int, *, mode: int = 0o444, user: bytes = b"", group: bytes = b""
    ) -> None:
        """Make headers.

        Args:
            mtime: In seconds since 1970.
            mode: Who may read and write.
            user: Name of the owner, up to 31 bytes.
            group: Name of its group, up to 31 bytes.
        """
        # mode, owner, group; then the size, which differs; the time; then the sum and what follows it.
        self._front = b"%07o\x00" % mode + 2 * b"0000000\x00"
        self._time = b"%011o\x00" % mtime
        owner = user.ljust(32, b"\x00") + group.ljust(32, b"\x00")
        self._rest = bytes(100) + b"ustar\x0000" + owner + 2 * b"0000000\x00" + bytes(167)

    def ending(self, extension: str) -> Callable[[str, int], bytes]:
        """Return what makes the header of a member with this extension, from its key and size."""
        ending = f".{extension}".encode()
        front, time, rest = self._front, self._time, self._rest
        fixed = _BLANK_SUM + sum(front) + sum(time) + sum(rest) + ord("0")
        known: dict[int, bytes] = {}  # what follows the name, but for the sum: sizes repeat

        def header(key: str, size: int) -> bytes:
            name = key.encode() + ending
            if len(name) > _NAME or not name.isascii():
                return self._extension(name) + self._block(name[:_NAME], size, b"0")
            middle = known.get(size)
            if middle is None:
                middle = b"%b%011o\x00%b" % (front, size, time)
                if len(known) < 1 << 12:
                    known[size] = middle
            total = fixed + sum(name) + sum(middle[24:35])
            return b"%b%b%06o\x00 0%b" % (name.ljust(_NAME, b"\x00"), middle, total, rest)

        return header

    def _extension(self, name: bytes) -> bytes:
        """Return the member that says a name in full."""
        text = b" path=" + name + b"\n"
        length = len(text) + 1
        while length != len(text) + len(b"%d" % length):
            length = len(text) + len(b"%d" % length)
        record = b"%d" % length + text
        padding = bytes(-len(record) % _BLOCK)
        return self._block(b"././@PaxHeader", len(record), b"x") + record + padding

    def _block(self, name: bytes, size: int, kind: bytes) -> bytes:
        front = name.ljust(_NAME, b"\x00") + self._front + b"%011o\x00" % size + self._time
        total = sum(front) + _BLANK_SUM + sum(kind) + sum(self._rest)
        return front + b"%06o\x00 " % total + kind + self._rest
