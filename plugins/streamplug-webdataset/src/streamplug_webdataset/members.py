"""Walks through the headers of a tar archive: ustar, and the extensions of GNU tar and of POSIX (PAX).

A header is a block of 512 bytes, followed by the content of the member in whole blocks. Extensions are
members themselves, whose content says more of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from streamplug.errors import CorruptShardError

BLOCK = 512
_ZEROS = bytes(BLOCK)

Read = Callable[[int, int], bytes]
"""Returns the bytes from one place to another; fewer only at the end of the file."""

_FILE, _OLD_FILE, _CONTIGUOUS, _DIRECTORY = 0x30, 0x00, 0x37, 0x35
_LONG_NAME, _LONG_LINK, _SPARSE = ord("L"), ord("K"), ord("S")
_PAX, _PAX_SOLARIS, _PAX_GLOBAL = ord("x"), ord("X"), ord("g")
_EXTENSIONS = frozenset((_LONG_NAME, _LONG_LINK, _PAX, _PAX_SOLARIS, _PAX_GLOBAL))
_WITHOUT_CONTENT = frozenset(
    b"123456"
)  # links, devices, directories and pipes, whatever size they say
_FIELD_ENDS = b"\0 "
_HEADERS_PER_CHECK = 256
_MAX_EXTENSION = 1 << 20
_RECORD_BYTES = 20 * BLOCK
"""Bytes of a record, to which an archive is padded, unless its writer was told another size."""
_MAX_RECORD_BYTES = 1 << 20
_AFTER_END_READ_BYTES = 1 << 16


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        name: Its path.
        begin: Where its content begins.
        size: Bytes of that.
    """

    name: str
    begin: int
    size: int


class Members:
    """The files of an archive, one after the other.

    Attributes:
        skipped: Name of the first member that was neither a file nor a directory, such as a link.
    """

    def __init__(self, read: Read, total: int) -> None:
        """Walk through an archive of `total` bytes."""
        self.skipped: str | None = None
        self._read, self._total = read, total
        self._headers: list[tuple[bytes, int]] = []
        self._name: str | None = None  # what an extension says of the next member
        self._size: int | None = None

    def __iter__(self) -> Iterator[Member]:
        """Yield the files.

        Raises:
            CorruptShardError: If the archive is damaged or cut short; the message names the place.
        """
        at, read, total = 0, self._read, self._total
        while (header := read(at, at + BLOCK)) != _ZEROS:
            if len(header) < BLOCK:
                raise self._damaged(
                    f"the archive ends at byte {total} without the mark of its end: it was cut short"
                )
            self._headers.append((header, at))
            if len(self._headers) == _HEADERS_PER_CHECK:
                self._check()
            kind, begin = header[156], at + BLOCK
            stop = begin + self._content(header, at)
            if stop > total:
                raise self._damaged(
                    f"member {_name_of(header)!r}, whose header is at byte {at}, should end at byte "
                    f"{stop}, but the archive ends at {total}: it was cut short"
                )
            at = stop + -stop % BLOCK
            if kind in _EXTENSIONS:
                self._extend(kind, begin, stop)
                continue
            name = _name_of(header) if self._name is None else self._name
            self._name = self._size = None
            if kind == _SPARSE:
                raise self._damaged(f"member {name!r} at byte {begin} is sparse, which is not read")
            if kind in (_FILE, _CONTIGUOUS) or (kind == _OLD_FILE and not name.endswith("/")):
                yield Member(name, begin, stop - begin)
            elif kind not in (_OLD_FILE, _DIRECTORY) and self.skipped is None:
                self.skipped = name
        self._check()
        if self._name is not None:
            raise self._damaged(f"the archive ends at byte {at} after the long name of a member")
        self._check_end(at)

    def _check_end(self, at: int) -> None:
        """Check that only the padding of a record follows the last member, as zeros may be lost members.

        Raises:
            CorruptShardError: If something else follows, or too many zeros.
        """
        total, padding = self._total, self._total - at
        for start in range(at, min(total, at + _MAX_RECORD_BYTES), _AFTER_END_READ_BYTES):
            part = self._read(start, min(start + _AFTER_END_READ_BYTES, total))
            if rest := part.lstrip(b"\0"):
                place = start + len(part) - len(rest)
                raise CorruptShardError(
                    f"the archive ends at byte {at}, but data follow at byte {place}: the zeros between are "
                    "damage, or several archives were joined; get the archive again, or write one of the "
                    "members that `tar --ignore-zeros` finds"
                )
        record = max(_RECORD_BYTES, 1 << (padding - 1).bit_length())
        is_padded = padding <= _RECORD_BYTES + BLOCK
        is_padded |= record <= _MAX_RECORD_BYTES and total % record == 0
        if total > _RECORD_BYTES if at == 0 else not is_padded:
            raise CorruptShardError(
                f"the archive ends with {padding} zeros from byte {at} on, more than tar writes without "
                "--blocking-factor: members were probably lost there; get the archive again, or write it "
                "again if they are all there"
            )

    def _content(self, header: bytes, at: int) -> int:
        """Return how many bytes of content follow a header."""
        try:  # eleven digits and an end; libarchive fills the field with twelve digits
            size = int(header[124:135], 8) if header[135] in _FIELD_ENDS else -1
        except ValueError:
            size = -1
        if size < 0:
            size = self._number(header[124:136], "size", at)
        if self._size is not None and header[156] not in _EXTENSIONS:
            size = self._size
        return 0 if size and header[156] in _WITHOUT_CONTENT else size

    def _number(self, field: bytes, what: str, at: int) -> int:
        if field[0] == 0x80:  # as GNU tar writes what octal digits cannot hold
            return int.from_bytes(field[1:], "big")
        try:
            number = int(field.partition(b"\0")[0].strip() or b"0", 8)
        except ValueError:
            number = -1
        if number < 0:
            raise self._damaged(f"the {what} in the header at byte {at} is {field!r}")
        return number

    def _extend(self, kind: int, begin: int, stop: int) -> None:
        """Take what an extension says of the next member."""
        if stop - begin > _MAX_EXTENSION:
            raise self._damaged(f"the extension at byte {begin} has {stop - begin} bytes")
        if kind == _LONG_NAME:
            self._name = _text(self._read(begin, stop).rstrip(b"\0"))
        elif kind in (_PAX, _PAX_SOLARIS):
            records = self._records(self._read(begin, stop), begin)
            if any(name.startswith(b"GNU.sparse.") for name in records):
                raise self._damaged(f"the member after byte {begin} is sparse, which is not read")
            if b"path" in records:
                self._name = _text(records[b"path"])
            if b"size" in records:
                if not records[b"size"].isdigit() or len(records[b"size"]) > 18:
                    raise self._damaged(f"the size in the extension at byte {begin} is no number")
                self._size = int(records[b"size"])

    def _records(self, data: bytes, at: int) -> dict[bytes, bytes]:
        """Return the records of a PAX extension: each is its length, a name and a value."""
        records: dict[bytes, bytes] = {}
        start = 0
        while start < len(data):
            digits, _, _ = data[start : start + 20].partition(b" ")
            stop = start + (int(digits) if digits.isdigit() else 0)
            name, equals, value = data[start + len(digits) + 1 : stop].partition(b"=")
            if not equals or not value.endswith(b"\n") or stop > len(data):
                raise self._damaged(f"the extension at byte {at} is damaged")
            records[name] = value[:-1]
            start = stop
        return records

    def _check(self) -> None:
        """Check the sums in the headers so far."""
        if not self._headers:
            return
        blocks = np.frombuffer(b"".join(block for block, _ in self._headers), np.uint8)
        blocks = blocks.reshape(-1, BLOCK)
        # The sum is taken with blanks in its own place; some old programs took bytes as signed.
        sums = [
            (part.sum(1, np.int64) - part[:, 148:156].sum(1, np.int64) + 8 * 32).tolist()
            for part in (blocks, blocks.view(np.int8))
        ]
        headers, self._headers = self._headers, []
        for (header, at), *allowed in zip(headers, *sums):
            if self._number(header[148:156], "checksum", at) not in allowed:
                raise CorruptShardError(
                    f"the header at byte {at}, of member {_name_of(header)!r}, is damaged: "
                    "its checksum differs"
                )

    def _damaged(self, how: str) -> CorruptShardError:
        """Return an error, unless an earlier header turns out to be at fault."""
        try:
            self._check()
        except CorruptShardError as error:
            return error
        return CorruptShardError(how)


def next_header(header: bytes, at: int) -> int | None:
    """Return where the header after one begins; None if it is no header, or has extensions that say so."""
    digits = header[124:136].rstrip(_FIELD_ENDS)
    if not header.startswith(b"ustar", 257) or not digits.isdigit():
        return None
    size = 0 if header[156] in _WITHOUT_CONTENT else int(digits, 8) if max(digits) < 0x38 else -1
    return None if size < 0 else at + BLOCK + size + -size % BLOCK


def _name_of(header: bytes) -> str:
    name = header[: header.find(0, 0, 100)] if header[99] == 0 else header[:100].partition(b"\0")[0]
    if header[345] and header.startswith(b"ustar\0", 257):
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return _text(name)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
